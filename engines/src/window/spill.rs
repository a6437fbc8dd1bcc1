//! Panes in runs on disk: written in order, merged when their windows close.
//!
//! The key of an entry is the pane (its start, then the first window its rows count for, both so that bytes order as numbers
//! do), then the group's key; the value is the state of its aggregates. An entry may be there several times: they add up.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::pane::{PaneKey, Part, Piece};
use super::slots::Slots;
use crate::agg::Accumulators;
use crate::error::Error;
use crate::flow::operator::BEGINNING;
use crate::state::keys::{KeyTable, View};
use crate::state::run::{Run, RunFile, RunReader, RunWriter, StateError};

/// A run that was spilled; its file goes away with it.
pub(super) struct Spilled {
    pub(super) file: RunFile,
    pub(super) panes: BTreeSet<PaneKey>,
    pub(super) directory: PathBuf,
}

impl Drop for Spilled {
    fn drop(&mut self) {
        drop(std::fs::remove_file(self.file.path()));
    }
}

/// Bytes that order as the number does.
fn ordered(value: i64) -> [u8; 8] {
    (value.cast_unsigned() ^ 1 << 63).to_be_bytes()
}

/// Key of an entry.
pub(super) fn entry_key((pane, from): PaneKey, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + key.len());
    bytes.extend_from_slice(&ordered(pane));
    bytes.extend_from_slice(&ordered(from));
    bytes.extend_from_slice(key);
    bytes
}

/// The pane of an entry, and the group's key.
pub(super) fn pane_of(entry: &[u8]) -> Option<(PaneKey, &[u8])> {
    let (pane, rest) = entry.split_first_chunk::<8>()?;
    let (from, key) = rest.split_first_chunk::<8>()?;
    let number = |bytes: &[u8; 8]| (u64::from_be_bytes(*bytes) ^ 1 << 63).cast_signed();
    Some(((number(pane), number(from)), key))
}

/// Where one group is: pane, rank of its key, part and slot.
type Place = (PaneKey, u32, u32, u32);

/// All groups in the order of a run.
fn places<'p>(parts: &'p [Part<'_>], view: &'p View) -> impl Iterator<Item = Place> + 'p {
    let panes: BTreeSet<PaneKey> = parts.iter().flat_map(|part| part.panes.keys().copied()).collect();
    panes.into_iter().flat_map(move |pane| {
        let mut groups: Vec<(u32, u32, u32)> = Vec::new();
        for (number, part) in (0..).zip(parts) {
            let slots = part.panes.get(&pane).into_iter().flat_map(Slots::iter);
            groups.extend(slots.map(|(key, slot)| (view.rank[key as usize], number, slot)));
        }
        groups.par_sort_unstable();
        groups.into_iter().map(move |(rank, part, slot)| (pane, rank, part, slot))
    })
}

/// Writes what is in memory to a new run.
pub(super) fn write_parts(path: &Path, parts: &[Part<'_>], view: &View) -> Result<Spilled, StateError> {
    let mut out = RunWriter::create(path)?;
    write_places(parts, view, &mut out)?;
    out.finish(false)?;
    let panes = parts.iter().flat_map(|part| part.panes.keys().copied()).collect();
    let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
    Ok(Spilled { file: RunFile::open(path)?, panes, directory })
}

fn write_places(parts: &[Part<'_>], view: &View, out: &mut RunWriter) -> Result<(), StateError> {
    let mut value = Vec::new();
    for (pane, rank, part, slot) in places(parts, view) {
        value.clear();
        parts[part as usize].groups.encode(slot, &mut value);
        out.entry(&entry_key(pane, view.key(view.sorted[rank as usize])), &value)?;
    }
    Ok(())
}

/// Makes one run of several.
pub(super) fn compact(path: &Path, runs: &[Arc<Spilled>]) -> Result<Spilled, StateError> {
    let mut out = RunWriter::create(path)?;
    let readers = runs.iter().map(|run| run.file.read_from(&[])).collect::<Result<Vec<_>, _>>()?;
    in_order(readers, |key, value| out.entry(key, value))?;
    out.finish(false)?;
    let panes = runs.iter().flat_map(|run| run.panes.iter().copied()).collect();
    let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
    Ok(Spilled { file: RunFile::open(path)?, panes, directory })
}

/// Visits the entries of all readers in the order of their keys.
fn in_order<E: From<StateError>>(
    mut readers: Vec<RunReader>,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut heap: BinaryHeap<Reverse<(Vec<u8>, usize)>> = BinaryHeap::new();
    for (number, reader) in readers.iter().enumerate() {
        heap.extend(reader.key().map(|key| Reverse((key.to_vec(), number))));
    }
    while let Some(Reverse((mut key, number))) = heap.pop() {
        let reader = &mut readers[number];
        visit(&key, reader.value())?;
        reader.step()?;
        if let Some(next) = reader.key() {
            key.clear();
            key.extend_from_slice(next);
            heap.push(Reverse((key, number)));
        }
    }
    Ok(())
}

/// The groups of one pane in a run: the run, and what its entries' keys begin with.
pub(super) type Cursor<'c> = (&'c RunFile, Vec<u8>);

/// A stretch of group keys.
pub(super) struct KeyRange {
    from: Vec<u8>,
    /// Behind the last key; `None`: to the end.
    to: Option<Vec<u8>>,
    /// Blocks that are read for it, about.
    pub(super) blocks: usize,
}

/// Cuts the groups under all cursors into stretches of keys that are small enough to be merged in memory.
pub(super) fn ranges(cursors: &[Cursor<'_>]) -> Vec<KeyRange> {
    let cuts =
        |(run, prefix): &Cursor<'_>| run.cuts(prefix).map(|cut| cut[prefix.len()..].to_vec()).collect::<Vec<_>>();
    let mut cuts: Vec<Vec<u8>> = cursors.iter().flat_map(cuts).collect();
    cuts.sort_unstable();
    // Every stretch begins in the middle of a block of every run, so it holds several blocks for each.
    let step = cursors.len().clamp(4, 32);
    let mut bounds: Vec<Vec<u8>> = cuts.into_iter().skip(step).step_by(step).collect();
    bounds.dedup();
    let starts = std::iter::once(vec![]).chain(bounds.iter().cloned());
    let ends = bounds.iter().cloned().map(Some).chain([None]);
    starts.zip(ends).map(|(from, to)| KeyRange { from, to, blocks: step + cursors.len() }).collect()
}

/// Merges the groups of a stretch: their keys' bytes in order, and their states in slots 0, 1, …
pub(super) fn merged(
    cursors: &[Cursor<'_>],
    range: &KeyRange,
    fresh: &Accumulators,
) -> Result<(Vec<Vec<u8>>, Accumulators), Error> {
    let key_of = |reader: &RunReader, prefix: &[u8], into: &mut Vec<u8>| {
        let key = reader.key().and_then(|key| key.strip_prefix(prefix));
        let key = key.filter(|key| range.to.as_ref().is_none_or(|to| *key < to.as_slice()));
        into.clear();
        key.map(|key| into.extend_from_slice(key)).is_some()
    };
    let mut readers = Vec::with_capacity(cursors.len());
    let mut heap: BinaryHeap<Reverse<(Vec<u8>, usize)>> = BinaryHeap::new();
    for (number, (run, prefix)) in cursors.iter().enumerate() {
        let reader = run.read_from(&[prefix.as_slice(), &range.from].concat())?;
        let mut key = Vec::new();
        if key_of(&reader, prefix, &mut key) {
            heap.push(Reverse((key, number)));
        }
        readers.push(reader);
    }
    let (mut keys, mut groups, mut room): (Vec<Vec<u8>>, _, _) = (Vec::new(), fresh.fresh(), 0);
    while let Some(Reverse((mut key, number))) = heap.pop() {
        if keys.last() != Some(&key) {
            keys.push(key.clone());
        }
        if keys.len() > room {
            room = (2 * room).max(1_024);
            groups.resize(room);
        }
        let slot = u32::try_from(keys.len() - 1).unwrap_or(u32::MAX);
        let reader = &mut readers[number];
        if groups.decode(slot, reader.value()).is_none() {
            return Err(Error::source("a spilled group cannot be read back", "report this as a bug"));
        }
        reader.step()?;
        if key_of(reader, &cursors[number].1, &mut key) {
            heap.push(Reverse((key, number)));
        }
    }
    Ok((keys, groups))
}

/// Marks an entry of a group without a window that has changed since the view was emitted; the value is empty.
pub(super) const CHANGED: PaneKey = (1, BEGINNING);

/// Frozen panes on their way into a checkpoint.
pub(super) struct PaneRun {
    pub(super) pieces: Vec<Arc<Piece>>,
    pub(super) spilled: Vec<Arc<Spilled>>,
    pub(super) table: Arc<KeyTable>,
    /// Keys whose groups have changed since the view was emitted.
    pub(super) changed: Vec<bool>,
}

impl Run for PaneRun {
    fn write(self: Box<Self>, out: &mut RunWriter) -> Result<(), StateError> {
        let parts: Vec<Part<'_>> = self.pieces.iter().map(|piece| piece.part()).collect();
        let view = self.table.view();
        if self.spilled.is_empty() {
            write_places(&parts, &view, out)?;
            let changed = |id: &&u32| self.changed.get(**id as usize).is_some_and(|changed| *changed);
            return view
                .sorted
                .iter()
                .filter(changed)
                .try_for_each(|id| out.entry(&entry_key(CHANGED, view.key(*id)), &[]));
        }
        // Both sides are in order; entries may repeat. A view is never spilled.
        let readers = self.spilled.iter().map(|run| run.file.read_from(&[])).collect::<Result<Vec<_>, _>>()?;
        let mut held = places(&parts, &view).peekable();
        let mut value_of = Vec::new();
        let key_of = |(pane, rank, ..): &Place| entry_key(*pane, view.key(view.sorted[*rank as usize]));
        let mut write = |place: Place, out: &mut RunWriter| {
            value_of.clear();
            parts[place.2 as usize].groups.encode(place.3, &mut value_of);
            out.entry(&key_of(&place), &value_of)
        };
        in_order::<StateError>(readers, |key, value| {
            while let Some(place) = held.next_if(|place| key_of(place).as_slice() < key) {
                write(place, out)?;
            }
            out.entry(key, value)
        })?;
        held.try_for_each(|place| write(place, out))
    }
}

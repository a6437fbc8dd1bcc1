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
use crate::agg::Accumulators;
use crate::error::Error;
use crate::state::keys::{KeyTable, View};
use crate::state::run::{Run, RunFile, RunReader, RunWriter, StateError};

/// Groups that are merged before they are handed on.
const GROUPS: usize = 8_192;

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
fn places(parts: &[Part<'_>], view: &View) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for (number, part) in (0..).zip(parts) {
        for (pane, slots) in part.panes {
            places.extend(slots.iter().map(|(key, slot)| (*pane, view.rank[key as usize], number, slot)));
        }
    }
    places.par_sort_unstable();
    places
}

/// Writes what is in memory to a new run.
pub(super) fn write_parts(path: &Path, parts: &[Part<'_>], view: &View) -> Result<Spilled, StateError> {
    let mut out = RunWriter::create(path)?;
    write_places(parts, view, |key, value| out.entry(key, value))?;
    out.finish(false)?;
    let panes = parts.iter().flat_map(|part| part.panes.keys().copied()).collect();
    let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
    Ok(Spilled { file: RunFile::open(path)?, panes, directory })
}

fn write_places(
    parts: &[Part<'_>],
    view: &View,
    mut write: impl FnMut(&[u8], &[u8]) -> Result<(), StateError>,
) -> Result<(), StateError> {
    let mut value = Vec::new();
    for (pane, rank, part, slot) in places(parts, view) {
        value.clear();
        parts[part as usize].groups.encode(slot, &mut value);
        write(&entry_key(pane, view.key(view.sorted[rank as usize])), &value)?;
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

/// Takes the groups of a window, some at a time: their keys' bytes in order, and their states in slots 0, 1, …
pub(super) type Merged<'m> = dyn FnMut(&[Vec<u8>], &Accumulators) -> Result<(), Error> + 'm;

/// Merges the groups of several panes, each read behind its prefix.
pub(super) fn merged(
    mut readers: Vec<(RunReader, Vec<u8>)>,
    fresh: &Accumulators,
    visit: &mut Merged<'_>,
) -> Result<(), Error> {
    let behind = |(reader, prefix): &(RunReader, Vec<u8>)| {
        reader.key().and_then(|key| key.strip_prefix(prefix.as_slice())).map(<[u8]>::to_vec)
    };
    let mut heap: BinaryHeap<Reverse<(Vec<u8>, usize)>> = BinaryHeap::new();
    for (number, reader) in readers.iter().enumerate() {
        heap.extend(behind(reader).map(|key| Reverse((key, number))));
    }
    let (mut keys, mut groups): (Vec<Vec<u8>>, _) = (Vec::with_capacity(GROUPS), fresh.fresh());
    groups.resize(GROUPS);
    while let Some(Reverse((key, number))) = heap.pop() {
        if keys.last() != Some(&key) {
            if keys.len() == GROUPS {
                visit(&keys, &groups)?;
                keys.clear();
                groups = fresh.fresh();
                groups.resize(GROUPS);
            }
            keys.push(key);
        }
        let own = &mut readers[number];
        let slot = u32::try_from(keys.len() - 1).unwrap_or(u32::MAX);
        if groups.decode(slot, own.0.value()).is_none() {
            return Err(Error::source("a spilled group cannot be read back", "report this as a bug"));
        }
        own.0.step()?;
        heap.extend(behind(own).map(|key| Reverse((key, number))));
    }
    if keys.is_empty() { Ok(()) } else { visit(&keys, &groups) }
}

/// Frozen panes on their way into a checkpoint.
pub(super) struct PaneRun {
    pub(super) pieces: Vec<Arc<Piece>>,
    pub(super) spilled: Vec<Arc<Spilled>>,
    pub(super) table: Arc<KeyTable>,
}

impl Run for PaneRun {
    fn write(self: Box<Self>, out: &mut RunWriter) -> Result<(), StateError> {
        let parts: Vec<Part<'_>> = self.pieces.iter().map(|piece| piece.part()).collect();
        let view = self.table.view();
        if self.spilled.is_empty() {
            return write_places(&parts, &view, |key, value| out.entry(key, value));
        }
        // Both sides are in order; entries may repeat.
        let mut readers = Vec::with_capacity(self.spilled.len());
        for run in &self.spilled {
            readers.push(run.file.read_from(&[])?);
        }
        let held = places(&parts, &view);
        let mut held = held.into_iter().peekable();
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

//! Closing windows: which are due, what lies in them, and their rows.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use rayon::prelude::*;

use super::aggregate::PaneAggregate;
use super::output::{Making, Output, Source, Window, batch};
use super::pane::{PaneKey, Part, TIMELESS};
use super::spill::{Cursor, entry_key, merged, ranges};
use crate::error::Error;
use crate::flow::operator::{BEGINNING, END, Emit, Job};
use crate::plan;

/// Groups of windows that are prepared at once.
const PREPARED: usize = 1 << 20;
/// Blocks of runs on disk that are read at once.
const BLOCKS: usize = 128;

/// Everything held in memory, in the order of its panes.
struct Held<'a>(Vec<(PaneKey, Source<'a>)>);

impl<'a> Held<'a> {
    fn new(parts: &[Part<'a>]) -> Self {
        let of = |part: &Part<'a>| {
            let groups = part.groups;
            part.panes.iter().map(move |(pane, slots)| (*pane, Source { slots, groups }))
        };
        let mut held: Vec<_> = parts.iter().flat_map(of).collect();
        held.sort_by_key(|(pane, _)| *pane);
        Self(held)
    }

    /// What lies in these panes and counts for the window that begins at `start`.
    fn of(&self, panes: &RangeInclusive<i64>, start: i64) -> Vec<Source<'a>> {
        let first = self.0.partition_point(|((pane, _), _)| pane < panes.start());
        let some = self.0[first..].iter().take_while(|((pane, _), _)| panes.contains(pane));
        some.filter(|((_, from), _)| *from <= start).map(|(_, source)| *source).collect()
    }
}

impl PaneAggregate {
    pub(super) fn windowed(&self) -> bool {
        self.plan.window != plan::Window::None
    }

    pub(super) fn parts(&self) -> Vec<Part<'_>> {
        let active = self.shards.iter().map(|shard| shard.active.part());
        active.chain(self.pieces.iter().map(|piece| piece.part())).collect()
    }

    /// Starts of the windows that end after what is closed and not after `watermark`, [`TIMELESS`] last.
    pub(super) fn due(&self, watermark: i64) -> Vec<i64> {
        let mut panes: BTreeSet<PaneKey> = self.parts().iter().flat_map(|part| part.panes.keys().copied()).collect();
        panes.extend(self.spilled.iter().flat_map(|run| run.panes.iter().copied()));
        let mut due = BTreeSet::new();
        for (pane, from) in panes {
            if pane == TIMELESS || !self.windowed() {
                if watermark == END {
                    due.insert(pane);
                }
                continue;
            }
            let ends = |start: &i64| {
                let end = self.grid.end(*start);
                *start >= from && (end > self.closed || self.closed == BEGINNING) && end <= watermark
            };
            due.extend(self.grid.windows_of(pane).filter(ends));
        }
        due.into_iter().collect()
    }

    /// The panes of a window; that for all time, or for no time, is one pane.
    fn panes_of(&self, start: i64) -> RangeInclusive<i64> {
        if start == TIMELESS || !self.windowed() { start..=start } else { start..=self.grid.end(start) - 1 }
    }

    fn window(&self, start: i64) -> Option<Window> {
        self.windowed()
            .then(|| if start == TIMELESS { Window::Timeless } else { Window::At(start, self.grid.end(start)) })
    }

    pub(super) fn making<'m>(&'m self, view: &'m crate::state::keys::View) -> Making<'m> {
        Making { view, fresh: &self.fresh, schema: &self.plan.schema }
    }

    /// Emits windows from memory.
    pub(super) fn emit_held(&self, due: &[i64], emit: &mut Emit<'_>) -> Result<(), Error> {
        if due.is_empty() {
            return Ok(());
        }
        let view = self.table.view();
        let held = Held::new(&self.parts());
        let mut windows = due.iter().peekable();
        while windows.peek().is_some() {
            let (mut some, mut groups) = (Vec::new(), 0);
            while groups < PREPARED
                && let Some(window) = windows.next()
            {
                let sources = held.of(&self.panes_of(*window), *window);
                groups += 1 + sources.iter().map(|source| source.slots.len()).sum::<usize>();
                some.push((self.window(*window), sources));
            }
            let output = |(window, sources)| Output::new(window, sources, &view, None);
            let outputs: Vec<Output<'_>> = some.into_par_iter().map(output).collect();
            emit(Output::jobs(&outputs, self.making(&view)))?;
        }
        Ok(())
    }

    /// Emits windows that are on disk.
    pub(super) fn emit_spilled(&self, due: &[i64], emit: &mut Emit<'_>) -> Result<(), Error> {
        let mut jobs: Vec<Job<'_>> = Vec::new();
        let mut blocks = 0;
        for start in due {
            let panes = self.panes_of(*start);
            let counts = |(pane, from): &PaneKey| panes.contains(pane) && from <= start;
            let cursors: Vec<Cursor<'_>> = self
                .spilled
                .iter()
                .flat_map(|run| run.panes.iter().filter(|key| counts(key)).map(|key| (&run.file, entry_key(*key, &[]))))
                .collect();
            let window = self.window(*start);
            for range in ranges(&cursors) {
                blocks += range.blocks;
                let cursors = cursors.clone();
                jobs.push(Box::new(move || {
                    let (keys, groups) = merged(&cursors, &range, &self.fresh)?;
                    let slots: Vec<u32> = (0..).take(keys.len()).collect();
                    let columns = self.table.columns_of(&keys)?;
                    batch(&[(window, slots.len())], columns, groups.finish(&slots)?, &self.plan.schema)
                }));
                if blocks >= BLOCKS {
                    emit(std::mem::take(&mut jobs))?;
                    blocks = 0;
                }
            }
        }
        emit(jobs)
    }

    /// A grouping without keys has one group even when there is no row.
    pub(super) fn emit_empty(&self, emit: &mut Emit<'_>) -> Result<(), Error> {
        let mut groups = self.fresh.fresh();
        groups.resize(1);
        let rows = batch(&[(None, 1)], vec![], groups.finish(&[0])?, &self.plan.schema)?;
        emit(vec![Box::new(move || Ok(rows))])
    }
}

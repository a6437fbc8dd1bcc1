//! TUMBLE, HOP, and grouping without a window, as an operator.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::output::{Output, Source, Window};
use super::pane::{Active, PaneKey, Part, Piece, TIMELESS};
use super::shard::{ONLY, PaneShard};
use super::spill::{PaneRun, Spilled, compact, entry_key, merged, write_parts};
use super::time::Grid;
use crate::agg::{Accumulators, types_of};
use crate::error::Error;
use crate::flow::operator::{BEGINNING, END, Emit, Operator, Shard};
use crate::plan::{self, Aggregate};
use crate::state::keys::{KeyTable, NONE};
use crate::state::run::{Run, RunFile, StateError};

/// Windows that are prepared at once.
const WINDOWS: usize = 64;
/// Frozen pieces of an endless window that are held apart.
const PIECES: usize = 8;
/// Spilled runs that are held apart.
const RUNS: usize = 8;
/// Keys of windows that are gone are kept until there are this many more of them than of others.
const DEAD_KEYS: usize = 1 << 16;

/// Groups by pane.
pub struct PaneAggregate {
    plan: Arc<Aggregate>,
    grid: Grid,
    bounded: bool,
    table: Arc<KeyTable>,
    /// Never holds a group.
    fresh: Accumulators,
    shards: Vec<PaneShard>,
    pieces: Vec<Arc<Piece>>,
    /// So many of the pieces are in a checkpoint.
    written: usize,
    spilled: Vec<Arc<Spilled>>,
    /// State was spilled that is in no checkpoint.
    spilled_since: bool,
    closed: i64,
    /// Number of the next spilled run.
    runs: u64,
}

impl PaneAggregate {
    /// An operator for a grouping without a session window.
    ///
    /// # Errors
    /// A key cannot be grouped by, or an aggregate is not there for the type of its argument.
    pub fn new(plan: Aggregate, workers: usize, bounded: bool) -> Result<Self, Error> {
        let grid = Grid::new(plan.window)
            .ok_or_else(|| Error::source("a session window is not made of panes", "report this as a bug"))?;
        let input = types_of(&plan.input);
        let keys = plan.keys.iter().map(|column| input[*column].clone()).collect();
        let table = Arc::new(KeyTable::new(keys)?);
        let fresh = Accumulators::new(&plan, &input)?;
        let plan = Arc::new(plan);
        let shard = || PaneShard::new(Arc::clone(&plan), grid, bounded, Arc::clone(&table), fresh.fresh());
        let shards = (0..workers).map(|_| shard()).collect();
        Ok(Self {
            grid,
            bounded,
            shards,
            table,
            fresh,
            pieces: vec![],
            written: 0,
            spilled: vec![],
            spilled_since: false,
            closed: BEGINNING,
            runs: 0,
            plan,
        })
    }

    fn windowed(&self) -> bool {
        self.plan.window != plan::Window::None
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let active = self.shards.iter().map(|shard| shard.active.part());
        active.chain(self.pieces.iter().map(|piece| piece.part())).collect()
    }

    /// Starts of the windows that end after what is closed and not after `watermark`, [`TIMELESS`] last.
    fn due(&self, watermark: i64) -> Vec<i64> {
        let mut due = BTreeSet::new();
        let held = self.parts().into_iter().flat_map(|part| part.panes.keys().copied().collect::<Vec<_>>());
        let panes: BTreeSet<PaneKey> = held.chain(self.spilled.iter().flat_map(|s| s.panes.iter().copied())).collect();
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

    /// Panes of a window, as far as rows in them count for it.
    fn covers(&self, window: i64, (pane, from): PaneKey) -> bool {
        if pane == TIMELESS || window == TIMELESS || !self.windowed() {
            return pane == window;
        }
        from <= window && pane >= window && pane < self.grid.end(window)
    }

    fn window(&self, start: i64) -> Option<Window> {
        self.windowed()
            .then(|| if start == TIMELESS { Window::Timeless } else { Window::At(start, self.grid.end(start)) })
    }

    /// Emits windows from memory.
    fn emit_held(&self, due: &[i64], emit: &mut Emit<'_>) -> Result<(), Error> {
        let view = self.table.view();
        let parts = self.parts();
        for some in due.chunks(WINDOWS) {
            let outputs: Vec<Output<'_>> = some
                .par_iter()
                .map(|window| {
                    let mut sources = Vec::new();
                    for Part { panes, groups } in &parts {
                        let own = panes.iter().filter(|(pane, _)| self.covers(*window, **pane));
                        sources.extend(own.map(|(_, slots)| Source { slots, groups }));
                    }
                    Output::new(self.window(*window), sources, &view, None)
                })
                .collect();
            let jobs = outputs.iter().flat_map(|output| output.jobs(&view, &self.fresh, &self.plan.schema));
            emit(jobs.collect())?;
        }
        Ok(())
    }

    /// Emits windows of which a part is on disk: keys in order, a few at a time.
    fn emit_spilled(&self, due: &[i64], emit: &mut Emit<'_>) -> Result<(), Error> {
        for window in due {
            let mut readers = Vec::new();
            for run in &self.spilled {
                for pane in run.panes.iter().filter(|pane| self.covers(*window, **pane)) {
                    readers.push((run.file.read_from(&entry_key(*pane, &[]))?, entry_key(*pane, &[])));
                }
            }
            let window = self.window(*window);
            merged(readers, &self.fresh, &mut |keys, groups| {
                let slots: Vec<u32> = (0..u32::try_from(keys.len()).unwrap_or(NONE)).collect();
                let columns = self.table.columns_of(keys)?;
                let batch = Output::batch(window, slots.len(), columns, groups.finish(&slots)?, &self.plan.schema)?;
                emit(vec![Box::new(move || Ok(batch))])
            })?;
        }
        Ok(())
    }

    /// A grouping without keys has one group even when there is no row.
    fn emit_empty(&self, emit: &mut Emit<'_>) -> Result<(), Error> {
        let mut groups = self.fresh.fresh();
        groups.resize(1);
        let batch = Output::batch(None, 1, vec![], groups.finish(&[0])?, &self.plan.schema)?;
        emit(vec![Box::new(move || Ok(batch))])
    }

    /// Whether no window of a pane is open.
    fn over(&self, (pane, _): PaneKey, watermark: i64) -> bool {
        if watermark == END {
            return true;
        }
        pane != TIMELESS && self.windowed() && self.grid.end(self.grid.last_window(pane)) <= watermark
    }

    fn forget(&mut self, watermark: i64) {
        let own = &*self;
        let keep: Vec<bool> = own.pieces.iter().map(|p| !p.panes.keys().all(|k| own.over(*k, watermark))).collect();
        let spilled: Vec<bool> = own.spilled.iter().map(|s| !s.panes.iter().all(|k| own.over(*k, watermark))).collect();
        self.written = keep[..self.written].iter().filter(|keep| **keep).count();
        let mut kept = keep.into_iter();
        self.pieces.retain(|_| kept.next().unwrap_or(true));
        let mut kept = spilled.into_iter();
        self.spilled.retain(|_| kept.next().unwrap_or(true));
        let (grid, windowed) = (self.grid, self.windowed());
        for shard in &mut self.shards {
            shard.active.forget(|(pane, _)| {
                watermark == END || (*pane != TIMELESS && windowed && grid.end(grid.last_window(*pane)) <= watermark)
            });
        }
    }

    /// Numbers the keys anew when most of them belong to windows that are gone.
    fn drop_dead_keys(&mut self) {
        let count = self.table.len();
        if count < DEAD_KEYS {
            return;
        }
        let mut live = vec![false; count];
        for part in self.parts() {
            for slots in part.panes.values() {
                slots.iter().for_each(|(key, _)| live[key as usize] = true);
            }
        }
        if live.iter().filter(|live| **live).count() + DEAD_KEYS > count / 2 + DEAD_KEYS / 2 {
            return;
        }
        let (table, numbers) = self.table.retained(&live);
        self.table = Arc::new(table);
        for shard in &mut self.shards {
            shard.renumber(&numbers);
            shard.use_table(Arc::clone(&self.table));
        }
        for piece in &mut self.pieces {
            let panes = piece.panes.iter().map(|(pane, slots)| (*pane, slots.renumbered(&numbers))).collect();
            *piece = Arc::new(Piece { panes, groups: Arc::clone(&piece.groups) });
        }
    }

    /// Makes one piece of all.
    fn join_pieces(&mut self) {
        let mut whole = Active::new(self.fresh.fresh());
        for piece in &self.pieces {
            for (pane, slots) in &piece.panes {
                let pairs: Vec<(u32, u32)> = slots.iter().collect();
                let to: Vec<u32> = pairs.iter().map(|(key, _)| whole.slot(*pane, *key)).collect();
                let from: Vec<u32> = pairs.iter().map(|(_, slot)| *slot).collect();
                whole.groups().merge(&to, &piece.groups, &from);
            }
        }
        self.pieces = vec![Arc::new(whole.freeze())];
        self.written = self.written.min(1);
    }

    fn take_up(&mut self, key: &[u8], value: &[u8], watermark: i64) -> Option<()> {
        let (pane, rest) = super::spill::pane_of(key)?;
        if self.over(pane, watermark) && watermark != BEGINNING {
            return Some(());
        }
        let id = self.table.intern(rest);
        let shard = id as usize % self.shards.len();
        let active = &mut self.shards[shard].active;
        let slot = active.slot(pane, id);
        active.groups().decode(slot, value)
    }
}

impl Operator for PaneAggregate {
    fn shards(&mut self) -> Vec<&mut dyn Shard> {
        self.shards.iter_mut().map(|shard| shard as &mut dyn Shard).collect()
    }

    fn exchange(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn advance(&mut self, watermark: i64, emit: &mut Emit<'_>) -> Result<(), Error> {
        let due = self.due(watermark);
        if self.spilled.is_empty() {
            self.emit_held(&due, emit)?;
        } else if !due.is_empty() {
            let directory = self.spilled[0].directory.clone();
            self.spill(&directory)?;
            self.emit_spilled(&due, emit)?;
        }
        if watermark == END && due.is_empty() && self.plan.keys.is_empty() && !self.windowed() {
            self.emit_empty(emit)?;
        }
        if self.windowed() || watermark == END {
            self.forget(watermark);
        }
        self.closed = watermark;
        self.drop_dead_keys();
        Ok(())
    }

    fn changes(&mut self, emit: &mut Emit<'_>) -> Result<(), Error> {
        let mut touched = vec![false; self.table.len()];
        for shard in &mut self.shards {
            for (key, own) in shard.take_touched().into_iter().enumerate() {
                touched[key] |= own;
            }
        }
        if !touched.iter().any(|touched| *touched) {
            return Ok(());
        }
        let view = self.table.view();
        let parts = self.parts();
        let sources = parts.iter().filter_map(|part| {
            let groups = part.groups;
            part.panes.get(&ONLY).map(|slots| Source { slots, groups })
        });
        let output = Output::new(None, sources.collect(), &view, Some(&touched));
        emit(output.jobs(&view, &self.fresh, &self.plan.schema).collect())
    }

    fn memory(&self) -> usize {
        let active: usize = self.shards.iter().map(|shard| shard.active.memory()).sum();
        active + self.pieces.iter().map(|piece| piece.memory()).sum::<usize>() + self.table.memory()
    }

    fn spill(&mut self, directory: &Path) -> Result<(), Error> {
        // A view needs its groups at hand.
        if !self.bounded && !self.windowed() {
            return Ok(());
        }
        if self.parts().iter().all(|part| part.panes.is_empty()) {
            return Ok(());
        }
        let path = directory.join(format!("panes-{:p}-{:06}.run", Arc::as_ptr(&self.plan), self.runs));
        self.runs += 1;
        self.spilled.push(Arc::new(write_parts(&path, &self.parts(), &self.table.view())?));
        self.pieces.clear();
        self.written = 0;
        self.spilled_since = true;
        self.table = Arc::new(self.table.emptied());
        for shard in &mut self.shards {
            shard.active = Active::new(self.fresh.fresh());
            shard.use_table(Arc::clone(&self.table));
        }
        if self.spilled.len() > RUNS {
            let path = directory.join(format!("panes-{:p}-{:06}.run", Arc::as_ptr(&self.plan), self.runs));
            self.runs += 1;
            let whole = compact(&path, &self.spilled)?;
            self.spilled = vec![Arc::new(whole)];
        }
        Ok(())
    }

    fn freeze(&mut self, whole: bool) -> (bool, Box<dyn Run>) {
        for shard in self.shards.iter_mut().filter(|shard| !shard.active.is_empty()) {
            self.pieces.push(Arc::new(shard.active.freeze()));
        }
        let whole = whole || self.spilled_since;
        let from = if whole { 0 } else { self.written };
        let pieces = self.pieces[from..].to_vec();
        let spilled = if whole { self.spilled.clone() } else { vec![] };
        let run = PaneRun { pieces, spilled, table: Arc::clone(&self.table) };
        self.written = self.pieces.len();
        self.spilled_since = false;
        if !self.windowed() && self.pieces.len() > PIECES {
            self.join_pieces();
        }
        (whole, Box::new(run))
    }

    fn restore(&mut self, run: &RunFile, watermark: i64) -> Result<(), Error> {
        let mut reader = run.read_from(&[])?;
        while let Some(key) = reader.key() {
            if self.take_up(key, reader.value(), watermark).is_none() {
                let reason = "an entry is not of this query".into();
                return Err(StateError::Damaged { path: run.path().into(), reason }.into());
            }
            reader.step()?;
        }
        self.closed = watermark;
        Ok(())
    }
}

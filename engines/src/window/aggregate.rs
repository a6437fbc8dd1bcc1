//! TUMBLE, HOP, and grouping without a window, as an operator.

use std::path::Path;
use std::sync::Arc;

use super::output::{Output, Source};
use super::pane::{Active, PaneKey, TIMELESS};
use super::pieces::Pieces;
use super::shard::{ONLY, PaneShard};
use super::spill::{CHANGED, PaneRun, Spilled, compact, pane_of, write_parts};
use super::time::Grid;
use crate::agg::{Accumulators, types_of};
use crate::error::Error;
use crate::flow::operator::{BEGINNING, END, Emit, Operator, Shard};
use crate::plan::Aggregate;
use crate::state::keys::KeyTable;
use crate::state::run::{Run, RunFile, StateError};

/// Spilled runs that are held apart.
const RUNS: usize = 8;
/// Keys of windows that are gone are not looked for among fewer keys.
const DEAD_KEYS: usize = 1 << 16;

/// Groups by pane.
pub struct PaneAggregate {
    pub(super) plan: Arc<Aggregate>,
    pub(super) grid: Grid,
    bounded: bool,
    pub(super) table: Arc<KeyTable>,
    /// Never holds a group.
    pub(super) fresh: Accumulators,
    pub(super) shards: Vec<PaneShard>,
    pub(super) pieces: Pieces,
    pub(super) spilled: Vec<Arc<Spilled>>,
    /// State was spilled that is in no checkpoint.
    spilled_since: bool,
    pub(super) closed: i64,
    /// Number of the next spilled run.
    runs: u64,
    /// So many keys there must be before those of windows that are gone are looked for.
    keys_looked_at: usize,
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
            pieces: Pieces::default(),
            spilled: vec![],
            spilled_since: false,
            closed: BEGINNING,
            runs: 0,
            keys_looked_at: DEAD_KEYS,
            plan,
        })
    }

    /// Which keys' groups have changed since a view of them was emitted.
    fn touched(&self) -> Vec<bool> {
        let mut touched = Vec::new();
        for shard in &self.shards {
            let own = shard.touched();
            touched.resize(own.len().max(touched.len()), false);
            touched.iter_mut().zip(own).for_each(|(touched, own)| *touched |= own);
        }
        touched
    }

    /// Forgets panes of which no window is open.
    fn forget(&mut self, watermark: i64) {
        let over = over(self.grid, self.windowed(), watermark);
        self.pieces.forget(&over);
        self.spilled.retain(|run| !run.panes.iter().all(&over));
        self.shards.iter_mut().for_each(|shard| shard.active.forget(&over));
    }

    /// Numbers the keys anew when most of them belong to windows that are gone.
    fn drop_dead_keys(&mut self) {
        let count = self.table.len();
        if count < self.keys_looked_at {
            return;
        }
        let mut live = vec![false; count];
        for part in self.parts() {
            for slots in part.panes.values() {
                slots.iter().for_each(|(key, _)| live[key as usize] = true);
            }
        }
        let lively = live.iter().filter(|live| **live).count();
        self.keys_looked_at = (2 * count.min(2 * lively)).max(DEAD_KEYS);
        if lively > count / 2 {
            return;
        }
        let (table, numbers) = self.table.retained(&live);
        self.table = Arc::new(table);
        self.pieces.renumber(&numbers);
        for shard in &mut self.shards {
            shard.renumber(&numbers);
            shard.use_table(Arc::clone(&self.table));
        }
    }

    /// Takes up an entry of a checkpoint.
    fn take_up(&mut self, into: &mut Active, key: &[u8], value: &[u8], watermark: i64) -> Option<()> {
        let (pane, rest) = pane_of(key)?;
        if pane == CHANGED && !self.windowed() {
            let id = self.table.intern(rest);
            self.shards.first_mut()?.touch(id);
            return Some(());
        }
        if watermark != BEGINNING && over(self.grid, self.windowed(), watermark)(&pane) {
            return Some(());
        }
        let slot = into.slot(pane, self.table.intern(rest));
        into.groups().decode(slot, value)
    }
}

/// Whether no window of a pane is open at a watermark.
fn over(grid: Grid, windowed: bool, watermark: i64) -> impl Fn(&PaneKey) -> bool {
    move |(pane, _)| {
        watermark == END || (*pane != TIMELESS && windowed && grid.end(grid.last_window(*pane)) <= watermark)
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
        if !due.is_empty() || watermark == END {
            self.forget(watermark);
            self.drop_dead_keys();
        }
        self.closed = watermark;
        Ok(())
    }

    fn changes(&mut self, emit: &mut Emit<'_>) -> Result<(), Error> {
        let touched = self.touched();
        self.shards.iter_mut().for_each(PaneShard::forget_touched);
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
        emit(Output::jobs(&[output], self.making(&view)))
    }

    fn memory(&self) -> usize {
        let shards: usize = self.shards.iter().map(PaneShard::memory).sum();
        shards + self.pieces.memory() + self.table.memory()
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
        let whole = std::mem::take(&mut self.spilled_since) || whole;
        for shard in self.shards.iter_mut().filter(|shard| !shard.active.is_empty()) {
            self.pieces.push(shard.active.freeze());
        }
        let pieces = self.pieces.take(whole);
        let spilled = if whole { self.spilled.clone() } else { vec![] };
        let run = PaneRun { pieces, spilled, table: Arc::clone(&self.table), changed: self.touched() };
        self.pieces.join(&self.fresh);
        (whole, Box::new(run))
    }

    fn restore(&mut self, run: &RunFile, watermark: i64) -> Result<(), Error> {
        let mut restored = Active::new(self.fresh.fresh());
        let mut reader = run.read_from(&[])?;
        while let Some(key) = reader.key() {
            if self.take_up(&mut restored, key, reader.value(), watermark).is_none() {
                let reason = "an entry is not of this query".into();
                return Err(StateError::Damaged { path: run.path().into(), reason }.into());
            }
            reader.step()?;
        }
        self.pieces.push_written(restored.freeze());
        self.closed = watermark;
        Ok(())
    }
}

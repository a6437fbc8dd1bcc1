//! What a worker does with the rows of a window it decoded.

use std::sync::Arc;

use arrow::array::types::TimestampMicrosecondType;
use arrow::array::{Array, AsArray};
use arrow::record_batch::RecordBatch;

use super::pane::{Active, PaneKey, TIMELESS, whole};
use super::time::Grid;
use crate::agg::Accumulators;
use crate::error::Error;
use crate::flow::operator::{BEGINNING, Late, Shard};
use crate::plan::Aggregate;
use crate::state::keys::{KeyMapper, KeyTable};

/// The pane of all rows of a grouping without a window.
pub(super) const ONLY: PaneKey = (0, BEGINNING);

/// One worker's panes.
pub(super) struct PaneShard {
    plan: Arc<Aggregate>,
    grid: Grid,
    /// Rows without an event time form a window; else they are left out.
    timeless: bool,
    mapper: KeyMapper,
    pub(super) active: Active,
    /// Keys touched since they were last asked for, where that is wanted.
    touched: Option<Vec<bool>>,
}

impl PaneShard {
    pub(super) fn new(
        plan: Arc<Aggregate>,
        grid: Grid,
        bounded: bool,
        table: Arc<KeyTable>,
        groups: Accumulators,
    ) -> Self {
        let touched = (!bounded && plan.time.is_none()).then(Vec::new);
        Self { plan, grid, timeless: bounded, mapper: KeyMapper::new(table), active: Active::new(groups), touched }
    }

    /// Goes on with another table, whose numbers the panes have already.
    pub(super) fn use_table(&mut self, table: Arc<KeyTable>) {
        self.mapper = KeyMapper::new(table);
    }

    /// The keys touched since they were forgotten.
    pub(super) fn touched(&self) -> &[bool] {
        self.touched.as_deref().unwrap_or_default()
    }

    pub(super) fn forget_touched(&mut self) {
        self.touched.iter_mut().for_each(Vec::clear);
    }

    /// Notes that a key's group has changed.
    pub(super) fn touch(&mut self, key: u32) {
        self.touched.iter_mut().for_each(|touched| mark(touched, key));
    }

    /// Bytes held, about.
    pub(super) fn memory(&self) -> usize {
        self.active.memory() + self.mapper.memory() + self.touched().len()
    }

    /// Goes over to new key numbers.
    pub(super) fn renumber(&mut self, new: &[u32]) {
        self.active.renumber(new);
    }
}

fn mark(touched: &mut Vec<bool>, key: u32) {
    let key = key as usize;
    if touched.len() <= key {
        touched.resize(key + 1, false);
    }
    touched[key] = true;
}

impl Shard for PaneShard {
    fn push(&mut self, _: usize, batch: &RecordBatch, closed: i64, _: u64) -> Result<Late, Error> {
        let columns: Vec<_> = self.plan.keys.iter().map(|column| Arc::clone(batch.column(*column))).collect();
        let keys = self.mapper.map(&columns, batch.num_rows())?;
        if let Some(touched) = &mut self.touched {
            keys.iter().for_each(|key| mark(touched, *key));
        }
        let times = self.plan.time.and_then(|time| batch.column(time).as_primitive_opt::<TimestampMicrosecondType>());
        let Some(times) = times else {
            self.active.push(keys, batch, |_| Some(ONLY))?;
            return Ok(Late::default());
        };
        let mut late = Late::default();
        let mut counted = 0;
        let (nulls, values) = (times.nulls().filter(|nulls| nulls.null_count() > 0), times.values());
        let (grid, timeless) = (self.grid, self.timeless);
        // The pane of the row before: start, end, and what became of its rows.
        let mut last: Option<(i64, i64, Placed)> = None;
        self.active.push(keys, batch, |row| {
            // A row may be asked for twice; it is counted once.
            let first = row >= counted;
            counted = counted.max(row + 1);
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                late.timeless += u64::from(first && !timeless);
                return timeless.then_some(whole(TIMELESS));
            }
            let time = values[row];
            let placed = match last {
                Some((start, end, placed)) if (start..end).contains(&time) => placed,
                _ => {
                    let start = grid.pane_of(time);
                    let placed = place(&grid, start, closed);
                    last = Some((start, start.saturating_add(grid.pane), placed));
                    placed
                }
            };
            match placed {
                Placed::In(pane) => Some(pane),
                Placed::Partly(pane) => {
                    late.partly += u64::from(first);
                    Some(pane)
                }
                Placed::Late => {
                    late.wholly += u64::from(first);
                    None
                }
                Placed::Gap => None,
            }
        })?;
        Ok(late)
    }
}

/// What becomes of the rows of a pane.
#[derive(Debug, Clone, Copy)]
enum Placed {
    In(PaneKey),
    /// Some of its windows have ended.
    Partly(PaneKey),
    /// All of them have.
    Late,
    /// It lies in no window.
    Gap,
}

fn place(grid: &Grid, start: i64, closed: i64) -> Placed {
    if closed == BEGINNING {
        return if grid.slide > grid.size && grid.windows_of(start).next().is_none() {
            Placed::Gap
        } else {
            Placed::In(whole(start))
        };
    }
    let Some(first) = grid.windows_of(start).next() else { return Placed::Gap };
    match grid.first_open(start, closed) {
        Some(open) if open == first => Placed::In(whole(start)),
        Some(open) => Placed::Partly((start, open)),
        None => Placed::Late,
    }
}

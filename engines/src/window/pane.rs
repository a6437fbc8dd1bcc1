//! Panes: the groups of the rows that lie in the same windows.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use hashbrown::HashMap;

use super::slots::Slots;
use crate::agg::Accumulators;
use crate::error::Error;
use crate::flow::operator::BEGINNING;
use crate::state::keys::NONE;

/// A pane by its start, and the first window its rows count for: [`BEGINNING`] unless they came late for some.
pub(super) type PaneKey = (i64, i64);

/// Start of the pane of rows that have no event time: behind all others.
pub(super) const TIMELESS: i64 = i64::MAX;

/// State that grows: panes, and the accumulators of all their groups.
pub(super) struct Active {
    panes: HashMap<PaneKey, Slots>,
    groups: Accumulators,
    used: u32,
    /// Slots of panes that are gone.
    free: Vec<u32>,
    row_slots: Vec<u32>,
}

/// State that no longer changes.
pub(super) struct Piece {
    pub(super) panes: HashMap<PaneKey, Slots>,
    pub(super) groups: Arc<Accumulators>,
}

impl Active {
    pub(super) fn new(groups: Accumulators) -> Self {
        Self { panes: HashMap::new(), groups, used: 0, free: vec![], row_slots: vec![] }
    }

    /// Takes up rows with their keys; `pane_of(row)` is a row's pane, `None` for a row that is left out.
    pub(super) fn push(
        &mut self,
        keys: &[u32],
        batch: &RecordBatch,
        mut pane_of: impl FnMut(usize) -> Option<PaneKey>,
    ) -> Result<(), Error> {
        let mut slots = std::mem::take(&mut self.row_slots);
        slots.clear();
        slots.reserve(keys.len());
        let (mut row, mut dropped) = (0, None);
        while row < keys.len() {
            let Some(pane) = pane_of(row) else {
                dropped.get_or_insert_with(Vec::new).push(row);
                slots.push(NONE);
                row += 1;
                continue;
            };
            let own = self.panes.entry(pane).or_default();
            // Rows of one pane mostly follow each other.
            loop {
                let key = keys[row];
                let mut slot = own.get(key);
                if slot == NONE {
                    slot = self.free.pop().unwrap_or_else(|| {
                        self.used += 1;
                        self.used - 1
                    });
                    own.set(key, slot);
                }
                slots.push(slot);
                row += 1;
                if row == keys.len() || pane_of(row) != Some(pane) {
                    break;
                }
            }
        }
        self.groups.resize(self.used as usize);
        let updated = match dropped {
            None => self.groups.update(&slots, batch),
            Some(dropped) => {
                let kept = (0..keys.len()).map(|row| Some(dropped.binary_search(&row).is_err()));
                let kept: arrow::array::BooleanArray = kept.collect();
                slots.retain(|slot| *slot != NONE);
                match arrow::compute::filter_record_batch(batch, &kept) {
                    Ok(batch) => self.groups.update(&slots, &batch),
                    Err(error) => Err(Error::source(error.to_string(), "report this as a bug")),
                }
            }
        };
        self.row_slots = slots;
        updated
    }

    /// The slot of a group, which may be new.
    pub(super) fn slot(&mut self, pane: PaneKey, key: u32) -> u32 {
        let own = self.panes.entry(pane).or_default();
        let slot = own.get(key);
        if slot != NONE {
            return slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        own.set(key, slot);
        self.groups.resize(self.used as usize);
        slot
    }

    pub(super) fn groups(&mut self) -> &mut Accumulators {
        &mut self.groups
    }

    /// Forgets panes.
    pub(super) fn forget(&mut self, gone: &impl Fn(&PaneKey) -> bool) {
        let mut slots = Vec::new();
        self.panes.retain(|pane, own| {
            let gone = gone(pane);
            if gone {
                slots.extend(own.iter().map(|(_, slot)| slot));
            }
            !gone
        });
        self.groups.clear(&slots);
        self.free.extend(slots);
        if self.panes.is_empty() && self.used > 0 {
            *self = Self::new(self.groups.fresh());
        }
    }

    /// Takes out everything, so that it no longer changes.
    pub(super) fn freeze(&mut self) -> Piece {
        let fresh = Self::new(self.groups.fresh());
        let Self { panes, groups, .. } = std::mem::replace(self, fresh);
        Piece { panes, groups: Arc::new(groups) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.panes.is_empty()
    }

    pub(super) fn part(&self) -> Part<'_> {
        Part { panes: &self.panes, groups: &self.groups }
    }

    pub(super) fn renumber(&mut self, new: &[u32]) {
        self.panes.values_mut().for_each(|slots| *slots = slots.renumbered(new));
    }

    pub(super) fn memory(&self) -> usize {
        self.panes.values().map(Slots::memory).sum::<usize>() + self.groups.memory() + self.free.capacity() * 4
    }
}

impl Piece {
    pub(super) fn part(&self) -> Part<'_> {
        Part { panes: &self.panes, groups: &self.groups }
    }

    pub(super) fn memory(&self) -> usize {
        self.panes.values().map(Slots::memory).sum::<usize>() + self.groups.memory()
    }
}

/// Panes and their groups, to be read.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) panes: &'a HashMap<PaneKey, Slots>,
    pub(super) groups: &'a Accumulators,
}

/// The key of a pane whose rows count for all its windows.
pub(super) fn whole(start: i64) -> PaneKey {
    (start, BEGINNING)
}

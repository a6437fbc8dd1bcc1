//! Pairs of rows: found by key and time, then asked for what else must hold.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::bug;
use super::gather::Picked;
use super::rows::{Entry, Place, Store, before};
use crate::error::Error;
use crate::flow::operator::END;
use crate::plan::IntervalJoin;
use crate::sql::Transform;

/// Pairs whose condition is evaluated at once.
const BLOCK: usize = 8_192;
/// From so many rows on they are brought to their keys by counting.
const MANY: usize = 4_096;

/// A row of the output: where both rows are, and what orders it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) time: i64,
    pub(super) positions: [u64; 2],
    pub(super) places: [Place; 2],
    pub(super) shard: u32,
}

/// What else must hold for a pair.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    transform: Box<Transform>,
    reads: Vec<bool>,
    /// Of the pairs, every column nullable: one that is not read is null.
    schema: SchemaRef,
    left: usize,
}

impl Condition {
    pub(super) fn of(plan: &IntervalJoin) -> Option<Self> {
        let transform = plan.condition.clone()?;
        let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
        let schema = Arc::new(Schema::new(plan.schema.fields().iter().map(nullable).collect::<Vec<_>>()));
        Some(Self { reads: transform.reads().to_vec(), transform, schema, left: plan.left.fields().len() })
    }

    /// Keeps the pairs for which it holds.
    fn keep(&mut self, pairs: &[Pair], stores: [&Store; 2], kept: &mut Vec<Pair>) -> Result<(), Error> {
        let mut picked = [Picked::default(), Picked::default()];
        for pair in pairs {
            for ((picked, place), store) in picked.iter_mut().zip(pair.places).zip(stores) {
                let find = || store.chunk(place.chunk).map(|chunk| &chunk.batch);
                picked.push(u64::from(place.chunk), place.row as usize, find);
            }
        }
        let column = |(number, field): (usize, &Arc<Field>)| -> Result<ArrayRef, Error> {
            if !self.reads.get(number).copied().unwrap_or(true) {
                return Ok(new_null_array(field.data_type(), pairs.len()));
            }
            match number.checked_sub(self.left) {
                None => picked[0].column(number, field.data_type()),
                Some(number) => picked[1].column(number, field.data_type()),
            }
        };
        let columns = self.schema.fields().iter().enumerate().map(column).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(pairs.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(bug)?;
        let applied = self.transform.apply(&batch);
        if let Some(failed) = applied.errors.into_iter().next() {
            return Err(Error::Row(failed.error));
        }
        let holds =
            applied.batch.column(0).as_boolean_opt().ok_or_else(|| bug("a condition is neither true nor false"))?;
        let holds = |row: usize| holds.is_valid(row) && holds.value(row);
        kept.extend(pairs.iter().enumerate().filter(|(row, _)| holds(*row)).map(|(_, pair)| *pair));
        Ok(())
    }
}

/// Collects the pairs of a shard.
pub(super) struct Matcher<'m> {
    pub(super) stores: [&'m Store; 2],
    pub(super) condition: Option<&'m mut Condition>,
    pub(super) shard: u32,
    candidates: Vec<Pair>,
    pairs: Vec<Pair>,
}

impl<'m> Matcher<'m> {
    pub(super) fn new(stores: [&'m Store; 2], condition: Option<&'m mut Condition>, shard: u32) -> Self {
        Self { stores, condition, shard, candidates: vec![], pairs: vec![] }
    }

    /// Pairs the rows of one side with rows of the other of the same key; both ascend in time. `own` is the side of `rows`, and
    /// `band` the least and greatest distance from them to the `others`.
    ///
    /// # Errors
    /// The condition fails on a pair.
    pub(super) fn band(&mut self, own: usize, rows: &[Entry], others: &[Entry], band: (i64, i64)) -> Result<(), Error> {
        let Some(first) = rows.first() else { return Ok(()) };
        let least = first.time.saturating_add(band.0);
        let mut from = others.partition_point(|other| other.time < least);
        for row in rows {
            let (least, most) = (row.time.saturating_add(band.0), row.time.saturating_add(band.1));
            while others.get(from).is_some_and(|other| other.time < least) {
                from += 1;
            }
            for other in others[from..].iter().take_while(|other| other.time <= most) {
                let [left, right] = if own == 0 { [row, other] } else { [other, row] };
                self.candidates.push(Pair {
                    time: row.time.max(other.time),
                    positions: [left.position, right.position],
                    places: [left.place, right.place],
                    shard: self.shard,
                });
                if self.candidates.len() >= BLOCK {
                    self.settle()?;
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Error> {
        match &mut self.condition {
            Some(condition) => {
                condition.keep(&self.candidates, self.stores, &mut self.pairs)?;
                self.candidates.clear();
            }
            None => self.pairs.append(&mut self.candidates),
        }
        Ok(())
    }

    /// The pairs.
    ///
    /// # Errors
    /// The condition fails on a pair.
    pub(super) fn finish(mut self) -> Result<Vec<Pair>, Error> {
        self.settle()?;
        Ok(self.pairs)
    }
}

/// Joined rows by key number divided by the number of shards; those of a key ascend in time.
#[derive(Debug, Default)]
pub(super) struct Index {
    lists: Vec<Vec<Entry>>,
    entries: usize,
}

impl Index {
    /// Adds rows of one key, which ascend in time.
    pub(super) fn insert(&mut self, slot: usize, rows: &[Entry]) {
        if self.lists.len() <= slot {
            self.lists.resize(slot + 1, vec![]);
        }
        let own = &mut self.lists[slot];
        let order = |entry: &Entry| (entry.time, entry.position);
        let follows = own.last().zip(rows.first()).is_none_or(|(last, first)| order(last) <= order(first));
        own.extend_from_slice(rows);
        if !follows {
            own.sort_by_key(order);
        }
        self.entries += rows.len();
    }

    /// Rows of a key.
    pub(super) fn of_key(&self, slot: usize) -> &[Entry] {
        self.lists.get(slot).map_or(&[], Vec::as_slice)
    }

    /// Lets go of the rows of some keys that no row at or after a watermark can match.
    pub(super) fn forget(&mut self, slots: impl Iterator<Item = usize>, watermark: i64, reach: i64) {
        if watermark == END {
            *self = Self::default();
            return;
        }
        for slot in slots {
            let Some(own) = self.lists.get_mut(slot) else { continue };
            let dead = own.partition_point(|entry| before(entry.time.saturating_add(reach), watermark));
            self.entries -= dead;
            own.drain(..dead);
            if own.is_empty() {
                *own = vec![];
            }
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.lists.len() * size_of::<Vec<Entry>>() + self.entries * size_of::<Entry>()
    }
}

/// Rows by key, inside a key by time and position.
#[derive(Debug)]
pub(super) struct Groups {
    rows: Vec<Entry>,
    /// Every key and where its rows end, ascending.
    ends: Vec<(u32, usize)>,
}

impl Groups {
    /// Groups rows; among equals their order stays.
    pub(super) fn new(rows: Vec<(u32, Entry)>, shards: usize) -> Self {
        let rows = by_key(rows, shards);
        let mut ends = Vec::new();
        let mut end = 0;
        for group in rows.chunk_by(|a, b| a.0 == b.0) {
            end += group.len();
            ends.push((group[0].0, end));
        }
        Self { rows: rows.into_iter().map(|(_, entry)| entry).collect(), ends }
    }

    /// The key of a group.
    pub(super) fn key(&self, group: usize) -> Option<u32> {
        self.ends.get(group).map(|(key, _)| *key)
    }

    /// The rows of a group, which is left behind, if it is that of the key; else none.
    pub(super) fn rows(&self, group: &mut usize, key: u32) -> &[Entry] {
        if self.key(*group) != Some(key) {
            return &[];
        }
        let from = group.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let to = self.ends[*group].1;
        *group += 1;
        &self.rows[from..to]
    }
}

/// Rows by key, inside a key by time and position; among equals the order stays.
fn by_key(rows: Vec<(u32, Entry)>, shards: usize) -> Vec<(u32, Entry)> {
    let order = |(key, row): &(u32, Entry)| (*key, row.time, row.position);
    let mut rows = rows;
    let slots = rows.iter().map(|(key, _)| *key as usize / shards + 1).max().unwrap_or(0);
    if rows.len() < MANY || slots > rows.len() * 2 {
        rows.sort_by_key(order);
        return rows;
    }
    let mut ends = vec![0_usize; slots + 1];
    rows.iter().for_each(|(key, _)| ends[*key as usize / shards + 1] += 1);
    for slot in 0..slots {
        ends[slot + 1] += ends[slot];
    }
    let mut sorted = rows.clone();
    for row in &rows {
        let at = &mut ends[row.0 as usize / shards];
        sorted[*at] = *row;
        *at += 1;
    }
    for group in sorted.chunk_by_mut(|a, b| a.0 == b.0) {
        if !group.is_sorted_by_key(order) {
            group.sort_by_key(order);
        }
    }
    sorted
}

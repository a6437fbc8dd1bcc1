//! The rows of one side of a join that may still find partners.

use arrow::array::types::{TimestampMicrosecondType, UInt64Type};
use arrow::array::{Array, AsArray};
use arrow::compute::interleave_record_batch;
use arrow::record_batch::RecordBatch;

use crate::error::Error;

/// A row: what pairs it, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) key: u32,
    pub(super) time: i64,
    pub(super) position: u64,
    pub(super) at: At,
}

/// Batch and row.
pub(super) type At = (u32, u32);

/// Rows of one batch for one shard.
#[derive(Debug, Clone)]
pub(super) struct Mail {
    pub(super) order: u64,
    pub(super) batch: RecordBatch,
    /// [`crate::state::keys::NONE`] for a key with a null in it.
    pub(super) keys: Vec<u32>,
}

/// Rows of one side and one shard.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) batches: Vec<RecordBatch>,
    /// Rows that the watermark has passed, in order.
    pub(super) ready: Vec<Entry>,
    /// Rows that it has not.
    pub(super) waiting: Vec<Entry>,
    /// Whether each row of each batch has had a partner.
    pub(super) matched: Vec<Vec<bool>>,
    /// Rows without an event time.
    pub(super) timeless: Vec<Entry>,
    /// Batches from here on are in no checkpoint.
    pub(super) unwritten: usize,
    /// Positions of the rows that have found a first partner since the last checkpoint.
    newly_matched: Vec<u64>,
    /// Rows that have not been dropped.
    live: usize,
}

/// Batches after which rows that live are brought together.
const MANY: usize = 256;

impl Side {
    /// Takes up rows; says how many have no event time.
    pub(super) fn take_up(&mut self, mail: Mail, time: usize, position: usize) -> Result<u64, Error> {
        let wrong = || Error::source("a join's rows lack their time or position", "report this as a bug");
        let times = mail.batch.column(time).as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(wrong)?;
        let positions = mail.batch.column(position).as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?;
        let number = u32::try_from(self.batches.len()).unwrap_or(u32::MAX);
        let mut without = 0;
        for (row, key) in (0..).zip(&mail.keys) {
            let entry = Entry {
                key: *key,
                time: times.value(row as usize),
                position: positions.value(row as usize),
                at: (number, row),
            };
            if times.is_null(row as usize) {
                without += 1;
                self.timeless.push(entry);
            } else {
                self.waiting.push(entry);
            }
        }
        self.live += mail.keys.len();
        self.matched.push(vec![false; mail.keys.len()]);
        self.batches.push(mail.batch);
        Ok(without)
    }

    /// The rows that a watermark newly passes, in order.
    pub(super) fn pass(&mut self, watermark: i64) -> Vec<Entry> {
        let (mut passed, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition::<Vec<_>, _>(|entry| entry.time < watermark);
        self.waiting = waiting;
        passed.sort_unstable();
        passed
    }

    /// Adds passed rows to those that are ready.
    pub(super) fn keep(&mut self, passed: Vec<Entry>) {
        if self.ready.is_empty() {
            self.ready = passed;
            return;
        }
        // Two runs in order: a stable sort finds and merges them.
        self.ready.extend(passed);
        self.ready.sort();
    }

    /// Drops ready rows that are `over`, and gives back those of them that have had no partner.
    pub(super) fn drop_over(&mut self, over: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let (matched, mut alone, mut gone) = (&self.matched, Vec::new(), 0);
        self.ready.retain(|entry| {
            let over = over(entry);
            if over {
                gone += 1;
                if !matched[entry.at.0 as usize][entry.at.1 as usize] {
                    alone.push(*entry);
                }
            }
            !over
        });
        self.live -= gone;
        alone
    }

    /// Marks a row as having a partner; `note` for the next checkpoint.
    pub(super) fn mark(&mut self, at: At, position: u64, note: bool) {
        let own = &mut self.matched[at.0 as usize][at.1 as usize];
        if !std::mem::replace(own, true) && note {
            self.newly_matched.push(position);
        }
    }

    /// Positions of rows that have had a partner: all, or those found since the last call.
    pub(super) fn take_matched(&mut self, whole: bool) -> Vec<u64> {
        let new = std::mem::take(&mut self.newly_matched);
        if !whole {
            return new;
        }
        let rows = self.ready.iter().chain(&self.waiting);
        rows.filter(|e| self.matched[e.at.0 as usize][e.at.1 as usize]).map(|e| e.position).collect()
    }

    /// Brings the rows that live together when they lie in many batches, or are few of all that are held.
    pub(super) fn tidy(&mut self) -> Result<(), Error> {
        let held: usize = self.batches.iter().map(RecordBatch::num_rows).sum();
        if self.batches.len() < MANY && (held < 1 << 16 || held < self.live * 3) {
            return Ok(());
        }
        if self.unwritten < self.batches.len() && self.unwritten > 0 {
            // What a checkpoint has and has not must stay apart.
            return Ok(());
        }
        let mut entries: Vec<&mut Entry> =
            self.ready.iter_mut().chain(&mut self.waiting).chain(&mut self.timeless).collect();
        entries.sort_by_key(|entry| entry.at);
        if entries.is_empty() {
            *self = Self { newly_matched: std::mem::take(&mut self.newly_matched), ..Self::default() };
            return Ok(());
        }
        let from: Vec<(usize, usize)> = entries.iter().map(|e| (e.at.0 as usize, e.at.1 as usize)).collect();
        let sources: Vec<&RecordBatch> = self.batches.iter().collect();
        let whole = interleave_record_batch(&sources, &from)
            .map_err(|error| Error::source(format!("rows of a join: {error}"), "report this as a bug"))?;
        let matched = from.iter().map(|(batch, row)| self.matched[*batch][*row]).collect();
        for (row, entry) in (0..).zip(entries) {
            entry.at = (0, row);
        }
        self.unwritten = usize::from(self.unwritten > 0);
        self.live = whole.num_rows();
        self.batches = vec![whole];
        self.matched = vec![matched];
        Ok(())
    }

    /// Bytes held, about.
    pub(super) fn memory(&self) -> usize {
        let width = self.batches.first().map_or(0, |batch| batch.num_columns() * 9);
        self.batches.iter().map(|batch| batch.num_rows() * width).sum::<usize>()
            + (self.ready.capacity() + self.waiting.capacity()) * size_of::<Entry>()
    }
}

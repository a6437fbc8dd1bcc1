//! A join of two streams within a distance of time, as an operator.
//!
//! Rows go to the shard that owns their key. When the watermark has passed rows, they are paired with those it had passed
//! before and with each other; a pair leaves in the order of its later time. A row is dropped once no row to come can lie in
//! its band; one of an outer side that has had no partner leaves then.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array, new_null_array};
use arrow::compute::interleave;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use rayon::prelude::*;

use super::band::pairs;
use super::run::{JoinRun, Restored};
use super::side::{Entry, Mail, Side};
use crate::error::Error;
use crate::flow::operator::{BEGINNING, END, Emit, Job, Late, Operator, Shard};
use crate::plan::{self, JoinKind};
use crate::state::keys::{KeyMapper, KeyTable, NONE};
use crate::state::run::{Run, RunFile};

/// Rows that are made at once.
const ROWS: usize = 8_192;

/// A pair, or a row without a partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Paired {
    time: i64,
    left_position: u64,
    right_position: u64,
    left: Option<(u32, u32)>,
    right: Option<(u32, u32)>,
}

/// Rows of two streams.
pub struct IntervalJoin {
    plan: Arc<plan::IntervalJoin>,
    table: Arc<KeyTable>,
    shards: Vec<JoinShard>,
    closed: i64,
    restored: Restored,
}

/// One worker's rows on their way, and the rows of the keys it owns.
struct JoinShard {
    plan: Arc<plan::IntervalJoin>,
    mappers: [KeyMapper; 2],
    out: [Vec<Vec<Mail>>; 2],
    bounded: bool,
    sides: [Side; 2],
}

impl IntervalJoin {
    /// An operator for a join.
    ///
    /// # Errors
    /// A key cannot be joined on.
    pub fn new(plan: plan::IntervalJoin, workers: usize, bounded: bool) -> Result<Self, Error> {
        let types = plan.left_keys.iter().map(|column| plan.left.field(*column).data_type().clone()).collect();
        let table = Arc::new(KeyTable::new(types)?);
        let plan = Arc::new(plan);
        let mapper = || KeyMapper::new(Arc::clone(&table));
        let boxes = || (0..workers).map(|_| vec![]).collect::<Vec<_>>();
        let shard = |_| JoinShard {
            plan: Arc::clone(&plan),
            mappers: [mapper(), mapper()],
            out: [boxes(), boxes()],
            bounded,
            sides: [Side::default(), Side::default()],
        };
        let shards = (0..workers).map(shard).collect();
        Ok(Self { shards, plan, table, closed: BEGINNING, restored: Restored::default() })
    }

    /// Makes the rows of pairs.
    fn rows(&self, pairs: &[(usize, Paired)]) -> Result<RecordBatch, Error> {
        let left = self.columns(pairs, 0, |paired| paired.left)?;
        let right = self.columns(pairs, 1, |paired| paired.right)?;
        let options = RecordBatchOptions::new().with_row_count(Some(pairs.len()));
        let columns = left.into_iter().chain(right).collect();
        RecordBatch::try_new_with_options(Arc::clone(&self.plan.schema), columns, &options).map_err(|e| failed(&e))
    }

    fn columns(
        &self,
        pairs: &[(usize, Paired)],
        side: usize,
        at: impl Fn(&Paired) -> Option<(u32, u32)>,
    ) -> Result<Vec<ArrayRef>, Error> {
        let schema = if side == 0 { &self.plan.left } else { &self.plan.right };
        // The first source is one null, for rows without a partner.
        let mut offsets = Vec::with_capacity(self.shards.len());
        let mut sources: Vec<&RecordBatch> = Vec::new();
        for shard in &self.shards {
            offsets.push(sources.len() + 1);
            sources.extend(&shard.sides[side].batches);
        }
        let from: Vec<(usize, usize)> = pairs
            .iter()
            .map(|(shard, paired)| {
                at(paired).map_or((0, 0), |(batch, row)| (offsets[*shard] + batch as usize, row as usize))
            })
            .collect();
        let column = |number: usize| -> Result<ArrayRef, Error> {
            let null = new_null_array(schema.field(number).data_type(), 1);
            let arrays: Vec<&dyn Array> = std::iter::once(null.as_ref())
                .chain(sources.iter().map(|batch| batch.column(number).as_ref()))
                .collect();
            interleave(&arrays, &from).map_err(|e| failed(&e))
        };
        (0..schema.fields().len()).map(column).collect()
    }

    /// Puts restored rows in their places once all runs of the checkpoint have been read.
    fn settle_restored(&mut self) -> Result<(), Error> {
        if self.restored.is_empty() {
            return Ok(());
        }
        let restored = std::mem::take(&mut self.restored);
        let [left, right] = restored.rows(&self.plan)?;
        for (side, rows) in [left, right].into_iter().enumerate() {
            if rows.num_rows() > 0 {
                self.shards[0].put(side, &rows, 0)?;
            }
        }
        self.deliver()?;
        let closed = self.closed;
        let plan = Arc::clone(&self.plan);
        self.shards.par_iter_mut().for_each(|shard| {
            for (side, own) in shard.sides.iter_mut().enumerate() {
                let passed = own.pass(closed);
                for entry in passed.iter().filter(|e| restored.matched(side, e.position)) {
                    own.mark(entry.at, entry.position, false);
                }
                own.keep(passed);
                own.drop_over(|entry| is_over(&plan, side, entry, closed));
                own.unwritten = own.batches.len();
            }
        });
        Ok(())
    }

    fn deliver(&mut self) -> Result<u64, Error> {
        let count = self.shards.len();
        let mut inboxes: Vec<[Vec<Mail>; 2]> = (0..count).map(|_| [vec![], vec![]]).collect();
        for shard in &mut self.shards {
            for (side, out) in shard.out.iter_mut().enumerate() {
                for (to, mail) in out.iter_mut().enumerate() {
                    inboxes[to][side].append(mail);
                }
            }
        }
        let work = self.shards.par_iter_mut().zip(inboxes);
        let timeless: Vec<u64> = work
            .map(|(shard, inbox)| {
                let mut timeless = 0;
                for (side, mut mail) in inbox.into_iter().enumerate() {
                    mail.sort_by_key(|mail| mail.order);
                    for one in mail {
                        timeless += shard.take_up(side, one)?;
                    }
                }
                Ok(timeless)
            })
            .collect::<Result<_, Error>>()?;
        Ok(timeless.into_iter().sum())
    }
}

fn failed(error: &arrow::error::ArrowError) -> Error {
    Error::source(format!("rows of a join: {error}"), "report this as a bug")
}

/// Whether no row to come can lie in a row's band.
fn is_over(plan: &plan::IntervalJoin, side: usize, entry: &Entry, watermark: i64) -> bool {
    watermark == END || last_partner(plan, side, entry) < watermark
}

/// The latest time at which a partner of a row may come.
fn last_partner(plan: &plan::IntervalJoin, side: usize, entry: &Entry) -> i64 {
    let reach = if side == 0 { plan.upper } else { plan.lower.saturating_neg() };
    entry.time.saturating_add(reach.max(0))
}

impl JoinShard {
    /// Puts rows aside for the shards that own their keys.
    fn put(&mut self, side: usize, batch: &RecordBatch, order: u64) -> Result<(), Error> {
        let columns = if side == 0 { &self.plan.left_keys } else { &self.plan.right_keys };
        let columns: Vec<ArrayRef> = columns.iter().map(|column| Arc::clone(batch.column(*column))).collect();
        let mut keys = self.mappers[side].map(&columns, batch.num_rows())?.to_vec();
        for nulls in columns.iter().filter_map(|column| column.logical_nulls()).filter(|nulls| nulls.null_count() > 0) {
            keys.iter_mut().zip(nulls.iter()).filter(|(_, valid)| !valid).for_each(|(key, _)| *key = NONE);
        }
        let shards = self.out[side].len();
        if shards == 1 {
            self.out[side][0].push(Mail { order, batch: batch.clone(), keys });
            return Ok(());
        }
        let mut rows: Vec<(Vec<u32>, Vec<u32>)> = (0..shards).map(|_| (vec![], vec![])).collect();
        for (row, key) in (0..).zip(keys) {
            let own = &mut rows[key as usize % shards];
            own.0.push(row);
            own.1.push(key);
        }
        for (out, (rows, keys)) in self.out[side].iter_mut().zip(rows).filter(|(_, (rows, _))| !rows.is_empty()) {
            let batch = arrow::compute::take_record_batch(batch, &UInt32Array::from(rows)).map_err(|e| failed(&e))?;
            out.push(Mail { order, batch, keys });
        }
        Ok(())
    }

    fn take_up(&mut self, side: usize, mail: Mail) -> Result<u64, Error> {
        let (time, position) = if side == 0 {
            (self.plan.left_time, self.plan.left_position)
        } else {
            (self.plan.right_time, self.plan.right_position)
        };
        let own = &mut self.sides[side];
        let timeless = own.take_up(mail, time, position)?;
        if !self.bounded {
            own.timeless.clear();
            return Ok(timeless);
        }
        Ok(0)
    }

    /// Pairs the rows that the watermark newly passes, and drops those that are over.
    fn advance(&mut self, watermark: i64) -> Result<Vec<Paired>, Error> {
        let band = (self.plan.lower, self.plan.upper);
        let [left, right] = &mut self.sides;
        let (new_left, new_right) = (left.pass(watermark), right.pass(watermark));
        let mut found: Vec<Paired> = Vec::new();
        let mut pair = |l: &Entry, r: &Entry| {
            found.push(Paired {
                time: l.time.max(r.time),
                left_position: l.position,
                right_position: r.position,
                left: Some(l.at),
                right: Some(r.at),
            });
        };
        pairs(&new_left, &right.ready, band, &mut pair);
        pairs(&new_left, &new_right, band, &mut pair);
        pairs(&left.ready, &new_right, band, &mut pair);
        left.keep(new_left);
        right.keep(new_right);
        let mut found = satisfying(self, found)?;
        if self.plan.kind != JoinKind::Inner {
            self.mark(&found);
        }
        self.leave_alone(watermark, &mut found);
        found.sort_unstable();
        Ok(found)
    }

    /// Marks the rows of pairs as having partners.
    fn mark(&mut self, found: &[Paired]) {
        let [left, right] = &mut self.sides;
        for paired in found {
            if let Some(at) = paired.left {
                left.mark(at, paired.left_position, true);
            }
            if let Some(at) = paired.right {
                right.mark(at, paired.right_position, true);
            }
        }
    }

    /// Drops the rows that are over; those of an outer side that have had no partner leave alone.
    fn leave_alone(&mut self, watermark: i64, found: &mut Vec<Paired>) {
        let plan = Arc::clone(&self.plan);
        for side in 0..2 {
            let outer = match plan.kind {
                JoinKind::Inner => false,
                JoinKind::Left => side == 0,
                JoinKind::Right => side == 1,
                JoinKind::Full => true,
            };
            let mut alone = self.sides[side].drop_over(|entry| is_over(&plan, side, entry, watermark));
            let timeless = if watermark == END { std::mem::take(&mut self.sides[side].timeless) } else { vec![] };
            if !outer {
                continue;
            }
            let late = timeless.len();
            alone.extend(timeless);
            let count = alone.len();
            found.extend(alone.into_iter().enumerate().map(|(number, entry)| {
                let time = if number >= count - late { END } else { last_partner(&plan, side, &entry) };
                let (own, other) = (Some(entry.at), None);
                if side == 0 {
                    Paired { time, left_position: entry.position, right_position: u64::MAX, left: own, right: other }
                } else {
                    Paired { time, left_position: u64::MAX, right_position: entry.position, left: other, right: own }
                }
            }));
        }
    }
}

impl Shard for JoinShard {
    fn push(&mut self, input: usize, batch: &RecordBatch, closed: i64, order: u64) -> Result<Late, Error> {
        if closed == BEGINNING {
            self.put(input, batch, order)?;
            return Ok(Late::default());
        }
        // What may be late comes with the watermark it is judged by: a row before it is.
        let time = if input == 0 { self.plan.left_time } else { self.plan.right_time };
        let times = arrow::array::AsArray::as_primitive_opt::<arrow::array::types::TimestampMicrosecondType>(
            batch.column(time),
        );
        let Some(times) = times else { return Ok(Late::default()) };
        let on_time = times.iter().map(|time| Some(time.is_none_or(|time| time >= closed)));
        let on_time: arrow::array::BooleanArray = on_time.collect();
        let kept = arrow::compute::filter_record_batch(batch, &on_time).map_err(|e| failed(&e))?;
        let wholly = (batch.num_rows() - kept.num_rows()) as u64;
        if kept.num_rows() > 0 {
            self.put(input, &kept, order)?;
        }
        Ok(Late { wholly, ..Late::default() })
    }
}

impl Operator for IntervalJoin {
    fn shards(&mut self) -> Vec<&mut dyn Shard> {
        self.shards.iter_mut().map(|shard| shard as &mut dyn Shard).collect()
    }

    fn exchange(&mut self) -> Result<(), Error> {
        self.settle_restored()?;
        self.deliver().map(|_| ())
    }

    fn advance(&mut self, watermark: i64, emit: &mut Emit<'_>) -> Result<(), Error> {
        self.settle_restored()?;
        self.shards.par_iter_mut().flat_map(|shard| &mut shard.sides).try_for_each(Side::tidy)?;
        let advanced = self.shards.par_iter_mut().map(|shard| shard.advance(watermark));
        let found: Vec<Vec<Paired>> = advanced.collect::<Result<_, Error>>()?;
        let mut all: Vec<(usize, Paired)> =
            found.into_iter().enumerate().flat_map(|(n, list)| list.into_iter().map(move |p| (n, p))).collect();
        all.par_sort_unstable_by_key(|(_, paired)| *paired);
        self.closed = watermark;
        let own = &*self;
        let jobs = all.chunks(ROWS).map(|some| -> Job<'_> { Box::new(|| own.rows(some)) });
        emit(jobs.collect())
    }

    fn changes(&mut self, _: &mut Emit<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn memory(&self) -> usize {
        self.shards.iter().flat_map(|shard| &shard.sides).map(Side::memory).sum::<usize>() + self.table.memory()
    }

    /// Rows of a join wait for their partners in memory.
    fn spill(&mut self, _: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn freeze(&mut self, whole: bool) -> (bool, Box<dyn Run>) {
        let mut run = JoinRun::new(&self.plan);
        for shard in &mut self.shards {
            for (number, side) in shard.sides.iter_mut().enumerate() {
                let from = if whole { 0 } else { side.unwritten };
                run.rows(number, &side.batches[from..]);
                run.matched(number, side.take_matched(whole));
                side.unwritten = side.batches.len();
            }
        }
        (whole, Box::new(run))
    }

    fn restore(&mut self, run: &RunFile, watermark: i64) -> Result<(), Error> {
        self.closed = watermark;
        self.restored.read(run)
    }
}

/// The pairs that satisfy the join's condition.
fn satisfying(shard: &JoinShard, found: Vec<Paired>) -> Result<Vec<Paired>, Error> {
    let plan = &shard.plan;
    let Some(condition) = &plan.condition else { return Ok(found) };
    let mut condition = condition.clone();
    let mut kept = Vec::new();
    for some in found.chunks(ROWS) {
        let side = |number: usize, at: fn(&Paired) -> Option<(u32, u32)>| -> Result<RecordBatch, Error> {
            let from: Vec<(usize, usize)> =
                some.iter().filter_map(at).map(|(batch, row)| (batch as usize, row as usize)).collect();
            let batches: Vec<&RecordBatch> = shard.sides[number].batches.iter().collect();
            arrow::compute::interleave_record_batch(&batches, &from).map_err(|e| failed(&e))
        };
        let (left, right) = (side(0, |p| p.left)?, side(1, |p| p.right)?);
        let columns = left.columns().iter().chain(right.columns()).cloned().collect();
        let batch = RecordBatch::try_new(Arc::clone(&plan.schema), columns).map_err(|e| failed(&e))?;
        let applied = condition.apply(&batch);
        if let Some(failed) = applied.errors.into_iter().next() {
            return Err(Error::Row(failed.error));
        }
        let holds = arrow::array::AsArray::as_boolean(applied.batch.column(0));
        kept.extend(some.iter().zip(holds).filter(|(_, holds)| *holds == Some(true)).map(|(paired, _)| *paired));
    }
    Ok(kept)
}

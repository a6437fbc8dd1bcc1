//! What one worker holds of an interval join: rows on their way to the shard that owns their key, and the rows it owns.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::bug;
use super::gather::Picked;
use super::matching::{Condition, Groups, Index, Matcher, Pair};
use super::rows::{Chunk, Kind, NOBODY, Store, times_of};
use crate::error::Error;
use crate::flow::operator::{BEGINNING, END, Late, Shard};
use crate::plan::{IntervalJoin, JoinKind};
use crate::state::keys::{KeyMapper, KeyTable};

/// Batches of fewer rows are put together,
const SMALL: usize = 1_024;
/// up to about so many.
const ENOUGH: usize = 8_192;

/// What all shards know; arrays hold the left side's, then the right side's.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: IntervalJoin,
    pub(super) bounded: bool,
    pub(super) shards: usize,
    pub(super) schema: [SchemaRef; 2],
    pub(super) keys: [Vec<usize>; 2],
    pub(super) time: [usize; 2],
    pub(super) position: [usize; 2],
    /// Whether rows without a partner stay.
    pub(super) keeps: [bool; 2],
    /// How long after a row a partner may come.
    pub(super) reach: [i64; 2],
    /// Distances from a row to its partners.
    pub(super) bands: [(i64, i64); 2],
}

impl Shared {
    pub(super) fn new(plan: IntervalJoin, shards: usize, bounded: bool) -> Self {
        let (lower, upper) = (plan.lower, plan.upper);
        let back = |distance: i64| distance.saturating_neg();
        Self {
            bounded,
            shards,
            schema: [Arc::clone(&plan.left), Arc::clone(&plan.right)],
            keys: [plan.left_keys.clone(), plan.right_keys.clone()],
            time: [plan.left_time, plan.right_time],
            position: [plan.left_position, plan.right_position],
            keeps: [
                matches!(plan.kind, JoinKind::Left | JoinKind::Full),
                matches!(plan.kind, JoinKind::Right | JoinKind::Full),
            ],
            reach: [upper.max(0), back(lower).max(0)],
            bands: [(lower, upper), (back(upper), back(lower))],
            plan,
        }
    }

    /// The key columns of a batch.
    pub(super) fn key_columns(&self, input: usize, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.keys[input].iter().map(|column| Arc::clone(batch.column(*column))).collect()
    }
}

/// Rows on their way.
#[derive(Debug)]
pub(super) struct Mail {
    pub(super) order: u64,
    input: usize,
    kind: Kind,
    batch: RecordBatch,
    keys: Vec<u32>,
}

/// One side's rows of a shard.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) store: Store,
    /// Joined rows that may find more partners.
    pub(super) index: Index,
    /// Keys of rows that were given up.
    gone: Vec<u32>,
}

/// One worker's part.
pub(super) struct JoinShard {
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
    pub(super) mappers: [KeyMapper; 2],
    /// Rows for every shard.
    pub(super) out: Vec<Vec<Mail>>,
    pub(super) inbox: Vec<Mail>,
    pub(super) sides: [Side; 2],
    condition: Option<Condition>,
    chunks: u64,
}

impl JoinShard {
    pub(super) fn new(shared: &Arc<Shared>, number: usize, table: &Arc<KeyTable>) -> Self {
        Self {
            number,
            mappers: [(); 2].map(|()| KeyMapper::new(Arc::clone(table))),
            out: (0..shared.shards).map(|_| vec![]).collect(),
            inbox: vec![],
            sides: [Side::default(), Side::default()],
            condition: Condition::of(&shared.plan),
            chunks: 0,
            shared: Arc::clone(shared),
        }
    }

    /// A name that no other chunk has.
    pub(super) fn next_name(&mut self) -> u64 {
        self.chunks += 1;
        self.chunks * self.shared.shards as u64 + self.number as u64
    }

    /// Takes up what came for it.
    pub(super) fn take_up(&mut self) -> Result<(), Error> {
        let mut waiting: Vec<(Vec<Mail>, usize)> = (0..6).map(|_| (vec![], 0)).collect();
        for mail in std::mem::take(&mut self.inbox) {
            let (some, rows) = &mut waiting[mail.input * 3 + mail.kind as usize];
            let length = mail.keys.len();
            let full = length >= SMALL || *rows + length > ENOUGH;
            let before = if full { std::mem::take(some) } else { vec![] };
            if full {
                *rows = 0;
            }
            let alone = if length >= SMALL {
                vec![mail]
            } else {
                *rows += length;
                some.push(mail);
                vec![]
            };
            self.add(before)?;
            self.add(alone)?;
        }
        waiting.into_iter().try_for_each(|(some, _)| self.add(some))
    }

    /// Makes a chunk of mails of one side and kind.
    fn add(&mut self, mut mails: Vec<Mail>) -> Result<(), Error> {
        let (input, kind, batch, keys) = match mails.len() {
            0 => return Ok(()),
            1 => {
                let Some(Mail { input, kind, batch, keys, .. }) = mails.pop() else { return Ok(()) };
                (input, kind, batch, keys)
            }
            _ => {
                let (input, kind) = (mails[0].input, mails[0].kind);
                let mut picked = Picked::default();
                mails.iter().for_each(|mail| picked.push_all(&mail.batch));
                let schema = Arc::clone(&self.shared.schema[input]);
                let columns = schema.fields().iter().enumerate().map(|(n, field)| picked.column(n, field.data_type()));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let batch = RecordBatch::try_new(schema, columns).map_err(bug)?;
                (input, kind, batch, mails.iter().flat_map(|mail| &mail.keys).copied().collect())
            }
        };
        let name = self.next_name();
        let chunk = Chunk::new(&self.shared, input, (kind, batch, keys), (name, BEGINNING))?;
        self.sides[input].store.push(chunk);
        Ok(())
    }

    /// The rows that a watermark makes final; what they rest on stays until [`JoinShard::forget`].
    pub(super) fn join(&mut self, watermark: i64) -> Result<Vec<Pair>, Error> {
        let shared = Arc::clone(&self.shared);
        let [left, right] = &mut self.sides;
        let fresh = [left, right].map(|side| Groups::new(side.store.fresh(watermark), shared.shards));
        let mut pairs = self.match_fresh(&fresh, watermark)?;
        let shard = u32::try_from(self.number).unwrap_or(u32::MAX);
        for (input, side) in self.sides.iter_mut().enumerate() {
            if shared.keeps[input] {
                pairs.iter().for_each(|pair| side.store.set_matched(pair.places[input]));
            }
        }
        for (input, side) in self.sides.iter_mut().enumerate() {
            let expired = side.store.expire(watermark, shared.reach[input]);
            side.gone = expired.keys;
            pairs.extend(expired.alone.iter().map(|row| {
                let (mut positions, mut places) = ([u64::MAX; 2], [NOBODY; 2]);
                (positions[input], places[input]) = (row.position, row.place);
                Pair { time: row.time, positions, places, shard }
            }));
        }
        Ok(pairs)
    }

    /// Pairs rows that have not been joined with each other and with those that have.
    fn match_fresh(&mut self, fresh: &[Groups; 2], watermark: i64) -> Result<Vec<Pair>, Error> {
        let shared = &self.shared;
        let shard = u32::try_from(self.number).unwrap_or(u32::MAX);
        let [Side { store: left_store, index: left, .. }, Side { store: right_store, index: right, .. }] =
            &mut self.sides;
        let mut matcher = Matcher::new([left_store, right_store], self.condition.as_mut(), shard);
        let (mut at, last) = ([0, 0], watermark == END);
        while let Some(key) = (0..2).filter_map(|side| fresh[side].key(at[side])).min() {
            let slot = key as usize / shared.shards;
            let rows = [0, 1].map(|side| fresh[side].rows(&mut at[side], key));
            matcher.band(1, rows[1], left.of_key(slot), shared.bands[1])?;
            if last && right.of_key(slot).is_empty() {
                // Nothing comes after: the index would be of no use.
                matcher.band(0, rows[0], rows[1], shared.bands[0])?;
                continue;
            }
            right.insert(slot, rows[1]);
            matcher.band(0, rows[0], right.of_key(slot), shared.bands[0])?;
            left.insert(slot, rows[0]);
        }
        matcher.finish()
    }

    /// Lets go of what the last [`JoinShard::join`] made final.
    pub(super) fn forget(&mut self, watermark: i64) {
        let shards = self.shared.shards;
        for (side, reach) in self.sides.iter_mut().zip(self.shared.reach) {
            side.store.sweep();
            let gone = std::mem::take(&mut side.gone);
            side.index.forget(gone.iter().map(|key| *key as usize / shards), watermark, reach);
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.sides.iter().map(|side| side.store.memory() + side.index.memory()).sum()
    }
}

/// Rows of a batch for one shard.
struct Part {
    shard: usize,
    kind: Kind,
    rows: Vec<u32>,
}

/// Which rows of a batch go where, and which come late.
fn split(
    shared: &Shared,
    input: usize,
    batch: &RecordBatch,
    keys: &[u32],
    closed: i64,
) -> Result<(Late, Vec<Part>), Error> {
    let times = times_of(shared, input, batch)?;
    let lacking = shared.key_columns(input, batch).iter().fold(None, |nulls: Option<NullBuffer>, column| {
        NullBuffer::union(nulls.as_ref(), column.logical_nulls().filter(|nulls| nulls.null_count() > 0).as_ref())
    });
    let untimed = times.nulls().filter(|nulls| nulls.null_count() > 0);
    let (shards, keeps) = (shared.shards, shared.keeps[input]);
    let mut rows: Vec<Vec<u32>> = vec![vec![]; shards * 3];
    let mut late = Late::default();
    for (row, (key, time)) in keys.iter().zip(times.values()).enumerate() {
        let kind = if untimed.is_some_and(|nulls| nulls.is_null(row)) {
            late.timeless += u64::from(!shared.bounded);
            if !shared.bounded || !keeps {
                continue;
            }
            Kind::Timeless
        } else if *time < closed {
            late.wholly += 1;
            continue;
        } else if lacking.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            if !keeps {
                continue;
            }
            Kind::Keyless
        } else {
            Kind::Paired
        };
        rows[*key as usize % shards * 3 + kind as usize].push(u32::try_from(row).unwrap_or(u32::MAX));
    }
    let part = |(number, rows): (usize, Vec<u32>)| {
        let kind = [Kind::Paired, Kind::Keyless, Kind::Timeless][number % 3];
        Part { shard: number / 3, kind, rows }
    };
    Ok((late, rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()).map(part).collect()))
}

impl Shard for JoinShard {
    fn push(&mut self, input: usize, batch: &RecordBatch, closed: i64, order: u64) -> Result<Late, Error> {
        let columns = self.shared.key_columns(input, batch);
        let keys = self.mappers[input].map(&columns, batch.num_rows())?;
        let (late, parts) = split(&self.shared, input, batch, keys, closed)?;
        for Part { shard, kind, rows } in parts {
            let mail = if rows.len() == keys.len() {
                Mail { order, input, kind, batch: batch.clone(), keys: keys.to_vec() }
            } else {
                let keys = rows.iter().map(|row| keys[*row as usize]).collect();
                let batch = take_record_batch(batch, &UInt32Array::from(rows)).map_err(bug)?;
                Mail { order, input, kind, batch, keys }
            };
            self.out[shard].push(mail);
        }
        Ok(late)
    }
}

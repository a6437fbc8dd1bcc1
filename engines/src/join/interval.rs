//! Two streams joined by key and by the distance of their times, as an operator.
//!
//! Every key belongs to one shard. Workers put rows aside for the shard that owns their key; when the watermark moves, each
//! shard pairs the rows it has passed, and all shards' pairs leave in the order of (time, left position, right position). The
//! time of a pair is the later of its rows'; that of a row without a partner the last moment at which one could have come.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use hashbrown::HashMap;
use rayon::prelude::*;

use super::bug;
use super::gather::Picked;
use super::matching::Pair;
use super::rows::{Chunk, Kind, Place, before, times_of};
use super::shard::{JoinShard, Shared};
use super::stored::{Entry, JoinRun, Stored, matched_bits, parse};
use crate::error::Error;
use crate::flow::operator::{BEGINNING, END, Emit, Job, Operator, Shard};
use crate::plan;
use crate::state::keys::{KeyMapper, KeyTable};
use crate::state::run::{Run, RunFile, StateError};

/// Rows that are made at once.
const ROWS: usize = 8_192;
/// Keys that may be there in vain.
const SPARE_KEYS: usize = 1 << 16;

/// Where every row of a stored chunk is now: shard and place; `None` when it is gone.
type Places = Vec<Option<(usize, Place)>>;

/// Joins two streams.
pub struct IntervalJoin {
    shared: Arc<Shared>,
    table: Arc<KeyTable>,
    shards: Vec<JoinShard>,
    /// Of chunks that were read back, until new rows come.
    restored: HashMap<(usize, u64), Places>,
    /// What checkpoints have is not what they would add to.
    whole: bool,
}

/// Rows that are put into shards again.
struct Again<'a> {
    input: usize,
    kind: Kind,
    batch: &'a RecordBatch,
    /// Rows before it have been joined.
    joined: i64,
    /// By row; empty where nobody asks.
    matched: &'a [bool],
}

impl IntervalJoin {
    /// An operator for a join.
    ///
    /// # Errors
    /// A key cannot be joined by.
    pub fn new(plan: plan::IntervalJoin, workers: usize, bounded: bool) -> Result<Self, Error> {
        let types = plan.left_keys.iter().map(|column| plan.left.field(*column).data_type().clone()).collect();
        let table = Arc::new(KeyTable::new(types)?);
        let shared = Arc::new(Shared::new(plan, workers.max(1), bounded));
        let shards = (0..shared.shards).map(|number| JoinShard::new(&shared, number, &table)).collect();
        Ok(Self { shared, table, shards, restored: HashMap::new(), whole: false })
    }

    fn key(&self, pair: &Pair) -> u32 {
        let of = |input: usize| {
            let place = pair.places[input];
            self.shards[pair.shard as usize].sides[input]
                .store
                .chunk(place.chunk)?
                .keys
                .get(place.row as usize)
                .copied()
        };
        of(0).or_else(|| of(1)).unwrap_or(0)
    }

    /// Brings pairs into the order of the output. Rows of one record share a position: their keys order them.
    fn sort(&self, pairs: &mut [Pair]) {
        let order = |pair: &Pair| (pair.time, pair.positions);
        pairs.par_sort_by_key(order);
        let mut view = None;
        for equal in pairs.chunk_by_mut(|a, b| order(a) == order(b)).filter(|equal| equal.len() > 1) {
            let view = view.get_or_insert_with(|| self.table.view());
            equal.sort_by_key(|pair| view.rank[self.key(pair) as usize]);
        }
    }

    /// Makes rows of pairs.
    fn rows(&self, pairs: &[Pair]) -> Result<RecordBatch, Error> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.shared.plan.schema.fields().len());
        for input in 0..2 {
            let mut picked = Picked::default();
            for pair in pairs {
                let place = pair.places[input];
                let chunk = || self.shards[pair.shard as usize].sides[input].store.chunk(place.chunk);
                if place.row == u32::MAX {
                    picked.push(u64::MAX, 0, || None);
                } else {
                    let name = u64::from(pair.shard) << 32 | u64::from(place.chunk);
                    picked.push(name, place.row as usize, || chunk().map(|chunk| &chunk.batch));
                }
            }
            for (number, field) in self.shared.schema[input].fields().iter().enumerate() {
                columns.push(picked.column(number, field.data_type())?);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(pairs.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.shared.plan.schema), columns, &options).map_err(bug)
    }

    /// Puts rows into the shards that own their keys; those that no row at or after the watermark can match are left out.
    fn put(&mut self, again: &Again<'_>, watermark: i64) -> Result<Places, Error> {
        let shared = Arc::clone(&self.shared);
        let Again { input, kind, batch, joined, matched } = *again;
        let columns = shared.key_columns(input, batch);
        let keys = self.shards[0].mappers[input].map(&columns, batch.num_rows())?.to_vec();
        let times = times_of(&shared, input, batch)?;
        let mut rows: Vec<Vec<u32>> = vec![vec![]; shared.shards];
        for (row, key) in keys.iter().enumerate() {
            let last = if kind == Kind::Timeless { END } else { times.value(row).saturating_add(shared.reach[input]) };
            if watermark == BEGINNING || !before(last, watermark) {
                rows[*key as usize % shared.shards].push(u32::try_from(row).unwrap_or(u32::MAX));
            }
        }
        let mut places = vec![None; keys.len()];
        for (number, rows) in rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let shard = &mut self.shards[number];
            let own = rows.iter().map(|row| keys[*row as usize]).collect();
            let rows = UInt32Array::from(rows);
            let taken = take_record_batch(batch, &rows).map_err(bug)?;
            let name = shard.next_name();
            let mut chunk = Chunk::new(&shared, input, (kind, taken, own), (name, joined))?;
            for (to, from) in chunk.matched.iter_mut().zip(rows.values()) {
                *to = matched.get(*from as usize).copied().unwrap_or(false);
            }
            let side = &mut shard.sides[input];
            let chunk = side.store.push(chunk);
            for (key, entry) in side.store.joined(chunk, shared.reach[input]) {
                side.index.insert(key as usize / shared.shards, &[entry]);
            }
            for (at, row) in (0..).zip(rows.values()) {
                places[*row as usize] = Some((number, Place { chunk, row: at }));
            }
        }
        Ok(places)
    }

    /// Begins a new table of keys when most of them are of rows that are gone.
    fn shrink(&mut self, watermark: i64) -> Result<(), Error> {
        let keys = self.table.len();
        if keys < SPARE_KEYS {
            return Ok(());
        }
        let held: usize = self.shards.iter().flat_map(|shard| &shard.sides).map(|side| side.store.held()).sum();
        if keys / 4 < held {
            return Ok(());
        }
        self.table = Arc::new(self.table.emptied());
        let mut old = Vec::new();
        for shard in &mut self.shards {
            shard.mappers = [(); 2].map(|()| KeyMapper::new(Arc::clone(&self.table)));
            old.push(std::mem::take(&mut shard.sides));
        }
        for (input, chunk) in old
            .iter()
            .flat_map(|sides| (0..2).zip(sides))
            .flat_map(|(input, side)| side.store.chunks().map(move |chunk| (input, chunk)))
        {
            let (kind, batch, matched) = (chunk.kind, &chunk.batch, chunk.matched.as_slice());
            self.put(&Again { input, kind, batch, joined: chunk.joined, matched }, watermark)?;
        }
        self.whole = true;
        Ok(())
    }

    fn take_up(&mut self, stored: Stored, watermark: i64) -> Result<Option<()>, Error> {
        match stored {
            Stored::Rows { input, name, kind, batch } => {
                let again = Again { input, kind, batch: &batch, joined: watermark, matched: &[] };
                let places = self.put(&again, watermark)?;
                if self.shared.keeps[input] {
                    self.restored.insert((input, name), places);
                }
            }
            Stored::Matched { input, name, bits } => {
                let Some(places) = self.restored.get(&(input, name)) else { return Ok(None) };
                let Some(matched) = matched_bits(&bits, places.len()) else { return Ok(None) };
                for (shard, place) in places.iter().zip(matched).filter(|(_, matched)| *matched).filter_map(|(p, _)| *p)
                {
                    self.shards[shard].sides[input].store.set_matched(place);
                }
            }
        }
        Ok(Some(()))
    }
}

impl Operator for IntervalJoin {
    fn shards(&mut self) -> Vec<&mut dyn Shard> {
        self.shards.iter_mut().map(|shard| shard as &mut dyn Shard).collect()
    }

    fn exchange(&mut self) -> Result<(), Error> {
        self.restored = HashMap::new();
        for to in 0..self.shards.len() {
            let mut mail: Vec<_> = self.shards.iter_mut().flat_map(|from| std::mem::take(&mut from.out[to])).collect();
            mail.sort_by_key(|mail| mail.order);
            self.shards[to].inbox = mail;
        }
        self.shards.par_iter_mut().try_for_each(JoinShard::take_up)
    }

    fn advance(&mut self, watermark: i64, emit: &mut Emit<'_>) -> Result<(), Error> {
        let found = self.shards.par_iter_mut().map(|shard| shard.join(watermark));
        let mut pairs = found.collect::<Result<Vec<Vec<Pair>>, Error>>()?.concat();
        if !pairs.is_empty() {
            self.sort(&mut pairs);
            let own = &*self;
            let jobs = pairs.chunks(ROWS).map(|some| -> Job<'_> { Box::new(|| own.rows(some)) });
            emit(jobs.collect())?;
        }
        self.shards.par_iter_mut().for_each(|shard| shard.forget(watermark));
        self.shrink(watermark)
    }

    fn changes(&mut self, _: &mut Emit<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn memory(&self) -> usize {
        self.shards.iter().map(JoinShard::memory).sum::<usize>() + self.table.memory()
    }

    /// Rows of a key are needed together, so they stay.
    fn spill(&mut self, _: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn freeze(&mut self, whole: bool) -> (bool, Box<dyn Run>) {
        let whole = whole || std::mem::take(&mut self.whole);
        let mut entries = Vec::new();
        for shard in &mut self.shards {
            for (input, side) in shard.sides.iter_mut().enumerate() {
                for chunk in side.store.chunks_mut() {
                    entries.extend(Entry::of(input, chunk, whole));
                }
            }
        }
        (whole, Box::new(JoinRun::new(entries)))
    }

    fn restore(&mut self, run: &RunFile, watermark: i64) -> Result<(), Error> {
        self.whole = true;
        let mut reader = run.read_from(&[])?;
        while let Some(key) = reader.key() {
            let taken = match parse(key, reader.value(), &self.shared) {
                Some(stored) => self.take_up(stored, watermark)?,
                None => None,
            };
            if taken.is_none() {
                let reason = "an entry is not of this query".into();
                return Err(StateError::Damaged { path: run.path().into(), reason }.into());
            }
            reader.step()?;
        }
        Ok(())
    }
}

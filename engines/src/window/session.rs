//! SESSION: groups of rows of one key that lie close to each other, as an operator.
//!
//! Every key belongs to one shard. Workers put rows aside for the shard that owns their key; between rounds each shard takes
//! them up in the order in which they were read.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use rayon::prelude::*;

use super::sessions::{Closed, Mail, Sessions};
use crate::agg::{Accumulators, types_of};
use crate::error::Error;
use crate::flow::operator::{Emit, Job, Late, Operator, Shard};
use crate::plan::{Aggregate, Window};
use crate::state::keys::{KeyMapper, KeyTable, NONE, View};
use crate::state::run::{Run, RunFile, RunWriter, StateError};

/// Rows that are made at once.
const ROWS: usize = 8_192;

/// Groups by session.
pub struct SessionAggregate {
    plan: Arc<Aggregate>,
    table: Arc<KeyTable>,
    fresh: Accumulators,
    shards: Vec<SessionShard>,
    late: (Late, Vec<RecordBatch>),
}

/// One worker's rows on their way, and the sessions of the keys it owns.
struct SessionShard {
    plan: Arc<Aggregate>,
    mapper: KeyMapper,
    /// Rows for every shard.
    out: Vec<Vec<Mail>>,
    inbox: Vec<Mail>,
    sessions: Sessions,
}

impl SessionAggregate {
    /// An operator for a grouping by a session window.
    ///
    /// # Errors
    /// A key cannot be grouped by, or an aggregate is not there for the type of its argument.
    pub fn new(plan: Aggregate, workers: usize, bounded: bool) -> Result<Self, Error> {
        let (Window::Session { gap }, Some(time)) = (plan.window, plan.time) else {
            return Err(Error::source("not a session window", "report this as a bug"));
        };
        let input = types_of(&plan.input);
        let keys = plan.keys.iter().map(|column| input[*column].clone()).collect();
        let table = Arc::new(KeyTable::new(keys)?);
        let fresh = Accumulators::new(&plan, &input)?;
        let plan = Arc::new(plan);
        let shard = |number| SessionShard {
            plan: Arc::clone(&plan),
            mapper: KeyMapper::new(Arc::clone(&table)),
            out: (0..workers).map(|_| vec![]).collect(),
            inbox: vec![],
            sessions: Sessions::new((gap, time), (number, workers), bounded, fresh.fresh()),
        };
        let shards = (0..workers).map(shard).collect();
        Ok(Self { shards, plan, table, fresh, late: (Late::default(), vec![]) })
    }

    /// Makes rows of sessions that lie in any shard.
    fn rows(&self, closed: &[(usize, Closed)], view: &View) -> Result<RecordBatch, Error> {
        let mut merged = self.fresh.fresh();
        merged.resize(closed.len());
        for (number, shard) in self.shards.iter().enumerate() {
            let own = (0..).zip(closed).filter(|(_, (of, _))| *of == number);
            let (to, from): (Vec<u32>, Vec<u32>) = own.map(|(row, (_, session))| (row, session.slot)).unzip();
            merged.merge(&to, shard.sessions.groups(), &from);
        }
        let times = |of: fn(&Closed) -> i64| -> ArrayRef {
            let times = closed.iter().map(|(_, session)| (!session.timeless).then(|| of(session)));
            Arc::new(TimestampMicrosecondArray::from_iter(times))
        };
        let mut columns = vec![times(|session| session.start), times(|session| session.last)];
        let keys: Vec<u32> = closed.iter().map(|(_, session)| session.key).collect();
        columns.extend(view.columns(&keys)?);
        let all: Vec<u32> = (0..u32::try_from(closed.len()).unwrap_or(NONE)).collect();
        columns.extend(merged.finish(&all)?);
        let options = RecordBatchOptions::new().with_row_count(Some(closed.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.plan.schema), columns, &options)
            .map_err(|error| Error::source(format!("rows of sessions cannot be made: {error}"), "report this as a bug"))
    }
}

impl Shard for SessionShard {
    fn push(&mut self, _: usize, batch: &RecordBatch, closed: i64, order: u64) -> Result<Late, Error> {
        let columns: Vec<_> = self.plan.keys.iter().map(|column| Arc::clone(batch.column(*column))).collect();
        let keys = self.mapper.map(&columns, batch.num_rows())?;
        let shards = self.out.len();
        if shards == 1 {
            self.out[0].push(Mail { order, batch: batch.clone(), keys: keys.to_vec(), closed });
            return Ok(Late::default());
        }
        let mut rows: Vec<(Vec<u32>, Vec<u32>)> = (0..shards).map(|_| (vec![], vec![])).collect();
        for (row, key) in (0..).zip(keys) {
            let own = &mut rows[*key as usize % shards];
            own.0.push(row);
            own.1.push(*key);
        }
        for (out, (rows, keys)) in self.out.iter_mut().zip(rows).filter(|(_, (rows, _))| !rows.is_empty()) {
            let rows = arrow::array::UInt32Array::from(rows);
            let batch = arrow::compute::take_record_batch(batch, &rows)
                .map_err(|error| Error::source(error.to_string(), "report this as a bug"))?;
            out.push(Mail { order, batch, keys, closed });
        }
        Ok(Late::default())
    }
}

impl Operator for SessionAggregate {
    fn shards(&mut self) -> Vec<&mut dyn Shard> {
        self.shards.iter_mut().map(|shard| shard as &mut dyn Shard).collect()
    }

    fn exchange(&mut self) -> Result<(), Error> {
        for to in 0..self.shards.len() {
            let mut mail: Vec<Mail> =
                self.shards.iter_mut().flat_map(|from| std::mem::take(&mut from.out[to])).collect();
            mail.sort_by_key(|mail| mail.order);
            self.shards[to].inbox = mail;
        }
        let taken: Vec<(Late, Vec<RecordBatch>)> = self
            .shards
            .par_iter_mut()
            .map(|shard| {
                let (mut late, mut rows) = (Late::default(), vec![]);
                for mail in shard.inbox.drain(..) {
                    late += shard.sessions.take_up(&mail, &mut rows)?;
                }
                Ok((late, rows))
            })
            .collect::<Result<_, Error>>()?;
        for (late, rows) in taken {
            self.late.0 += late;
            self.late.1.extend(rows);
        }
        Ok(())
    }

    fn take_late(&mut self) -> (Late, Vec<RecordBatch>) {
        std::mem::take(&mut self.late)
    }

    fn advance(&mut self, watermark: i64, emit: &mut Emit<'_>) -> Result<(), Error> {
        let closed: Vec<Vec<Closed>> =
            self.shards.par_iter_mut().map(|shard| shard.sessions.close(watermark)).collect();
        let mut all: Vec<(usize, Closed)> =
            closed.into_iter().enumerate().flat_map(|(n, list)| list.into_iter().map(move |c| (n, c))).collect();
        if all.is_empty() {
            return Ok(());
        }
        let view = self.table.view();
        let rank = |session: &Closed| view.rank[session.key as usize];
        all.par_sort_unstable_by_key(|(_, session)| (session.timeless, session.last, session.start, rank(session)));
        let own = &*self;
        let jobs = all.chunks(ROWS).map(|some| -> Job<'_> { Box::new(|| own.rows(some, &view)) });
        emit(jobs.collect())?;
        for (number, shard) in self.shards.iter_mut().enumerate() {
            shard.sessions.free(all.iter().filter(|(of, _)| *of == number).map(|(_, session)| session.slot));
        }
        Ok(())
    }

    fn changes(&mut self, _: &mut Emit<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn memory(&self) -> usize {
        self.shards.iter().map(|shard| shard.sessions.memory()).sum::<usize>() + self.table.memory()
    }

    /// Sessions of a key are needed together, so they stay.
    fn spill(&mut self, _: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn freeze(&mut self, whole: bool) -> (bool, Box<dyn Run>) {
        let entries = self.shards.iter_mut().flat_map(|shard| shard.sessions.freeze(whole)).collect();
        (whole, Box::new(SessionRun { entries, table: Arc::clone(&self.table) }))
    }

    fn restore(&mut self, run: &RunFile, watermark: i64) -> Result<(), Error> {
        let mut reader = run.read_from(&[])?;
        while let Some(key) = reader.key() {
            let id = self.table.intern(key);
            let shard = id as usize % self.shards.len();
            if self.shards[shard].sessions.restore(id, reader.value(), watermark).is_none() {
                let reason = "an entry is not of this query".into();
                return Err(StateError::Damaged { path: run.path().into(), reason }.into());
            }
            reader.step()?;
        }
        Ok(())
    }
}

/// Sessions of the keys that have changed: an entry replaces what earlier runs say of its key.
struct SessionRun {
    entries: Vec<(u32, Vec<u8>)>,
    table: Arc<KeyTable>,
}

impl Run for SessionRun {
    fn write(mut self: Box<Self>, out: &mut RunWriter) -> Result<(), StateError> {
        let view = self.table.view();
        self.entries.sort_unstable_by_key(|(key, _)| view.rank[*key as usize]);
        self.entries.iter().try_for_each(|(key, value)| out.entry(view.key(*key), value))
    }
}

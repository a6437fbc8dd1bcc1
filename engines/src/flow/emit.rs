//! The way of rows from a stage to the sink or to the stage behind it: made and encoded in parallel, handed on in order.

use std::sync::{Mutex, PoisonError};

use arrow::record_batch::RecordBatch;
use rayon::prelude::*;

use super::operator::{BEGINNING, Job, Operator};
use super::steps::Steps;
use crate::connect::sink::{Encoded, Encoder, Sink};
use crate::error::Error;
use crate::read::RecordError;
use crate::sql::RowError;

/// Jobs that run before their batches are handed on: enough to keep all workers busy, few enough to fit in memory.
const AT_ONCE: usize = 64;

/// The sink, and what is still wanted of the rows.
pub(super) struct Out {
    pub(super) sink: Box<dyn Sink>,
    /// Rows still wanted; `None`: all.
    pub(super) left: Option<u64>,
    pub(super) rows: u64,
    /// Something was written since the last flush.
    pub(super) dirty: bool,
    /// Rows are made and thrown away: they are out already.
    pub(super) muted: bool,
    /// For rows that are cut to a limit.
    encoder: Box<dyn Encoder>,
}

impl Out {
    pub(super) fn new(sink: Box<dyn Sink>, limit: Option<u64>) -> Self {
        let encoder = sink.encoder();
        Self { sink, left: limit, rows: 0, dirty: false, muted: false, encoder }
    }

    /// An encoder for a worker, unless batches must be cut to a limit first.
    pub(super) fn encoder(&self) -> Option<Box<dyn Encoder>> {
        self.left.is_none().then(|| self.sink.encoder())
    }

    /// Whether all rows that are wanted have been written.
    pub(super) fn satisfied(&self) -> bool {
        self.left == Some(0)
    }

    /// Writes rows, as many as are still wanted.
    pub(super) fn write(&mut self, made: Encoded) -> Result<(), Error> {
        if self.muted {
            return Ok(());
        }
        let encoded = match (&mut self.left, &made.batch) {
            (Some(left), Some(batch)) => {
                let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(batch.num_rows());
                *left -= wanted as u64;
                if wanted == 0 {
                    return Ok(());
                }
                self.encoder.encode(&batch.slice(0, wanted))?
            }
            _ => made,
        };
        if encoded.rows == 0 {
            return Ok(());
        }
        self.rows += encoded.rows;
        self.dirty = true;
        self.sink.write(encoded)
    }

    /// Hands what was written to the system.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.dirty) { self.sink.flush() } else { Ok(()) }
    }
}

/// Where a stage's rows go.
pub(super) enum Next<'a> {
    /// To the sink.
    Sink(&'a mut Out),
    /// Into another stage, as this input of it; with the watermark it is closed to and a counter of batches.
    Stage(&'a mut dyn Operator, usize, i64, &'a mut u64),
}

/// What runs a stage's steps and encodes, on any thread.
pub(super) struct Executor {
    pub(super) steps: Steps,
    pub(super) encoder: Option<Box<dyn Encoder>>,
}

/// Hands the rows of a stage on.
pub(super) struct Handing<'a> {
    pub(super) executors: &'a Mutex<Vec<Executor>>,
    pub(super) next: Next<'a>,
    /// Result rows on which an expression failed, the first of them, and how many.
    pub(super) failed: Vec<RecordError>,
    pub(super) failures: u64,
}

enum Made {
    Batch(RecordBatch),
    Encoded(Encoded),
}

impl Handing<'_> {
    /// Runs jobs and hands their rows on in the order of the jobs.
    pub(super) fn run(&mut self, jobs: Vec<Job<'_>>) -> Result<(), Error> {
        let mut jobs = jobs.into_iter();
        loop {
            let some: Vec<Job<'_>> = jobs.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                return Ok(());
            }
            let encodes = matches!(self.next, Next::Sink(_));
            let executors = self.executors;
            let made: Vec<_> = if some.len() == 1 {
                some.into_iter().map(|job| execute(job, executors, encodes)).collect()
            } else {
                some.into_par_iter().with_max_len(1).map(|job| execute(job, executors, encodes)).collect()
            };
            for one in made {
                let (made, failed) = one?;
                self.failures += failed.len() as u64;
                if self.failed.is_empty() {
                    self.failed.extend(failed.into_iter().map(|row| row.error).take(1));
                }
                self.pass(made)?;
            }
        }
    }

    fn pass(&mut self, made: Made) -> Result<(), Error> {
        match (&mut self.next, made) {
            (Next::Sink(out), Made::Encoded(encoded)) => out.write(encoded),
            (Next::Sink(out), Made::Batch(batch)) => {
                out.write(Encoded { rows: batch.num_rows() as u64, batch: Some(batch), ..Encoded::default() })
            }
            (Next::Stage(operator, input, closed, order), Made::Batch(batch)) => {
                if batch.num_rows() == 0 {
                    return Ok(());
                }
                let mut shards = operator.shards();
                let shard = usize::try_from(**order).unwrap_or(0) % shards.len().max(1);
                let order_now = **order;
                **order += 1;
                match shards.get_mut(shard) {
                    Some(shard) => shard.push(*input, &batch, *closed, order_now).map(|_| ()),
                    None => Ok(()),
                }
            }
            (Next::Stage(..), Made::Encoded(_)) => Ok(()),
        }
    }
}

fn execute(job: Job<'_>, executors: &Mutex<Vec<Executor>>, encodes: bool) -> Result<(Made, Vec<RowError>), Error> {
    let batch = job()?;
    let borrowed = executors.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let Some(mut executor) = borrowed else {
        return Err(Error::source("a stage has fewer executors than threads", "report this as a bug"));
    };
    let mut failed = Vec::new();
    let made = executor.steps.apply(&batch, &mut failed).and_then(|batch| match &mut executor.encoder {
        Some(encoder) if encodes && batch.num_rows() > 0 => encoder.encode(&batch).map(Made::Encoded),
        _ => Ok(Made::Batch(batch)),
    });
    executors.lock().unwrap_or_else(PoisonError::into_inner).push(executor);
    made.map(|made| (made, failed))
}

/// The closed watermark that a nested stage is pushed with: nothing that a lower stage emits is late.
pub(super) const NEVER_LATE: i64 = BEGINNING;

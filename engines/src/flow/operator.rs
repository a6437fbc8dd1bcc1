//! What the flow asks of an operator that keeps state.
//!
//! The flow works in rounds. In a round every worker decodes and transforms what it reads and pushes it to its own
//! [`Shard`]. Between rounds nothing runs, and the operator has its shards for itself: it exchanges what belongs to
//! another shard, emits what the watermark has made final, freezes what has changed for a checkpoint, and spills.

use std::path::Path;

use arrow::record_batch::RecordBatch;

use crate::error::Error;
use crate::state::run::{Run, RunFile};

/// Nothing is final yet, and nothing is late.
pub const BEGINNING: i64 = i64::MIN;
/// Everything is final.
pub const END: i64 = i64::MAX;

/// What one worker holds of an operator.
pub trait Shard: Send {
    /// Takes rows of one input: 0, or 0 and 1 of a join.
    ///
    /// `closed` is the watermark at the rows: windows that end at or before it take nothing more. [`BEGINNING`] when
    /// nothing can be late. `order` ascends over all batches of a run, whichever worker pushes them.
    ///
    /// # Errors
    /// A value cannot be taken up.
    fn push(&mut self, input: usize, batch: &RecordBatch, closed: i64, order: u64) -> Result<Late, Error>;
}

impl std::ops::AddAssign for Late {
    fn add_assign(&mut self, other: Self) {
        self.wholly += other.wholly;
        self.partly += other.partly;
        self.timeless += other.timeless;
    }
}

/// How many rows of a batch came late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Late {
    /// For every window they belong to: they were left out.
    pub wholly: u64,
    /// For some of their windows.
    pub partly: u64,
    /// Rows without an event time, on a stream that has no end: they were left out.
    pub timeless: u64,
}

/// Makes one batch of an operator's output; may run on any thread while the operator waits.
pub type Job<'a> = Box<dyn FnOnce() -> Result<RecordBatch, Error> + Send + 'a>;

/// Takes jobs whose batches leave in the order of the jobs. A call returns when all of them have left.
pub type Emit<'e> = dyn for<'a> FnMut(Vec<Job<'a>>) -> Result<(), Error> + 'e;

/// An operator that keeps state.
pub trait Operator: Send {
    /// Its shards, one per worker.
    fn shards(&mut self) -> Vec<&mut dyn Shard>;

    /// After a round: brings rows to the shard that owns their key. Runs its work on the current rayon pool.
    ///
    /// # Errors
    /// A value cannot be taken up.
    fn exchange(&mut self) -> Result<(), Error>;

    /// Rows that turned out to be late in [`Operator::exchange`] since the last call, as they reached the operator.
    fn take_late(&mut self) -> (Late, Vec<RecordBatch>) {
        (Late::default(), vec![])
    }

    /// Emits what no row at or after `watermark` can change, in order, and forgets it. [`END`]: everything.
    ///
    /// # Errors
    /// Spilled state cannot be read, or whatever `emit` fails with.
    fn advance(&mut self, watermark: i64, emit: &mut Emit<'_>) -> Result<(), Error>;

    /// Emits the present value of every group that has changed since the last call: for a GROUP BY without a window on a
    /// stream without an end.
    ///
    /// # Errors
    /// As [`Operator::advance`].
    fn changes(&mut self, emit: &mut Emit<'_>) -> Result<(), Error>;

    /// Bytes held in memory, about.
    fn memory(&self) -> usize;

    /// Moves state to files in `directory`, so that little stays in memory.
    ///
    /// # Errors
    /// A file cannot be written.
    fn spill(&mut self, directory: &Path) -> Result<(), Error>;

    /// Freezes what has changed since the last call, or with `whole` the whole state: cheap, whatever its size. A whole
    /// run replaces all runs before it; the others add to them. Says whether the run is whole: it may be although it was not
    /// asked to.
    fn freeze(&mut self, whole: bool) -> (bool, Box<dyn Run>);

    /// Takes up a run of a checkpoint, in the order they were written, before any row. What the watermark of the
    /// checkpoint has made final is left out.
    ///
    /// # Errors
    /// The run cannot be read or does not fit.
    fn restore(&mut self, run: &RunFile, watermark: i64) -> Result<(), Error>;
}

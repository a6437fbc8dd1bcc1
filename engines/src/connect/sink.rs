//! What the flow asks of a sink.

use arrow::record_batch::RecordBatch;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;

/// Takes rows in order. Batches are encoded on the workers and written by one thread.
pub trait Sink: Send {
    /// An encoder for one worker.
    fn encoder(&self) -> Box<dyn Encoder>;

    /// Writes what an encoder made.
    ///
    /// # Errors
    /// The output cannot be written; [`Error::OutputClosed`] when its reader is gone.
    fn write(&mut self, encoded: Encoded) -> Result<(), Error>;

    /// Hands everything written so far to the system or the server.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn flush(&mut self) -> Result<(), Error>;

    /// Brings everything written so far to where it survives a crash, and says where the output ends: a checkpoint keeps
    /// it.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn commit(&mut self) -> Result<Value, Error>;

    /// Takes back what was written after a position that [`Sink::commit`] gave, where the sink can; before any write.
    ///
    /// # Errors
    /// The output is not what it was.
    fn resume(&mut self, position: &Value) -> Result<(), Error>;

    /// Whether rows become visible in one step with the positions they rest on: then [`Sink::transact`] takes the place of
    /// [`Sink::flush`].
    fn transactional(&self) -> bool {
        false
    }

    /// Makes the rows written since the last call visible, together with where the run stands.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn transact(&mut self, _standing: &Standing) -> Result<(), Error> {
        self.flush()
    }

    /// Where the last transaction of an earlier run stood.
    ///
    /// # Errors
    /// It cannot be told.
    fn standing(&mut self) -> Result<Option<Standing>, Error> {
        Ok(None)
    }
}

/// Where a run stands when its rows become visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Position of every input.
    pub positions: Vec<Value>,
    /// Watermark of every stage: what was final by then is out.
    pub marks: Vec<i64>,
}

/// Makes bytes of batches.
pub trait Encoder: Send {
    /// Encodes the rows of a batch of the query's output schema.
    ///
    /// # Errors
    /// A value does not fit the sink.
    fn encode(&mut self, batch: &RecordBatch) -> Result<Encoded, Error>;
}

/// An encoded batch.
#[derive(Debug, Default)]
pub struct Encoded {
    /// Rows it holds.
    pub rows: u64,
    /// The bytes of all rows.
    pub bytes: Vec<u8>,
    /// Where every record's key and value end in `bytes`, for sinks of records; empty for others.
    pub records: Vec<(u32, u32)>,
    /// The batch itself, for sinks that encode later.
    pub batch: Option<RecordBatch>,
}

//! What the flow asks of a source.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::UInt64Array;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use serde_json::Value;

use crate::error::Error;
use crate::read::{Position, ReadPlan, RecordError};
use crate::sql::SourceSchema;

/// An input that has been opened: its types are known, nothing has been read for good.
pub trait Source: Send {
    /// What a query can read.
    fn schema(&self) -> &SourceSchema;

    /// Whether any record has shown what the records hold.
    fn shown(&self) -> bool {
        true
    }

    /// What it is, for a checkpoint that must be resumed with the same: a topic with its brokers, the paths of files.
    fn identity(&self) -> String;

    /// Number of its partitions: those of a topic, or its files. Each keeps event time on its own.
    fn partitions(&self) -> u32;

    /// Whether it ends.
    fn bounded(&self) -> bool;

    /// Goes to a position that [`Source::position`] gave, before [`Source::readers`].
    ///
    /// # Errors
    /// What was there is gone, or was changed since.
    fn seek(&mut self, position: &Value) -> Result<(), Error>;

    /// One reader for each worker; they share the work.
    ///
    /// # Errors
    /// A leaf of the plan cannot be read from this format.
    fn readers(&mut self, plan: &ReadPlan, workers: usize) -> Result<Vec<Box<dyn Reader>>, Error>;

    /// Between rounds: where every partition goes on, behind all stretches handed out.
    fn position(&self) -> Value;

    /// Between rounds: whether everything before a position that [`Source::position`] gave has been handed out.
    fn reached(&self, position: &Value) -> bool {
        *position == self.position()
    }

    /// Between rounds: where the record of a place stands, for a message.
    fn locate(&self, place: u64) -> Position;

    /// Partitions that have nothing to read at the moment, as the source itself has said: they need not hold the
    /// watermark back.
    fn idle(&self) -> Vec<u32> {
        vec![]
    }
}

/// Reads for one worker.
pub trait Reader: Send {
    /// Decodes the next stretch that no other reader has taken, waiting up to `patience` for one.
    ///
    /// # Errors
    /// The source cannot be read.
    fn read(&mut self, patience: Duration) -> Result<Read, Error>;
}

/// What a reader found.
#[derive(Debug)]
pub enum Read {
    /// Records.
    Stretch(Stretch),
    /// Nothing for now.
    Nothing,
    /// Nothing any more, for this reader.
    End,
}

/// Records of one partition that follow each other.
#[derive(Debug)]
pub struct Stretch {
    /// Ascends with every stretch of the source that is handed out, whichever reader takes it; for a bounded source it
    /// is the stretch's number from 0, and what is in a stretch does not depend on the number of readers.
    pub order: u64,
    /// The partition, from 0.
    pub partition: u32,
    /// Whether the partition ends with it.
    pub last: bool,
    /// Records, refused ones among them.
    pub records: u64,
    /// The decoded records, in order.
    pub batches: Vec<Decoded>,
    /// Records that could not be decoded, in order.
    pub refused: Vec<Refused>,
}

/// Decoded records.
#[derive(Debug)]
pub struct Decoded {
    /// Columns of the [`ReadPlan`], with the position where it asks for it.
    pub batch: RecordBatch,
    /// Place of every record, ascending: unique over the source.
    pub places: Vec<u64>,
    /// Behind the last row of every record; `None` when every record is one row.
    pub ends: Option<Vec<u32>>,
}

/// A record that could not be decoded.
#[derive(Debug)]
pub struct Refused {
    /// Its place.
    pub place: u64,
    /// Why.
    pub error: RecordError,
    /// Its bytes.
    pub payload: Vec<u8>,
}

impl Decoded {
    /// What a decoder yielded for the records of `places`, with the position where the plan reads it: `schema` is the plan's
    /// [`ReadPlan::flat_schema`].
    #[must_use]
    pub fn new(batch: RecordBatch, places: Vec<u64>, ends: Option<Vec<u32>>, schema: &SchemaRef) -> Self {
        if batch.num_columns() == schema.fields().len() {
            return Self { batch, places, ends };
        }
        let position: UInt64Array = match &ends {
            None => places.clone().into(),
            Some(ends) => {
                let mut of_rows = Vec::with_capacity(batch.num_rows());
                for (place, end) in places.iter().zip(ends) {
                    of_rows.resize(*end as usize, *place);
                }
                of_rows.into()
            }
        };
        let rows = batch.num_rows();
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(position));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch =
            RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).expect("a position for every row");
        Self { batch, places, ends }
    }

    /// Place of the record a row belongs to.
    #[must_use]
    pub fn place_of(&self, row: usize) -> Option<u64> {
        let record = match &self.ends {
            None => row,
            Some(ends) => ends.partition_point(|end| *end as usize <= row),
        };
        self.places.get(record).copied()
    }
}

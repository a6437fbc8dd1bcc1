//! A ClickHouse table as a sink of the flow: at least once, acknowledged before a checkpoint counts.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use serde_json::Value;

use super::config::ClickHouseArgs;
use super::sink::{ClickHouse, Inserts, Writer};
use crate::connect::Uri;
use crate::connect::sink::{Encoded, Encoder, Sink};
use crate::error::Error;

/// Rows on their way into a table.
pub struct Rows {
    writer: Writer<()>,
    inserts: Arc<Inserts<()>>,
}

impl Rows {
    /// Looks at the table and checks that the rows fit it.
    ///
    /// # Errors
    /// The table cannot be reached or does not fit.
    pub fn open(uri: &Uri, args: &ClickHouseArgs, output: SchemaRef) -> Result<Self, Error> {
        let table = ClickHouse::open(uri, args, output)?;
        let inserts = table.start(|()| {});
        Ok(Self { writer: table.writer(&inserts)?, inserts })
    }
}

/// Hands batches on as they are: blocks are encoded by the thread that writes.
struct AsIs;

impl Encoder for AsIs {
    fn encode(&mut self, batch: &RecordBatch) -> Result<Encoded, Error> {
        Ok(Encoded { rows: batch.num_rows() as u64, batch: Some(batch.clone()), ..Encoded::default() })
    }
}

impl Sink for Rows {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(AsIs)
    }

    fn write(&mut self, encoded: Encoded) -> Result<(), Error> {
        if let Some(batch) = &encoded.batch {
            self.writer.append(batch)?;
        }
        if self.writer.full() { self.writer.flush(()) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.writer.rows() > 0 { self.writer.flush(()) } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<Value, Error> {
        self.flush()?;
        self.writer.settle()?;
        Ok(Value::Null)
    }

    fn resume(&mut self, _: &Value) -> Result<(), Error> {
        Ok(())
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        // An error has been told by what failed.
        drop(self.inserts.close());
    }
}

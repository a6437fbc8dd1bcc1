//! Rows as lines of text on standard output.

use std::io::{self, Write as _};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use serde_json::Value;

use super::config::Format;
use super::text::Writer;
use crate::connect::Uri;
use crate::connect::sink::{Encoded, Encoder, Sink};
use crate::error::Error;

/// Bytes collected before they are written.
const FULL: usize = 256 << 10;

/// The sink of `-` or `null`.
#[must_use]
pub fn open(uri: &Uri, format: Format, schema: &SchemaRef) -> Box<dyn Sink> {
    let texts = Texts::new(format, schema);
    if uri.scheme == "null" {
        return Box::new(Null { texts });
    }
    Box::new(Stdout { buffer: texts.head(), texts })
}

/// How rows of a schema are written as text.
#[derive(Debug, Clone)]
pub struct Texts {
    format: Format,
    schema: SchemaRef,
}

impl Texts {
    /// Rows of `schema` as lines of `format`.
    #[must_use]
    pub fn new(format: Format, schema: &SchemaRef) -> Self {
        Self { format, schema: schema.clone() }
    }

    /// What stands before the first row.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        Writer::new(self.format, &self.schema, &mut head);
        head
    }

    /// An encoder of rows.
    #[must_use]
    pub fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(Lines(Writer::new(self.format, &self.schema, &mut Vec::new())))
    }
}

struct Lines(Writer);

impl Encoder for Lines {
    fn encode(&mut self, batch: &RecordBatch) -> Result<Encoded, Error> {
        let mut bytes = Vec::with_capacity(batch.num_rows() * 32);
        self.0.rows(batch, &mut bytes);
        Ok(Encoded { rows: batch.num_rows() as u64, bytes, ..Encoded::default() })
    }
}

/// Writes nothing.
#[derive(Debug)]
struct Null {
    texts: Texts,
}

impl Sink for Null {
    fn encoder(&self) -> Box<dyn Encoder> {
        self.texts.encoder()
    }

    fn write(&mut self, _: Encoded) -> Result<(), Error> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn commit(&mut self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn resume(&mut self, _: &Value) -> Result<(), Error> {
        Ok(())
    }
}

/// Standard output. What was written cannot be taken back: after a restart, rows may be there twice.
#[derive(Debug)]
struct Stdout {
    buffer: Vec<u8>,
    texts: Texts,
}

impl Sink for Stdout {
    fn encoder(&self) -> Box<dyn Encoder> {
        self.texts.encoder()
    }

    fn write(&mut self, encoded: Encoded) -> Result<(), Error> {
        if self.buffer.is_empty() {
            self.buffer = encoded.bytes;
        } else {
            self.buffer.extend_from_slice(&encoded.bytes);
        }
        if self.buffer.len() >= FULL { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        let written = out.write_all(&self.buffer).and_then(|()| out.flush());
        self.buffer.clear();
        written.map_err(|e| match e.kind() {
            io::ErrorKind::BrokenPipe => Error::OutputClosed,
            _ => Error::sink(
                format!("standard output cannot be written: {e}"),
                "check the disk or the program behind the pipe",
            ),
        })
    }

    fn commit(&mut self) -> Result<Value, Error> {
        self.flush()?;
        Ok(Value::Null)
    }

    fn resume(&mut self, _: &Value) -> Result<(), Error> {
        // A header is there already.
        self.buffer.clear();
        Ok(())
    }
}

//! Rows as text on standard output, or nowhere.

use std::io::{self, Write};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::config::Format;
use super::text::Writer;
use crate::connect::{Sink, Uri};
use crate::error::Error;

/// Opens standard output, or the sink that swallows everything when `uri` is `null`.
#[must_use]
pub fn open(uri: &Uri, format: Format, schema: &SchemaRef) -> Box<dyn Sink> {
    if uri.scheme == "null" { Box::new(Null) } else { Box::new(Text::new(io::stdout(), format, schema)) }
}

/// Writes nothing.
#[derive(Debug)]
struct Null;

impl Sink for Null {
    fn write(&mut self, _batch: &RecordBatch) -> Result<(), Error> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Rows as lines of text.
#[derive(Debug)]
pub struct Text<W> {
    out: W,
    writer: Writer,
    buffer: Vec<u8>,
}

/// Bytes collected before they are written.
const FULL: usize = 256 << 10;

impl<W: Write + Send> Text<W> {
    /// Rows of `schema` as lines of `format`, to `out`.
    pub fn new(out: W, format: Format, schema: &SchemaRef) -> Self {
        let mut buffer = Vec::with_capacity(FULL);
        let writer = Writer::new(format, schema, &mut buffer);
        Self { out, writer, buffer }
    }
}

impl<W: Write + Send> Sink for Text<W> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        const ROWS: usize = 2048;
        for from in (0..batch.num_rows()).step_by(ROWS) {
            let part = batch.slice(from, ROWS.min(batch.num_rows() - from));
            self.writer.rows(&part, &mut self.buffer);
            if self.buffer.len() >= FULL {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let written = self.out.write_all(&self.buffer).and_then(|()| self.out.flush());
        self.buffer.clear();
        written.map_err(|e| match e.kind() {
            io::ErrorKind::BrokenPipe => Error::OutputClosed,
            _ => Error::sink(
                format!("standard output cannot be written: {e}"),
                "check the disk or the program behind the pipe",
            ),
        })
    }
}

//! Records and rows that were left out, kept as lines of JSON.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use arrow::record_batch::RecordBatch;
use serde_json::{Map, Value, json};

use crate::cli::{BadRecords, Cli};
use crate::connect::Uri;
use crate::connect::stdout::text::Objects;
use crate::error::Error;
use crate::read::{BadRecord, Position};

/// A file of what was left out: `{"at": …, "error": …, "record": …}` a line.
pub(super) struct Keeper {
    out: BufWriter<File>,
    path: String,
}

impl Keeper {
    /// The files of `--bad-records quarantine=…` and of `--late-to`. A restart adds to them.
    ///
    /// # Errors
    /// An address is not a file's, or the file cannot be opened.
    pub(super) fn open(cli: &Cli) -> Result<(Option<Self>, Option<Self>), Error> {
        let quarantine = match &cli.bad_records {
            BadRecords::Quarantine(uri) => Some(Self::at(uri)?),
            BadRecords::Fail | BadRecords::Skip => None,
        };
        Ok((quarantine, cli.late_to.as_deref().map(Self::at).transpose()?))
    }

    fn at(text: &str) -> Result<Self, Error> {
        let uri = Uri::parse_sink(text)?;
        if uri.scheme != "file" {
            return Err(Error::usage(format!("{uri} is not a file"), "write file://path"));
        }
        let opened = File::options().append(true).create(true).open(&uri.path);
        let file = opened.map_err(|e| {
            Error::sink(format!("{} cannot be written: {e}", uri.path), "check the directory and its permissions")
        })?;
        Ok(Self { out: BufWriter::new(file), path: uri.path })
    }

    /// Keeps a record that was refused.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn refused(&mut self, bad: &BadRecord, payload: &[u8]) -> Result<(), Error> {
        let mut line = Map::new();
        line.insert("at".into(), place(Some(&bad.at)));
        line.insert("error".into(), json!(bad.error.to_string()));
        if !payload.is_empty() {
            line.insert("record".into(), json!(String::from_utf8_lossy(payload)));
        }
        self.line(&Value::Object(line))
    }

    /// Keeps a row that was left out for its event time.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn left_out(
        &mut self,
        at: Option<&Position>,
        why: &'static str,
        row: &RecordBatch,
    ) -> Result<(), Error> {
        let mut text = Vec::new();
        Objects::new(&row.schema()).rows(row, &mut text);
        let record: Value = serde_json::from_slice(&text).unwrap_or(Value::Null);
        self.line(&json!({ "at": place(at), "error": why, "record": record }))
    }

    fn line(&mut self, line: &Value) -> Result<(), Error> {
        writeln!(self.out, "{line}").map_err(|e| self.fail(&e))
    }

    fn fail(&self, error: &std::io::Error) -> Error {
        Error::sink(format!("{} cannot be written: {error}", self.path), "check the space on the disk")
    }

    /// Brings what was kept to the disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let written = self.out.flush().and_then(|()| self.out.get_ref().sync_data());
        written.map_err(|e| self.fail(&e))
    }
}

fn place(at: Option<&Position>) -> Value {
    match at {
        None => Value::Null,
        Some(Position::Line { file, line }) => json!({ "file": **file, "line": line }),
        Some(Position::Offset { topic, partition, offset }) => {
            json!({ "topic": **topic, "partition": partition, "offset": offset })
        }
    }
}

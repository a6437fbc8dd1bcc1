//! Writing to a file that a restart can go on with.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use arrow::datatypes::SchemaRef;
use serde_json::Value;

use crate::cli::Cli;
use crate::connect::Uri;
use crate::connect::sink::{Encoded, Encoder, Sink};
use crate::connect::stdout::sink::Texts;
use crate::error::Error;

/// Opens the file of an address. It is emptied by the first write, unless a checkpoint says where its rows end.
///
/// # Errors
/// It cannot be opened for writing.
pub fn open(uri: &Uri, cli: &Cli, schema: &SchemaRef) -> Result<Box<dyn Sink>, Error> {
    let path = PathBuf::from(&uri.path);
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = opened.map_err(|e| {
        Error::sink(format!("{} cannot be written: {e}", path.display()), "check the directory and its permissions")
    })?;
    Ok(Box::new(FileSink { file, path, texts: Texts::new(cli.format, schema), begun: false }))
}

struct FileSink {
    file: File,
    path: PathBuf,
    texts: Texts,
    /// What stood in the file before has been dealt with.
    begun: bool,
}

impl FileSink {
    fn fail(&self, error: &std::io::Error) -> Error {
        Error::sink(format!("{} cannot be written: {error}", self.path.display()), "check the space on the disk")
    }

    fn begin(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let head = self.texts.head();
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(&head));
        written.map_err(|e| self.fail(&e))
    }
}

impl Sink for FileSink {
    fn encoder(&self) -> Box<dyn Encoder> {
        self.texts.encoder()
    }

    fn write(&mut self, encoded: Encoded) -> Result<(), Error> {
        self.begin()?;
        self.file.write_all(&encoded.bytes).map_err(|e| self.fail(&e))
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.begin()
    }

    fn commit(&mut self) -> Result<Value, Error> {
        self.begin()?;
        let end = self.file.sync_data().and_then(|()| self.file.stream_position());
        end.map(Value::from).map_err(|e| self.fail(&e))
    }

    fn resume(&mut self, position: &Value) -> Result<(), Error> {
        let end = position.as_u64().unwrap_or(0);
        let size = self.file.metadata().map_err(|e| self.fail(&e))?.len();
        if size < end {
            return Err(Error::checkpoint(
                format!(
                    "{} is shorter than what had been written to it: {size} bytes, {end} written",
                    self.path.display()
                ),
                "the output of a checkpoint must stay as it was; begin anew with another --checkpoint",
            ));
        }
        let cut = self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::Start(end)));
        cut.map_err(|e| self.fail(&e))?;
        self.begun = true;
        Ok(())
    }
}

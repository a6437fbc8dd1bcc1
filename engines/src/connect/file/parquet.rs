//! Parquet files as a source of the flow: every row group is a stretch, and only the columns of the query are read.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use serde_json::{Value, json};

use super::absolute;
use super::config::Inputs;
use super::stretches::{ROWS, WITHIN};
use crate::cli::Cli;
use crate::connect::Uri;
use crate::connect::source::{Decoded, Read, Reader, Source, Stretch};
use crate::error::Error;
use crate::format::parquet::{Flattener, logical_schema};
use crate::read::{Position, ReadPlan};
use crate::sql::SourceSchema;

/// Parquet files that are read one behind the other, all of the same columns.
pub struct ParquetFiles {
    schema: SourceSchema,
    shared: Arc<Shared>,
}

struct Shared {
    files: Vec<Part>,
    cursor: Mutex<Cursor>,
}

struct Part {
    path: PathBuf,
    name: Arc<str>,
    metadata: ArrowReaderMetadata,
}

/// The row group that is next.
#[derive(Debug, Default)]
struct Cursor {
    file: usize,
    group: usize,
    order: u64,
}

impl ParquetFiles {
    /// Opens the files of an address and reads their footers.
    ///
    /// # Errors
    /// A file cannot be opened or is no Parquet, or the columns of two files differ.
    pub fn open(uri: &Uri, cli: &Cli) -> Result<Self, Error> {
        let inputs = Inputs::find(uri)?;
        let name = inputs.stream();
        let Inputs::Files(paths) = inputs else {
            return Err(Error::usage(
                "Parquet cannot be read from standard input",
                "name a file: its end is read first",
            ));
        };
        if cli.columns.is_some() {
            return Err(Error::usage("--columns has no meaning for Parquet", "its columns have types; use CAST"));
        }
        let files: Vec<Part> = paths.into_iter().map(Part::open).collect::<Result<_, _>>()?;
        let schema = logical_schema(files[0].metadata.schema());
        if let Some(other) = files.iter().find(|part| logical_schema(part.metadata.schema()) != schema) {
            return Err(Error::source(
                format!("{} does not have the columns of {}", other.name, files[0].name),
                "read files of unlike columns apart, and join them with UNION ALL",
            ));
        }
        let cursor = Mutex::new(Cursor::default());
        Ok(Self { schema: SourceSchema { name, schema }, shared: Arc::new(Shared { files, cursor }) })
    }
}

impl Part {
    fn open(path: PathBuf) -> Result<Self, Error> {
        let opened = File::open(&path).map_err(|e| {
            Error::source(format!("{} cannot be opened: {e}", path.display()), "check the path and its permissions")
        })?;
        // The types are Parquet's own: what a writer noted of its own types is of no use to others.
        let metadata = ArrowReaderMetadata::load(&opened, ArrowReaderOptions::new()).map_err(|e| {
            Error::source(
                format!("{} cannot be read as Parquet: {e}", path.display()),
                "say what it is with --input-format",
            )
        })?;
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { path, name: name.into(), metadata })
    }

    fn groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Number of the first row of a row group.
    fn first_row(&self, group: usize) -> u64 {
        let groups = self.metadata.metadata().row_groups();
        groups[..group].iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next row group: file, number, order, and whether the file ends with it. A file without one ends at once.
    fn take(&self) -> Option<(usize, Option<usize>, u64, bool)> {
        let mut cursor = self.lock();
        let part = self.files.get(cursor.file)?;
        let (file, group, order) = (cursor.file, cursor.group, cursor.order);
        let last = group + 1 >= part.groups();
        (cursor.file, cursor.group) = if last { (file + 1, 0) } else { (file, group + 1) };
        cursor.order += 1;
        Some((file, (group < part.groups()).then_some(group), order, last))
    }
}

impl Source for ParquetFiles {
    fn schema(&self) -> &SourceSchema {
        &self.schema
    }

    fn identity(&self) -> String {
        self.shared.files.iter().map(|part| absolute(&part.path)).collect::<Vec<_>>().join(", ")
    }

    fn partitions(&self) -> u32 {
        u32::try_from(self.shared.files.len()).unwrap_or(u32::MAX)
    }

    fn bounded(&self) -> bool {
        true
    }

    fn seek(&mut self, position: &Value) -> Result<(), Error> {
        let number = |key: &str| position.get(key).and_then(Value::as_u64).unwrap_or(0) as usize;
        let (file, group) = (number("file"), number("group"));
        let gone = self.shared.files.get(file).is_some_and(|part| group > part.groups());
        if gone || file > self.shared.files.len() {
            return Err(Error::checkpoint(
                "the files have fewer row groups than had been read of them",
                "the input of a checkpoint must stay as it was",
            ));
        }
        *self.shared.lock() = Cursor { file, group, order: 0 };
        Ok(())
    }

    fn readers(&mut self, plan: &ReadPlan, workers: usize) -> Result<Vec<Box<dyn Reader>>, Error> {
        let one = || -> Result<Box<dyn Reader>, Error> {
            let flattener = Flattener::new(plan, &self.schema.schema)
                .map_err(|reason| Error::source(reason, "leave the column out of the query"))?;
            Ok(Box::new(GroupReader { shared: Arc::clone(&self.shared), flattener, schema: plan.flat_schema() }))
        };
        (0..workers).map(|_| one()).collect()
    }

    fn position(&self) -> Value {
        let cursor = self.shared.lock();
        json!({ "file": cursor.file, "group": cursor.group })
    }

    fn locate(&self, place: u64) -> Position {
        let (file, row) = ((place >> WITHIN) as usize, place & ((1 << WITHIN) - 1));
        let name = self.shared.files.get(file).map_or("".into(), |part| Arc::clone(&part.name));
        Position::Line { file: name, line: row + 1 }
    }
}

struct GroupReader {
    shared: Arc<Shared>,
    flattener: Flattener,
    schema: SchemaRef,
}

impl Reader for GroupReader {
    fn read(&mut self, _: Duration) -> Result<Read, Error> {
        let shared = Arc::clone(&self.shared);
        let Some((file, group, order, last)) = shared.take() else { return Ok(Read::End) };
        let partition = u32::try_from(file).unwrap_or(u32::MAX);
        let mut stretch = Stretch { order, partition, last, records: 0, batches: vec![], refused: vec![] };
        let part = &shared.files[file];
        let fail = |reason: String| {
            Error::source(format!("{} cannot be read: {reason}", part.name), "the file may be damaged")
        };
        let Some(group) = group else { return Ok(Read::Stretch(stretch)) };
        let open = File::open(&part.path).map_err(|e| fail(e.to_string()))?;
        let mask = ProjectionMask::roots(part.metadata.parquet_schema(), self.flattener.roots().iter().copied());
        let batches = ParquetRecordBatchReaderBuilder::new_with_metadata(open, part.metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(mask)
            .with_batch_size(ROWS)
            .build()
            .map_err(|e| fail(e.to_string()))?;
        let mut place = (file as u64) << WITHIN | part.first_row(group);
        for batch in batches {
            let batch = batch.map_err(|e| fail(e.to_string()))?;
            let records = batch.num_rows() as u64;
            let places = (place..place + records).collect();
            let (flat, ends) = self.flattener.flatten(&batch).map_err(fail)?;
            stretch.batches.push(Decoded::new(flat, places, ends, &self.schema));
            stretch.records += records;
            place += records;
        }
        Ok(Read::Stretch(stretch))
    }
}

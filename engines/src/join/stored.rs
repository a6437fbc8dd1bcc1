//! Rows of an interval join in runs.
//!
//! A chunk's rows are written once, and which of them have had a partner again whenever that changes. The key of an entry is
//! what it holds, the side and the chunk's name; rows are an Arrow stream whose texts are plain.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::rows::{Chunk, Kind};
use super::shard::Shared;
use crate::state::run::{Run, RunWriter, StateError};

const ROWS: u8 = 0;
const MATCHED: u8 = 1;

/// What is written of a chunk.
#[derive(Debug)]
pub(super) struct Entry {
    input: usize,
    name: u64,
    rows: Option<(Kind, RecordBatch)>,
    matched: Option<Vec<bool>>,
}

impl Entry {
    /// What a checkpoint does not have of a chunk yet, or with `whole` all.
    pub(super) fn of(input: usize, chunk: &mut Chunk, whole: bool) -> Option<Self> {
        let rows = (whole || !chunk.frozen).then(|| (chunk.kind, chunk.batch.clone()));
        let matched = (chunk.changed || rows.is_some() && chunk.matched.contains(&true)).then(|| chunk.matched.clone());
        (chunk.frozen, chunk.changed) = (true, false);
        (rows.is_some() || matched.is_some()).then_some(Self { input, name: chunk.name, rows, matched })
    }

    fn key(&self, what: u8) -> [u8; 10] {
        let mut key = [what, u8::from(self.input == 1), 0, 0, 0, 0, 0, 0, 0, 0];
        key[2..].copy_from_slice(&self.name.to_be_bytes());
        key
    }
}

/// Chunks on their way to disk.
pub(super) struct JoinRun(Vec<Entry>);

impl JoinRun {
    pub(super) fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by_key(|entry| (entry.input, entry.name));
        Self(entries)
    }
}

impl Run for JoinRun {
    fn write(self: Box<Self>, out: &mut RunWriter) -> Result<(), StateError> {
        for entry in &self.0 {
            let Some((kind, batch)) = &entry.rows else { continue };
            let mut value = vec![*kind as u8];
            written(batch, &mut value).map_err(|error| out.failed(std::io::Error::other(error)))?;
            out.entry(&entry.key(ROWS), &value)?;
        }
        for entry in &self.0 {
            let Some(matched) = &entry.matched else { continue };
            let bits: Vec<u8> = matched
                .chunks(8)
                .map(|eight| (0..8).zip(eight).fold(0, |byte, (at, bit)| byte | u8::from(*bit) << at))
                .collect();
            out.entry(&entry.key(MATCHED), &bits)?;
        }
        Ok(())
    }
}

/// An entry that was read back.
#[derive(Debug)]
pub(super) enum Stored {
    /// Rows of a chunk.
    Rows { input: usize, name: u64, kind: Kind, batch: RecordBatch },
    /// Which of them have had a partner.
    Matched { input: usize, name: u64, bits: Vec<u8> },
}

/// Reads an entry; `None` when it is none.
pub(super) fn parse(key: &[u8], value: &[u8], shared: &Shared) -> Option<Stored> {
    let key: &[u8; 10] = key.try_into().ok()?;
    let (head, name) = key.split_first_chunk::<2>()?;
    let name = u64::from_be_bytes(name.try_into().ok()?);
    let input = usize::from(head[1]);
    let schema = shared.schema.get(input)?;
    match head[0] {
        ROWS => {
            let (kind, value) = value.split_first()?;
            let kind = *[Kind::Paired, Kind::Keyless, Kind::Timeless].get(usize::from(*kind))?;
            Some(Stored::Rows { input, name, kind, batch: read(value, schema).ok()? })
        }
        MATCHED => Some(Stored::Matched { input, name, bits: value.to_vec() }),
        _ => None,
    }
}

/// The bits of so many rows.
pub(super) fn matched_bits(bits: &[u8], rows: usize) -> Option<Vec<bool>> {
    (bits.len() == rows.div_ceil(8)).then(|| (0..rows).map(|row| bits[row / 8] >> (row % 8) & 1 == 1).collect())
}

/// A type with its texts out of their dictionaries.
fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        DataType::List(item) => {
            DataType::List(Arc::new(Field::new(item.name(), plain(item.data_type()), item.is_nullable())))
        }
        other => other.clone(),
    }
}

fn converted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if batch.num_columns() != schema.fields().len() {
        return Err(ArrowError::SchemaError("the number of columns differs".into()));
    }
    let column = |(column, field): (&ArrayRef, &Arc<Field>)| cast(column, field.data_type());
    let columns = batch.columns().iter().zip(schema.fields()).map(column).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

fn written(batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
    let fields = batch.schema();
    let fields = fields.fields().iter().map(|f| Field::new(f.name(), plain(f.data_type()), f.is_nullable()));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut writer = StreamWriter::try_new(out, &schema)?;
    writer.write(&converted(batch, &schema)?)?;
    writer.finish()
}

fn read(bytes: &[u8], schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let none = || ArrowError::IpcError("no rows".into());
    converted(&StreamReader::try_new(bytes, None)?.next().ok_or_else(none)??, schema)
}

//! The rows of a join in checkpoints.
//!
//! The key of an entry is the side, 0 for a row or 1 for the word that it has had a partner, and the row's position; the value
//! is the row in Arrow's row format.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::types::UInt64Type;
use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};

use crate::error::Error;
use crate::plan;
use crate::state::run::{Run, RunFile, RunWriter, StateError};

const ROW: u8 = 0;
const MATCHED: u8 = 1;

/// Rows on their way into a checkpoint.
pub(super) struct JoinRun {
    plan: Arc<plan::IntervalJoin>,
    batches: [Vec<RecordBatch>; 2],
    matched: [Vec<u64>; 2],
}

fn schema_of(plan: &plan::IntervalJoin, side: usize) -> &SchemaRef {
    if side == 0 { &plan.left } else { &plan.right }
}

fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        other => other.clone(),
    }
}

fn converter(schema: &Schema) -> Result<RowConverter, ArrowError> {
    RowConverter::new(schema.fields().iter().map(|field| SortField::new(plain(field.data_type()))).collect())
}

impl JoinRun {
    pub(super) fn new(plan: &Arc<plan::IntervalJoin>) -> Self {
        Self { plan: Arc::clone(plan), batches: [vec![], vec![]], matched: [vec![], vec![]] }
    }

    /// Adds rows of a side.
    pub(super) fn rows(&mut self, side: usize, batches: &[RecordBatch]) {
        self.batches[side].extend_from_slice(batches);
    }

    /// Adds positions of rows that have had a partner.
    pub(super) fn matched(&mut self, side: usize, positions: Vec<u64>) {
        self.matched[side].extend(positions);
    }

    fn encoded(&self, side: usize) -> Result<Vec<(u64, Vec<u8>)>, ArrowError> {
        let position = if side == 0 { self.plan.left_position } else { self.plan.right_position };
        let schema = schema_of(&self.plan, side);
        let converter = converter(schema)?;
        let mut rows = Vec::new();
        for batch in &self.batches[side] {
            let columns: Vec<ArrayRef> = batch
                .columns()
                .iter()
                .map(|column| cast(column, &plain(column.data_type())))
                .collect::<Result<_, _>>()?;
            let encoded = converter.convert_columns(&columns)?;
            let positions = batch.column(position).as_primitive::<UInt64Type>().values();
            rows.extend(positions.iter().zip(encoded.iter()).map(|(at, row)| (*at, row.as_ref().to_vec())));
        }
        rows.sort_unstable();
        Ok(rows)
    }
}

fn key(side: usize, kind: u8, position: u64) -> Vec<u8> {
    let mut key = vec![u8::from(side == 1), kind];
    key.extend_from_slice(&position.to_be_bytes());
    key
}

impl Run for JoinRun {
    fn write(mut self: Box<Self>, out: &mut RunWriter) -> Result<(), StateError> {
        for side in 0..2 {
            let rows = self.encoded(side).map_err(|error| out.refused(&error.to_string()))?;
            rows.iter().try_for_each(|(position, row)| out.entry(&key(side, ROW, *position), row))?;
            self.matched[side].sort_unstable();
            self.matched[side].iter().try_for_each(|position| out.entry(&key(side, MATCHED, *position), &[]))?;
        }
        Ok(())
    }
}

/// What the runs of a checkpoint hold.
#[derive(Debug, Default)]
pub(super) struct Restored {
    rows: [Vec<Vec<u8>>; 2],
    matched: [HashSet<u64>; 2],
}

impl Restored {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.iter().all(Vec::is_empty)
    }

    /// Adds a run.
    pub(super) fn read(&mut self, run: &RunFile) -> Result<(), Error> {
        let mut reader = run.read_from(&[])?;
        while let Some(key) = reader.key() {
            let wrong = || StateError::Damaged { path: run.path().into(), reason: "an entry is not of a join".into() };
            let (side, kind, position) = match key {
                [side @ (0 | 1), kind @ (ROW | MATCHED), position @ ..] => {
                    (usize::from(*side), *kind, <[u8; 8]>::try_from(position).map_err(|_| wrong())?)
                }
                _ => return Err(wrong().into()),
            };
            if kind == ROW {
                self.rows[side].push(reader.value().to_vec());
            } else {
                self.matched[side].insert(u64::from_be_bytes(position));
            }
            reader.step()?;
        }
        Ok(())
    }

    /// The rows of both sides.
    pub(super) fn rows(&self, plan: &plan::IntervalJoin) -> Result<[RecordBatch; 2], Error> {
        let failed =
            |error: ArrowError| Error::source(format!("rows of a checkpoint: {error}"), "report this as a bug");
        let side = |side: usize| -> Result<RecordBatch, ArrowError> {
            let schema = schema_of(plan, side);
            let converter = converter(schema)?;
            let parser = converter.parser();
            let columns = converter.convert_rows(self.rows[side].iter().map(|row| parser.parse(row)))?;
            let columns = columns.iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
            RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)
        };
        Ok([side(0).map_err(failed)?, side(1).map_err(failed)?])
    }

    /// Whether a row has had a partner.
    pub(super) fn matched(&self, side: usize, position: u64) -> bool {
        self.matched[side].contains(&position)
    }
}

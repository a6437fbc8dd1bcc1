//! Filter, then project: the vectorised part of a query.

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::Expr;

use super::planned::Planned;
use super::program::{Failure, Program};
use super::select::Selection;
use crate::read::RecordError;

/// Filters and projects batches; one per worker.
#[derive(Debug, Clone)]
pub struct Transform {
    filter: Option<Program>,
    outputs: Program,
    /// Flat columns the outputs read: only these are filtered.
    read: Vec<bool>,
    schema: SchemaRef,
}

/// What became of one batch.
#[derive(Debug)]
pub struct Applied {
    /// The rows that passed, in order, in the query's output schema.
    pub batch: RecordBatch,
    /// Rows left out because an expression failed on them, in order.
    pub errors: Vec<RowError>,
}

/// A row on which an expression failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowError {
    /// Index of the row in the decoded batch.
    pub row: usize,
    /// What failed: [`RecordError::Eval`].
    pub error: RecordError,
}

impl Transform {
    pub(super) fn new(planned: &Planned, schema: SchemaRef) -> Result<Self> {
        let compile = |exprs: &[(String, Expr)]| Program::compile(exprs, &planned.flat, &planned.reads);
        let filter = planned.filter.as_ref().map(|f| compile(&[("WHERE".to_owned(), f.clone())])).transpose()?;
        let outputs = compile(&planned.outputs)?;
        Ok(Self { filter, read: outputs.reads(), outputs, schema })
    }

    /// Tells a reader what it keeps and makes.
    pub(super) fn explain(&self, indent: &str, text: &mut String) {
        use std::fmt::Write as _;
        if let Some(filter) = &self.filter {
            let _ = writeln!(text, "{indent}keep {}", filter.texts().join(", "));
        }
        for (expr, field) in self.outputs.texts().iter().zip(self.schema.fields()) {
            let _ = writeln!(text, "{indent}  {} = {expr}", field.name());
        }
    }

    /// Which columns of a batch its outputs read.
    pub(crate) fn reads(&self) -> &[bool] {
        &self.read
    }

    /// Schema of the batches it yields.
    #[must_use]
    pub fn output_schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Applies the query to one decoded batch of [`crate::read::ReadPlan::schema`].
    ///
    /// It never fails as a whole: a row whose expression overflows, divides by zero or casts what cannot be cast is left
    /// out and reported. Such a row is looked for only after the vectorised evaluation has failed.
    #[must_use]
    pub fn apply(&mut self, batch: &RecordBatch) -> Applied {
        match self.vectorised(batch) {
            Ok(batch) => Applied { batch, errors: vec![] },
            Err(_) => {
                let (mut parts, mut errors) = (Vec::new(), Vec::new());
                self.halve(batch, 0, &mut parts, &mut errors);
                match concat_batches(&self.schema, &parts) {
                    Ok(batch) => Applied { batch, errors },
                    Err(error) => {
                        let failure = Failure { name: "SELECT".into(), error: error.into() };
                        let errors = vec![RowError { row: 0, error: eval_error(&failure) }];
                        Applied { batch: RecordBatch::new_empty(self.schema.clone()), errors }
                    }
                }
            }
        }
    }

    /// Narrows a failure down to its rows.
    fn halve(&mut self, batch: &RecordBatch, first: usize, parts: &mut Vec<RecordBatch>, errors: &mut Vec<RowError>) {
        let rows = batch.num_rows();
        if rows > 1 {
            let half = rows / 2;
            for (from, length) in [(0, half), (half, rows - half)] {
                let part = batch.slice(from, length);
                match self.vectorised(&part) {
                    Ok(done) => parts.push(done),
                    Err(_) => self.halve(&part, first + from, parts, errors),
                }
            }
            return;
        }
        match self.single(batch) {
            Ok(done) => parts.push(done),
            Err(failure) => errors.push(RowError { row: first, error: eval_error(&failure) }),
        }
    }

    fn vectorised(&mut self, batch: &RecordBatch) -> Result<RecordBatch, Failure> {
        let Some(filter) = &mut self.filter else { return self.project(batch.columns(), batch.num_rows()) };
        let mask = filter.evaluate(batch.columns(), batch.num_rows())?;
        let mask = mask[0].as_boolean();
        let kept = mask.true_count();
        if kept == batch.num_rows() {
            return self.project(batch.columns(), kept);
        }
        if kept == 0 {
            return Ok(RecordBatch::new_empty(self.schema.clone()));
        }
        let lists =
            batch.columns().iter().zip(&self.read).any(|(c, read)| *read && matches!(c.data_type(), DataType::List(_)));
        let selection = Selection::new(mask, lists);
        let mut columns = Vec::with_capacity(self.read.len());
        for (column, read) in batch.columns().iter().zip(&self.read) {
            // A column no output reads stays as it is: nothing looks at it.
            let column = if *read { selection.filter(column) } else { Ok(column.clone()) };
            columns.push(column.map_err(|e| Failure { name: "WHERE".into(), error: e.into() })?);
        }
        self.project(&columns, kept)
    }

    fn project(&mut self, columns: &[ArrayRef], rows: usize) -> Result<RecordBatch, Failure> {
        let results = self.outputs.evaluate(columns, rows)?;
        self.batch(results, rows)
    }

    /// One row through plain expressions, where AND, CASE and COALESCE leave out what need not be computed.
    fn single(&self, row: &RecordBatch) -> Result<RecordBatch, Failure> {
        if let Some(filter) = &self.filter {
            let mask = filter.evaluate_plain(row.columns(), 1)?;
            if mask[0].as_boolean().true_count() == 0 {
                return Ok(RecordBatch::new_empty(self.schema.clone()));
            }
        }
        let results = self.outputs.evaluate_plain(row.columns(), 1)?;
        self.batch(results, 1)
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, Failure> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|e| Failure { name: "SELECT".into(), error: e.into() })
    }
}

fn eval_error(failure: &Failure) -> RecordError {
    let root = failure.error.find_root();
    let (code, text) = match root {
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::DivideByZero => ("DIVISION_BY_ZERO", "division by zero".to_owned()),
            ArrowError::ArithmeticOverflow(text) => ("OUT_OF_RANGE", text.clone()),
            ArrowError::CastError(text) => ("RUNTIME_ERROR", text.clone()),
            other => ("RUNTIME_ERROR", other.to_string()),
        },
        DataFusionError::Execution(text) => ("RUNTIME_ERROR", text.clone()),
        other => ("RUNTIME_ERROR", other.strip_backtrace()),
    };
    RecordError::Eval { code, reason: format!("{}: {text}", failure.name) }
}

//! SQL: from a query text and the schema of its source to a vectorised transform.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_expr::ExprSchemable;

mod catalog;
mod columns;
mod dictionary;
mod error;
mod functions;
mod parse;
mod plan;
mod program;
mod refuse;
mod select;
mod transform;

pub use columns::column_types;
pub use error::SqlError;
pub use transform::{Applied, RowError, Transform};

use crate::read::{ReadPlan, decoded_type};

/// What a source offers to a query.
#[derive(Debug, Clone)]
pub struct SourceSchema {
    /// The stream's own name, for messages. With one source, the query may call it anything.
    pub name: String,
    /// The record as Arrow types: records are structs, lists are lists, strings are `Utf8`.
    pub schema: SchemaRef,
}

/// A compiled query.
#[derive(Debug, Clone)]
pub struct Query {
    reads: ReadPlan,
    output: SchemaRef,
    limit: Option<u64>,
    transform: Transform,
    explain: String,
}

impl Query {
    /// Compiles a query against its source.
    ///
    /// # Errors
    /// The query cannot be parsed, names what the source does not have, or asks for what is not supported.
    pub fn compile(sql: &str, source: &SourceSchema) -> Result<Self, SqlError> {
        // Parser and planner are recursive: a query is refused for its depth on a stack that holds any query.
        const STACK: usize = 512 << 20;
        let failed = || SqlError::not_supported("this query (the planner fails on it)", "write it in another way");
        std::thread::scope(|scope| {
            let planner = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || Self::plan(sql, source));
            planner.map_err(|_| failed())?.join().unwrap_or_else(|_| Err(failed()))
        })
    }

    fn plan(sql: &str, source: &SourceSchema) -> Result<Self, SqlError> {
        let parsed = parse::parse(sql, source)?;
        let limit = parsed.limit;
        let planned = plan::plan(parsed, source)?;
        let mut fields = Vec::with_capacity(planned.outputs.len());
        for (name, expr) in &planned.outputs {
            let (_, field) = expr.to_field(&planned.flat).map_err(plan::refused)?;
            fields.push(Field::new(name, decoded_type(field.data_type()), field.is_nullable()));
        }
        let output = Arc::new(Schema::new(fields));
        let transform = Transform::new(&planned, output.clone()).map_err(plan::refused)?;
        let explain = explain(&planned, &output, limit);
        Ok(Self { reads: planned.reads, output, limit, transform, explain })
    }

    /// The leaves of a record the query reads.
    #[must_use]
    pub fn reads(&self) -> &ReadPlan {
        &self.reads
    }

    /// Schema of the batches a [`Transform`] yields. Strings are `Dictionary(Int32, Utf8)`, also inside lists; the values
    /// of a dictionary are never null but may repeat.
    #[must_use]
    pub fn output_schema(&self) -> SchemaRef {
        self.output.clone()
    }

    /// The most rows the query wants, over all workers.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// A transform for one worker; it keeps caches, so each worker has its own.
    #[must_use]
    pub fn worker(&self) -> Transform {
        self.transform.clone()
    }

    /// What the query reads, keeps and writes, for a reader.
    #[must_use]
    pub fn explain(&self) -> &str {
        &self.explain
    }
}

fn explain(planned: &plan::Planned, output: &Schema, limit: Option<u64>) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("read\n");
    let unnest = planned.reads.unnest.as_deref();
    for (column, field) in planned.reads.columns.iter().zip(planned.flat.fields()) {
        let _ = writeln!(text, "  {} {}", column.display_path(unnest), field.data_type());
    }
    if let Some(list) = unnest {
        let _ = writeln!(text, "unnest\n  {}", list.join("."));
    }
    if let Some(filter) = &planned.filter {
        let _ = writeln!(text, "keep\n  {filter}");
    }
    text.push_str("write\n");
    for ((name, expr), field) in planned.outputs.iter().zip(output.fields()) {
        let _ = writeln!(text, "  {name} {} = {expr}", field.data_type());
    }
    if let Some(limit) = limit {
        let _ = writeln!(text, "limit\n  {limit}");
    }
    text
}

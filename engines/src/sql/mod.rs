//! SQL: from a query text and the schema of its source to a vectorised transform.

use arrow::datatypes::SchemaRef;

mod error;
mod transform;

pub use error::SqlError;
pub use transform::{Applied, RowError, Transform};

use crate::read::ReadPlan;

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
}

impl Query {
    /// Compiles a query against its source.
    ///
    /// # Errors
    /// The query cannot be parsed, names what the source does not have, or asks for what is not supported.
    pub fn compile(_sql: &str, _source: &SourceSchema) -> Result<Self, SqlError> {
        Err(SqlError::not_supported("any query", "compiling comes with the next commit"))
    }

    /// The leaves of a record the query reads.
    #[must_use]
    pub fn reads(&self) -> &ReadPlan {
        &self.reads
    }

    /// Schema of the batches a [`Transform`] yields. Strings are `Dictionary(Int32, Utf8)`, also inside lists.
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
        Transform::new(self.output.clone())
    }
}

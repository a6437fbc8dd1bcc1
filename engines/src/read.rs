//! What a query reads of one source record, and the decoder that reads it.
//!
//! A [`ReadPlan`] names the leaves a query needs; a [`Decoder`] turns record payloads into flat Arrow batches with exactly
//! these columns. `UNNEST` happens here: the columns of the record repeat for every element of the unnested list.

use std::fmt;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use std::sync::Arc;

use crate::plan::POSITION;

/// The leaves a query reads of every record, in the order of the decoded batch's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPlan {
    /// The columns of a decoded batch.
    pub columns: Vec<ReadColumn>,
    /// Path of the list that is unnested, from the record's root. A record whose list is empty or null yields no row.
    pub unnest: Option<Vec<String>>,
    /// Whether the source adds the position of every row as a last column, [`crate::plan::POSITION`].
    pub position: bool,
}

/// One leaf of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadColumn {
    /// Name in the decoded batch: unique in the plan (`sensor`, `e.unit`).
    pub name: String,
    /// Path from the record's root or, when `of_element`, from the element of the unnested list. Empty: the element itself.
    pub path: Vec<String>,
    /// The leaf belongs to the element of the unnested list.
    pub of_element: bool,
    /// Type of the decoded column. A string is `Dictionary(Int32, Utf8)`, a list of strings a list of such.
    pub data_type: DataType,
    /// Whether the column may hold nulls.
    pub nullable: bool,
}

impl ReadPlan {
    /// Schema of what a decoder yields.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        let fields: Vec<Field> =
            self.columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable)).collect();
        Arc::new(Schema::new(fields))
    }

    /// Schema of the batches the query's expressions see: the decoder's columns, then the position when it is read.
    #[must_use]
    pub fn flat_schema(&self) -> SchemaRef {
        let position = self.position.then(|| Arc::new(Field::new(POSITION, DataType::UInt64, false)));
        Arc::new(Schema::new(self.schema().fields().iter().cloned().chain(position).collect::<Vec<_>>()))
    }
}

impl ReadColumn {
    /// The leaf as a reader writes it: `payload.region`, `events[].unit`.
    #[must_use]
    pub fn display_path(&self, unnest: Option<&[String]>) -> String {
        let own = self.path.join(".");
        match (self.of_element, unnest) {
            (true, Some(list)) if own.is_empty() => format!("{}[]", list.join(".")),
            (true, Some(list)) => format!("{}[].{own}", list.join(".")),
            _ => own,
        }
    }
}

/// `Dictionary(Int32, Utf8)`: the type of every decoded string.
#[must_use]
pub fn string_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The decoded type of a source type: strings become dictionaries, also inside lists; other types stay.
#[must_use]
pub fn decoded_type(source: &DataType) -> DataType {
    match source {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => string_type(),
        DataType::List(item) => {
            DataType::List(Arc::new(Field::new(item.name(), decoded_type(item.data_type()), item.is_nullable())))
        }
        other => other.clone(),
    }
}

/// Reads records into Arrow columns.
///
/// A decoder keeps one growing dictionary per string column across batches and hands out the same `Arc` of values while it
/// has not grown, so that what derives from a string is computed once per dictionary entry. It may start a new dictionary
/// when one has become large.
pub trait Decoder: Send {
    /// Appends one record and says how many rows it added: 1 without `UNNEST`, else the length of the list.
    ///
    /// # Errors
    /// The record does not fit. Then none of it has been appended, and the decoder goes on with the next record.
    fn decode(&mut self, payload: &[u8]) -> Result<usize, RecordError>;

    /// Rows appended since the last [`Decoder::take`].
    fn rows(&self) -> usize;

    /// Hands out what has been appended as one batch of [`ReadPlan::schema`] and starts the next; an empty batch is fine.
    fn take(&mut self) -> RecordBatch;
}

/// Why one record was refused, without where it stood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The payload is not a record of the source's format.
    #[error("not valid {format}: {reason}")]
    Malformed {
        /// `JSON` or `Avro`.
        format: &'static str,
        /// What is wrong, with the byte where it helps.
        reason: String,
    },
    /// A value does not fit the column that reads it.
    #[error("field {field}: {text} does not fit {expected}")]
    Misfit {
        /// Path of the field.
        field: String,
        /// The value's text, cut to a readable length.
        text: String,
        /// The type that was expected, in SQL's terms.
        expected: String,
    },
    /// An expression of the query failed on a row of this record.
    #[error("{reason}")]
    Eval {
        /// `OUT_OF_RANGE`, `DIVISION_BY_ZERO` or `RUNTIME_ERROR`.
        code: &'static str,
        /// What failed, naming the expression.
        reason: String,
    },
}

/// Where a record stands in its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// A line of a file or of standard input, counted from 1.
    Line {
        /// The file's name, or `stdin`.
        file: Arc<str>,
        /// Line number.
        line: u64,
    },
    /// A record of a Kafka topic.
    Offset {
        /// Topic.
        topic: Arc<str>,
        /// Partition.
        partition: i32,
        /// Offset of the record.
        offset: i64,
    },
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{file} line {line}"),
            Self::Offset { topic, partition, offset } => write!(f, "{topic} partition {partition} offset {offset}"),
        }
    }
}

/// A refused record and where it stood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {error}")]
pub struct BadRecord {
    /// Where the record stood.
    pub at: Position,
    /// Why it was refused.
    pub error: RecordError,
}

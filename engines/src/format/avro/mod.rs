//! Avro in Confluent's framing: a zero byte, the writer schema's id, the datum.

mod columns;
mod cursor;
pub(crate) mod dict;
mod exec;
mod program;
mod schema;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use self::columns::{Columns, Layout};
use self::cursor::Cursor;
use self::program::Program;
use self::schema::Avro;
pub use self::schema::SchemaError;
use crate::read::{Decoder, ReadPlan, RecordError};

/// Finds writer schemas by their id.
pub trait Schemas: Send {
    /// The JSON text of the schema, or why there is none.
    ///
    /// # Errors
    /// A sentence that names the registry and what it answered.
    fn schema(&self, id: u32) -> Result<Arc<str>, String>;
}

/// The Arrow schema of records written with this Avro schema: records are structs, arrays lists, strings and enums
/// `Utf8`, logical timestamps `Timestamp` in UTC. Unions other than with null are left out.
///
/// # Errors
/// The text is no Avro schema of a record.
pub fn source_schema(text: &str) -> Result<SchemaRef, SchemaError> {
    Avro::parse(text)?.arrow()
}

/// Reads Avro records into the columns of a plan.
pub struct AvroDecoder {
    plan: ReadPlan,
    schemas: Box<dyn Schemas>,
    columns: Columns,
    layout: Layout,
    /// Compiled writer schemas by id; the last one used first.
    programs: Vec<(u32, Program)>,
}

const FORMAT: &str = "Avro";

impl AvroDecoder {
    /// A decoder for the plan. Writer schemas are fetched when a record first names them.
    ///
    /// # Errors
    /// A column of the plan has a type that Avro records cannot be read into; the message names both.
    pub fn new(plan: ReadPlan, schemas: Box<dyn Schemas>) -> Result<Self, String> {
        for column in &plan.columns {
            let one = ReadPlan { columns: vec![column.clone()], unnest: None, position: false };
            if let Err(unreadable) = Columns::new(&one) {
                let path = column.display_path(plan.unnest.as_deref());
                return Err(format!("field {path} cannot be read: {} is not supported in a query", unreadable.0));
            }
        }
        let (columns, layout) = Columns::new(&plan).map_err(|unreadable| unreadable.0.to_string())?;
        Ok(Self { plan, schemas, columns, layout, programs: Vec::new() })
    }

    /// Moves the program of the schema to the front, compiling it when it is new.
    #[cold]
    fn switch(&mut self, id: u32) -> Result<(), RecordError> {
        if let Some(at) = self.programs.iter().position(|(known, _)| *known == id) {
            self.programs.swap(0, at);
            return Ok(());
        }
        let text = self.schemas.schema(id).map_err(malformed)?;
        let schema = Avro::parse(&text).map_err(|error| malformed(format!("writer schema {id}: {error}")))?;
        let program = program::compile(&schema, &self.plan, &self.layout)
            .map_err(|error| malformed(format!("writer schema {id} does not fit the query: {error}")))?;
        self.programs.push((id, program));
        let last = self.programs.len() - 1;
        self.programs.swap(0, last);
        Ok(())
    }
}

impl Decoder for AvroDecoder {
    fn decode(&mut self, payload: &[u8]) -> Result<usize, RecordError> {
        let [0, a, b, c, d, datum @ ..] = payload else {
            return Err(malformed(unframed(payload)));
        };
        let id = u32::from_be_bytes([*a, *b, *c, *d]);
        if self.programs.first().is_none_or(|(known, _)| *known != id) {
            self.switch(id)?;
        }
        let before = self.columns.rows;
        let mut cursor = Cursor::new(datum);
        match exec::run(&self.programs[0].1, &mut cursor, &mut self.columns) {
            Ok(()) => {
                if self.plan.unnest.is_none() {
                    self.columns.rows += 1;
                }
                self.columns.finish_message(before);
                Ok(self.columns.rows - before)
            }
            Err(fault) => {
                self.columns.roll_back(&self.layout, before);
                Err(malformed(format!("{fault} (at byte {})", cursor.offset() + 5)))
            }
        }
    }

    fn rows(&self) -> usize {
        self.columns.rows
    }

    fn take(&mut self) -> RecordBatch {
        self.columns.take(&self.plan, &self.layout)
    }
}

fn malformed(reason: impl Into<String>) -> RecordError {
    RecordError::Malformed { format: FORMAT, reason: reason.into() }
}

fn unframed(payload: &[u8]) -> String {
    match payload.first() {
        None => "the message is empty".into(),
        Some(0) => "the message is shorter than its schema id".into(),
        Some(other) => format!("the message starts with byte {other}, not with 0 and a schema id"),
    }
}

#[cfg(test)]
mod tests;

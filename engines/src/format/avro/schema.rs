//! Avro schemas: the JSON text of a writer schema, and what it offers to a query as Arrow types.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use serde_json::{Map, Value};

/// A writer schema. Named types are shared, so a schema that names one often stays small.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Avro {
    Null,
    Boolean,
    Int(Logical),
    Long(Logical),
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    Enum(Arc<[String]>),
    Array(Arc<Avro>),
    Map(Arc<Avro>),
    Union(Arc<[Avro]>),
    Record(Arc<[RecordField]>),
}

/// One field of a record, in writing order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordField {
    pub(crate) name: String,
    pub(crate) schema: Avro,
}

/// What an integer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logical {
    Plain,
    Date,
    Timestamp(TimeUnit),
    LocalTimestamp(TimeUnit),
}

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The text is not JSON.
    #[error("the Avro schema is not JSON: {0}")]
    Json(String),
    /// The JSON is not an Avro schema.
    #[error("the Avro schema is malformed at {at}: {what}")]
    Malformed {
        /// Path inside the schema.
        at: String,
        /// What is wrong there.
        what: String,
    },
    /// A type that contains itself.
    #[error("the Avro type {0} contains itself, which is not supported")]
    Recursive(String),
    /// The top of the schema is not a record.
    #[error("the Avro schema's top is not a record")]
    NotARecord,
}

const MAX_DEPTH: usize = 64;

impl Avro {
    /// Reads the JSON text of a schema.
    ///
    /// # Errors
    /// The text is no Avro schema, or a type in it contains itself.
    pub(crate) fn parse(text: &str) -> Result<Self, SchemaError> {
        let json: Value = serde_json::from_str(text).map_err(|error| SchemaError::Json(error.to_string()))?;
        let mut parser = Parser { named: HashMap::new(), path: Vec::new() };
        parser.schema(&json, "")
    }

    /// The record's fields.
    ///
    /// # Errors
    /// [`SchemaError::NotARecord`].
    pub(crate) fn fields(&self) -> Result<&[RecordField], SchemaError> {
        match self {
            Self::Record(fields) => Ok(fields),
            _ => Err(SchemaError::NotARecord),
        }
    }

    /// Where the schema is `T` or a union of null and `T`: `T`, and the branch number of null.
    pub(crate) fn optional(&self) -> Option<(&Self, Option<u8>)> {
        match self {
            Self::Union(branches) => match &branches[..] {
                [Self::Null, some] if *some != Self::Null => Some((some, Some(0))),
                [some, Self::Null] if *some != Self::Null => Some((some, Some(1))),
                _ => None,
            },
            other => Some((other, None)),
        }
    }

    /// The least number of bytes a datum of this schema takes.
    pub(crate) fn floor(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Float => 4,
            Self::Double => 8,
            Self::Fixed(size) => *size,
            Self::Record(fields) => fields.iter().fold(0usize, |sum, field| sum.saturating_add(field.schema.floor())),
            _ => 1,
        }
    }

    /// The record as Arrow types: records are structs, arrays lists, strings and enums `Utf8`.
    /// What no query can read (unions other than with null) is left out.
    pub(crate) fn arrow(&self) -> Result<SchemaRef, SchemaError> {
        Ok(Arc::new(Schema::new(struct_fields(self.fields()?))))
    }

    /// The Arrow type and nullability.
    fn data_type(&self) -> Option<(DataType, bool)> {
        let (inner, null) = self.optional()?;
        let data_type = match inner {
            Self::Null => DataType::Null,
            Self::Boolean => DataType::Boolean,
            Self::Int(Logical::Date) => DataType::Date32,
            Self::Int(_) => DataType::Int32,
            Self::Long(Logical::Timestamp(unit)) => DataType::Timestamp(*unit, Some("+00:00".into())),
            Self::Long(Logical::LocalTimestamp(unit)) => DataType::Timestamp(*unit, None),
            Self::Long(_) => DataType::Int64,
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Bytes | Self::Fixed(_) => DataType::Binary,
            Self::String | Self::Enum(_) => DataType::Utf8,
            Self::Array(item) => {
                let (item, nullable) = item.data_type()?;
                DataType::List(Arc::new(Field::new("item", item, nullable)))
            }
            Self::Map(value) => {
                let (value, nullable) = value.data_type()?;
                let entries =
                    Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", value, nullable)]);
                DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
            }
            Self::Record(fields) => DataType::Struct(struct_fields(fields).into()),
            Self::Union(_) => return None,
        };
        Some((data_type, null.is_some() || *inner == Self::Null))
    }
}

fn struct_fields(fields: &[RecordField]) -> Vec<Field> {
    fields
        .iter()
        .filter_map(|field| {
            let (data_type, nullable) = field.schema.data_type()?;
            Some(Field::new(&field.name, data_type, nullable))
        })
        .collect()
}

struct Parser {
    /// Finished named types by full name; `None` while one is being read.
    named: HashMap<String, Option<Avro>>,
    path: Vec<String>,
}

impl Parser {
    fn malformed(&self, what: impl Into<String>) -> SchemaError {
        let at = if self.path.is_empty() { "the top".to_owned() } else { self.path.join(".") };
        SchemaError::Malformed { at, what: what.into() }
    }

    fn schema(&mut self, json: &Value, namespace: &str) -> Result<Avro, SchemaError> {
        if self.path.len() > MAX_DEPTH {
            return Err(self.malformed("types are nested too deeply"));
        }
        match json {
            Value::String(name) => self.by_name(name, namespace),
            Value::Array(branches) => {
                let branches =
                    branches.iter().map(|branch| self.schema(branch, namespace)).collect::<Result<Vec<_>, _>>()?;
                Ok(Avro::Union(branches.into()))
            }
            Value::Object(object) => self.object(object, namespace),
            _ => Err(self.malformed("a schema is a name, a list or an object")),
        }
    }

    fn by_name(&self, name: &str, namespace: &str) -> Result<Avro, SchemaError> {
        Ok(match name {
            "null" => Avro::Null,
            "boolean" => Avro::Boolean,
            "int" => Avro::Int(Logical::Plain),
            "long" => Avro::Long(Logical::Plain),
            "float" => Avro::Float,
            "double" => Avro::Double,
            "bytes" => Avro::Bytes,
            "string" => Avro::String,
            _ => {
                let full = full_name(name, namespace);
                return match self.named.get(&full).or_else(|| self.named.get(name)) {
                    Some(Some(schema)) => Ok(schema.clone()),
                    Some(None) => Err(SchemaError::Recursive(full)),
                    None => Err(self.malformed(format!("there is no type {name}"))),
                };
            }
        })
    }

    fn object(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<Avro, SchemaError> {
        let Some(kind) = object.get("type") else {
            return Err(self.malformed("an object has no \"type\""));
        };
        let Value::String(kind) = kind else {
            return self.schema(kind, namespace);
        };
        match kind.as_str() {
            "record" | "error" => self.record(object, namespace),
            "enum" => {
                let full = self.name(object, namespace)?;
                let symbols = self.strings(object, "symbols")?;
                Ok(self.define(full, Avro::Enum(symbols.into())))
            }
            "fixed" => {
                let full = self.name(object, namespace)?;
                let size = object.get("size").and_then(Value::as_u64);
                let size = size.and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or_else(|| self.malformed("a fixed type has no size"))?;
                Ok(self.define(full, Avro::Fixed(size)))
            }
            "array" => Ok(Avro::Array(Arc::new(self.child(object, "items", namespace)?))),
            "map" => Ok(Avro::Map(Arc::new(self.child(object, "values", namespace)?))),
            name => {
                let logical = object.get("logicalType").and_then(Value::as_str).unwrap_or("");
                Ok(with_logical(self.by_name(name, namespace)?, logical))
            }
        }
    }

    fn record(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<Avro, SchemaError> {
        let full = self.name(object, namespace)?;
        let inner = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        self.named.insert(full.clone(), None);
        let Some(Value::Array(fields)) = object.get("fields") else {
            return Err(self.malformed("a record has no list of fields"));
        };
        let mut out = Vec::with_capacity(fields.len());
        for field in fields {
            let name = field.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| self.malformed("a field has no name"))?;
            self.path.push(name.to_owned());
            let json = field.get("type").ok_or_else(|| self.malformed("a field has no type"))?;
            // A logical type may stand beside the type instead of inside it.
            let schema = match (json, field.get("logicalType").and_then(Value::as_str)) {
                (Value::String(_), Some(logical)) => with_logical(self.schema(json, &inner)?, logical),
                _ => self.schema(json, &inner)?,
            };
            out.push(RecordField { name: name.to_owned(), schema });
            self.path.pop();
        }
        Ok(self.define(full, Avro::Record(out.into())))
    }

    fn child(&mut self, object: &Map<String, Value>, key: &str, namespace: &str) -> Result<Avro, SchemaError> {
        let json = object.get(key).ok_or_else(|| self.malformed(format!("there is no \"{key}\"")))?;
        self.path.push(key.to_owned());
        let schema = self.schema(json, namespace)?;
        self.path.pop();
        Ok(schema)
    }

    fn name(&self, object: &Map<String, Value>, namespace: &str) -> Result<String, SchemaError> {
        let name = object.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| self.malformed("a named type has no name"))?;
        let own = object.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        Ok(full_name(name, own))
    }

    fn strings(&self, object: &Map<String, Value>, key: &str) -> Result<Vec<String>, SchemaError> {
        let list = object.get(key).and_then(Value::as_array);
        let list = list.ok_or_else(|| self.malformed(format!("there is no list \"{key}\"")))?;
        list.iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| self.malformed(format!("\"{key}\" holds something that is not text")))
    }

    fn define(&mut self, full: String, schema: Avro) -> Avro {
        self.named.insert(full, Some(schema.clone()));
        schema
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn with_logical(schema: Avro, logical: &str) -> Avro {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond};
    match (schema, logical) {
        (Avro::Int(_), "date") => Avro::Int(Logical::Date),
        (Avro::Long(_), "timestamp-millis") => Avro::Long(Logical::Timestamp(Millisecond)),
        (Avro::Long(_), "timestamp-micros") => Avro::Long(Logical::Timestamp(Microsecond)),
        (Avro::Long(_), "timestamp-nanos") => Avro::Long(Logical::Timestamp(Nanosecond)),
        (Avro::Long(_), "local-timestamp-millis") => Avro::Long(Logical::LocalTimestamp(Millisecond)),
        (Avro::Long(_), "local-timestamp-micros") => Avro::Long(Logical::LocalTimestamp(Microsecond)),
        (schema, _) => schema,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_types_logical_types_and_options_become_arrow_types() {
        let text = r#"{"type":"record","name":"A","namespace":"n","fields":[
            {"name":"id","type":"long"},
            {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
            {"name":"kind","type":{"type":"enum","name":"K","symbols":["x","y"]}},
            {"name":"again","type":["null","K"],"default":null},
            {"name":"odd","type":["int","string"]},
            {"name":"list","type":{"type":"array","items":{"type":"record","name":"B","fields":[
                {"name":"day","type":{"type":"int","logicalType":"date"}},{"name":"k","type":"n.K"}]}}}]}"#;
        let schema = Avro::parse(text).unwrap().arrow().unwrap();
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["id", "at", "kind", "again", "list"]);
        assert!(schema.field(3).is_nullable());
        assert_eq!(schema.field(1).data_type(), &DataType::Timestamp(TimeUnit::Millisecond, Some("+00:00".into())));
        let DataType::List(item) = schema.field(4).data_type() else { panic!("a list") };
        let DataType::Struct(fields) = item.data_type() else { panic!("a struct") };
        assert_eq!(fields[0].data_type(), &DataType::Date32);
    }

    #[test]
    fn what_is_no_schema_says_where() {
        let error = Avro::parse(r#"{"type":"record","name":"A","fields":[{"name":"x","type":"lon"}]}"#);
        assert_eq!(error.unwrap_err().to_string(), "the Avro schema is malformed at x: there is no type lon");
        let error = Avro::parse(r#"{"type":"record","name":"A","fields":[{"name":"x","type":["null","A"]}]}"#);
        assert_eq!(error.unwrap_err(), SchemaError::Recursive("A".into()));
        assert!(matches!(Avro::parse("{"), Err(SchemaError::Json(_))));
        assert_eq!(Avro::parse("\"long\"").unwrap().arrow().unwrap_err(), SchemaError::NotARecord);
    }
}

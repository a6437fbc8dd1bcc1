//! Types of JSON fields, from a sample of records.
//!
//! Integers beside other numbers are numbers; strings that are all timestamps are timestamps; a field that holds values of
//! unlike kinds, or only nulls, is text that takes any value as it is written. Fields come in the order of their first
//! appearance. What later does not fit is a bad record, never a silent null.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use super::cursor::{Cursor, Parsed};
use crate::format::timestamp;

/// Objects and lists nested deeper than this are taken as text.
const MAX_DEPTH: usize = 16;

/// The types of a source's fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JsonSchema {
    fields: Vec<(String, Shape)>,
    records: usize,
}

/// What has been seen at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    /// Only nulls so far.
    Nothing,
    Boolean,
    Integer,
    Double,
    Timestamp,
    Text,
    List(Box<Shape>),
    Object(Vec<(String, Shape)>),
    /// Values of unlike kinds.
    Any,
    /// Said by the user.
    Declared(DataType),
}

impl JsonSchema {
    /// Adds what a record shows. A record that is not valid JSON shows nothing: the decoder reports it in its turn.
    pub fn observe(&mut self, record: &[u8]) {
        if std::str::from_utf8(record).is_err() {
            return;
        }
        let mut cursor = Cursor::new(record);
        if cursor.peek() != b'{' {
            return;
        }
        let mut fields = self.fields.clone();
        if observe_object(&mut cursor, &mut fields, 0).and_then(|()| cursor.end()).is_ok() {
            self.fields = fields;
            self.records += 1;
        }
    }

    /// Says the type of a top-level field instead of inferring it.
    pub fn declare(&mut self, name: &str, data_type: DataType) {
        *slot(&mut self.fields, name) = Shape::Declared(data_type);
    }

    /// Records observed.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records
    }

    /// The fields as Arrow types.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(fields_of(&self.fields)))
    }

    /// Whether the value at `path` may be of any kind, text being how it is read.
    pub(super) fn takes_any(&self, path: &[String]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        let mut shape = self.fields.iter().find(|(n, _)| n == first).map(|(_, s)| s);
        for name in rest {
            let mut inner = shape;
            while let Some(Shape::List(item)) = inner {
                inner = Some(item);
            }
            shape = match inner {
                Some(Shape::Object(fields)) => fields.iter().find(|(n, _)| n == name).map(|(_, s)| s),
                _ => None,
            };
        }
        while let Some(Shape::List(item)) = shape {
            shape = Some(item);
        }
        matches!(shape, Some(Shape::Any | Shape::Nothing))
    }
}

fn fields_of(fields: &[(String, Shape)]) -> Fields {
    fields.iter().map(|(name, shape)| Field::new(name, shape.data_type(), true)).collect()
}

fn slot<'a>(fields: &'a mut Vec<(String, Shape)>, name: &str) -> &'a mut Shape {
    let at = fields.iter().position(|(n, _)| n == name).unwrap_or_else(|| {
        fields.push((name.to_owned(), Shape::Nothing));
        fields.len() - 1
    });
    &mut fields[at].1
}

impl Shape {
    fn data_type(&self) -> DataType {
        match self {
            Self::Nothing | Self::Text | Self::Any => DataType::Utf8,
            Self::Boolean => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::List(item) => DataType::List(Arc::new(Field::new("item", item.data_type(), true))),
            Self::Object(fields) => DataType::Struct(fields_of(fields)),
            Self::Declared(data_type) => data_type.clone(),
        }
    }

    fn widen(&mut self, seen: Self) {
        *self = match (std::mem::replace(self, Self::Any), seen) {
            (declared @ Self::Declared(_), _) => declared,
            (Self::Nothing, seen) => seen,
            (known, seen) if known == seen => known,
            (Self::Integer | Self::Double, Self::Integer | Self::Double) => Self::Double,
            (Self::Timestamp | Self::Text, Self::Timestamp | Self::Text) => Self::Text,
            _ => Self::Any,
        };
    }
}

fn observe_object(cursor: &mut Cursor, fields: &mut Vec<(String, Shape)>, depth: usize) -> Parsed<()> {
    cursor.expect(b'{', "expected {")?;
    if cursor.peek() == b'}' {
        cursor.at += 1;
        return Ok(());
    }
    loop {
        let key = cursor.key()?;
        let mut name = Vec::new();
        cursor.unescape(key, &mut name)?;
        observe_value(cursor, slot(fields, &String::from_utf8_lossy(&name)), depth)?;
        match cursor.peek() {
            b',' => cursor.at += 1,
            b'}' => {
                cursor.at += 1;
                return Ok(());
            }
            _ => return cursor.fault("expected , or }"),
        }
    }
}

fn observe_value(cursor: &mut Cursor, shape: &mut Shape, depth: usize) -> Parsed<()> {
    match cursor.peek() {
        b'n' => cursor.literal(b"null"),
        b't' => cursor.literal(b"true").map(|()| shape.widen(Shape::Boolean)),
        b'f' => cursor.literal(b"false").map(|()| shape.widen(Shape::Boolean)),
        b'"' => {
            let text = cursor.string()?;
            let instant = !text.escaped && timestamp::parse(&cursor.bytes[text.from..text.to]).is_some();
            shape.widen(if instant { Shape::Timestamp } else { Shape::Text });
            Ok(())
        }
        b'{' if depth < MAX_DEPTH => {
            if *shape == Shape::Nothing {
                *shape = Shape::Object(vec![]);
            }
            match shape {
                Shape::Object(fields) => observe_object(cursor, fields, depth + 1),
                other => {
                    other.widen(Shape::Any);
                    cursor.skip().map(|_| ())
                }
            }
        }
        b'[' if depth < MAX_DEPTH => {
            if *shape == Shape::Nothing {
                *shape = Shape::List(Box::new(Shape::Nothing));
            }
            match shape {
                Shape::List(item) => observe_list(cursor, item, depth + 1),
                other => {
                    other.widen(Shape::Any);
                    cursor.skip().map(|_| ())
                }
            }
        }
        b'{' | b'[' => {
            shape.widen(Shape::Any);
            cursor.skip().map(|_| ())
        }
        _ => {
            let number = cursor.number()?;
            shape.widen(if number.integer { Shape::Integer } else { Shape::Double });
            Ok(())
        }
    }
}

fn observe_list(cursor: &mut Cursor, item: &mut Shape, depth: usize) -> Parsed<()> {
    cursor.expect(b'[', "expected [")?;
    if cursor.peek() == b']' {
        cursor.at += 1;
        return Ok(());
    }
    loop {
        observe_value(cursor, item, depth)?;
        match cursor.peek() {
            b',' => cursor.at += 1,
            b']' => {
                cursor.at += 1;
                return Ok(());
            }
            _ => return cursor.fault("expected , or ]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infer(records: &[&str]) -> JsonSchema {
        let mut schema = JsonSchema::default();
        records.iter().for_each(|r| schema.observe(r.as_bytes()));
        schema
    }

    fn type_of(records: &[&str]) -> DataType {
        infer(records).schema().field(0).data_type().clone()
    }

    #[test]
    fn kinds_widen_and_unlike_kinds_are_any() {
        assert_eq!(type_of(&[r#"{"a":1}"#, r#"{"a":null}"#]), DataType::Int64);
        assert_eq!(type_of(&[r#"{"a":1}"#, r#"{"a":2.5}"#, r#"{"a":3}"#]), DataType::Float64);
        assert_eq!(type_of(&[r#"{"a":"2026-01-01T00:00:00Z"}"#]), DataType::Timestamp(TimeUnit::Microsecond, None));
        assert_eq!(type_of(&[r#"{"a":"2026-01-01"}"#, r#"{"a":"soon"}"#]), DataType::Utf8);
        assert!(!infer(&[r#"{"a":"x"}"#]).takes_any(&["a".into()]));
        assert!(infer(&[r#"{"a":"x"}"#, r#"{"a":1}"#]).takes_any(&["a".into()]));
        assert!(infer(&[r#"{"a":{"b":1}}"#, r#"{"a":[1]}"#]).takes_any(&["a".into()]));
        assert!(infer(&[r#"{"a":[{"b":null}]}"#]).takes_any(&["a".into(), "b".into()]));
    }

    #[test]
    fn fields_keep_their_order_and_broken_records_show_nothing() {
        let schema = infer(&[r#"{"z":1,"a":{"y":true}}"#, r#"{"q":1"#, "[1]", r#"{"b":"x","a":{"x":[1.5]}}"#]).schema();
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["z", "a", "b"]);
        let DataType::Struct(inner) = schema.field(1).data_type() else { panic!() };
        assert_eq!(inner.len(), 2);
    }

    #[test]
    fn a_declared_type_stays() {
        let mut schema = infer(&[r#"{"a":1}"#]);
        schema.declare("a", DataType::Float64);
        schema.observe(br#"{"a":"text"}"#);
        assert_eq!(schema.schema().field(0).data_type(), &DataType::Float64);
    }
}

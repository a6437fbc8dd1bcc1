//! CSV records: type inference, and the decoder.
//!
//! A field in double quotes may hold commas, line breaks and, doubled, quotes. An empty field without quotes is null. The
//! types of columns are those all sampled values have; what later does not fit is a bad record.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::json::{Column, sql_name};
use super::timestamp;
use crate::read::{Decoder, ReadPlan, RecordError};

/// Longest text of a value in a message.
const SHOWN: usize = 60;

/// Where a field stands in its record.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: usize,
    to: usize,
    quoted: bool,
    /// It has doubled quotes.
    doubled: bool,
}

/// Whether a line ends inside a quoted field: `inside` when it begins in one.
#[must_use]
pub fn ends_inside(line: &[u8], inside: bool) -> bool {
    if !inside && memchr::memchr(b'"', line).is_none() {
        return false;
    }
    let mut at = 0;
    let mut inside = inside;
    if !inside && line.first() == Some(&b'"') {
        (at, inside) = (1, true);
    }
    loop {
        while inside {
            let Some(quote) = memchr::memchr(b'"', &line[at..]) else { return true };
            at += quote + 1;
            inside = line.get(at) == Some(&b'"');
            at += usize::from(inside);
        }
        let Some(comma) = memchr::memchr(b',', &line[at..]) else { return false };
        at += comma + 1;
        if line.get(at) == Some(&b'"') {
            (at, inside) = (at + 1, true);
        }
    }
}

/// Takes a record apart.
fn split(record: &[u8], spans: &mut Vec<Span>) -> Result<(), &'static str> {
    spans.clear();
    let record = record.strip_suffix(b"\r").unwrap_or(record);
    let mut at = 0;
    loop {
        let mut span = Span { from: at, to: record.len(), quoted: false, doubled: false };
        if record.get(at) == Some(&b'"') {
            (span.from, span.quoted) = (at + 1, true);
            let mut from = at + 1;
            loop {
                let Some(quote) = memchr::memchr(b'"', &record[from..]) else { return Err("a quote is not closed") };
                span.to = from + quote;
                from = span.to + 1;
                if record.get(from) != Some(&b'"') {
                    break;
                }
                span.doubled = true;
                from += 1;
            }
            at = from;
        } else {
            span.to = memchr::memchr(b',', &record[at..]).map_or(record.len(), |comma| at + comma);
            at = span.to;
        }
        spans.push(span);
        match record.get(at) {
            None => return Ok(()),
            Some(b',') => at += 1,
            Some(_) => return Err("text behind a closing quote"),
        }
    }
}

impl Span {
    /// The field's text, without its quotes.
    fn text<'a>(&self, record: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let text = &record[self.from..self.to];
        if !self.doubled {
            return text;
        }
        scratch.clear();
        let mut rest = text;
        while let Some(quote) = memchr::memchr(b'"', rest) {
            scratch.extend_from_slice(&rest[..=quote]);
            rest = &rest[quote + 2..];
        }
        scratch.extend_from_slice(rest);
        scratch
    }

    /// Whether the field is null.
    fn is_null(&self) -> bool {
        !self.quoted && self.from == self.to
    }
}

/// The columns of a source.
#[derive(Debug, Clone, Default)]
pub struct CsvSchema {
    names: Vec<String>,
    kinds: Vec<Kind>,
    declared: Vec<(String, DataType)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Only nulls so far.
    Nothing,
    Boolean,
    Integer,
    Double,
    Timestamp,
    Text,
}

impl CsvSchema {
    /// Reads the line of names.
    ///
    /// # Errors
    /// It is no record, or names two columns alike.
    pub fn new(header: &[u8], declared: Vec<(String, DataType)>) -> Result<Self, String> {
        let mut spans = Vec::new();
        split(header, &mut spans)?;
        let mut names = Vec::with_capacity(spans.len());
        for (index, span) in spans.iter().enumerate() {
            let mut scratch = Vec::new();
            let text = std::str::from_utf8(span.text(header, &mut scratch)).map_err(|_| "not UTF-8".to_owned())?;
            let name = if text.trim().is_empty() { format!("column{}", index + 1) } else { text.trim().to_owned() };
            if names.contains(&name) {
                return Err(format!("two columns are called {name}"));
            }
            names.push(name);
        }
        if let Some((name, _)) = declared.iter().find(|(name, _)| !names.contains(name)) {
            return Err(format!("there is no column {name}: {}", names.join(", ")));
        }
        Ok(Self { kinds: vec![Kind::Nothing; names.len()], names, declared })
    }

    /// Whether a header names the same columns.
    #[must_use]
    pub fn same_names(&self, header: &[u8]) -> bool {
        Self::new(header, vec![]).is_ok_and(|other| other.names == self.names)
    }

    /// Adds what a record shows. One that is no record shows nothing: the decoder reports it in its turn.
    pub fn observe(&mut self, record: &[u8]) {
        let mut spans = Vec::new();
        if split(record, &mut spans).is_err() || spans.len() != self.names.len() || std::str::from_utf8(record).is_err()
        {
            return;
        }
        let mut scratch = Vec::new();
        for (kind, span) in self.kinds.iter_mut().zip(&spans).filter(|(_, span)| !span.is_null()) {
            kind.widen(Kind::of(span.text(record, &mut scratch)));
        }
    }

    /// The columns as Arrow types.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        let field = |(name, kind): (&String, &Kind)| {
            let declared = self.declared.iter().find(|(declared, _)| declared == name);
            let data_type = declared.map_or_else(|| kind.data_type(), |(_, data_type)| data_type.clone());
            Field::new(name, data_type, true)
        };
        Arc::new(Schema::new(self.names.iter().zip(&self.kinds).map(field).collect::<Vec<_>>()))
    }
}

impl Kind {
    fn of(text: &[u8]) -> Self {
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        // What begins with a zero that says nothing is a name, such as a postal code.
        let padded = digits.len() > 1 && digits[0] == b'0' && digits[1] != b'.';
        let words = std::str::from_utf8(text).unwrap_or("");
        if words.eq_ignore_ascii_case("true") || words.eq_ignore_ascii_case("false") {
            Self::Boolean
        } else if timestamp::parse(text).is_some() {
            Self::Timestamp
        } else if padded || !digits.first().is_some_and(|b| b.is_ascii_digit() || *b == b'.') {
            Self::Text
        } else if words.parse::<i64>().is_ok() {
            Self::Integer
        } else if words.parse::<f64>().is_ok_and(f64::is_finite) {
            Self::Double
        } else {
            Self::Text
        }
    }

    fn widen(&mut self, seen: Self) {
        *self = match (*self, seen) {
            (Self::Nothing, seen) => seen,
            (known, seen) if known == seen => known,
            (Self::Integer | Self::Double, Self::Integer | Self::Double) => Self::Double,
            _ => Self::Text,
        };
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Nothing | Self::Text => DataType::Utf8,
            Self::Boolean => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }
}

/// Decodes CSV records into the columns of a [`ReadPlan`].
#[derive(Debug)]
pub struct CsvDecoder {
    /// Every column that is read, and the field it is.
    columns: Vec<(Column, usize)>,
    names: Vec<String>,
    types: Vec<DataType>,
    /// Fields of a record.
    width: usize,
    rows: usize,
    schema: SchemaRef,
    spans: Vec<Span>,
    scratch: Vec<u8>,
}

impl CsvDecoder {
    /// A decoder for the columns of `plan`.
    ///
    /// # Errors
    /// Says which column is of a type that fields are not read as, or that the plan unnests.
    pub fn new(plan: &ReadPlan, source: &CsvSchema) -> Result<Self, String> {
        if plan.unnest.is_some() {
            return Err("a field of CSV holds no list that could be unnested".to_owned());
        }
        let mut columns = Vec::with_capacity(plan.columns.len());
        for column in &plan.columns {
            let name = column.display_path(None);
            let readable = !matches!(column.data_type, DataType::List(_) | DataType::Struct(_));
            let own = if readable { Column::new(&column.data_type, false) } else { None };
            let own = own.ok_or_else(|| {
                format!("{name} is of type {}, which fields of CSV are not read as", sql_name(&column.data_type))
            })?;
            let field = source.names.iter().position(|n| column.path.len() == 1 && *n == column.path[0]);
            columns.push((own, field.ok_or_else(|| format!("there is no column {name}"))?));
        }
        Ok(Self {
            columns,
            names: plan.columns.iter().map(|c| c.display_path(None)).collect(),
            types: plan.columns.iter().map(|c| c.data_type.clone()).collect(),
            width: source.names.len(),
            rows: 0,
            schema: plan.schema(),
            spans: vec![],
            scratch: vec![],
        })
    }

    fn record(&mut self, record: &[u8]) -> Result<(), RecordError> {
        let malformed = |reason: String| RecordError::Malformed { format: "CSV", reason };
        if let Err(error) = std::str::from_utf8(record) {
            return Err(malformed(format!("not UTF-8, at byte {}", error.valid_up_to() + 1)));
        }
        split(record, &mut self.spans).map_err(|reason| malformed(reason.to_owned()))?;
        let count = self.spans.len();
        if count != self.width {
            let s = if count == 1 { "" } else { "s" };
            return Err(malformed(format!("{count} field{s} where the header has {}", self.width)));
        }
        for (index, (column, field)) in self.columns.iter_mut().enumerate() {
            let span = self.spans[*field];
            if span.is_null() {
                column.push_null();
            } else if !column.text(span.text(record, &mut self.scratch)) {
                let text = String::from_utf8_lossy(&record[span.from..span.to]).into_owned();
                let mut shown: String = text.chars().take(SHOWN).collect();
                if shown.len() < text.len() {
                    shown.push('…');
                }
                let (field, expected) = (self.names[index].clone(), sql_name(&self.types[index]));
                return Err(RecordError::Misfit { field, text: shown, expected });
            }
        }
        Ok(())
    }
}

impl Decoder for CsvDecoder {
    fn decode(&mut self, payload: &[u8]) -> Result<usize, RecordError> {
        let before = self.rows;
        if let Err(error) = self.record(payload) {
            self.columns.iter_mut().for_each(|(column, _)| column.truncate(before));
            return Err(error);
        }
        self.rows += 1;
        Ok(1)
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn take(&mut self) -> RecordBatch {
        let rows = std::mem::take(&mut self.rows);
        let arrays: Vec<ArrayRef> = self.columns.iter_mut().map(|(column, _)| column.take()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .expect("every column has a value per row, of the type its plan says")
    }
}

#[cfg(test)]
mod tests;

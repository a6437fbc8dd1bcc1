//! Values as JSON and CSV text.
//!
//! Integers are exact, doubles the shortest text that reads back as the same number, timestamps
//! `YYYY-MM-DD HH:MM:SS[.ffffff]` in UTC. The strings of a small dictionary are escaped once per value.

use std::cell::Cell;
use std::io::Write as _;
use std::sync::Arc;

use arrow::array::types::{
    Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt64Type,
};
use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::config::Format;
use crate::format::timestamp;
use crate::read::string_type;

/// Writes rows of one schema as lines.
#[derive(Debug)]
pub(super) struct Writer {
    format: Format,
    columns: Vec<Column>,
}

/// What is kept of a column between batches.
#[derive(Debug, Default)]
struct Column {
    /// What stands before the value: `{"name":` or a comma.
    before: Vec<u8>,
    texts: Texts,
}

/// The values of a dictionary as they are written.
#[derive(Debug, Default)]
struct Texts {
    values: Option<ArrayRef>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Writer {
    /// A writer; CSV begins with a line of names.
    pub(super) fn new(format: Format, schema: &SchemaRef, out: &mut Vec<u8>) -> Self {
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (index, field) in schema.fields().iter().enumerate() {
            let mut before = Vec::new();
            match format {
                Format::Ndjson => {
                    before.push(if index == 0 { b'{' } else { b',' });
                    json_string(field.name(), &mut before);
                    before.push(b':');
                }
                Format::Csv => {
                    if index > 0 {
                        before.push(b',');
                    }
                    out.extend_from_slice(&before);
                    csv_string(field.name(), out);
                }
            }
            columns.push(Column { before, texts: Texts::default() });
        }
        if format == Format::Csv {
            out.push(b'\n');
        }
        Self { format, columns }
    }

    /// Appends the rows of a batch.
    pub(super) fn rows(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) {
        let format = self.format;
        let arrays: Vec<ArrayRef> = batch.columns().iter().map(normal).collect();
        for (array, column) in arrays.iter().zip(&mut self.columns) {
            column.texts.refresh(array, format);
        }
        let cells: Vec<Cells<'_>> = arrays.iter().zip(&self.columns).map(|(a, c)| Cells::new(a, &c.texts)).collect();
        for row in 0..batch.num_rows() {
            if cells.is_empty() && format == Format::Ndjson {
                out.push(b'{');
            }
            for (cell, column) in cells.iter().zip(&self.columns) {
                out.extend_from_slice(&column.before);
                match format {
                    Format::Ndjson => cell.json(row, out),
                    Format::Csv => cell.csv(row, out),
                }
            }
            out.extend_from_slice(if format == Format::Ndjson { b"}\n" } else { b"\n" });
        }
    }
}

impl Texts {
    /// Escapes the values of the column's dictionary, when there are few and they are not those of the batch before.
    fn refresh(&mut self, array: &ArrayRef, format: Format) {
        let Some((values, rows)) = dictionary_of(array) else { return };
        let known = self.values.as_ref().is_some_and(|v| Arc::ptr_eq(v, values));
        if known || values.len() > rows {
            return;
        }
        let text = values.as_string::<i32>();
        self.bytes.clear();
        self.ends.clear();
        for value in 0..text.len() {
            match format {
                // Within a list, CSV quotes the JSON text of the whole list.
                Format::Csv if !matches!(array.data_type(), DataType::List(_)) => {
                    csv_string(text.value(value), &mut self.bytes)
                }
                _ => json_string(text.value(value), &mut self.bytes),
            }
            self.ends.push(self.bytes.len());
        }
        self.values = Some(Arc::clone(values));
    }

    fn of(&self, values: &ArrayRef) -> Option<&Self> {
        self.values.as_ref().is_some_and(|v| Arc::ptr_eq(v, values)).then_some(self)
    }

    fn value(&self, code: usize) -> &[u8] {
        let from = code.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[code]]
    }
}

/// The dictionary at the leaf of a column, and how many codes point into it.
fn dictionary_of(array: &ArrayRef) -> Option<(&ArrayRef, usize)> {
    match array.data_type() {
        DataType::Dictionary(..) => {
            let dictionary = array.as_dictionary::<Int32Type>();
            Some((dictionary.values(), dictionary.len()))
        }
        DataType::List(_) => dictionary_of(array.as_list::<i32>().values()),
        _ => None,
    }
}

/// The few types that are written: others are cast to one of these where that keeps the value.
fn normal_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => {
            DataType::Int64
        }
        DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => string_type(),
        DataType::List(item) => DataType::List(Arc::new(Field::new(item.name(), normal_type(item.data_type()), true))),
        other => other.clone(),
    }
}

fn normal(array: &ArrayRef) -> ArrayRef {
    let wanted = normal_type(array.data_type());
    if *array.data_type() == wanted {
        Arc::clone(array)
    } else {
        cast(array, &wanted).unwrap_or_else(|_| Arc::clone(array))
    }
}

/// A column whose values are written by row.
struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Null,
    Boolean(&'a arrow::array::BooleanArray),
    Long(&'a [i64]),
    Unsigned(&'a [u64]),
    Double(&'a [f64]),
    Float(&'a [f32]),
    Timestamp {
        values: &'a [i64],
        written: Cell<Written>,
    },
    /// Integers of 128 bits.
    Huge(&'a [i128]),
    Text {
        codes: &'a [i32],
        values: &'a StringArray,
        texts: Option<&'a Texts>,
    },
    List {
        offsets: &'a [i32],
        item: Box<Cells<'a>>,
    },
    Number(ArrayFormatter<'a>),
    Other(ArrayFormatter<'a>),
}

/// The instant written last: those of windows repeat.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    micros: i64,
    text: [u8; 32],
    /// 0 when nothing was written.
    length: usize,
}

impl Written {
    /// As [`timestamp::write`].
    fn write(mut self, micros: i64, out: &mut Vec<u8>) -> Self {
        if self.length > 0 && self.micros == micros {
            out.extend_from_slice(&self.text[..self.length]);
            return self;
        }
        let from = out.len();
        timestamp::write(out, micros);
        let written = &out[from..];
        if let Some(text) = self.text.get_mut(..written.len()) {
            text.copy_from_slice(written);
            (self.micros, self.length) = (micros, written.len());
        }
        self
    }
}

impl<'a> Cells<'a> {
    fn new(array: &'a ArrayRef, texts: &'a Texts) -> Self {
        const OPTIONS: FormatOptions<'static> = FormatOptions::new();
        let kind = match array.data_type() {
            DataType::Boolean => Kind::Boolean(array.as_boolean()),
            DataType::Int64 => Kind::Long(array.as_primitive::<Int64Type>().values()),
            DataType::UInt64 => Kind::Unsigned(array.as_primitive::<UInt64Type>().values()),
            DataType::Float64 => Kind::Double(array.as_primitive::<Float64Type>().values()),
            DataType::Float32 => Kind::Float(array.as_primitive::<Float32Type>().values()),
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                let values = array.as_primitive::<TimestampMicrosecondType>().values();
                Kind::Timestamp { values, written: Cell::default() }
            }
            DataType::Decimal128(_, 0) => Kind::Huge(array.as_primitive::<Decimal128Type>().values()),
            DataType::Dictionary(..) => {
                let dictionary = array.as_dictionary::<Int32Type>();
                let values = dictionary.values();
                Kind::Text {
                    codes: dictionary.keys().values(),
                    values: values.as_string::<i32>(),
                    texts: texts.of(values),
                }
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Kind::List { offsets: list.value_offsets(), item: Box::new(Self::new(list.values(), texts)) }
            }
            other => match ArrayFormatter::try_new(array.as_ref(), &OPTIONS) {
                Ok(formatter) if other.is_decimal() => Kind::Number(formatter),
                Ok(formatter) => Kind::Other(formatter),
                Err(_) => Kind::Null,
            },
        };
        Self { nulls: array.nulls(), kind }
    }

    fn is_null(&self, row: usize) -> bool {
        matches!(self.kind, Kind::Null) || self.nulls.is_some_and(|n| n.is_null(row))
    }

    fn json(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return;
        }
        match &self.kind {
            Kind::Timestamp { values, written } => {
                out.push(b'"');
                written.set(written.get().write(values[row], out));
                out.push(b'"');
            }
            Kind::Double(values) if !values[row].is_finite() => out.extend_from_slice(b"null"),
            Kind::Float(values) if !values[row].is_finite() => out.extend_from_slice(b"null"),
            Kind::Text { codes, values, texts } => {
                let code = index(codes[row]);
                match texts {
                    Some(texts) => out.extend_from_slice(texts.value(code)),
                    None => json_string(values.value(code), out),
                }
            }
            Kind::List { offsets, item } => {
                out.push(b'[');
                for at in index(offsets[row])..index(offsets[row + 1]) {
                    if at > index(offsets[row]) {
                        out.push(b',');
                    }
                    item.json(at, out);
                }
                out.push(b']');
            }
            Kind::Other(formatter) => json_string(&formatter.value(row).to_string(), out),
            _ => self.plain(row, out),
        }
    }

    fn csv(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            return;
        }
        match &self.kind {
            Kind::Timestamp { values, written } => written.set(written.get().write(values[row], out)),
            Kind::Text { codes, values, texts } => {
                let code = index(codes[row]);
                match texts {
                    Some(texts) => out.extend_from_slice(texts.value(code)),
                    None => csv_string(values.value(code), out),
                }
            }
            Kind::List { .. } => {
                let mut text = Vec::new();
                self.json(row, &mut text);
                csv_string(&String::from_utf8_lossy(&text), out);
            }
            Kind::Other(formatter) => csv_string(&formatter.value(row).to_string(), out),
            _ => self.plain(row, out),
        }
    }

    /// Values that JSON and CSV write alike.
    fn plain(&self, row: usize, out: &mut Vec<u8>) {
        let written = match &self.kind {
            Kind::Boolean(values) => out.write_all(if values.value(row) { b"true" } else { b"false" }),
            Kind::Long(values) => {
                integer(values[row], out);
                Ok(())
            }
            Kind::Huge(values) => match i64::try_from(values[row]) {
                Ok(value) => {
                    integer(value, out);
                    Ok(())
                }
                Err(_) => write!(out, "{}", values[row]),
            },
            Kind::Unsigned(values) => write!(out, "{}", values[row]),
            Kind::Double(values) => write!(out, "{:?}", values[row]),
            Kind::Float(values) => write!(out, "{:?}", values[row]),
            Kind::Number(formatter) => write!(out, "{}", formatter.value(row)),
            _ => Ok(()),
        };
        written.expect("a vector takes all bytes");
    }
}

/// Writes rows as JSON objects, one a line.
#[derive(Debug)]
pub(crate) struct Objects(Writer);

impl Objects {
    /// For rows of a schema.
    pub(crate) fn new(schema: &SchemaRef) -> Self {
        Self(Writer::new(Format::Ndjson, schema, &mut Vec::new()))
    }

    /// Appends the rows of a batch.
    pub(crate) fn rows(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) {
        self.0.rows(batch, out);
    }
}

/// Appends each row as a JSON array; `ended` is told where each ends.
pub(crate) fn arrays(batch: &RecordBatch, out: &mut Vec<u8>, mut ended: impl FnMut(&mut Vec<u8>)) {
    let none = Texts::default();
    let arrays: Vec<ArrayRef> = batch.columns().iter().map(normal).collect();
    let cells: Vec<Cells<'_>> = arrays.iter().map(|array| Cells::new(array, &none)).collect();
    for row in 0..batch.num_rows() {
        for (number, cell) in cells.iter().enumerate() {
            out.push(if number == 0 { b'[' } else { b',' });
            cell.json(row, out);
        }
        out.extend_from_slice(if cells.is_empty() { b"[]" } else { b"]" });
        ended(out);
    }
}

fn index(value: i32) -> usize {
    value as usize
}

/// Appends the decimal digits of an integer.
fn integer(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Whether no byte is to be escaped.
#[inline]
fn is_plain(bytes: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // High bits of the bytes that are 0, and perhaps of some above the lowest of them.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let escaped = |word: u64| {
        let controls = word.wrapping_sub(ONES * 0x20) & !word;
        let quotes = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
        (controls | quotes) & (ONES * 0x80) != 0
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    !words.iter().any(|word| escaped(u64::from_le_bytes(*word))) && !escaped(u64::from_le_bytes(last))
}

/// Appends a string literal with the escapes JSON requires and no others.
fn json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    if is_plain(bytes) {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut from = 0;
    for (at, &b) in bytes.iter().enumerate() {
        if b >= 0x20 && b != b'"' && b != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        let short = match b {
            b'"' | b'\\' => b,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            8 => b'b',
            12 => b'f',
            _ => {
                out.extend_from_slice(b"\\u00");
                out.extend([b >> 4, b & 15].map(|d| if d < 10 { b'0' + d } else { b'a' + d - 10 }));
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

/// Appends a CSV field: in quotes when it is empty (null has none) or holds a comma, a quote or a line break.
fn csv_string(text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

//! The columns a JSON decoder appends to.

use std::sync::Arc;

use arrow::array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow::array::{
    ArrayRef, BooleanArray, BooleanBufferBuilder, DictionaryArray, Int32Array, ListArray, PrimitiveArray,
    new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, FieldRef, TimeUnit};

use super::cursor::{Cursor, Number, Parsed};
use super::layout;
use super::word::{self, Minute};
use crate::format::avro::dict::Dictionary;
use crate::format::timestamp;

/// A dictionary of more bytes than this starts anew with the next batch.
const MAX_BYTES: usize = 64 << 20;

/// A column that grows by one value at a time and can be cut back.
#[derive(Debug)]
pub(in crate::format) struct Column {
    values: Values,
    /// One flag per value; empty while no value was null.
    valid: Vec<bool>,
    length: usize,
    minute: Minute,
}

#[derive(Debug)]
enum Values {
    Long(Vec<i64>),
    Double(Vec<f64>),
    Boolean(Vec<bool>),
    Timestamp(Vec<i64>),
    Text { codes: Vec<i32>, dictionary: Box<Dictionary>, any: bool },
    List { ends: Vec<i32>, item: Box<Column>, field: FieldRef },
    Null,
}

/// Whether a value was taken or does not fit its column.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    Misfit,
}

impl Column {
    /// A column of a decoded type, or nothing for a type JSON values are not decoded into. With `any`, a text column takes
    /// any value: a string as its text, another value as it is written.
    pub(in crate::format) fn new(data_type: &DataType, any: bool) -> Option<Self> {
        let values = match data_type {
            DataType::Int64 => Values::Long(vec![]),
            DataType::Float64 => Values::Double(vec![]),
            DataType::Boolean => Values::Boolean(vec![]),
            DataType::Timestamp(TimeUnit::Microsecond, None) => Values::Timestamp(vec![]),
            DataType::Dictionary(..) => Values::Text { codes: vec![], dictionary: Box::default(), any },
            DataType::List(field) => {
                let item = Box::new(Self::new(field.data_type(), any)?);
                Values::List { ends: vec![], item, field: field.clone() }
            }
            DataType::Null => Values::Null,
            _ => return None,
        };
        Some(Self { values, valid: vec![], length: 0, minute: Minute::default() })
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    fn filled(&mut self) {
        self.length += 1;
        if !self.valid.is_empty() {
            self.valid.push(true);
        }
    }

    pub(in crate::format) fn push_null(&mut self) {
        match &mut self.values {
            Values::Long(values) | Values::Timestamp(values) => values.push(0),
            Values::Double(values) => values.push(0.0),
            Values::Boolean(values) => values.push(false),
            Values::Text { codes, .. } => codes.push(0),
            Values::List { ends, item, .. } => ends.push(length_of(item)),
            Values::Null => {}
        }
        if self.valid.is_empty() {
            self.valid.resize(self.length, true);
        }
        self.valid.push(false);
        self.length += 1;
    }

    /// Reads the next value of the record into the column. A misfit is left for the caller to pass.
    #[inline]
    pub(super) fn read(&mut self, cursor: &mut Cursor, scratch: &mut Vec<u8>) -> Parsed<Taken> {
        let next = cursor.peek();
        if next == b'n' {
            cursor.literal(b"null")?;
            self.push_null();
            return Ok(Taken::Yes);
        }
        let start = cursor.at;
        let fits = match (&mut self.values, next) {
            (Values::Long(values), b'-' | b'0'..=b'9') => {
                let number = cursor.number()?;
                integer(cursor.bytes, number).map(|v| values.push(v)).is_some()
            }
            (Values::Double(values), b'-' | b'0'..=b'9') => {
                let number = cursor.number()?;
                double(cursor.bytes, number).map(|v| values.push(v)).is_some()
            }
            (Values::Boolean(values), b't') => cursor.literal(b"true").map(|()| values.push(true)).map(|()| true)?,
            (Values::Boolean(values), b'f') => cursor.literal(b"false").map(|()| values.push(false)).map(|()| true)?,
            (Values::Timestamp(values), b'"') => {
                let text = cursor.string()?;
                let micros = if text.escaped { None } else { timestamp::parse(&cursor.bytes[text.from..text.to]) };
                micros.map(|v| values.push(v)).is_some()
            }
            (Values::Text { codes, dictionary, .. }, b'"') => {
                let text = cursor.string()?;
                let code = if text.escaped {
                    scratch.clear();
                    cursor.unescape(text, scratch)?;
                    dictionary.intern(scratch, scratch.len())
                } else {
                    dictionary.intern(&cursor.bytes[text.from..], text.to - text.from)
                };
                code.map(|c| codes.push(c)).is_ok()
            }
            (Values::Text { codes, dictionary, any: true }, _) => {
                let (from, to) = cursor.skip()?;
                dictionary.intern(&cursor.bytes[from..], to - from).map(|c| codes.push(c)).is_ok()
            }
            (Values::List { ends, item, .. }, b'[') => {
                let before = item.len();
                let fits = items(cursor, item, scratch)?;
                if !fits {
                    item.truncate(before);
                } else {
                    ends.push(length_of(item));
                }
                fits
            }
            _ => false,
        };
        if fits {
            self.filled();
            Ok(Taken::Yes)
        } else {
            cursor.at = start;
            Ok(Taken::Misfit)
        }
    }

    /// Reads the value at `at`, which is less work when it is a common one; says where it ends. Nothing when it does not fit or
    /// is no value; there may be more values then than before. `text` has [`word::ROOM`] behind `at`.
    #[inline]
    pub(super) fn quick(&mut self, text: &[u8], at: usize, scratch: &mut Vec<u8>) -> Option<usize> {
        let end = match &mut self.values {
            Values::Long(values) => word::integer(text, at).map(|(value, end)| {
                values.push(value);
                end
            }),
            Values::Double(values) => word::double(text, at).map(|(value, end)| {
                values.push(value);
                end
            }),
            Values::Timestamp(values) if text[at] == b'"' => self.minute.read(text, at + 1).map(|(value, quote)| {
                values.push(value);
                quote + 1
            }),
            Values::Text { codes, dictionary, .. } if text[at] == b'"' => match word::closing(text, at + 1) {
                Some(quote) => {
                    codes.push(dictionary.intern(&text[at + 1..], quote - at - 1).ok()?);
                    Some(quote + 1)
                }
                None => None,
            },
            _ => None,
        };
        if end.is_none() {
            return self.slow(text, at, scratch);
        }
        self.filled();
        end
    }

    /// As [`Column::quick`], of a value that is not common.
    #[inline(never)]
    fn slow(&mut self, text: &[u8], at: usize, scratch: &mut Vec<u8>) -> Option<usize> {
        let mut cursor = Cursor { bytes: layout::line(text, at), at };
        let taken = self.read(&mut cursor, scratch).ok()?;
        let valid = taken == Taken::Yes && std::str::from_utf8(&text[at..cursor.at]).is_ok();
        valid.then_some(cursor.at)
    }

    /// Takes up a value that is given as text alone; false when it does not fit.
    pub(in crate::format) fn text(&mut self, text: &[u8]) -> bool {
        let words = || std::str::from_utf8(text).unwrap_or("");
        let fits = match &mut self.values {
            Values::Long(values) => words().parse().map(|value| values.push(value)).is_ok(),
            Values::Double(values) => {
                // The standard library also reads words as numbers.
                let digits = text.iter().all(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
                let value = words().parse().ok().filter(|value: &f64| digits && value.is_finite());
                value.map(|value| values.push(value)).is_some()
            }
            Values::Boolean(values) => {
                let (yes, no) = (text.eq_ignore_ascii_case(b"true"), text.eq_ignore_ascii_case(b"false"));
                if yes || no {
                    values.push(yes);
                }
                yes || no
            }
            Values::Timestamp(values) => timestamp::parse(text).map(|value| values.push(value)).is_some(),
            Values::Text { codes, dictionary, .. } => {
                dictionary.intern(text, text.len()).map(|code| codes.push(code)).is_ok()
            }
            Values::List { .. } | Values::Null => false,
        };
        if fits {
            self.filled();
        }
        fits
    }

    /// Repeats the last value until there are `length`.
    pub(super) fn repeat_last(&mut self, length: usize) {
        let Some(last) = self.length.checked_sub(1) else { return };
        match &mut self.values {
            Values::Long(values) | Values::Timestamp(values) => values.resize(length, values[last]),
            Values::Double(values) => values.resize(length, values[last]),
            Values::Boolean(values) => values.resize(length, values[last]),
            Values::Text { codes, .. } => codes.resize(length, codes[last]),
            Values::List { ends, item, .. } => {
                let to = index(ends[last]);
                let from = last.checked_sub(1).map_or(0, |before| index(ends[before]));
                for _ in self.length..length {
                    item.copy_within(from, to);
                    ends.push(length_of(item));
                }
            }
            Values::Null => {}
        }
        if !self.valid.is_empty() {
            self.valid.resize(length, self.valid[last]);
        }
        self.length = length;
    }

    /// Appends the values `from..to` again.
    fn copy_within(&mut self, from: usize, to: usize) {
        match &mut self.values {
            Values::Long(values) | Values::Timestamp(values) => values.extend_from_within(from..to),
            Values::Double(values) => values.extend_from_within(from..to),
            Values::Boolean(values) => values.extend_from_within(from..to),
            Values::Text { codes, .. } => codes.extend_from_within(from..to),
            Values::List { ends, item, .. } => {
                for at in from..to {
                    let begin = at.checked_sub(1).map_or(0, |before| index(ends[before]));
                    item.copy_within(begin, index(ends[at]));
                    ends.push(length_of(item));
                }
            }
            Values::Null => {}
        }
        if !self.valid.is_empty() {
            self.valid.extend_from_within(from..to);
        }
        self.length += to - from;
    }

    /// Forgets every value from `length` on.
    pub(in crate::format) fn truncate(&mut self, length: usize) {
        match &mut self.values {
            Values::Long(values) | Values::Timestamp(values) => values.truncate(length),
            Values::Double(values) => values.truncate(length),
            Values::Boolean(values) => values.truncate(length),
            Values::Text { codes, .. } => codes.truncate(length),
            Values::List { ends, item, .. } => {
                ends.truncate(length);
                item.truncate(ends.last().map_or(0, |end| index(*end)));
            }
            Values::Null => {}
        }
        self.valid.truncate(length);
        self.length = self.length.min(length);
    }

    /// The values as an array; the column is empty after it.
    pub(in crate::format) fn take(&mut self) -> ArrayRef {
        let nulls = (!self.valid.is_empty()).then(|| NullBuffer::from(std::mem::take(&mut self.valid)));
        let length = std::mem::take(&mut self.length);
        match &mut self.values {
            Values::Long(values) => primitive::<Int64Type>(values, nulls),
            Values::Double(values) => primitive::<Float64Type>(values, nulls),
            Values::Timestamp(values) => primitive::<TimestampMicrosecondType>(values, nulls),
            Values::Boolean(values) => {
                let mut bits = BooleanBufferBuilder::new(length);
                bits.append_slice(values);
                values.clear();
                Arc::new(BooleanArray::new(bits.finish(), nulls))
            }
            Values::Text { codes, dictionary, .. } => text(codes, dictionary, nulls),
            Values::List { ends, item, field } => {
                let offsets: ScalarBuffer<i32> = std::iter::once(0).chain(ends.drain(..)).collect();
                Arc::new(ListArray::new(field.clone(), OffsetBuffer::new(offsets), item.take(), nulls))
            }
            Values::Null => new_null_array(&DataType::Null, length),
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(values: &mut Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    let capacity = values.len();
    let full = std::mem::replace(values, Vec::with_capacity(capacity));
    Arc::new(PrimitiveArray::<T>::new(full.into(), nulls))
}

fn text(codes: &mut Vec<i32>, dictionary: &mut Dictionary, nulls: Option<NullBuffer>) -> ArrayRef {
    let capacity = codes.len();
    let full = std::mem::replace(codes, Vec::with_capacity(capacity));
    let values = dictionary.values();
    if dictionary.size() > MAX_BYTES {
        dictionary.clear();
    }
    // SAFETY: every valid code came from this dictionary, which only grew since.
    unsafe { Arc::new(DictionaryArray::<Int32Type>::new_unchecked(Int32Array::new(full.into(), nulls), values)) }
}

/// Reads a list whose bracket is next; false when an item does not fit.
fn items(cursor: &mut Cursor, item: &mut Column, scratch: &mut Vec<u8>) -> Parsed<bool> {
    cursor.expect(b'[', "expected [")?;
    if cursor.peek() == b']' {
        cursor.at += 1;
        return Ok(true);
    }
    loop {
        if item.read(cursor, scratch)? == Taken::Misfit {
            return Ok(false);
        }
        match cursor.peek() {
            b',' => cursor.at += 1,
            b']' => {
                cursor.at += 1;
                return Ok(true);
            }
            _ => return cursor.fault("expected , or ]"),
        }
    }
}

fn length_of(item: &Column) -> i32 {
    i32::try_from(item.length).unwrap_or(i32::MAX)
}

fn index(end: i32) -> usize {
    end as usize
}

/// The value of a number literal that is an integer of 64 bits.
#[inline]
fn integer(bytes: &[u8], number: Number) -> Option<i64> {
    if !number.integer {
        return None;
    }
    let negative = bytes[number.from] == b'-';
    let digits = &bytes[number.from + usize::from(negative)..number.to];
    if digits.len() <= 18 {
        let value = digits.iter().fold(0_i64, |value, b| value * 10 + i64::from(b - b'0'));
        return Some(if negative { -value } else { value });
    }
    std::str::from_utf8(&bytes[number.from..number.to]).ok()?.parse().ok()
}

/// The value of a number literal, when it is finite.
#[inline]
fn double(bytes: &[u8], number: Number) -> Option<f64> {
    let text = std::str::from_utf8(&bytes[number.from..number.to]).ok()?;
    text.parse().ok().filter(|v: &f64| v.is_finite())
}

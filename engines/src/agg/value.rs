//! Single values, for aggregates that keep some of them as they are.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt64Type};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, DictionaryArray, Float64Array, Int64Array,
    StringDictionaryBuilder, TimestampMicrosecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, TimeUnit};

use crate::state::keys::normal;

/// A value that is not null. Values of one column are of one kind.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Boolean(bool),
    /// An integer or an instant.
    Long(i64),
    Unsigned(u64),
    Decimal(i128),
    Double(f64),
    Text(Box<str>),
}

impl Ord for Value {
    /// Doubles by value, NaN above all.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            (Self::Long(a), Self::Long(b)) => a.cmp(b),
            (Self::Unsigned(a), Self::Unsigned(b)) => a.cmp(b),
            (Self::Decimal(a), Self::Decimal(b)) => a.cmp(b),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => self.kind().cmp(&other.kind()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl Value {
    fn kind(&self) -> u8 {
        match self {
            Self::Boolean(_) => 1,
            Self::Long(_) => 2,
            Self::Unsigned(_) => 3,
            Self::Decimal(_) => 4,
            Self::Double(_) => 5,
            Self::Text(_) => 6,
        }
    }

    /// The one value that stands for all that are equal to it.
    pub(crate) fn normal(self) -> Self {
        if let Self::Double(v) = self { Self::Double(normal(v)) } else { self }
    }

    /// Bytes beside the value itself.
    pub(crate) fn heap(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind());
        match self {
            Self::Boolean(v) => out.push(u8::from(*v)),
            Self::Long(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::Unsigned(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::Decimal(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::Text(v) => {
                encode_length(v.len(), out);
                out.extend_from_slice(v.as_bytes());
            }
        }
    }

    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        *bytes = rest;
        Some(match kind {
            1 => Self::Boolean(take::<1>(bytes)?[0] != 0),
            2 => Self::Long(i64::from_le_bytes(take(bytes)?)),
            3 => Self::Unsigned(u64::from_le_bytes(take(bytes)?)),
            4 => Self::Decimal(i128::from_le_bytes(take(bytes)?)),
            5 => Self::Double(f64::from_le_bytes(take(bytes)?)),
            6 => {
                let length = decode_length(bytes)?;
                let (text, rest) = bytes.split_at_checked(length)?;
                *bytes = rest;
                Self::Text(std::str::from_utf8(text).ok()?.into())
            }
            _ => return None,
        })
    }
}

/// The next bytes.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (own, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*own)
}

/// Appends a length.
pub(crate) fn encode_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

/// Reads a length.
pub(crate) fn decode_length(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(take(bytes)?)).ok()
}

/// Whether single values of a type are kept.
pub(crate) fn is_kept(data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean
        | DataType::Int64
        | DataType::UInt64
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Timestamp(TimeUnit::Microsecond, None) => true,
        DataType::Dictionary(_, value) => **value == DataType::Utf8,
        _ => false,
    }
}

/// The value of a row, `None` for null and for types that are not kept.
pub(crate) fn value_at(array: &ArrayRef, row: usize) -> Option<Value> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Boolean => Value::Boolean(array.as_boolean().value(row)),
        DataType::Int64 => Value::Long(array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt64 => Value::Unsigned(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float64 => Value::Double(array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(..) => Value::Decimal(array.as_primitive::<Decimal128Type>().value(row)),
        DataType::Timestamp(..) => Value::Long(array.as_primitive_opt::<TimestampMicrosecondType>()?.value(row)),
        DataType::Dictionary(..) => {
            let dictionary = array.as_dictionary_opt::<Int32Type>()?;
            let code = usize::try_from(dictionary.keys().value(row)).ok()?;
            Value::Text(dictionary.values().as_string_opt::<i32>()?.value(code).into())
        }
        _ => return None,
    })
}

/// Values as an array of a type for which [`is_kept`] holds.
pub(crate) fn array_of<'v>(data_type: &DataType, values: impl Iterator<Item = Option<&'v Value>>) -> ArrayRef {
    let long = |value: Option<&Value>| match value {
        Some(Value::Long(v)) => Some(*v),
        _ => None,
    };
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.map(|value| match value {
            Some(Value::Boolean(v)) => Some(*v),
            _ => None,
        }))),
        DataType::Timestamp(..) => Arc::new(TimestampMicrosecondArray::from_iter(values.map(long))),
        DataType::UInt64 => Arc::new(UInt64Array::from_iter(values.map(|value| match value {
            Some(Value::Unsigned(v)) => Some(*v),
            _ => None,
        }))),
        DataType::Float64 => Arc::new(Float64Array::from_iter(values.map(|value| match value {
            Some(Value::Double(v)) => Some(*v),
            _ => None,
        }))),
        DataType::Decimal128(precision, scale) => {
            let values = values.map(|value| match value {
                Some(Value::Decimal(v)) => Some(*v),
                _ => None,
            });
            let array = Decimal128Array::from_iter(values);
            let array = array.with_precision_and_scale(*precision, *scale);
            Arc::new(array.expect("the precision is that of the argument"))
        }
        DataType::Dictionary(..) => Arc::new(texts(values.map(|value| match value {
            Some(Value::Text(text)) => Some(&**text),
            _ => None,
        }))),
        _ => Arc::new(Int64Array::from_iter(values.map(long))),
    }
}

/// Texts as a dictionary.
pub(crate) fn texts<'t>(values: impl Iterator<Item = Option<&'t str>>) -> DictionaryArray<Int32Type> {
    let mut builder = StringDictionaryBuilder::<Int32Type>::new();
    values.for_each(|value| builder.append_option(value));
    builder.finish()
}

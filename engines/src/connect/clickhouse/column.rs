//! One column on its way from Arrow to ClickHouse's bytes.

use arrow::array::{Array, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};

use super::dictionary::{Codes, Keys, varint};
use super::types::{Scalar, Type};

/// A column of the table and how the query's column becomes it.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// The type's text, as the block announces it.
    pub(crate) text: String,
    pub(crate) array: bool,
    pub(crate) nullable: bool,
    pub(crate) kind: Kind,
}

/// How one value is written.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Fixed width.
    Scalar(Scalar),
    /// Length and bytes, row by row.
    Text,
    /// A key per distinct string and a code per row.
    Keys(Keys),
}

/// A column's bytes in one block.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// Ends of arrays, eight bytes a row.
    pub(crate) ends: Vec<u8>,
    /// Null marks, one byte a value; [`Kind::Keys`] has code 0 instead.
    pub(crate) nulls: Vec<u8>,
    /// Values of [`Kind::Scalar`] and [`Kind::Text`].
    pub(crate) values: Vec<u8>,
    /// Codes of [`Kind::Keys`].
    pub(crate) codes: Codes,
    /// Items of arrays so far.
    pub(crate) items: u64,
}

impl Data {
    pub(crate) fn clear(&mut self) {
        self.ends.clear();
        self.nulls.clear();
        self.values.clear();
        self.codes.clear();
        self.items = 0;
    }
}

/// A value that the column cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {value} does not fit {wanted}")]
pub(crate) struct Unfit {
    pub(crate) column: String,
    pub(crate) value: String,
    pub(crate) wanted: String,
}

impl Column {
    /// A column of this type; with `keyed`, plain strings are kept as keys and codes too.
    pub(crate) fn new(name: &str, data_type: &Type, keyed: bool) -> Self {
        let (array, item) = match data_type {
            Type::Array(item) => (true, item.as_ref()),
            other => (false, other),
        };
        let (nullable, inner) = match item {
            Type::Nullable(inner) => (true, inner.as_ref()),
            other => (false, other),
        };
        let kind = match inner {
            Type::Scalar(scalar) => Kind::Scalar(*scalar),
            Type::LowCardinality { nullable } => Kind::Keys(Keys::new(*nullable)),
            _ if keyed => Kind::Keys(Keys::new(nullable)),
            _ => Kind::Text,
        };
        let nullable = nullable || *inner == Type::LowCardinality { nullable: true };
        Self { name: name.to_owned(), text: data_type.to_string(), array, nullable, kind }
    }

    /// Whether a query's column of this type can be written to a column of that one.
    pub(crate) fn accepts(from: &DataType, to: &Type) -> bool {
        match (from, to) {
            (DataType::List(item), Type::Array(to)) => Self::accepts(item.data_type(), to),
            (_, Type::Nullable(to)) => Self::accepts(from, to),
            (DataType::Dictionary(_, value), _) => Self::accepts(value, to),
            (DataType::Utf8, Type::String | Type::LowCardinality { .. }) => true,
            (_, Type::Scalar(to)) => accepts_scalar(from, *to),
            _ => false,
        }
    }

    /// Appends a batch's column.
    ///
    /// # Errors
    /// A value does not fit; the block is then not usable any more.
    pub(crate) fn append(&mut self, array: &dyn Array, data: &mut Data) -> Result<(), Unfit> {
        if !self.array {
            return self.append_values(array, data);
        }
        let list = array.as_list::<i32>();
        if list.null_count() > 0 {
            return Err(self.unfit("NULL".into()));
        }
        let offsets = list.value_offsets();
        let (first, last) = (offsets[0], offsets[list.len()]);
        let base = data.items;
        let ends = offsets[1..].iter().map(|&end| (base + (end - first) as u64).to_le_bytes());
        extend(&mut data.ends, ends);
        data.items += (last - first) as u64;
        let items = list.values().slice(first as usize, (last - first) as usize);
        self.append_values(items.as_ref(), data)
    }

    fn append_values(&mut self, array: &dyn Array, data: &mut Data) -> Result<(), Unfit> {
        if array.null_count() > 0 && !self.nullable {
            return Err(self.unfit("NULL".into()));
        }
        match &mut self.kind {
            Kind::Keys(keys) => {
                keys.append(array, &mut data.codes);
                Ok(())
            }
            Kind::Text => {
                if self.nullable {
                    null_marks(array, &mut data.nulls);
                }
                texts(array, &mut data.values);
                Ok(())
            }
            Kind::Scalar(scalar) => {
                let scalar = *scalar;
                if self.nullable {
                    null_marks(array, &mut data.nulls);
                }
                scalars(array, scalar, &mut data.values).map_err(|row| self.unfit(value_text(array, row)))
            }
        }
    }

    fn unfit(&self, value: String) -> Unfit {
        Unfit { column: self.name.clone(), value, wanted: self.text.clone() }
    }
}

fn accepts_scalar(from: &DataType, to: Scalar) -> bool {
    use Scalar::{Bool, Date, Date32, DateTime, DateTime64, Float32, Float64, UInt8};
    match from {
        DataType::Boolean => matches!(to, Bool | UInt8),
        DataType::Float32 => matches!(to, Float32 | Float64),
        DataType::Float64 => to == Float64,
        DataType::Date32 => matches!(to, Date | Date32),
        DataType::Timestamp(..) => matches!(to, DateTime | DateTime64(_)),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => {
            is_integer(to) || to == Float64
        }
        DataType::Int64 | DataType::UInt64 => is_integer(to),
        _ => false,
    }
}

fn is_integer(scalar: Scalar) -> bool {
    use Scalar::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    matches!(scalar, UInt8 | UInt16 | UInt32 | UInt64 | Int8 | Int16 | Int32 | Int64)
}

/// One byte a value: 1 where it is null.
fn null_marks(array: &dyn Array, out: &mut Vec<u8>) {
    match array.logical_nulls() {
        Some(nulls) => out.extend(nulls.iter().map(|valid| u8::from(!valid))),
        None => out.resize(out.len() + array.len(), 0),
    }
}

fn texts(array: &dyn Array, out: &mut Vec<u8>) {
    let mut push = |text: &str| {
        varint(text.len() as u64, out);
        out.extend_from_slice(text.as_bytes());
    };
    match array.as_dictionary_opt::<Int32Type>() {
        Some(array) => {
            let values = array.values().as_string::<i32>();
            for (row, &key) in array.keys().values().iter().enumerate() {
                push(if array.keys().is_null(row) { "" } else { values.value(key as usize) });
            }
        }
        None => array.as_string::<i32>().iter().for_each(|text| push(text.unwrap_or(""))),
    }
}

/// Integers into every integer type: as they are where all fit, else the row of the first that does not.
macro_rules! integers {
    ($array:expr, $to:expr, $out:expr) => {{
        let array = $array;
        integers!(array, $to, $out; UInt8 u8, UInt16 u16, UInt32 u32, UInt64 u64, Int8 i8, Int16 i16, Int32 i32, Int64 i64,
            Date u16, Date32 i32)
    }};
    ($array:ident, $to:expr, $out:expr; $($variant:ident $native:ty),*) => {
        match $to {
            $(Scalar::$variant => copy(
                $array,
                |value| i128::from(value) == i128::from(value as $native),
                |value| (value as $native).to_le_bytes(),
                $out,
            ),)*
            _ => copy($array, |_| true, |value| (value as f64).to_le_bytes(), $out),
        }
    };
}

/// Appends values of fixed width.
///
/// # Errors
/// The first row whose value does not fit.
fn scalars(array: &dyn Array, to: Scalar, out: &mut Vec<u8>) -> Result<(), usize> {
    match array.data_type() {
        DataType::Int32 => integers!(array.as_primitive::<Int32Type>(), to, out),
        DataType::Date32 => integers!(array.as_primitive::<Date32Type>(), to, out),
        DataType::Int64 => integers!(array.as_primitive::<Int64Type>(), to, out),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => {
            // Every value of these fits 64 bits, so the cast does not fail.
            match cast(array, &DataType::Int64) {
                Ok(wide) => integers!(wide.as_primitive::<Int64Type>(), to, out),
                Err(_) => Err(0),
            }
        }
        DataType::UInt64 => integers!(array.as_primitive::<UInt64Type>(), to, out),
        DataType::Float32 if to == Scalar::Float32 => {
            copy(array.as_primitive::<Float32Type>(), |_| true, f32::to_le_bytes, out)
        }
        DataType::Float32 => {
            copy(array.as_primitive::<Float32Type>(), |_| true, |value| f64::from(value).to_le_bytes(), out)
        }
        DataType::Float64 => copy(array.as_primitive::<Float64Type>(), |_| true, f64::to_le_bytes, out),
        DataType::Timestamp(unit, _) => match unit {
            TimeUnit::Second => ticks(array.as_primitive::<TimestampSecondType>(), 0, to, out),
            TimeUnit::Millisecond => ticks(array.as_primitive::<TimestampMillisecondType>(), 3, to, out),
            TimeUnit::Microsecond => ticks(array.as_primitive::<TimestampMicrosecondType>(), 6, to, out),
            TimeUnit::Nanosecond => ticks(array.as_primitive::<TimestampNanosecondType>(), 9, to, out),
        },
        _ => {
            let array = array.as_boolean();
            out.extend(array.iter().map(|value| u8::from(value == Some(true))));
            Ok(())
        }
    }
}

/// Timestamps of 10^-`from` seconds. A coarser target takes the tick that has begun.
fn ticks<T>(array: &PrimitiveArray<T>, from: u8, to: Scalar, out: &mut Vec<u8>) -> Result<(), usize>
where
    T: ArrowPrimitiveType<Native = i64>,
{
    let target = match to {
        Scalar::DateTime64(target) => target,
        _ => {
            let unit = 10i64.pow(u32::from(from));
            let seconds = move |value: i64| value.div_euclid(unit);
            return copy(
                array,
                |value| u32::try_from(seconds(value)).is_ok(),
                |value| (seconds(value) as u32).to_le_bytes(),
                out,
            );
        }
    };
    if target == from {
        return copy(array, |_| true, i64::to_le_bytes, out);
    }
    let factor = 10i64.pow(u32::from(target.abs_diff(from)));
    if target < from {
        return copy(array, |_| true, |value| value.div_euclid(factor).to_le_bytes(), out);
    }
    copy(array, |value| value.checked_mul(factor).is_some(), |value| value.wrapping_mul(factor).to_le_bytes(), out)
}

/// Appends `bytes` of every value when all `fit`; under a null stands zero.
fn copy<T: ArrowPrimitiveType, const N: usize>(
    array: &PrimitiveArray<T>,
    fits: impl Fn(T::Native) -> bool,
    bytes: impl Fn(T::Native) -> [u8; N],
    out: &mut Vec<u8>,
) -> Result<(), usize> {
    let values = &array.values()[..];
    if array.null_count() > 0 {
        let unfit = |&row: &usize| array.is_valid(row) && !fits(values[row]);
        if let Some(row) = (0..values.len()).find(unfit) {
            return Err(row);
        }
        let nulls = array.nulls();
        let value = |(row, &value): (usize, &T::Native)| match nulls {
            Some(nulls) if nulls.is_null(row) => [0; N],
            _ => bytes(value),
        };
        extend(out, values.iter().enumerate().map(value));
        return Ok(());
    }
    if !values.iter().fold(true, |all, &value| all & fits(value)) {
        return Err(values.iter().position(|&value| !fits(value)).unwrap_or(0));
    }
    extend(out, values.iter().map(|&value| bytes(value)));
    Ok(())
}

/// Appends values of `N` bytes; the iterator knows its length.
pub(crate) fn extend<const N: usize>(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = [u8; N]>) {
    let start = out.len();
    let count = values.len();
    out.reserve(count * N);
    let spare = out.spare_capacity_mut()[..count * N].as_chunks_mut::<N>().0;
    let mut written = 0;
    for (slot, value) in spare.iter_mut().zip(values) {
        *slot = value.map(std::mem::MaybeUninit::new);
        written += 1;
    }
    // SAFETY: the first `written` chunks behind `start` have just been filled.
    unsafe { out.set_len(start + written * N) };
}

/// A value as its error names it.
fn value_text(array: &dyn Array, row: usize) -> String {
    let options = arrow::util::display::FormatOptions::new();
    arrow::util::display::ArrayFormatter::try_new(array, &options)
        .map_or_else(|_| "a value".into(), |formatter| formatter.value(row).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, TimestampMicrosecondArray, TimestampMillisecondArray};
    use proptest::prelude::*;

    fn write(array: &dyn Array, to: &str) -> Result<Data, Unfit> {
        let to = Type::parse(to).unwrap();
        assert!(Column::accepts(array.data_type(), &to));
        let mut data = Data::default();
        data.clear();
        Column::new("c", &to, false).append(array, &mut data)?;
        Ok(data)
    }

    proptest! {
        #[test]
        fn an_integer_is_written_exactly_or_refused(values in proptest::collection::vec(any::<i64>(), 1..9), shift in 0u32..64) {
            let values: Vec<i64> = values.iter().map(|value| value >> shift).collect();
            let array = Int64Array::from(values.clone());
            let unsigned = write(&array, "UInt16");
            match values.iter().find(|value| u16::try_from(**value).is_err()) {
                Some(value) => prop_assert_eq!(
                    unsigned.unwrap_err().to_string(),
                    format!("column c: {value} does not fit UInt16")
                ),
                None => {
                    let want: Vec<u8> = values.iter().flat_map(|value| (*value as u16).to_le_bytes()).collect();
                    prop_assert_eq!(unsigned.unwrap().values, want);
                }
            }
            prop_assert_eq!(write(&array, "UInt64").is_ok(), values.iter().all(|value| *value >= 0));
            prop_assert_eq!(write(&array, "Int32").is_ok(), values.iter().all(|value| i32::try_from(*value).is_ok()));
        }
    }

    #[test]
    fn nulls_are_marked_and_their_values_do_not_count() {
        let array = Int64Array::from(vec![Some(7), None, Some(-1)]);
        let data = write(&array, "Nullable(Int8)").unwrap();
        assert_eq!((data.nulls, data.values), (vec![0, 1, 0], vec![7, 0, 255]));
        assert_eq!(write(&array, "Int8").unwrap_err().to_string(), "column c: NULL does not fit Int8");
    }

    #[test]
    fn timestamps_take_the_tables_precision() {
        let millis = TimestampMillisecondArray::from(vec![1_500, -1]).with_timezone("+00:00");
        let read = |data: Data| -> Vec<i64> {
            data.values.chunks(8).map(|eight| i64::from_le_bytes(eight.try_into().unwrap())).collect()
        };
        assert_eq!(read(write(&millis, "DateTime64(3)").unwrap()), [1_500, -1]);
        assert_eq!(read(write(&millis, "DateTime64(6)").unwrap()), [1_500_000, -1_000]);
        assert_eq!(read(write(&millis, "DateTime64(0)").unwrap()), [1, -1]);
        let error = write(&millis, "DateTime").unwrap_err();
        assert_eq!(error.value, "1969-12-31T23:59:59.999Z");
        let far = TimestampMicrosecondArray::from(vec![i64::MAX / 10]);
        assert!(write(&far, "DateTime64(9)").is_err());
    }

    #[test]
    fn what_loses_information_is_not_accepted() {
        let refused = |from: &DataType, to: &str| !Column::accepts(from, &Type::parse(to).unwrap());
        assert!(refused(&DataType::Float64, "Float32"));
        assert!(refused(&DataType::Int64, "Float64"));
        assert!(refused(&DataType::Utf8, "Int64"));
        assert!(refused(&DataType::Int64, "String"));
        assert!(!refused(&DataType::Int64, "UInt8"));
    }
}

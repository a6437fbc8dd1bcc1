//! Columns of Parquet as the engine keeps them.
//!
//! Integers become 64 bits wide, floating-point numbers doubles, dates and timestamps of any unit microseconds, strings
//! dictionaries that grow from batch to batch. A decimal without a fraction is an integer, one with a fraction the nearest
//! double. Other types are refused by name when a query reads them.

use std::sync::Arc;

use arrow::array::types::{Int32Type, TimestampNanosecondType};
use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Int32Array, PrimitiveArray, StringArray, StructArray, UInt32Array,
    new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use crate::format::avro::dict::Dictionary;
use crate::read::{ReadColumn, ReadPlan, decoded_type};

/// A dictionary of more bytes than this starts anew with the next batch.
const MAX_BYTES: usize = 64 << 20;

/// The columns of a file as a query sees them.
#[must_use]
pub fn logical_schema(file: &SchemaRef) -> SchemaRef {
    Arc::new(Schema::new(file.fields().iter().map(|field| logical_field(field)).collect::<Fields>()))
}

fn logical_field(field: &Field) -> Field {
    Field::new(field.name(), logical(field.data_type()), true)
}

/// The type a Parquet type is read as; one that is not read stays what it is.
fn logical(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => DataType::Int64,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Decimal32(_, 0) | DataType::Decimal64(_, 0) | DataType::Decimal128(_, 0) => DataType::Int64,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) => DataType::Float64,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Dictionary(_, values) => logical(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(Arc::new(Field::new("item", logical(item.data_type()), true)))
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| logical_field(field)).collect()),
        other => other.clone(),
    }
}

/// Whether values of a logical type can be read.
fn readable(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) => readable(item.data_type()) && !matches!(item.data_type(), DataType::Struct(_)),
        other => {
            matches!(other, DataType::Int64 | DataType::Float64 | DataType::Boolean | DataType::Utf8 | DataType::Null)
                || *other == DataType::Timestamp(TimeUnit::Microsecond, None)
        }
    }
}

/// Makes the columns of a [`ReadPlan`] of batches of a file.
#[derive(Debug)]
pub struct Flattener {
    columns: Vec<(ReadColumn, Dictionary)>,
    unnest: Option<Vec<String>>,
    /// Columns of the file that are read.
    roots: Vec<usize>,
    schema: SchemaRef,
}

/// Rows of a batch's records, and where each record's rows end; without UNNEST a record is a row.
pub type Flat = (RecordBatch, Option<Vec<u32>>);

impl Flattener {
    /// For the leaves of `plan`, of a file that a query sees as `schema`.
    ///
    /// # Errors
    /// Says which leaf is of a type that is not read.
    pub fn new(plan: &ReadPlan, schema: &SchemaRef) -> Result<Self, String> {
        let unnest = plan.unnest.clone();
        let mut roots = Vec::new();
        let mut add = |path: &[String]| {
            let root = path.first().and_then(|name| schema.index_of(name).ok());
            roots.extend(root);
        };
        for column in &plan.columns {
            let full: Vec<&String> = match (&unnest, column.of_element) {
                (Some(list), true) => list.iter().chain(&column.path).collect(),
                _ => column.path.iter().collect(),
            };
            let found = match (leaf(schema.fields(), &full), column.of_element && column.path.is_empty()) {
                (Some(DataType::List(item)), true) => Some(item.data_type().clone()),
                (found, _) => found,
            };
            let name = column.display_path(unnest.as_deref());
            let data_type = found.ok_or_else(|| format!("there is no column {name}"))?;
            if !readable(&data_type) || decoded_type(&data_type) != column.data_type {
                return Err(format!("{name} is of the type {data_type}, which is not read from Parquet"));
            }
            if !column.of_element {
                add(&column.path);
            }
        }
        if let Some(list) = &unnest {
            add(list);
        }
        roots.sort_unstable();
        roots.dedup();
        let columns = plan.columns.iter().map(|column| (column.clone(), Dictionary::default())).collect();
        Ok(Self { columns, unnest, roots, schema: plan.schema() })
    }

    /// Columns of the file that must be in a batch.
    #[must_use]
    pub fn roots(&self) -> &[usize] {
        &self.roots
    }

    /// Makes rows of the records of a batch.
    ///
    /// # Errors
    /// Says which value does not fit.
    pub fn flatten(&mut self, batch: &RecordBatch) -> Result<Flat, String> {
        let record = StructArray::from(if batch.columns().is_empty() { Self::nothing(batch) } else { batch.clone() });
        let elements = match &self.unnest {
            None => None,
            Some(path) => Some(Elements::of(&child(&record, path)?)?),
        };
        let rows = elements.as_ref().map_or(batch.num_rows(), |elements| elements.records.len());
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (column, dictionary) in &mut self.columns {
            let array = match &elements {
                Some(elements) if column.of_element => elements.column(&column.path)?,
                Some(elements) => taken(&child(&record, &column.path)?, &elements.records)?,
                None => child(&record, &column.path)?,
            };
            arrays.push(converted(&array, &column.data_type, dictionary).map_err(|e| format!("{}: {e}", column.name))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let flat = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options);
        Ok((flat.map_err(|e| e.to_string())?, elements.map(|elements| elements.ends)))
    }

    /// A batch of as many rows that has a column.
    fn nothing(batch: &RecordBatch) -> RecordBatch {
        let field = Field::new("nothing", DataType::Null, true);
        let column = new_null_array(&DataType::Null, batch.num_rows());
        RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).expect("one column of its type")
    }
}

/// The logical type of a leaf; lists on the way are entered.
fn leaf(fields: &Fields, path: &[&String]) -> Option<DataType> {
    let (first, rest) = path.split_first()?;
    let mut data_type = fields.iter().find(|field| field.name() == *first)?.data_type();
    if rest.is_empty() {
        return Some(data_type.clone());
    }
    while let DataType::List(item) = data_type {
        data_type = item.data_type();
    }
    match data_type {
        DataType::Struct(inner) => leaf(inner, rest),
        _ => None,
    }
}

/// The elements of an unnested list.
struct Elements {
    values: ArrayRef,
    /// The record of every element, and which element it is of all values.
    records: Vec<u32>,
    indices: UInt32Array,
    /// Behind the last element of every record.
    ends: Vec<u32>,
}

impl Elements {
    fn of(array: &ArrayRef) -> Result<Self, String> {
        let item = match array.data_type() {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => item,
            other => return Err(format!("{other} is no list")),
        };
        let array = cast_with_options(array, &DataType::List(Arc::clone(item)), &STRICT).map_err(|e| e.to_string())?;
        let list = array.as_list::<i32>();
        let (mut records, mut indices, mut ends) = (vec![], vec![], vec![]);
        let offsets = list.value_offsets();
        for row in 0..list.len() {
            if list.is_valid(row) {
                for index in offsets[row]..offsets[row + 1] {
                    records.push(u32::try_from(row).unwrap_or(u32::MAX));
                    indices.push(index.cast_unsigned());
                }
            }
            ends.push(u32::try_from(records.len()).unwrap_or(u32::MAX));
        }
        Ok(Self { values: Arc::clone(list.values()), records, indices: indices.into(), ends })
    }

    fn column(&self, path: &[String]) -> Result<ArrayRef, String> {
        let elements = take(&self.values, &self.indices, None).map_err(|e| e.to_string())?;
        if path.is_empty() {
            return Ok(elements);
        }
        let fields = elements.as_struct_opt().ok_or_else(|| format!("{} has no fields", elements.data_type()))?;
        child(fields, path)
    }
}

fn taken(array: &ArrayRef, rows: &[u32]) -> Result<ArrayRef, String> {
    take(array, &UInt32Array::from(rows.to_vec()), None).map_err(|e| e.to_string())
}

/// The values at a path; null where an object on the way is.
fn child(record: &StructArray, path: &[String]) -> Result<ArrayRef, String> {
    let missing = || format!("there is no column {}", path.join("."));
    let (first, rest) = path.split_first().ok_or_else(missing)?;
    let array = record.column_by_name(first).ok_or_else(missing)?;
    let nulls = NullBuffer::union(record.nulls(), array.nulls());
    let array = if record.nulls().is_some() {
        let data = array.to_data().into_builder().nulls(nulls);
        arrow::array::make_array(data.build().map_err(|e| e.to_string())?)
    } else {
        Arc::clone(array)
    };
    match rest {
        [] => Ok(array),
        _ => child(array.as_struct_opt().ok_or_else(missing)?, rest),
    }
}

/// A value that does not fit is an error, not null.
const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: arrow::util::display::FormatOptions::new() };

/// The values as the engine keeps them.
fn converted(array: &ArrayRef, to: &DataType, dictionary: &mut Dictionary) -> Result<ArrayRef, String> {
    let strict = |array: &ArrayRef, to: &DataType| cast_with_options(array, to, &STRICT).map_err(|e| e.to_string());
    match (array.data_type(), to) {
        (_, DataType::Dictionary(..)) => {
            let text = strict(array, &DataType::Utf8)?;
            interned(text.as_string::<i32>(), dictionary)
        }
        // What is finer than a microsecond is cut downwards.
        (DataType::Timestamp(TimeUnit::Nanosecond, _), DataType::Timestamp(..)) => {
            let micros: PrimitiveArray<TimestampMicrosecondType> =
                array.as_primitive::<TimestampNanosecondType>().unary(|nanos| nanos.div_euclid(1000));
            Ok(Arc::new(micros))
        }
        // The instant stays; the zone is how it was written.
        (DataType::Timestamp(unit, Some(_)), DataType::Timestamp(..)) => {
            let utc = array.to_data().into_builder().data_type(DataType::Timestamp(*unit, None));
            strict(&arrow::array::make_array(utc.build().map_err(|e| e.to_string())?), to)
        }
        (from, to) if from == to => Ok(Arc::clone(array)),
        _ => strict(array, to),
    }
}

/// Texts as codes of a dictionary that grows.
fn interned(texts: &StringArray, dictionary: &mut Dictionary) -> Result<ArrayRef, String> {
    let mut codes = Vec::with_capacity(texts.len());
    for row in 0..texts.len() {
        let text = texts.value(row).as_bytes();
        let code =
            if texts.is_valid(row) { dictionary.intern(text, text.len()).map_err(|e| format!("{e:?}"))? } else { 0 };
        codes.push(code);
    }
    let values = dictionary.values();
    if dictionary.size() > MAX_BYTES {
        dictionary.clear();
    }
    let codes = Int32Array::new(codes.into(), texts.nulls().cloned());
    let array = DictionaryArray::<Int32Type>::try_new(codes, values).map_err(|e| e.to_string())?;
    Ok(Arc::new(array))
}

#[cfg(test)]
mod tests;

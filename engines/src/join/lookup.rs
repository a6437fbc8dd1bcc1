//! Lookup and ASOF joins: the columns of a table added to a stream's rows.

use std::cmp::Ordering;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{cast, concat_batches, take};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow::row::{RowConverter, Rows, SortField};
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::error::Error;
use crate::plan::{Closest, Comparison, Lookup};

/// A table that is held whole, ready to be joined.
#[derive(Debug)]
pub struct LookupTable {
    schema: SchemaRef,
    table: RecordBatch,
    keep: bool,
    /// Key columns of the stream.
    keys: Vec<usize>,
    converter: Option<RowConverter>,
    /// Keys of the table's rows.
    rows: Option<Rows>,
    hasher: DefaultHashBuilder,
    /// Groups of rows with equal keys, by key.
    index: HashTable<usize>,
    /// Rows of every group, ascending, or by the column that is closest.
    groups: Vec<Vec<u32>>,
    closest: Option<Nearest>,
}

/// The column of an ASOF join.
#[derive(Debug)]
struct Nearest {
    spec: Closest,
    converter: RowConverter,
    rows: Rows,
}

impl LookupTable {
    /// A table of these rows.
    ///
    /// # Errors
    /// A column cannot be a key.
    pub fn new(lookup: &Lookup, rows: Vec<RecordBatch>, schema: SchemaRef) -> Result<Self, Error> {
        let table = concat_batches(&schema, &rows).map_err(|e| failed(&e))?;
        let keys: Vec<ArrayRef> =
            lookup.keys.iter().map(|(_, column)| plain(table.column(*column))).collect::<Result<_, _>>()?;
        let (converter, key_rows) = converted(&keys)?;
        let closest = lookup.closest.map(|spec| nearest(spec, &table)).transpose()?;
        let mut made = Self {
            schema: lookup.schema.clone(),
            keep: lookup.keep,
            keys: lookup.keys.iter().map(|(column, _)| *column).collect(),
            converter,
            rows: key_rows,
            hasher: DefaultHashBuilder::default(),
            index: HashTable::new(),
            groups: vec![],
            closest,
            table,
        };
        made.group(&keys);
        Ok(made)
    }

    fn group(&mut self, keys: &[ArrayRef]) {
        let Self { rows, hasher, index, groups, closest, table, .. } = self;
        let key = |row: usize| rows.as_ref().map_or(&[][..], |rows| rows.row(row).data());
        for row in 0..table.num_rows() {
            let column = closest.as_ref().map(|nearest| table.column(nearest.spec.table));
            // Null equals nothing, and is close to nothing.
            if keys.iter().chain(column).any(|column| column.is_null(row)) {
                continue;
            }
            let hash = hasher.hash_one(key(row));
            let same = |group: &usize| key(groups[*group][0] as usize) == key(row);
            let group = match index.find(hash, same) {
                Some(group) => *group,
                None => {
                    let group = groups.len();
                    index.insert_unique(hash, group, |group| hasher.hash_one(key(groups[*group][0] as usize)));
                    groups.push(vec![]);
                    group
                }
            };
            groups[group].push(u32::try_from(row).unwrap_or(u32::MAX));
        }
        if let Some(nearest) = closest {
            for group in groups {
                group.sort_by(|a, b| nearest.rows.row(*a as usize).cmp(&nearest.rows.row(*b as usize)));
            }
        }
    }

    /// Adds the table's columns to a batch of the stream. A row leaves as often as rows of the table match it.
    ///
    /// # Errors
    /// A column is not of the type the plan says.
    pub fn join(&self, batch: &RecordBatch) -> Result<RecordBatch, Error> {
        let (left, right) = self.matches(batch)?;
        let columns = batch.columns().iter().map(|column| take(column, &left, None));
        let columns = columns.chain(self.table.columns().iter().map(|column| take(column, &right, None)));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(|e| failed(&e))?;
        let options = RecordBatchOptions::new().with_row_count(Some(left.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(|e| failed(&e))
    }

    /// Rows of the stream and of the table that belong together.
    fn matches(&self, batch: &RecordBatch) -> Result<(UInt32Array, UInt32Array), Error> {
        let keys: Vec<ArrayRef> =
            self.keys.iter().map(|column| plain(batch.column(*column))).collect::<Result<_, _>>()?;
        let rows = match &self.converter {
            Some(converter) => Some(converter.convert_columns(&keys).map_err(|e| failed(&e))?),
            None => None,
        };
        let wanted = match &self.closest {
            Some(nearest) => {
                let column = plain(batch.column(nearest.spec.stream))?;
                let rows = nearest.converter.convert_columns(std::slice::from_ref(&column)).map_err(|e| failed(&e))?;
                Some((nearest, column, rows))
            }
            None => None,
        };
        let count = batch.num_rows();
        let (mut left, mut right) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for row in 0..count {
            let key = rows.as_ref().map_or(&[][..], |rows| rows.row(row).data());
            let null = keys.iter().any(|column| column.is_null(row));
            let group = if null { None } else { self.find(key) };
            let number = u32::try_from(row).unwrap_or(u32::MAX);
            let before = left.len();
            match (&wanted, group) {
                (_, None) => {}
                (None, Some(group)) => {
                    left.extend(std::iter::repeat_n(number, group.len()));
                    right.extend(group.iter().map(|other| Some(*other)));
                }
                (Some((_, column, _)), Some(_)) if column.is_null(row) => {}
                (Some((nearest, _, rows)), Some(group)) => {
                    let compared = |other: &u32| nearest.rows.row(*other as usize).cmp(&rows.row(row));
                    if let Some(found) = closest(group, nearest.spec.comparison, compared) {
                        left.push(number);
                        right.push(Some(found));
                    }
                }
            }
            if left.len() == before && self.keep {
                left.push(number);
                right.push(None);
            }
        }
        Ok((UInt32Array::from(left), UInt32Array::from(right)))
    }

    fn find(&self, key: &[u8]) -> Option<&[u32]> {
        let own = |row: u32| self.rows.as_ref().map_or(&[][..], |rows| rows.row(row as usize).data());
        let same = |group: &usize| own(self.groups[*group][0]) == key;
        self.index.find(self.hasher.hash_one(key), same).map(|group| self.groups[*group].as_slice())
    }
}

/// The closest row of a group in order; `compared` says how a row lies to what is looked for.
fn closest(group: &[u32], comparison: Comparison, compared: impl Fn(&u32) -> Ordering) -> Option<u32> {
    let below = |or_equal: bool| {
        let count = group.partition_point(|row| match compared(row) {
            Ordering::Less => true,
            Ordering::Equal => or_equal,
            Ordering::Greater => false,
        });
        count.checked_sub(1).map(|at| group[at])
    };
    let above = |or_equal: bool| {
        let at = group.partition_point(|row| match compared(row) {
            Ordering::Less => true,
            Ordering::Equal => !or_equal,
            Ordering::Greater => false,
        });
        group.get(at).copied()
    };
    match comparison {
        Comparison::NotBefore => below(true),
        Comparison::After => below(false),
        Comparison::NotAfter => above(true),
        Comparison::Before => above(false),
    }
}

fn nearest(spec: Closest, table: &RecordBatch) -> Result<Nearest, Error> {
    let column = plain(table.column(spec.table))?;
    let converter = RowConverter::new(vec![SortField::new(column.data_type().clone())]).map_err(|e| failed(&e))?;
    let rows = converter.convert_columns(&[column]).map_err(|e| failed(&e))?;
    Ok(Nearest { spec, converter, rows })
}

fn converted(keys: &[ArrayRef]) -> Result<(Option<RowConverter>, Option<Rows>), Error> {
    if keys.is_empty() {
        return Ok((None, None));
    }
    let fields = keys.iter().map(|key| SortField::new(key.data_type().clone())).collect();
    let converter = RowConverter::new(fields).map_err(|e| failed(&e))?;
    let rows = converter.convert_columns(keys).map_err(|e| failed(&e))?;
    Ok((Some(converter), Some(rows)))
}

/// A column without its dictionary.
fn plain(column: &ArrayRef) -> Result<ArrayRef, Error> {
    match column.data_type() {
        DataType::Dictionary(_, value) => cast(column, value).map_err(|e| failed(&e)),
        _ => Ok(Arc::clone(column)),
    }
}

fn failed(error: &ArrowError) -> Error {
    Error::source(format!("a table cannot be joined: {error}"), "join on texts, numbers, timestamps or booleans")
}

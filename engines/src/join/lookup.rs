//! A stream joined with a table that is held whole: by equal keys, or by the closest of the rows with equal keys.

use std::cmp::Ordering;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::types::{Float64Type, Int32Type};
use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, UInt32Builder};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, concat_batches, take, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow::row::{Row, RowConverter, Rows, SortField};
use hashbrown::{DefaultHashBuilder, HashTable};

use super::bug;
use crate::error::Error;
use crate::plan::{Closest, Comparison, Lookup};

/// The group of a key that the table does not have.
const NONE: u32 = u32::MAX;
/// Dictionaries whose groups are remembered: a few for every worker.
const REMEMBERED: usize = 32;

/// A table, ready to be joined.
#[derive(Debug)]
pub struct LookupTable {
    keep: bool,
    stream_keys: Vec<usize>,
    types: Vec<DataType>,
    schema: SchemaRef,
    rows: RecordBatch,
    converter: Option<RowConverter>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Key of every group.
    keys: Option<Rows>,
    /// Where every group begins in `order`, and behind the last where it ends.
    bounds: Vec<u32>,
    /// Rows of the table by group.
    order: Vec<u32>,
    closest: Option<Nearest>,
    /// Groups of the values of dictionaries that were met.
    remembered: Mutex<Vec<(ArrayRef, Arc<Vec<u32>>)>>,
}

/// What ASOF compares.
#[derive(Debug)]
struct Nearest {
    plan: Closest,
    data_type: DataType,
    converter: RowConverter,
    /// In the order of `order`.
    values: Rows,
}

impl LookupTable {
    /// A table of prepared rows.
    ///
    /// # Errors
    /// A key cannot be compared.
    pub fn new(plan: &Lookup, batches: Vec<RecordBatch>, schema: SchemaRef) -> Result<Self, Error> {
        let rows = concat_batches(&schema, &batches).map_err(bug)?;
        u32::try_from(rows.num_rows())
            .map_err(|_| Error::source("a table has more than 4 billion rows", "join two streams instead"))?;
        let columns =
            plan.keys.iter().map(|(_, column)| canonical(rows.column(*column))).collect::<Result<Vec<_>, _>>()?;
        let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
        let mut table = Self {
            keep: plan.keep,
            stream_keys: plan.keys.iter().map(|(column, _)| *column).collect(),
            converter: if types.is_empty() { None } else { Some(converter(&types)?) },
            types,
            schema: Arc::clone(&plan.schema),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            keys: None,
            bounds: vec![],
            order: vec![],
            closest: None,
            remembered: Mutex::default(),
            rows,
        };
        let values = match plan.closest {
            None => None,
            Some(closest) => {
                let column = canonical(table.rows.column(closest.table))?;
                let converter = converter(&[column.data_type().clone()])?;
                let rows = converter.convert_columns(&[Arc::clone(&column)]).map_err(bug)?;
                Some((closest, column, converter, rows))
            }
        };
        let mut groups = table.group(&columns)?;
        if let Some((_, column, ..)) = &values {
            let comparable = column.logical_nulls();
            groups.retain(|(_, row)| comparable.as_ref().is_none_or(|nulls| nulls.is_valid(*row as usize)));
        }
        groups.sort_by(|a, b| {
            let by_value = |(_, _, _, rows): &(Closest, ArrayRef, RowConverter, Rows)| {
                rows.row(a.1 as usize).cmp(&rows.row(b.1 as usize))
            };
            a.0.cmp(&b.0).then_with(|| values.as_ref().map_or(Ordering::Equal, by_value))
        });
        let known = table.keys.as_ref().map_or(1, Rows::num_rows);
        let mut at = 0;
        for group in 0..=known {
            at += groups[at..].partition_point(|(of, _)| (*of as usize) < group);
            table.bounds.push(u32::try_from(at).unwrap_or(NONE));
        }
        table.order = groups.into_iter().map(|(_, row)| row).collect();
        table.closest = values
            .map(|(plan, column, converter, _)| {
                let sorted = take(&column, &UInt32Array::from(table.order.clone()), None).map_err(bug)?;
                let values = converter.convert_columns(&[sorted]).map_err(bug)?;
                Ok::<_, Error>(Nearest { plan, data_type: column.data_type().clone(), converter, values })
            })
            .transpose()?;
        Ok(table)
    }

    /// Numbers the keys of the table's rows; rows with a null in their key have none.
    fn group(&mut self, columns: &[ArrayRef]) -> Result<Vec<(u32, u32)>, Error> {
        let rows = u32::try_from(self.rows.num_rows()).unwrap_or(NONE);
        let Some(converter) = &self.converter else { return Ok((0..rows).map(|row| (0, row)).collect()) };
        let converted = converter.convert_columns(columns).map_err(bug)?;
        let mut keys = converter.empty_rows(0, 0);
        let nulls = nulls_of(columns);
        let mut groups = Vec::with_capacity(rows as usize);
        for (row, key) in (0..rows).zip(converted.iter()) {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row as usize)) {
                continue;
            }
            let hash = self.hasher.hash_one(key.as_ref());
            let known = self.index.find(hash, |group| keys.row(*group as usize) == key).copied();
            groups.push((
                known.unwrap_or_else(|| {
                    let group = u32::try_from(keys.num_rows()).unwrap_or(NONE);
                    keys.push(key);
                    let hash_of = |group: &u32| self.hasher.hash_one(keys.row(*group as usize).as_ref());
                    self.index.insert_unique(hash, group, hash_of);
                    group
                }),
                row,
            ));
        }
        self.keys = Some(keys);
        Ok(groups)
    }

    /// The group of a key.
    fn find(&self, key: Row<'_>) -> u32 {
        let Some(keys) = &self.keys else { return 0 };
        let hash = self.hasher.hash_one(key.as_ref());
        self.index.find(hash, |group| keys.row(*group as usize) == key).copied().unwrap_or(NONE)
    }

    /// The group of every row of these key columns.
    fn groups(&self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>, Error> {
        let Some(converter) = &self.converter else { return Ok(vec![0; rows]) };
        if let [column] = columns
            && let Some(texts) = column.as_dictionary_opt::<Int32Type>()
            && matches!(self.types[0], DataType::Dictionary(..))
        {
            let of_values = self.groups_of_values(texts.values(), converter)?;
            let group = |code: Option<i32>| {
                code.and_then(|code| of_values.get(usize::try_from(code).ok()?)).copied().unwrap_or(NONE)
            };
            return Ok(texts.keys().iter().map(group).collect());
        }
        let cast_to = |(column, data_type): (&ArrayRef, &DataType)| {
            if column.data_type() == data_type { Ok(Arc::clone(column)) } else { cast(column, data_type) }
        };
        let columns = columns.iter().zip(&self.types).map(cast_to).collect::<Result<Vec<_>, _>>().map_err(bug)?;
        let columns = columns.iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
        let nulls = nulls_of(&columns);
        let converted = converter.convert_columns(&columns).map_err(bug)?;
        let group = |(row, key): (usize, Row<'_>)| {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) { NONE } else { self.find(key) }
        };
        Ok(converted.iter().enumerate().map(group).collect())
    }

    fn groups_of_values(&self, values: &ArrayRef, converter: &RowConverter) -> Result<Arc<Vec<u32>>, Error> {
        let lock = || self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, groups)) = lock().iter().find(|(known, _)| Arc::ptr_eq(known, values)) {
            return Ok(Arc::clone(groups));
        }
        let texts = cast(values, &self.types[0]).map_err(bug)?;
        let converted = converter.convert_columns(&[texts]).map_err(bug)?;
        let group = |(at, key): (usize, Row<'_>)| if values.is_null(at) { NONE } else { self.find(key) };
        let groups = Arc::new(converted.iter().enumerate().map(group).collect::<Vec<_>>());
        let mut remembered = lock();
        if remembered.len() == REMEMBERED {
            remembered.remove(0);
        }
        remembered.push((Arc::clone(values), Arc::clone(&groups)));
        Ok(groups)
    }

    /// Joins a batch of the stream.
    ///
    /// # Errors
    /// The batch is not of the plan's columns.
    pub fn join(&self, batch: &RecordBatch) -> Result<RecordBatch, Error> {
        let rows = batch.num_rows();
        let columns: Vec<ArrayRef> = self.stream_keys.iter().map(|column| Arc::clone(batch.column(*column))).collect();
        let groups = self.groups(&columns, rows)?;
        let (mut from, mut to) = (Vec::with_capacity(rows), UInt32Builder::with_capacity(rows));
        let nearest = self.closest.as_ref().map(|nearest| nearest.of(batch)).transpose()?;
        for (row, group) in (0_u32..).zip(&groups) {
            let found = match (&nearest, *group) {
                (_, NONE) => &[],
                (None, group) => self.rows_of(group),
                (Some((values, nulls)), group) => {
                    let row = row as usize;
                    if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                        &[]
                    } else {
                        self.closest_of(group, values.row(row))
                    }
                }
            };
            if found.is_empty() && self.keep {
                from.push(row);
                to.append_null();
            }
            from.resize(from.len() + found.len(), row);
            to.append_slice(found);
        }
        let to = to.finish();
        let same = from.len() == rows && from.iter().zip(0..).all(|(row, at)| *row == at);
        let own = if same { batch.clone() } else { take_record_batch(batch, &UInt32Array::from(from)).map_err(bug)? };
        let mut columns = own.columns().to_vec();
        for column in self.rows.columns() {
            columns.push(take(column, &to, None).map_err(bug)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(to.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(bug)
    }

    fn bounds_of(&self, group: u32) -> (usize, usize) {
        let group = group as usize;
        (self.bounds[group] as usize, self.bounds[group + 1] as usize)
    }

    fn rows_of(&self, group: u32) -> &[u32] {
        let (from, to) = self.bounds_of(group);
        &self.order[from..to]
    }

    /// The one row of a group that is closest to a value, if there is one on its side: among equal ones the one that lies
    /// towards the value.
    fn closest_of(&self, group: u32, value: Row<'_>) -> &[u32] {
        let Some(nearest) = &self.closest else { return &[] };
        let (from, to) = self.bounds_of(group);
        // Behind the last of the rows that are less, or not greater.
        let behind = |also_equal: bool| {
            let (mut low, mut high) = (from, to);
            while low < high {
                let middle = low.midpoint(high);
                let is_before = match nearest.values.row(middle).cmp(&value) {
                    Ordering::Less => true,
                    Ordering::Equal => also_equal,
                    Ordering::Greater => false,
                };
                (low, high) = if is_before { (middle + 1, high) } else { (low, middle) };
            }
            low
        };
        let at = match nearest.plan.comparison {
            Comparison::NotBefore => behind(true).checked_sub(1),
            Comparison::After => behind(false).checked_sub(1),
            Comparison::NotAfter => Some(behind(false)),
            Comparison::Before => Some(behind(true)),
        };
        match at {
            Some(at) if (from..to).contains(&at) => &self.order[at..=at],
            _ => &[],
        }
    }
}

impl Nearest {
    /// The stream's values, and which are null.
    fn of(&self, batch: &RecordBatch) -> Result<(Rows, Option<NullBuffer>), Error> {
        let column = batch.column(self.plan.stream);
        let column = if *column.data_type() == self.data_type {
            canonical(column)?
        } else {
            canonical(&cast(column, &self.data_type).map_err(bug)?)?
        };
        let nulls = column.logical_nulls();
        Ok((self.converter.convert_columns(&[column]).map_err(bug)?, nulls))
    }
}

fn converter(types: &[DataType]) -> Result<RowConverter, Error> {
    RowConverter::new(types.iter().map(|t| SortField::new(t.clone())).collect())
        .map_err(|error| Error::usage(format!("join: {error}"), "join by texts, numbers, timestamps or booleans"))
}

/// One zero and one not-a-number, as SQL compares them.
fn canonical(column: &ArrayRef) -> Result<ArrayRef, Error> {
    let Some(doubles) = column.as_primitive_opt::<Float64Type>() else { return Ok(Arc::clone(column)) };
    let one = |x: f64| if x.is_nan() { f64::NAN } else { x + 0.0 };
    Ok(Arc::new(doubles.unary::<_, Float64Type>(one)))
}

/// Rows with a null in one of the columns.
fn nulls_of(columns: &[ArrayRef]) -> Option<NullBuffer> {
    columns.iter().fold(None, |nulls, column| {
        NullBuffer::union(nulls.as_ref(), column.logical_nulls().filter(|nulls| nulls.null_count() > 0).as_ref())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{DictionaryArray, Int64Array, StringArray};
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Schema};
    use proptest::prelude::*;

    type Row = (Option<u8>, Option<i64>);

    fn batch(rows: &[Row], name: &str) -> RecordBatch {
        let text = |key: Option<u8>| key.map(|key| format!("k{key}"));
        let keys: DictionaryArray<Int32Type> =
            rows.iter().map(|row| text(row.0)).collect::<Vec<_>>().iter().map(|t| t.as_deref()).collect();
        let values: Int64Array = rows.iter().map(|row| row.1).collect();
        let fields = vec![
            Field::new(format!("{name}k"), keys.data_type().clone(), true),
            Field::new(format!("{name}v"), DataType::Int64, true),
        ];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![Arc::new(keys), Arc::new(values)]).unwrap()
    }

    fn back(batch: &RecordBatch) -> Vec<(Row, Row)> {
        let text = |column: usize| cast(batch.column(column), &DataType::Utf8).unwrap();
        let (left, right) = (text(0), text(2));
        let key = |texts: &ArrayRef, row: usize| {
            let texts: &StringArray = texts.as_string();
            texts.is_valid(row).then(|| texts.value(row)[1..].parse().unwrap())
        };
        let value = |column: usize, row: usize| {
            let values: &Int64Array = batch.column(column).as_primitive();
            values.is_valid(row).then(|| values.value(row))
        };
        (0..batch.num_rows()).map(|row| ((key(&left, row), value(1, row)), (key(&right, row), value(3, row)))).collect()
    }

    fn joined(stream: &[Row], table: &[Row], plan: impl FnOnce(SchemaRef) -> Lookup) -> Vec<(Row, Row)> {
        let (left, right) = (batch(stream, "s"), batch(table, "t"));
        let fields: Vec<_> = left.schema().fields().iter().chain(right.schema().fields()).cloned().collect();
        let plan = plan(Arc::new(Schema::new(fields)));
        let schema = right.schema();
        let half = table.len() / 2;
        let halves = vec![batch(&table[..half], "t"), batch(&table[half..], "t")];
        let table = LookupTable::new(&plan, halves, schema).unwrap();
        let first = back(&table.join(&left).unwrap());
        assert_eq!(back(&table.join(&left).unwrap()), first);
        first
    }

    fn rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
        let row = (proptest::option::weighted(0.9, 0_u8..5), proptest::option::weighted(0.9, -20_i64..20));
        proptest::collection::vec(row, 0..most)
    }

    proptest! {
        #[test]
        fn every_match_and_no_other(stream in rows(40), table in rows(40), keep: bool, two: bool) {
            let keys = if two { vec![(0, 0), (1, 1)] } else { vec![(0, 0)] };
            let plan = |schema| Lookup { table: 1, prepare: None, keep, keys, closest: None, schema };
            let mut expected = vec![];
            for s in &stream {
                let same = |t: &&Row| s.0.is_some() && s.0 == t.0 && (!two || s.1.is_some() && s.1 == t.1);
                let found: Vec<_> = table.iter().filter(same).map(|t| (*s, *t)).collect();
                if found.is_empty() && keep {
                    expected.push((*s, (None, None)));
                }
                expected.extend(found);
            }
            prop_assert_eq!(joined(&stream, &table, plan), expected);
        }

        #[test]
        fn the_closest_row_and_no_other(stream in rows(40), table in rows(40), keep: bool, by_key: bool, which in 0_usize..4) {
            let comparison = [Comparison::NotBefore, Comparison::After, Comparison::NotAfter, Comparison::Before][which];
            let closest = Some(Closest { stream: 1, table: 1, comparison });
            let keys = if by_key { vec![(0, 0)] } else { vec![] };
            let plan = |schema| Lookup { table: 1, prepare: None, keep, keys, closest, schema };
            let mut expected = vec![];
            for s in &stream {
                let fits = |t: &&Row| {
                    let (Some(s1), Some(t1)) = (s.1, t.1) else { return false };
                    (!by_key || s.0.is_some() && s.0 == t.0) && [s1 >= t1, s1 > t1, s1 <= t1, s1 < t1][which]
                };
                let candidates = table.iter().filter(fits);
                // The last of the greatest, or the first of the least.
                let found = if which < 2 { candidates.max_by_key(|t| t.1) } else { candidates.min_by_key(|t| t.1) };
                expected.extend(found.map(|t| (*s, *t)).or(keep.then_some((*s, (None, None)))));
            }
            prop_assert_eq!(joined(&stream, &table, plan), expected);
        }
    }
}

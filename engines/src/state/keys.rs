//! Group keys: the values of the GROUP BY columns as small numbers.
//!
//! A [`KeyTable`] numbers the keys of one operator and is shared by all workers; its bytes order as the values do, nulls last.
//! Each worker has a [`KeyMapper`], which finds the numbers of a batch's rows without looking at the table again for what it
//! has met before.

use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, Int32Array, StringArray};
use arrow::compute::{SortOptions, cast, take};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use rayon::prelude::*;

use crate::error::Error;

/// Number of a key that is not known.
pub(crate) const NONE: u32 = u32::MAX;

/// The keys of an operator. Keys are added and never taken away: whoever wants fewer makes another table.
#[derive(Debug)]
pub(crate) struct KeyTable {
    converter: Arc<RowConverter>,
    types: Vec<DataType>,
    inner: Mutex<Inner>,
    /// Derived from the keys when it is asked for.
    view: Mutex<Option<Arc<View>>>,
}

#[derive(Debug, Default)]
struct Inner {
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    keys: Keys,
}

/// Bytes of keys, one behind the other.
#[derive(Debug, Default, Clone)]
struct Keys {
    bytes: Vec<u8>,
    /// Where each key's bytes end.
    ends: Vec<usize>,
}

/// The keys at one moment: in order, and as columns.
#[derive(Debug)]
pub(crate) struct View {
    keys: Keys,
    /// Ids by rank.
    pub(crate) sorted: Vec<u32>,
    /// Rank of every id.
    pub(crate) rank: Vec<u32>,
    /// Values of every id, a column for each key column; texts as plain strings.
    columns: OnceLock<Vec<ArrayRef>>,
    converter: Arc<RowConverter>,
    types: Vec<DataType>,
}

impl KeyTable {
    /// A table for keys of these types.
    ///
    /// # Errors
    /// A type cannot be a key.
    pub(crate) fn new(types: Vec<DataType>) -> Result<Self, Error> {
        let options = SortOptions { descending: false, nulls_first: false };
        let fields = types.iter().map(|t| SortField::new_with_options(plain(t), options)).collect();
        let converter = RowConverter::new(fields).map_err(|error| {
            Error::usage(format!("GROUP BY: {error}"), "group by texts, numbers, timestamps or booleans")
        })?;
        Ok(Self { converter: Arc::new(converter), types, inner: Mutex::default(), view: Mutex::new(None) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.lock().keys.ends.len()
    }

    /// Bytes held, about.
    pub(crate) fn memory(&self) -> usize {
        let inner = self.lock();
        let own = inner.keys.memory() + inner.index.capacity() * 5;
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        own + view.as_ref().map_or(0, |view| view.memory())
    }

    /// A table without keys.
    pub(crate) fn emptied(&self) -> Self {
        Self {
            converter: Arc::clone(&self.converter),
            types: self.types.clone(),
            inner: Mutex::default(),
            view: Mutex::new(None),
        }
    }

    /// A table of some of the keys, and the new number of each, [`NONE`] for those that are not in it.
    pub(crate) fn retained(&self, keep: &[bool]) -> (Self, Vec<u32>) {
        let new = self.emptied();
        let (own, mut other) = (self.lock(), new.lock());
        let ids = 0..u32::try_from(own.keys.ends.len()).unwrap_or(NONE);
        let kept = |id: u32| keep.get(id as usize).is_some_and(|keep| *keep);
        let numbers = ids.map(|id| if kept(id) { other.intern(own.keys.get(id)) } else { NONE }).collect();
        drop(other);
        drop(own);
        (new, numbers)
    }

    /// The number of a key's bytes, a new one if they are new.
    pub(crate) fn intern(&self, bytes: &[u8]) -> u32 {
        self.lock().intern(bytes)
    }

    /// The keys in order and as columns, as of now.
    pub(crate) fn view(&self) -> Arc<View> {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = view.as_ref().filter(|known| known.rank.len() == self.len()) {
            return Arc::clone(known);
        }
        // Sorting must not keep the workers from adding keys.
        let keys = self.lock().keys.clone();
        let mut sorted: Vec<u32> = (0..u32::try_from(keys.ends.len()).unwrap_or(NONE)).collect();
        sorted.par_sort_unstable_by(|a, b| keys.get(*a).cmp(keys.get(*b)));
        let mut rank = vec![0; sorted.len()];
        sorted.iter().zip(0..).for_each(|(id, at)| rank[*id as usize] = at);
        let (converter, types) = (Arc::clone(&self.converter), self.types.clone());
        let made = Arc::new(View { keys, sorted, rank, columns: OnceLock::new(), converter, types });
        *view = Some(Arc::clone(&made));
        made
    }

    /// Columns of keys given by their bytes.
    ///
    /// # Errors
    /// The bytes are no key.
    pub(crate) fn columns_of(&self, keys: &[Vec<u8>]) -> Result<Vec<ArrayRef>, Error> {
        if self.types.is_empty() {
            return Ok(vec![]);
        }
        let parser = self.converter.parser();
        let columns = self.converter.convert_rows(keys.iter().map(|key| parser.parse(key))).map_err(failed)?;
        columns.iter().zip(&self.types).map(|(column, t)| cast(column, t).map_err(failed)).collect()
    }
}

fn failed(error: arrow::error::ArrowError) -> Error {
    Error::source(format!("keys cannot be read back: {error}"), "report this as a bug")
}

/// The type of a key in the table: texts without their dictionary.
fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        other => other.clone(),
    }
}

impl Keys {
    fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let from = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[id]]
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

impl Inner {
    fn intern(&mut self, bytes: &[u8]) -> u32 {
        let Self { index, hasher, keys } = self;
        let hash = hasher.hash_one(bytes);
        if let Some(id) = index.find(hash, |id| keys.get(*id) == bytes) {
            return *id;
        }
        let id = u32::try_from(keys.ends.len()).unwrap_or(NONE);
        index.insert_unique(hash, id, |id| hasher.hash_one(keys.get(*id)));
        keys.bytes.extend_from_slice(bytes);
        keys.ends.push(keys.bytes.len());
        id
    }
}

impl View {
    /// Bytes of a key.
    pub(crate) fn key(&self, id: u32) -> &[u8] {
        self.keys.get(id)
    }

    fn memory(&self) -> usize {
        self.keys.memory() + (self.sorted.capacity() + self.rank.capacity()) * 4
    }

    fn all(&self) -> Result<&[ArrayRef], Error> {
        if let Some(columns) = self.columns.get() {
            return Ok(columns);
        }
        let columns = if self.types.is_empty() {
            vec![]
        } else {
            let parser = self.converter.parser();
            let ids = 0..u32::try_from(self.keys.ends.len()).unwrap_or(NONE);
            self.converter.convert_rows(ids.map(|id| parser.parse(self.keys.get(id)))).map_err(failed)?
        };
        Ok(self.columns.get_or_init(|| columns))
    }

    /// The key columns of ids.
    ///
    /// # Errors
    /// A key cannot be read back.
    pub(crate) fn columns(&self, ids: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let codes = Int32Array::from_iter_values(ids.iter().map(|id| id.cast_signed()));
        let column = |(column, data_type): (&ArrayRef, &DataType)| -> Result<ArrayRef, Error> {
            if !matches!(data_type, DataType::Dictionary(..)) {
                return take(column, &codes, None).map_err(failed);
            }
            let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
            let codes = match nulls {
                None => codes.clone(),
                Some(nulls) => {
                    Int32Array::from_iter(ids.iter().map(|id| nulls.is_valid(*id as usize).then_some(id.cast_signed())))
                }
            };
            // The values of a dictionary are never null.
            let values: ArrayRef = match nulls {
                None => Arc::clone(column),
                Some(_) => {
                    let texts = column.as_string::<i32>();
                    Arc::new(StringArray::new(texts.offsets().clone(), texts.values().clone(), None))
                }
            };
            Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(codes, values).map_err(failed)?))
        };
        self.all()?.iter().zip(&self.types).map(column).collect()
    }
}

/// Finds the numbers of rows' keys; one per worker.
#[derive(Debug)]
pub(crate) struct KeyMapper {
    table: Arc<KeyTable>,
    columns: Vec<Locals>,
    /// Numbers of combinations of the first two columns, then of these with the third, and so on.
    pairs: Vec<HashMap<u64, u32>>,
    /// Key number of every combination.
    keys: Vec<u32>,
    ids: Vec<u32>,
    locals: Vec<u32>,
}

/// Values of one column as numbers of this worker's own; 0 is null.
#[derive(Debug, Default)]
struct Locals {
    numbers: HashMap<i128, u32>,
    texts: HashMap<Box<str>, u32>,
    /// Numbers of a dictionary's codes.
    codes: Vec<u32>,
    dictionary: Option<ArrayRef>,
    count: u32,
}

impl KeyMapper {
    /// A mapper into a table.
    pub(crate) fn new(table: Arc<KeyTable>) -> Self {
        let count = table.types.len();
        let columns = (0..count).map(|_| Locals { count: 1, ..Locals::default() }).collect();
        let pairs = (1..count).map(|_| HashMap::new()).collect();
        Self { table, columns, pairs, keys: vec![], ids: vec![], locals: vec![] }
    }

    /// The key number of every row of these columns.
    ///
    /// # Errors
    /// A key cannot be made of the values.
    pub(crate) fn map(&mut self, columns: &[ArrayRef], rows: usize) -> Result<&[u32], Error> {
        self.ids.clear();
        let Some((first, rest)) = columns.split_first() else {
            let only = self.table.intern(&[]);
            self.ids.resize(rows, only);
            return Ok(&self.ids);
        };
        self.columns[0].number(first, &mut self.ids);
        let mut count = self.columns[0].count;
        for ((column, locals), pairs) in rest.iter().zip(&mut self.columns[1..]).zip(&mut self.pairs) {
            self.locals.clear();
            locals.number(column, &mut self.locals);
            let mut last = (u64::MAX, 0);
            for (id, local) in self.ids.iter_mut().zip(&self.locals) {
                let pair = u64::from(*id) << 32 | u64::from(*local);
                if pair != last.0 {
                    let next = u32::try_from(pairs.len()).unwrap_or(NONE);
                    last = (pair, *pairs.entry(pair).or_insert(next));
                }
                *id = last.1;
            }
            count = u32::try_from(pairs.len()).unwrap_or(NONE);
        }
        if self.keys.len() < count as usize {
            self.keys.resize(count as usize, NONE);
        }
        let mut unknown = false;
        for id in &self.ids {
            unknown |= self.keys[*id as usize] == NONE;
        }
        if unknown {
            self.learn(columns)?;
        }
        self.ids.iter_mut().for_each(|id| *id = self.keys[*id as usize]);
        Ok(&self.ids)
    }

    /// Numbers the combinations that are new in this batch.
    fn learn(&mut self, columns: &[ArrayRef]) -> Result<(), Error> {
        let mut rows = Vec::new();
        for (row, id) in self.ids.iter().enumerate() {
            let known = &mut self.keys[*id as usize];
            if *known == NONE {
                // Marked, so that a row is taken for each combination once.
                *known = NONE - 1;
                rows.push(row);
            }
        }
        let indices = Int32Array::from_iter_values(rows.iter().map(|row| *row as i32));
        let taken = columns.iter().zip(&self.table.types).map(|(column, t)| {
            let some = take(column, &indices, None)?;
            cast(&some, &plain(t))
        });
        let taken = taken.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let converted = self.table.converter.convert_columns(&taken).map_err(failed)?;
        let mut table = self.table.lock();
        for (row, bytes) in rows.iter().zip(converted.iter()) {
            self.keys[self.ids[*row] as usize] = table.intern(bytes.as_ref());
        }
        Ok(())
    }
}

impl Locals {
    /// Appends the number of every row's value.
    fn number(&mut self, column: &ArrayRef, out: &mut Vec<u32>) {
        match column.data_type() {
            DataType::Dictionary(..) => self.texts(column.as_dictionary::<Int32Type>(), out),
            DataType::Int64 => {
                self.values(column, column.as_primitive::<Int64Type>().values(), |v| i128::from(*v), out)
            }
            DataType::Timestamp(..) => {
                let values = column.as_primitive::<TimestampMicrosecondType>().values();
                self.values(column, values, |v| i128::from(*v), out);
            }
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>().values();
                self.values(column, values, |v| i128::from(v.to_bits()), out);
            }
            DataType::Decimal128(..) => {
                self.values(column, column.as_primitive::<Decimal128Type>().values(), |v| *v, out);
            }
            DataType::Boolean => {
                let values = column.as_boolean();
                self.count = 3;
                let number = |row| if values.is_null(row) { 0 } else { 1 + u32::from(values.value(row)) };
                out.extend((0..values.len()).map(number));
            }
            _ => {
                // Types that are rarely grouped by: by their text.
                let text = cast(column, &DataType::Utf8).ok();
                let text = text.as_ref().and_then(|text| text.as_string_opt::<i32>());
                for row in 0..column.len() {
                    let value = text.filter(|t| t.is_valid(row)).map(|t| t.value(row));
                    out.push(value.map_or(0, |value| self.text(value)));
                }
            }
        }
    }

    fn values<T: Copy>(&mut self, column: &ArrayRef, values: &[T], bits: impl Fn(&T) -> i128, out: &mut Vec<u32>) {
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        let mut last = None;
        for (row, value) in values.iter().enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                out.push(0);
                continue;
            }
            let value = bits(value);
            let number = match last {
                Some((known, number)) if known == value => number,
                _ => {
                    let count = &mut self.count;
                    *self.numbers.entry(value).or_insert_with(|| {
                        *count += 1;
                        *count - 1
                    })
                }
            };
            last = Some((value, number));
            out.push(number);
        }
    }

    fn texts(&mut self, column: &DictionaryArray<Int32Type>, out: &mut Vec<u32>) {
        let values = column.values();
        let known = self.dictionary.as_ref();
        if !known.is_some_and(|known| Arc::ptr_eq(known, values)) {
            // A dictionary mostly grows from the one before it.
            if !known.is_some_and(|known| grown(known, values)) {
                self.codes.clear();
            }
            let texts = values.as_string::<i32>();
            for code in self.codes.len()..texts.len() {
                let number = self.text(texts.value(code));
                self.codes.push(number);
            }
            self.dictionary = Some(Arc::clone(values));
        }
        let codes = column.keys();
        match codes.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => out.extend(codes.values().iter().map(|code| self.codes[code.cast_unsigned() as usize])),
            Some(nulls) => {
                let rows = codes.values().iter().zip(nulls);
                out.extend(rows.map(|(code, valid)| if valid { self.codes[code.cast_unsigned() as usize] } else { 0 }));
            }
        }
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        self.count += 1;
        self.texts.insert(text.into(), self.count - 1);
        self.count - 1
    }
}

/// Whether one list of texts begins with another: they share their beginning in memory, or are equal there.
fn grown(known: &ArrayRef, values: &ArrayRef) -> bool {
    if known.len() > values.len() {
        return false;
    }
    let (known, values) = (known.as_string::<i32>(), values.as_string::<i32>());
    let offsets = known.value_offsets();
    if offsets != &values.value_offsets()[..offsets.len()] {
        return false;
    }
    let (from, to) = (offsets[0].cast_unsigned() as usize, offsets[offsets.len() - 1].cast_unsigned() as usize);
    known.value_data()[from..to] == values.value_data()[from..to]
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringDictionaryBuilder};
    use proptest::prelude::*;
    use std::collections::HashMap as Map;

    type Row = (Option<String>, Option<i64>);

    fn columns(rows: &[Row]) -> Vec<ArrayRef> {
        let mut texts = StringDictionaryBuilder::<Int32Type>::new();
        rows.iter().for_each(|(text, _)| texts.append_option(text.as_deref()));
        let numbers: Int64Array = rows.iter().map(|(_, number)| *number).collect();
        vec![Arc::new(texts.finish()), Arc::new(numbers)]
    }

    proptest! {
        #[test]
        fn equal_keys_have_one_number_for_all_workers_and_order_as_values(
            rows in proptest::collection::vec(
                (proptest::option::weighted(0.8, "[a-c]{0,2}|é|\u{0}x"), proptest::option::weighted(0.8, -2_i64..3)), 0..40),
            split in 0_usize..40,
        ) {
            let types = vec![DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)), DataType::Int64];
            let table = Arc::new(KeyTable::new(types).unwrap());
            let (mut a, mut b) = (KeyMapper::new(Arc::clone(&table)), KeyMapper::new(Arc::clone(&table)));
            let split = split.min(rows.len());
            let mut ids = a.map(&columns(&rows[..split]), split).unwrap().to_vec();
            ids.extend_from_slice(b.map(&columns(&rows[split..]), rows.len() - split).unwrap());
            ids.extend_from_slice(a.map(&columns(&rows), rows.len()).unwrap());
            let mut known: Map<&Row, u32> = Map::new();
            for (row, id) in rows.iter().chain(&rows).zip(&ids) {
                prop_assert_eq!(*known.entry(row).or_insert(*id), *id);
            }
            let mut distinct: Vec<u32> = known.values().copied().collect();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), known.len());
            let view = table.view();
            let mut expected: Vec<(&Row, u32)> = known.into_iter().collect();
            let last = |row: &Row| (row.0.is_none(), row.0.clone(), row.1.is_none(), row.1);
            expected.sort_by_key(|(row, _)| last(row));
            let order: Vec<u32> = view.sorted.clone();
            prop_assert_eq!(&order, &expected.iter().map(|(_, id)| *id).collect::<Vec<_>>());
            let back = view.columns(&order).unwrap();
            let texts = cast(&back[0], &DataType::Utf8).unwrap();
            for (at, (row, _)) in expected.iter().enumerate() {
                let text = texts.is_valid(at).then(|| texts.as_string::<i32>().value(at).to_owned());
                let number = back[1].is_valid(at).then(|| back[1].as_primitive::<Int64Type>().value(at));
                prop_assert_eq!(&(text, number), *row);
            }
        }
    }
}

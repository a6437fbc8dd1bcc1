//! From columns of values to key numbers: each worker has a [`KeyMapper`], which finds the numbers of a batch's rows without
//! looking at the table again for what it has met before.

use std::sync::Arc;

use arrow::array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, Int32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::DataType;
use hashbrown::HashMap;

use super::keys::{Inner, KeyTable, NONE, failed, plain};
use crate::error::Error;

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
    texts: Inner,
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

    /// Bytes held, about.
    pub(crate) fn memory(&self) -> usize {
        let pairs: usize = self.pairs.iter().map(|pairs| pairs.capacity() * (size_of::<(u64, u32)>() + 1)).sum();
        let rows = self.keys.capacity() + self.ids.capacity() + self.locals.capacity();
        pairs + rows * size_of::<u32>() + self.columns.iter().map(Locals::memory).sum::<usize>()
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
            match some.as_primitive_opt::<Float64Type>() {
                Some(doubles) => Ok(Arc::new(doubles.unary::<_, Float64Type>(normal)) as ArrayRef),
                None => cast(&some, &plain(t)),
            }
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
                self.values(column, values, |v| i128::from(normal(*v).to_bits()), out);
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
        let number = 1 + self.texts.intern(text.as_bytes());
        self.count = self.count.max(number + 1);
        number
    }

    fn memory(&self) -> usize {
        let numbers = self.numbers.capacity() * (size_of::<(i128, u32)>() + 1);
        numbers + self.texts.memory() + self.codes.capacity() * size_of::<u32>()
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

/// A double as it is told from others: one zero, one NaN.
pub(crate) fn normal(value: f64) -> f64 {
    if value == 0.0 {
        0.0
    } else if value.is_nan() {
        f64::NAN
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, StringDictionaryBuilder};
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

    #[test]
    fn zeros_are_one_key_and_so_are_nans() {
        let table = Arc::new(KeyTable::new(vec![DataType::Float64]).unwrap());
        let mut mapper = KeyMapper::new(Arc::clone(&table));
        let column: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN, 1.5]));
        let ids = mapper.map(&[column], 5).unwrap().to_vec();
        assert_eq!((ids[0], ids[2]), (ids[1], ids[3]));
        let view = table.view();
        assert_eq!(view.sorted, [ids[0], ids[4], ids[2]]);
        let columns = view.columns(&view.sorted).unwrap();
        assert!(columns[0].as_primitive::<Float64Type>().value(0).is_sign_positive());
    }
}

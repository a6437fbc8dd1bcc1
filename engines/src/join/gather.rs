//! Rows of many batches as columns of one.

use std::sync::Arc;

use arrow::array::types::Int32Type;
use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Int32Array, StringArray, StringBuilder, UInt32Array, new_empty_array,
    new_null_array,
};
use arrow::compute::{interleave, take};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use hashbrown::HashMap;

use super::bug;
use crate::error::Error;
use crate::read::string_type;

/// Dictionaries up to this size are renumbered through an array.
const DENSE: usize = 1 << 16;

/// Rows picked from batches of one schema.
#[derive(Debug, Default)]
pub(super) struct Picked<'a> {
    /// `None`: a row of nulls.
    sources: Vec<Option<&'a RecordBatch>>,
    /// Source and row of every picked row.
    at: Vec<(usize, usize)>,
    known: HashMap<u64, usize>,
    last: Option<(u64, usize)>,
}

impl<'a> Picked<'a> {
    /// Adds a row of the batch that `name` stands for; `find` gives the batch when it is new, `None` for a row of nulls.
    pub(super) fn push(&mut self, name: u64, row: usize, find: impl FnOnce() -> Option<&'a RecordBatch>) {
        let source = match self.last {
            Some((last, source)) if last == name => source,
            _ => {
                let sources = &mut self.sources;
                let source = *self.known.entry(name).or_insert_with(|| {
                    sources.push(find());
                    sources.len() - 1
                });
                self.last = Some((name, source));
                source
            }
        };
        let row = if self.sources[source].is_some() { row } else { 0 };
        self.at.push((source, row));
    }

    /// Adds all rows of a batch.
    pub(super) fn push_all(&mut self, batch: &'a RecordBatch) {
        let source = self.sources.len();
        self.sources.push(Some(batch));
        self.at.extend((0..batch.num_rows()).map(|row| (source, row)));
    }

    /// A column of the picked rows.
    ///
    /// # Errors
    /// The batches differ in the type of the column.
    pub(super) fn column(&self, column: usize, data_type: &DataType) -> Result<ArrayRef, Error> {
        if let [Some(only)] = self.sources.as_slice() {
            let rows = UInt32Array::from_iter_values(self.at.iter().map(|(_, row)| u32::try_from(*row).unwrap_or(0)));
            return take(only.column(column), &rows, None).map_err(bug);
        }
        if *data_type == string_type() {
            return self.texts(column);
        }
        if self.sources.is_empty() {
            return Ok(new_empty_array(data_type));
        }
        let null = new_null_array(data_type, 1);
        let arrays: Vec<&dyn Array> =
            self.sources.iter().map(|source| source.map_or(&null, |batch| batch.column(column)).as_ref()).collect();
        interleave(&arrays, &self.at).map_err(bug)
    }

    /// A column of texts: with the dictionary of the batches when they share it, else with one of what the rows hold.
    fn texts(&self, column: usize) -> Result<ArrayRef, Error> {
        let array = |source: &Option<&'a RecordBatch>| {
            let batch = (*source)?;
            batch.column(column).as_dictionary_opt::<Int32Type>()
        };
        let arrays: Vec<Option<&DictionaryArray<Int32Type>>> = self.sources.iter().map(array).collect();
        let mut dictionaries: Vec<&ArrayRef> = Vec::new();
        let mut of_source = Vec::with_capacity(arrays.len());
        for array in &arrays {
            let Some(array) = array else {
                of_source.push(0);
                continue;
            };
            let known = dictionaries.iter().rposition(|values| Arc::ptr_eq(values, array.values()));
            of_source.push(known.unwrap_or_else(|| {
                dictionaries.push(array.values());
                dictionaries.len() - 1
            }));
        }
        let code = |(source, row): (usize, usize)| {
            let array = arrays[source]?;
            array.keys().is_valid(row).then(|| array.keys().value(row))
        };
        let (codes, values): (Int32Array, ArrayRef) = match dictionaries.as_slice() {
            [] => (Int32Array::new_null(self.at.len()), Arc::new(StringArray::from(Vec::<&str>::new()))),
            [only] => (self.at.iter().map(|at| code(*at)).collect(), Arc::clone(only)),
            several => {
                let several: Option<Vec<&StringArray>> = several.iter().map(|v| v.as_string_opt::<i32>()).collect();
                let several = several.ok_or_else(|| bug("a text is not in a dictionary of texts"))?;
                let mut united = United::new(&several);
                let codes =
                    self.at.iter().map(|at| code(*at).and_then(|code| united.code(of_source[at.0], code))).collect();
                (codes, Arc::new(united.values.finish()))
            }
        };
        Ok(Arc::new(DictionaryArray::try_new(codes, values).map_err(bug)?))
    }
}

/// One dictionary of what is used of several.
struct United<'d> {
    dictionaries: Vec<(&'d StringArray, Numbers)>,
    texts: HashMap<&'d str, i32>,
    values: StringBuilder,
}

/// New codes by old ones; below 0: not known yet.
enum Numbers {
    Dense(Vec<i32>),
    Sparse(HashMap<i32, i32>),
}

impl<'d> United<'d> {
    fn new(dictionaries: &[&'d StringArray]) -> Self {
        let numbers = |values: &&'d StringArray| {
            let numbers = if values.len() <= DENSE {
                Numbers::Dense(vec![-1; values.len()])
            } else {
                Numbers::Sparse(HashMap::new())
            };
            (*values, numbers)
        };
        let dictionaries = dictionaries.iter().map(numbers).collect();
        Self { dictionaries, texts: HashMap::new(), values: StringBuilder::new() }
    }

    fn code(&mut self, dictionary: usize, code: i32) -> Option<i32> {
        let (values, numbers) = &mut self.dictionaries[dictionary];
        let at = usize::try_from(code).ok()?;
        if values.is_null(at) {
            return None;
        }
        let known = match numbers {
            Numbers::Dense(numbers) => &mut numbers[at],
            Numbers::Sparse(numbers) => numbers.entry(code).or_insert(-1),
        };
        if *known < 0 {
            let text = values.value(at);
            let next = i32::try_from(self.texts.len()).ok()?;
            *known = *self.texts.entry(text).or_insert_with(|| {
                self.values.append_value(text);
                next
            });
        }
        Some(*known)
    }
}

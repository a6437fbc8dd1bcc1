//! Expressions of one string column, evaluated once per dictionary value instead of once per row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, Int32Array, StringArray, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{DataType, Int32Type, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion_common::{DataFusionError, Result};
use datafusion_physical_expr::PhysicalExpr;

/// An expression whose only column is a dictionary of strings.
#[derive(Debug, Clone)]
pub(super) struct Derived {
    /// Index of the flat column.
    column: usize,
    expr: Arc<dyn PhysicalExpr>,
    /// One column: the dictionary's values.
    schema: SchemaRef,
    /// `Utf8` for text, else the type of the result.
    result: DataType,
    cache: Option<Cache>,
}

/// Results for the values of one dictionary.
#[derive(Debug, Clone)]
struct Cache {
    values: ArrayRef,
    /// A result per value.
    results: ArrayRef,
    /// The result for null, as an array of one.
    of_null: ArrayRef,
    /// Results, then the result for null when it is not null itself; text without a null buffer.
    table: ArrayRef,
    /// Values on which the expression fails.
    failed: Option<Failed>,
}

#[derive(Debug, Clone)]
struct Failed {
    values: Vec<bool>,
    of_null: bool,
    message: Arc<DataFusionError>,
}

impl Derived {
    pub(super) fn new(column: usize, expr: Arc<dyn PhysicalExpr>, schema: SchemaRef, result: DataType) -> Self {
        Self { column, expr, schema, result, cache: None }
    }

    pub(super) fn column(&self) -> usize {
        self.column
    }

    /// The expression's value for every row; text comes as a dictionary.
    pub(super) fn evaluate(&mut self, input: &ArrayRef) -> Result<ArrayRef> {
        let input = input.as_dictionary::<Int32Type>();
        self.refresh(input.values())?;
        let Some(cache) = &self.cache else { return Ok(new_null_array(&self.result, input.len())) };
        let keys = input.keys();
        if let Some(failed) = &cache.failed {
            failed.check(keys)?;
        }
        match self.result {
            DataType::Utf8 => cache.text(keys),
            DataType::Boolean => cache.boolean(keys),
            _ => Ok(take(&cache.table, &cache.indices(keys), None)?),
        }
    }

    /// Computes what the cache lacks for `values`.
    fn refresh(&mut self, values: &ArrayRef) -> Result<()> {
        if let Some(cache) = &self.cache
            && std::ptr::addr_eq(Arc::as_ptr(&cache.values), Arc::as_ptr(values))
        {
            return Ok(());
        }
        let (known, of_null) = match self.cache.take() {
            Some(cache) if cache.failed.is_none() && is_prefix(&cache.values, values) => {
                (Some(cache.results), Some(cache.of_null))
            }
            _ => (None, None),
        };
        let from = known.as_ref().map_or(0, |k| k.len());
        let (fresh, mut failed) = self.results(&values.slice(from, values.len() - from))?;
        if let Some(failed) = &mut failed {
            failed.values.splice(0..0, std::iter::repeat_n(false, from));
        }
        let results = match known {
            Some(known) if fresh.is_empty() => known,
            Some(known) => concat(&[known.as_ref(), fresh.as_ref()])?,
            None => fresh,
        };
        let of_null = match of_null {
            Some(result) => result,
            None => {
                let (result, null_failed) = self.results(&new_null_array(&DataType::Utf8, 1))?;
                if let Some(bad) = null_failed {
                    let failed = failed.get_or_insert_with(|| Failed { values: vec![false; values.len()], ..bad });
                    failed.of_null = true;
                }
                result
            }
        };
        let table = self.table(&results, &of_null)?;
        self.cache = Some(Cache { values: values.clone(), results, of_null, table, failed });
        Ok(())
    }

    fn table(&self, results: &ArrayRef, of_null: &ArrayRef) -> Result<ArrayRef> {
        let table = if of_null.is_null(0) { results.clone() } else { concat(&[results.as_ref(), of_null.as_ref()])? };
        if self.result != DataType::Utf8 {
            return Ok(table);
        }
        let text = table.as_string::<i32>();
        Ok(Arc::new(StringArray::new(text.offsets().clone(), text.values().clone(), None)))
    }

    /// A result per value; a value on which the expression fails has a null result and is marked.
    fn results(&self, values: &ArrayRef) -> Result<(ArrayRef, Option<Failed>)> {
        match self.run(values) {
            Ok(results) => return Ok((results, None)),
            Err(_) if !values.is_empty() => {}
            Err(error) => return Err(error),
        }
        let mut parts = Vec::with_capacity(values.len());
        let mut marks = vec![false; values.len()];
        let mut first = None;
        for (row, mark) in marks.iter_mut().enumerate() {
            match self.run(&values.slice(row, 1)) {
                Ok(result) => parts.push(result),
                Err(error) => {
                    *mark = true;
                    first.get_or_insert(error);
                    parts.push(new_null_array(&self.result, 1));
                }
            }
        }
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        let failed = first.map(|e| Failed { values: marks, of_null: false, message: Arc::new(e) });
        Ok((concat(&parts)?, failed))
    }

    fn run(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let batch = RecordBatch::try_new(self.schema.clone(), vec![values.clone()])?;
        let result = self.expr.evaluate(&batch)?.into_array(values.len())?;
        if *result.data_type() == self.result { Ok(result) } else { Ok(cast(&result, &self.result)?) }
    }
}

impl Failed {
    fn check(&self, keys: &Int32Array) -> Result<()> {
        let bad = keys.iter().any(|key| key.map_or(self.of_null, |k| self.values[index(k)]));
        if bad { Err(DataFusionError::Shared(self.message.clone())) } else { Ok(()) }
    }
}

impl Cache {
    /// Keys into the table: null keys point behind the values when null has a result of its own.
    fn indices(&self, keys: &Int32Array) -> Int32Array {
        match keys.nulls() {
            Some(nulls) if keys.null_count() > 0 && !self.of_null.is_null(0) => {
                let behind = i32::try_from(self.values.len()).unwrap_or(i32::MAX);
                let moved = keys.values().iter().zip(nulls).map(|(&k, valid)| if valid { k } else { behind });
                Int32Array::new(moved.collect::<Vec<_>>().into(), None)
            }
            _ => keys.clone(),
        }
    }

    fn text(&self, keys: &Int32Array) -> Result<ArrayRef> {
        let mut keys = self.indices(keys);
        if self.results.null_count() > 0 {
            let valid = BooleanBuffer::collect_bool(keys.len(), |row| {
                keys.is_valid(row) && {
                    let at = index(keys.value(row));
                    at >= self.results.len() || self.results.is_valid(at)
                }
            });
            keys = Int32Array::new(keys.values().clone(), Some(NullBuffer::new(valid)));
        }
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys, self.table.clone())?))
    }

    fn boolean(&self, keys: &Int32Array) -> Result<ArrayRef> {
        if keys.null_count() > 0 || self.results.null_count() > 0 {
            return Ok(take(&self.table, &self.indices(keys), None)?);
        }
        let table: Vec<bool> = self.results.as_boolean().values().iter().collect();
        let keys: &ScalarBuffer<i32> = keys.values();
        let bits = BooleanBuffer::collect_bool(keys.len(), |row| table[index(keys[row])]);
        Ok(Arc::new(BooleanArray::new(bits, None)))
    }
}

/// A valid key is never negative.
fn index(key: i32) -> usize {
    key as usize
}

/// Whether a grown dictionary begins with the values known so far.
fn is_prefix(known: &ArrayRef, grown: &ArrayRef) -> bool {
    if known.len() > grown.len() {
        return false;
    }
    let (known, grown) = (known.as_string::<i32>(), grown.as_string::<i32>());
    let known_offsets = known.value_offsets();
    let grown_offsets = &grown.value_offsets()[..known_offsets.len()];
    if known_offsets != grown_offsets {
        return false;
    }
    let (from, to) = (known_offsets[0], known_offsets[known_offsets.len() - 1]);
    known.value_data()[index(from)..index(to)] == grown.value_data()[index(from)..index(to)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grown_dictionary_begins_with_the_old_one() {
        let old: ArrayRef = Arc::new(StringArray::from(vec!["a", "bc"]));
        let grown: ArrayRef = Arc::new(StringArray::from(vec!["a", "bc", "d"]));
        let other: ArrayRef = Arc::new(StringArray::from(vec!["a", "bx", "d"]));
        assert!(is_prefix(&old, &grown));
        assert!(!is_prefix(&grown, &old));
        assert!(!is_prefix(&old, &other));
    }
}

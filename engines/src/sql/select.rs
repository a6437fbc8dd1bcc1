//! Keeping the rows a filter passes.

use std::sync::Arc;

use arrow::array::BooleanBufferBuilder;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, Int32Array, ListArray};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::compute::{FilterBuilder, FilterPredicate};
use arrow::datatypes::{DataType, Int32Type};
use arrow::error::ArrowError;

/// The rows that pass, ready to be taken out of any number of columns.
pub(super) struct Selection {
    predicate: FilterPredicate,
    /// Runs of rows that pass, found when a list asks for them.
    runs: Vec<(usize, usize)>,
}

impl Selection {
    pub(super) fn new(mask: &BooleanArray, with_lists: bool) -> Self {
        let predicate = FilterBuilder::new(mask).optimize().build();
        let runs = match mask.nulls() {
            _ if !with_lists => vec![],
            None => mask.values().set_slices().collect(),
            Some(nulls) => (mask.values() & nulls.inner()).set_slices().collect(),
        };
        Self { predicate, runs }
    }

    pub(super) fn filter(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match array.data_type() {
            DataType::List(_) => self.list(array.as_list::<i32>()),
            _ => self.predicate.filter(array),
        }
    }

    /// A run of rows is one stretch of items.
    fn list(&self, list: &ListArray) -> Result<ArrayRef, ArrowError> {
        let DataType::List(field) = list.data_type() else { return self.predicate.filter(list) };
        let old = list.value_offsets();
        let mut offsets = Vec::with_capacity(self.predicate.count() + 1);
        offsets.push(0);
        let mut end = 0;
        for &(from, to) in &self.runs {
            let shift = end - old[from];
            offsets.extend(old[from + 1..=to].iter().map(|offset| offset + shift));
            end = old[to] + shift;
        }
        let stretches = self.runs.iter().map(|&(from, to)| index(old[from])..index(old[to]));
        let items = stretches_of(list.values(), stretches, index(end))?;
        let nulls = match list.nulls() {
            Some(nulls) => {
                let valid = BooleanArray::new(nulls.inner().clone(), None);
                let kept = self.predicate.filter(&valid)?;
                Some(kept.as_boolean().values().clone().into())
            }
            None => None,
        };
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Ok(Arc::new(ListArray::try_new(field.clone(), offsets, items, nulls)?))
    }
}

/// The items of stretches that follow each other, `count` together.
fn stretches_of(
    items: &ArrayRef,
    stretches: impl Iterator<Item = std::ops::Range<usize>>,
    count: usize,
) -> Result<ArrayRef, ArrowError> {
    if let DataType::Dictionary(..) = items.data_type()
        && items.null_count() == 0
    {
        let dictionary = items.as_dictionary::<Int32Type>();
        let codes = dictionary.keys().values();
        let mut kept = Vec::with_capacity(count);
        for stretch in stretches {
            kept.extend_from_slice(&codes[stretch]);
        }
        let keys = Int32Array::new(kept.into(), None);
        // SAFETY: the codes are those of an array with the same values.
        return Ok(Arc::new(unsafe { DictionaryArray::new_unchecked(keys, Arc::clone(dictionary.values())) }));
    }
    let mut mask = BooleanBufferBuilder::new(items.len());
    for stretch in stretches {
        mask.append_n(stretch.start.saturating_sub(mask.len()), false);
        mask.append_n(stretch.len(), true);
    }
    mask.append_n(items.len() - mask.len(), false);
    FilterBuilder::new(&BooleanArray::new(mask.finish(), None)).optimize().build().filter(items)
}

fn index(offset: i32) -> usize {
    offset as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::types::Int64Type;
    use arrow::array::{ListBuilder, StringDictionaryBuilder};
    use arrow::compute::filter;
    use proptest::prelude::*;

    type Rows = Vec<(bool, Option<Vec<Option<u8>>>)>;

    fn lists(rows: &Rows) -> [ArrayRef; 2] {
        let mut text = ListBuilder::new(StringDictionaryBuilder::<Int32Type>::new());
        for (_, row) in rows {
            text.append_option(row.as_ref().map(|items| items.iter().map(|i| i.map(|b| b.to_string()))));
        }
        let numbers = rows
            .iter()
            .map(|(_, row)| row.as_ref().map(|items| items.iter().map(|i| i.map(i64::from)).collect::<Vec<_>>()));
        [Arc::new(text.finish()), Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(numbers))]
    }

    proptest! {
        #[test]
        fn lists_are_filtered_as_arrow_does(
            rows in proptest::collection::vec(
                (any::<bool>(), proptest::option::of(proptest::collection::vec(proptest::option::weighted(0.9, 0_u8..5), 0..4))), 1..40),
            from in 0_usize..5,
        ) {
            let from = from.min(rows.len() - 1);
            let mask = BooleanArray::from(rows.iter().map(|(keep, _)| *keep).collect::<Vec<_>>()).slice(from, rows.len() - from);
            for list in lists(&rows) {
                let list = list.slice(from, rows.len() - from);
                let ours = Selection::new(&mask, true).filter(&list).unwrap();
                let theirs = filter(&list, &mask).unwrap();
                prop_assert_eq!(ours.as_ref(), theirs.as_ref());
            }
        }
    }
}

//! Rows of a window from the groups of its panes.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::slots::Slots;
use crate::agg::Accumulators;
use crate::error::Error;
use crate::flow::operator::Job;
use crate::state::keys::{NONE, View};

/// Rows that are made at once.
const ROWS: usize = 8_192;
/// With fewer keys in a window than this part of all, they are sorted instead of looked up by rank.
const FEW: usize = 8;

/// A window's bounds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Window {
    At(i64, i64),
    /// That of rows without an event time.
    Timeless,
}

/// Groups of one pane, or of all rows.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) slots: &'a Slots,
    pub(super) groups: &'a Accumulators,
}

/// A window, ready to be emitted.
pub(super) struct Output<'a> {
    window: Option<Window>,
    sources: Vec<Source<'a>>,
    /// Keys in order.
    keys: Vec<u32>,
}

impl<'a> Output<'a> {
    /// The window's keys, in order; with `wanted` only those of them.
    pub(super) fn new(window: Option<Window>, sources: Vec<Source<'a>>, view: &View, wanted: Option<&[bool]>) -> Self {
        let is_wanted = |key: u32| wanted.is_none_or(|wanted| wanted.get(key as usize).is_some_and(|w| *w));
        let most: usize = sources.iter().map(|source| source.slots.len()).sum();
        let keys = if most * FEW < view.sorted.len() {
            let mut ranks: Vec<u32> = sources
                .iter()
                .flat_map(|source| source.slots.iter())
                .filter(|(key, _)| is_wanted(*key))
                .map(|(key, _)| view.rank[key as usize])
                .collect();
            ranks.sort_unstable();
            ranks.dedup();
            ranks.into_iter().map(|rank| view.sorted[rank as usize]).collect()
        } else {
            let there = |key: &u32| is_wanted(*key) && sources.iter().any(|source| source.slots.get(*key) != NONE);
            view.sorted.iter().copied().filter(there).collect()
        };
        Self { window, sources, keys }
    }

    /// Makes the window's rows.
    pub(super) fn jobs<'j>(
        &'j self,
        view: &'j View,
        fresh: &'j Accumulators,
        schema: &'j SchemaRef,
    ) -> impl Iterator<Item = Job<'j>> + use<'j, 'a> {
        self.keys.chunks(ROWS).map(move |keys| -> Job<'j> {
            Box::new(move || {
                let results = self.results(keys, fresh)?;
                Self::batch(self.window, keys.len(), view.columns(keys)?, results, schema)
            })
        })
    }

    fn results(&self, keys: &[u32], fresh: &Accumulators) -> Result<Vec<ArrayRef>, Error> {
        if let [only] = self.sources.as_slice() {
            let slots: Vec<u32> = keys.iter().map(|key| only.slots.get(*key)).collect();
            return only.groups.finish(&slots);
        }
        let mut merged = fresh.fresh();
        merged.resize(keys.len());
        let (mut to, mut from) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        for source in &self.sources {
            to.clear();
            from.clear();
            for (row, key) in (0..).zip(keys) {
                let slot = source.slots.get(*key);
                if slot != NONE {
                    to.push(row);
                    from.push(slot);
                }
            }
            merged.merge(&to, source.groups, &from);
        }
        let all: Vec<u32> = (0..u32::try_from(keys.len()).unwrap_or(NONE)).collect();
        merged.finish(&all)
    }

    /// A batch of a window's rows.
    ///
    /// # Errors
    /// A column is not of the type the plan says.
    pub(super) fn batch(
        window: Option<Window>,
        rows: usize,
        keys: Vec<ArrayRef>,
        results: Vec<ArrayRef>,
        schema: &SchemaRef,
    ) -> Result<RecordBatch, Error> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        match window {
            None => {}
            Some(Window::At(start, end)) => {
                columns.push(Arc::new(TimestampMicrosecondArray::from_value(start, rows)));
                columns.push(Arc::new(TimestampMicrosecondArray::from_value(end, rows)));
            }
            Some(Window::Timeless) => {
                columns.push(Arc::new(TimestampMicrosecondArray::new_null(rows)));
                columns.push(Arc::new(TimestampMicrosecondArray::new_null(rows)));
            }
        }
        columns.extend(keys);
        columns.extend(results);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
            .map_err(|error| Error::source(format!("a window's rows cannot be made: {error}"), "report this as a bug"))
    }
}

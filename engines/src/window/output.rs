//! Rows of windows from the groups of their panes.

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
pub(super) const ROWS: usize = 8_192;
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

/// Some keys of a window.
#[derive(Clone, Copy)]
struct Stretch<'j, 'a> {
    output: &'j Output<'a>,
    keys: &'j [u32],
}

/// What rows are made with.
#[derive(Clone, Copy)]
pub(super) struct Making<'j> {
    pub(super) view: &'j View,
    /// Accumulators without groups.
    pub(super) fresh: &'j Accumulators,
    pub(super) schema: &'j SchemaRef,
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

    /// Jobs that make the rows of windows: long windows in parts, short ones together.
    pub(super) fn jobs<'j>(outputs: &'j [Self], making: Making<'j>) -> Vec<Job<'j>> {
        let mut jobs: Vec<Job<'j>> = Vec::new();
        let (mut stretches, mut rows) = (Vec::new(), 0);
        for output in outputs {
            let mut keys = output.keys.as_slice();
            while !keys.is_empty() {
                let (some, rest) = keys.split_at(keys.len().min(ROWS - rows));
                keys = rest;
                rows += some.len();
                stretches.push(Stretch { output, keys: some });
                if rows == ROWS {
                    let full = std::mem::take(&mut stretches);
                    jobs.push(Box::new(move || rows_of(&full, making)));
                    rows = 0;
                }
            }
        }
        if rows > 0 {
            jobs.push(Box::new(move || rows_of(&stretches, making)));
        }
        jobs
    }
}

fn rows_of(stretches: &[Stretch<'_, '_>], making: Making<'_>) -> Result<RecordBatch, Error> {
    let windows: Vec<(Option<Window>, usize)> = stretches.iter().map(|s| (s.output.window, s.keys.len())).collect();
    let results = results(stretches, making.fresh)?;
    let keys = match stretches {
        [only] => making.view.columns(only.keys)?,
        several => making.view.columns(&several.iter().flat_map(|s| s.keys).copied().collect::<Vec<_>>())?,
    };
    batch(&windows, keys, results, making.schema)
}

fn results(stretches: &[Stretch<'_, '_>], fresh: &Accumulators) -> Result<Vec<ArrayRef>, Error> {
    if let Some(groups) = only_groups(stretches) {
        let slots = |s: &Stretch<'_, '_>| s.keys.iter().map(|key| s.output.sources[0].slots.get(*key)).collect();
        let slots: Vec<Vec<u32>> = stretches.iter().map(slots).collect();
        return groups.finish(&slots.concat());
    }
    let rows: usize = stretches.iter().map(|stretch| stretch.keys.len()).sum();
    let mut merged = fresh.fresh();
    merged.resize(rows);
    let (mut to, mut from) = (Vec::with_capacity(ROWS), Vec::with_capacity(ROWS));
    let mut first = 0;
    for stretch in stretches {
        for source in &stretch.output.sources {
            to.clear();
            from.clear();
            for (row, key) in (first..).zip(stretch.keys) {
                let slot = source.slots.get(*key);
                if slot != NONE {
                    to.push(row);
                    from.push(slot);
                }
            }
            merged.merge(&to, source.groups, &from);
        }
        first += u32::try_from(stretch.keys.len()).unwrap_or(NONE);
    }
    let all: Vec<u32> = (0..u32::try_from(rows).unwrap_or(NONE)).collect();
    merged.finish(&all)
}

/// The accumulators that hold all groups, when nothing has to be merged.
fn only_groups<'a>(stretches: &[Stretch<'_, 'a>]) -> Option<&'a Accumulators> {
    let [first] = stretches.first()?.output.sources.as_slice() else { return None };
    let same = |source: &Source<'_>| std::ptr::eq(source.groups, first.groups);
    let all = stretches.iter().all(|stretch| stretch.output.sources.len() == 1 && same(&stretch.output.sources[0]));
    all.then_some(first.groups)
}

/// A batch of rows of windows, so many of each.
///
/// # Errors
/// A column is not of the type the plan says.
pub(super) fn batch(
    windows: &[(Option<Window>, usize)],
    keys: Vec<ArrayRef>,
    results: Vec<ArrayRef>,
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    if windows.iter().any(|(window, _)| window.is_some()) {
        for end in [false, true] {
            let times = windows.iter().flat_map(|(window, rows)| {
                let time = match window {
                    Some(Window::At(from, to)) => Some(if end { *to } else { *from }),
                    Some(Window::Timeless) | None => None,
                };
                std::iter::repeat_n(time, *rows)
            });
            columns.push(Arc::new(TimestampMicrosecondArray::from_iter(times)));
        }
    }
    columns.extend(keys);
    columns.extend(results);
    let rows = windows.iter().map(|(_, rows)| rows).sum();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Error::source(format!("a window's rows cannot be made: {error}"), "report this as a bug"))
}

//! The columns a decoder appends to, and how they become Arrow arrays.
//!
//! A leaf of the record's own level is kept once per message and repeated for the message's rows only when a batch is
//! handed out. Buffers come back: a lane keeps a handle on the buffer it gave out last, and takes its memory again once
//! the batch is gone.

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, DictionaryArray, ListArray, PrimitiveArray, UInt32Array, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{ArrowNativeType, DataType, Int32Type};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::dict::Dictionary;
use crate::read::ReadPlan;

/// A dictionary is started afresh when it holds more strings, or more bytes, than this.
const MAX_STRINGS: usize = 1 << 16;
const MAX_BYTES: usize = 8 << 20;

/// Values of one kind, with their memory recycled.
#[derive(Debug, Default)]
pub(crate) struct Lane<T> {
    pub(crate) values: Vec<T>,
    given: Option<Buffer>,
}

impl<T: ArrowNativeType> Lane<T> {
    /// Memory for the next batch: the buffer given out last, when nothing holds it any more.
    fn reclaim(&mut self) -> Vec<T> {
        let mut values: Vec<T> = match self.given.take().map(Buffer::into_vec) {
            Some(Ok(values)) => values,
            _ => Vec::new(),
        };
        values.clear();
        values
    }

    /// The values as a buffer; with `runs`, the n-th of them `runs[n]` times.
    fn give(&mut self, runs: Option<&[u32]>) -> Buffer {
        let mut next = self.reclaim();
        let full = match runs {
            None => std::mem::replace(&mut self.values, next),
            Some(runs) => {
                for (&value, &run) in self.values.iter().zip(runs) {
                    next.extend(std::iter::repeat_n(value, run as usize));
                }
                self.values.clear();
                next
            }
        };
        let buffer = Buffer::from_vec(full);
        self.given = Some(buffer.clone());
        buffer
    }
}

/// Codes of strings and their dictionary.
#[derive(Debug, Default)]
pub(crate) struct Text {
    pub(crate) codes: Lane<i32>,
    pub(crate) dictionary: Dictionary,
}

/// Where the values of a leaf are kept: an index into the lanes of [`Columns`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Store {
    Int(usize),
    Long(usize),
    Float(usize),
    Double(usize),
    Boolean(usize),
    Text(usize),
    List { ends: usize, item: Box<Leaf> },
}

/// One leaf: its values, its validity where it may be null, its Arrow type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) store: Store,
    pub(crate) valid: Option<usize>,
    pub(crate) data_type: DataType,
}

/// Every lane of a decoder.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub(crate) ints: Vec<Lane<i32>>,
    pub(crate) longs: Vec<Lane<i64>>,
    pub(crate) floats: Vec<Lane<f32>>,
    pub(crate) doubles: Vec<Lane<f64>>,
    pub(crate) booleans: Vec<Vec<u8>>,
    pub(crate) texts: Vec<Text>,
    /// Ends of lists, counted from the first item of the batch.
    pub(crate) ends: Vec<Lane<i32>>,
    pub(crate) valids: Vec<Vec<u8>>,
    /// Rows of each message since the last batch.
    runs: Vec<u32>,
    /// Finished rows, and those of the message being read.
    pub(crate) rows: usize,
}

/// The leaves of a plan, in its order, and their lanes.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) leaves: Vec<Leaf>,
    /// Whether the leaf has one value per row; else it has one per message, repeated.
    per_row: Vec<bool>,
}

/// A type that cannot be decoded into a column.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(pub(crate) DataType);

impl Columns {
    /// Lanes for every column of the plan.
    pub(crate) fn new(plan: &ReadPlan) -> Result<(Self, Layout), Unreadable> {
        let mut columns = Self::default();
        let mut layout = Layout { leaves: Vec::new(), per_row: Vec::new() };
        for column in &plan.columns {
            layout.leaves.push(columns.leaf(&column.data_type, column.nullable)?);
            layout.per_row.push(plan.unnest.is_none() || column.of_element);
        }
        Ok((columns, layout))
    }

    fn leaf(&mut self, data_type: &DataType, nullable: bool) -> Result<Leaf, Unreadable> {
        let store = match data_type {
            DataType::Int32 | DataType::Date32 => Store::Int(add(&mut self.ints)),
            DataType::Int64 | DataType::Timestamp(..) => Store::Long(add(&mut self.longs)),
            DataType::Float32 => Store::Float(add(&mut self.floats)),
            DataType::Float64 => Store::Double(add(&mut self.doubles)),
            DataType::Boolean => Store::Boolean(add(&mut self.booleans)),
            DataType::Dictionary(key, value) if **key == DataType::Int32 && **value == DataType::Utf8 => {
                Store::Text(add(&mut self.texts))
            }
            DataType::List(item) => {
                let ends = add(&mut self.ends);
                self.ends[ends].values.push(0);
                let item = Box::new(self.leaf(item.data_type(), item.is_nullable())?);
                Store::List { ends, item }
            }
            other => return Err(Unreadable(other.clone())),
        };
        let valid = nullable.then(|| add(&mut self.valids));
        Ok(Leaf { store, valid, data_type: data_type.clone() })
    }

    /// Appends a null to the leaf: an absent value and its mark.
    pub(crate) fn push_null(&mut self, leaf: &Leaf) {
        match &leaf.store {
            Store::Int(lane) => self.ints[*lane].values.push(0),
            Store::Long(lane) => self.longs[*lane].values.push(0),
            Store::Float(lane) => self.floats[*lane].values.push(0.0),
            Store::Double(lane) => self.doubles[*lane].values.push(0.0),
            Store::Boolean(lane) => self.booleans[*lane].push(0),
            Store::Text(lane) => self.texts[*lane].codes.values.push(0),
            Store::List { ends, .. } => {
                let ends = &mut self.ends[*ends].values;
                ends.push(ends.last().copied().unwrap_or(0));
            }
        }
        if let Some(valid) = leaf.valid {
            self.valids[valid].push(0);
        }
    }

    /// Marks the message complete: `rows` have grown by its own.
    pub(crate) fn finish_message(&mut self, rows_before: usize) {
        self.runs.push((self.rows - rows_before) as u32);
    }

    /// Takes back what an unfinished message appended.
    pub(crate) fn roll_back(&mut self, layout: &Layout, rows_before: usize) {
        self.rows = rows_before;
        for (leaf, per_row) in layout.leaves.iter().zip(&layout.per_row) {
            let length = if *per_row { rows_before } else { self.runs.len() };
            self.truncate(leaf, length);
        }
    }

    fn truncate(&mut self, leaf: &Leaf, length: usize) {
        match &leaf.store {
            Store::Int(lane) => self.ints[*lane].values.truncate(length),
            Store::Long(lane) => self.longs[*lane].values.truncate(length),
            Store::Float(lane) => self.floats[*lane].values.truncate(length),
            Store::Double(lane) => self.doubles[*lane].values.truncate(length),
            Store::Boolean(lane) => self.booleans[*lane].truncate(length),
            Store::Text(lane) => self.texts[*lane].codes.values.truncate(length),
            Store::List { ends, item } => {
                let ends = &mut self.ends[*ends].values;
                ends.truncate(length + 1);
                let items = ends.last().copied().unwrap_or(0) as usize;
                self.truncate(item, items);
            }
        }
        if let Some(valid) = leaf.valid {
            self.valids[valid].truncate(length);
        }
    }

    /// Hands out the rows as a batch of the plan's schema.
    pub(crate) fn take(&mut self, plan: &ReadPlan, layout: &Layout) -> RecordBatch {
        let runs = std::mem::take(&mut self.runs);
        let rows = std::mem::take(&mut self.rows);
        let arrays = layout.leaves.iter().zip(&layout.per_row).map(|(leaf, per_row)| {
            let length = if *per_row { rows } else { runs.len() };
            self.array(leaf, length, (!*per_row).then_some((&runs, rows)))
        });
        let arrays: Vec<ArrayRef> = arrays.collect();
        self.runs = runs;
        self.runs.clear();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(plan.schema(), arrays, &options).expect("the lanes are those of the plan")
    }

    /// The leaf's `length` values as an array; with `runs`, repeated so that there are as many rows.
    fn array(&mut self, leaf: &Leaf, length: usize, runs: Option<(&Vec<u32>, usize)>) -> ArrayRef {
        if let (Store::List { .. }, Some((runs, rows))) = (&leaf.store, runs) {
            let once = self.array(leaf, length, None);
            let mut indices = Vec::with_capacity(rows);
            for (index, &run) in runs.iter().enumerate() {
                indices.extend(std::iter::repeat_n(index as u32, run as usize));
            }
            return take(&once, &UInt32Array::from(indices), None).expect("indices are in range");
        }
        let (runs, rows) = (runs.map(|(runs, _)| runs.as_slice()), runs.map_or(length, |(_, rows)| rows));
        let nulls = leaf.valid.and_then(|valid| give_nulls(&mut self.valids[valid], runs));
        let buffer = match &leaf.store {
            Store::Int(lane) => self.ints[*lane].give(runs),
            Store::Long(lane) => self.longs[*lane].give(runs),
            Store::Float(lane) => self.floats[*lane].give(runs),
            Store::Double(lane) => self.doubles[*lane].give(runs),
            Store::Boolean(lane) => give_bits(&mut self.booleans[*lane], runs).into_inner(),
            Store::Text(lane) => return self.texts[*lane].array(runs, nulls),
            Store::List { ends, item } => return self.list(leaf, *ends, item, nulls),
        };
        let data = ArrayData::builder(leaf.data_type.clone()).len(rows).add_buffer(buffer).nulls(nulls);
        // SAFETY: a lane holds one value of the type's width per row.
        make_array(unsafe { data.build_unchecked() })
    }

    fn list(&mut self, leaf: &Leaf, ends: usize, item: &Leaf, nulls: Option<NullBuffer>) -> ArrayRef {
        let items = self.ends[ends].values.last().copied().unwrap_or(0) as usize;
        let buffer = self.ends[ends].give(None);
        self.ends[ends].values.push(0);
        let DataType::List(field) = &leaf.data_type else {
            unreachable!("a list's store is made for a list type only");
        };
        // SAFETY: the ends start at zero and never fall.
        let offsets = unsafe { OffsetBuffer::new_unchecked(ScalarBuffer::from(buffer)) };
        let items = self.array(item, items, None);
        Arc::new(ListArray::new(field.clone(), offsets, items, nulls))
    }
}

impl Text {
    fn array(&mut self, runs: Option<&[u32]>, nulls: Option<NullBuffer>) -> ArrayRef {
        let values = self.dictionary.values();
        if self.dictionary.len() > MAX_STRINGS || self.dictionary.size() > MAX_BYTES {
            self.dictionary.clear();
        }
        let codes = ScalarBuffer::from(self.codes.give(runs));
        let codes = PrimitiveArray::<Int32Type>::new(codes, nulls);
        // SAFETY: codes come from this dictionary; a null's code 0 stands under a null.
        Arc::new(unsafe { DictionaryArray::new_unchecked(codes, values) })
    }
}

fn add<T: Default>(lanes: &mut Vec<T>) -> usize {
    lanes.push(T::default());
    lanes.len() - 1
}

/// Packs marks of one byte each; `None` when all are set.
fn give_nulls(marks: &mut Vec<u8>, runs: Option<&[u32]>) -> Option<NullBuffer> {
    if marks.iter().all(|&mark| mark == 1) {
        marks.clear();
        return None;
    }
    Some(NullBuffer::new(give_bits(marks, runs)))
}

fn give_bits(marks: &mut Vec<u8>, runs: Option<&[u32]>) -> BooleanBuffer {
    let repeated: Vec<u8>;
    let bytes = match runs {
        None => &marks[..],
        Some(runs) => {
            let pairs = marks.iter().zip(runs);
            repeated = pairs.flat_map(|(&mark, &run)| std::iter::repeat_n(mark, run as usize)).collect();
            &repeated
        }
    };
    let length = bytes.len();
    let mut bits = Vec::with_capacity(length.div_ceil(8));
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let word = eight.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        bits.push((word.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8);
    }
    if !eights.remainder().is_empty() {
        let rest = eights.remainder().iter().enumerate();
        bits.push(rest.fold(0, |bits, (index, &mark)| bits | mark << index));
    }
    marks.clear();
    BooleanBuffer::new(Buffer::from_vec(bits), 0, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_packed_eight_to_a_byte() {
        let mut marks = vec![1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1];
        let bits = give_bits(&mut marks, None);
        let back: Vec<bool> = bits.iter().collect();
        assert_eq!(back, [1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1].map(|mark| mark == 1));
        assert!(marks.is_empty());
        assert_eq!(give_nulls(&mut vec![1; 9], None), None);
        let nulls = give_nulls(&mut vec![1, 0], Some(&[3, 2])).unwrap();
        assert_eq!((nulls.len(), nulls.null_count()), (5, 2));
    }

    #[test]
    fn a_lane_takes_its_memory_again_once_the_batch_is_gone() {
        let mut lane = Lane::<i64>::default();
        lane.values.extend(0..1000);
        let first = lane.give(None);
        let address = first.as_ptr();
        drop(first);
        lane.values.extend(0..10);
        let second = lane.give(None);
        assert_ne!(second.as_ptr(), address);
        lane.values.extend(0..10);
        assert_eq!(lane.give(None).as_ptr(), address);
    }
}

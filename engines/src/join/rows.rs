//! The rows that one side of a join holds, in the order in which they came.

use std::collections::VecDeque;

use arrow::array::types::{TimestampMicrosecondType, UInt64Type};
use arrow::array::{Array, AsArray};
use arrow::buffer::ScalarBuffer;
use arrow::record_batch::RecordBatch;

use super::bug;
use super::shard::Shared;
use crate::error::Error;
use crate::flow::operator::{BEGINNING, END};

/// What rows of a chunk can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows that may have a partner.
    Paired,
    /// Rows with a null in their key.
    Keyless,
    /// Rows without an event time.
    Timeless,
}

/// A row of a side: its chunk's number, and its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) chunk: u32,
    pub(super) row: u32,
}

/// The place of a partner that is not there.
pub(super) const NOBODY: Place = Place { chunk: 0, row: u32::MAX };

/// A row as the matching sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) time: i64,
    pub(super) position: u64,
    pub(super) place: Place,
}

/// Rows that came together.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Names it in checkpoints.
    pub(super) name: u64,
    pub(super) kind: Kind,
    pub(super) batch: RecordBatch,
    pub(super) keys: Vec<u32>,
    times: ScalarBuffer<i64>,
    positions: ScalarBuffer<u64>,
    /// Rows that have had a partner; empty where nobody asks.
    pub(super) matched: Vec<bool>,
    /// `matched` is not what a checkpoint has.
    pub(super) changed: bool,
    /// A checkpoint has the rows.
    pub(super) frozen: bool,
    /// Rows before it have been joined.
    pub(super) joined: i64,
    /// Least time of the other rows.
    next_join: i64,
    /// Rows whose last partner would have come before it are gone.
    dropped: i64,
    /// Least such time of the other rows.
    next_drop: i64,
    held: usize,
}

/// Whether a time lies before a watermark.
pub(super) fn before(time: i64, watermark: i64) -> bool {
    watermark == END || time < watermark
}

impl Chunk {
    /// Rows of one side; `joined` to a watermark already.
    ///
    /// # Errors
    /// Time and position are not of their types.
    pub(super) fn new(
        shared: &Shared,
        input: usize,
        (kind, batch, keys): (Kind, RecordBatch, Vec<u32>),
        (name, joined): (u64, i64),
    ) -> Result<Self, Error> {
        let rows = batch.num_rows();
        let positions = batch.column(shared.position[input]).as_primitive_opt::<UInt64Type>();
        let positions = positions.ok_or_else(|| bug("a position is no number"))?.values().clone();
        let times = if kind == Kind::Timeless {
            vec![END; rows].into()
        } else {
            times_of(shared, input, &batch)?.values().clone()
        };
        let least = times.iter().copied().min().unwrap_or(END);
        Ok(Self {
            name,
            kind,
            batch,
            keys,
            next_join: least,
            next_drop: least.saturating_add(shared.reach[input]),
            times,
            positions,
            matched: if shared.keeps[input] { vec![false; rows] } else { vec![] },
            changed: false,
            frozen: false,
            joined,
            dropped: BEGINNING,
            held: rows,
        })
    }

    fn entry(&self, chunk: u32, row: usize) -> Entry {
        let place = Place { chunk, row: u32::try_from(row).unwrap_or(u32::MAX) };
        Entry { time: self.times[row], position: self.positions[row], place }
    }

    /// Whether a row is still held.
    pub(super) fn holds(&self, row: usize, reach: i64) -> bool {
        self.dropped == BEGINNING || !before(self.times[row].saturating_add(reach), self.dropped)
    }

    /// Bytes of its own, without dictionaries, which it shares.
    fn memory(&self) -> usize {
        let column = |array: &arrow::array::ArrayRef| match array.as_dictionary_opt::<arrow::array::types::Int32Type>()
        {
            Some(texts) => texts.keys().get_buffer_memory_size(),
            None => array.get_buffer_memory_size(),
        };
        self.batch.columns().iter().map(column).sum::<usize>() + self.keys.capacity() * 4 + self.matched.capacity()
    }
}

/// The event times of a batch.
///
/// # Errors
/// They are no timestamps.
pub(super) fn times_of<'b>(
    shared: &Shared,
    input: usize,
    batch: &'b RecordBatch,
) -> Result<&'b arrow::array::TimestampMicrosecondArray, Error> {
    let times = batch.column(shared.time[input]).as_primitive_opt::<TimestampMicrosecondType>();
    times.ok_or_else(|| bug("an event time is no timestamp"))
}

/// The chunks of a side.
#[derive(Debug, Default)]
pub(super) struct Store {
    chunks: VecDeque<Option<Chunk>>,
    /// Number of the first.
    base: u32,
    memory: usize,
}

impl Store {
    /// Takes up a chunk and says its number.
    pub(super) fn push(&mut self, chunk: Chunk) -> u32 {
        let number = self.base.wrapping_add(u32::try_from(self.chunks.len()).unwrap_or(0));
        self.memory += chunk.memory();
        self.chunks.push_back(Some(chunk));
        number
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// The chunk of a place that is held.
    pub(super) fn chunk(&self, number: u32) -> Option<&Chunk> {
        self.chunks.get(number.wrapping_sub(self.base) as usize)?.as_ref()
    }

    fn chunk_mut(&mut self, number: u32) -> Option<&mut Chunk> {
        self.chunks.get_mut(number.wrapping_sub(self.base) as usize)?.as_mut()
    }

    /// All chunks, in the order in which they came.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().flatten()
    }

    /// The same, to be changed.
    pub(super) fn chunks_mut(&mut self) -> impl Iterator<Item = &mut Chunk> {
        self.chunks.iter_mut().flatten()
    }

    fn numbered(&mut self) -> impl Iterator<Item = (u32, &mut Chunk)> {
        let base = self.base;
        let number = move |at| base.wrapping_add(at);
        (0..).map(number).zip(self.chunks.iter_mut()).filter_map(|(number, chunk)| Some((number, chunk.as_mut()?)))
    }

    /// Rows held.
    pub(super) fn held(&self) -> usize {
        self.chunks().map(|chunk| chunk.held).sum()
    }

    /// Notes that a row has had a partner.
    pub(super) fn set_matched(&mut self, place: Place) {
        if let Some(chunk) = self.chunk_mut(place.chunk)
            && let Some(matched @ false) = chunk.matched.get_mut(place.row as usize)
        {
            *matched = true;
            chunk.changed = true;
        }
    }

    /// The rows before a watermark that have not been joined yet, with their keys; they count as joined now.
    pub(super) fn fresh(&mut self, watermark: i64) -> Vec<(u32, Entry)> {
        let mut fresh = Vec::new();
        for (number, chunk) in self.numbered() {
            if chunk.kind != Kind::Paired || chunk.joined == END || !before(chunk.next_join, watermark) {
                continue;
            }
            let mut next = END;
            for row in 0..chunk.times.len() {
                let time = chunk.times[row];
                if !before(time, watermark) {
                    next = next.min(time);
                } else if chunk.joined == BEGINNING || !before(time, chunk.joined) {
                    fresh.push((chunk.keys[row], chunk.entry(number, row)));
                }
            }
            chunk.joined = watermark;
            chunk.next_join = next;
        }
        fresh
    }

    /// Rows that have been joined and are held: for the index of a state that was read back.
    pub(super) fn joined(&self, number: u32, reach: i64) -> Vec<(u32, Entry)> {
        let Some(chunk) = self.chunk(number).filter(|chunk| chunk.kind == Kind::Paired) else { return vec![] };
        let is_joined = |row: &usize| {
            chunk.joined != BEGINNING && before(chunk.times[*row], chunk.joined) && chunk.holds(*row, reach)
        };
        (0..chunk.times.len()).filter(is_joined).map(|row| (chunk.keys[row], chunk.entry(number, row))).collect()
    }

    /// Gives up the rows that no row at or after a watermark can match: their keys, and those that never had a partner. Their
    /// chunks stay until [`Store::sweep`].
    pub(super) fn expire(&mut self, watermark: i64, reach: i64) -> Expired {
        let mut expired = Expired::default();
        for (number, chunk) in self.numbered() {
            if chunk.held == 0 || !before(chunk.next_drop, watermark) {
                continue;
            }
            let mut next = END;
            for row in 0..chunk.times.len() {
                let last = chunk.times[row].saturating_add(reach);
                if !before(last, watermark) {
                    next = next.min(last);
                } else if chunk.dropped == BEGINNING || !before(last, chunk.dropped) {
                    chunk.held -= 1;
                    if chunk.matched.get(row) == Some(&false) {
                        expired.alone.push(Entry { time: last, ..chunk.entry(number, row) });
                    }
                    if chunk.kind == Kind::Paired {
                        expired.keys.push(chunk.keys[row]);
                    }
                }
            }
            chunk.dropped = watermark;
            chunk.next_drop = next;
        }
        expired
    }

    /// Lets go of chunks of which nothing is held.
    pub(super) fn sweep(&mut self) {
        for chunk in &mut self.chunks {
            if let Some(empty) = chunk.take_if(|chunk| chunk.held == 0) {
                self.memory = self.memory.saturating_sub(empty.memory());
            }
        }
        while let Some(None) = self.chunks.front() {
            self.chunks.pop_front();
            self.base = self.base.wrapping_add(1);
        }
    }
}

/// Rows that are given up.
#[derive(Debug, Default)]
pub(super) struct Expired {
    pub(super) keys: Vec<u32>,
    /// Rows that never had a partner; the time is the last at which one could have come.
    pub(super) alone: Vec<Entry>,
}

//! The sessions of the keys of one shard.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrow::array::types::TimestampMicrosecondType;
use arrow::array::{Array, AsArray, BooleanArray};
use arrow::record_batch::RecordBatch;

use crate::agg::Accumulators;
use crate::error::Error;
use crate::flow::operator::{BEGINNING, END, Late};
use crate::state::keys::NONE;

/// Rows of one batch for one shard.
pub(super) struct Mail {
    pub(super) order: u64,
    pub(super) batch: RecordBatch,
    pub(super) keys: Vec<u32>,
    pub(super) closed: i64,
}

/// A session that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) start: i64,
    pub(super) last: i64,
    pub(super) key: u32,
    pub(super) slot: u32,
    /// The rows of the key that have no event time.
    pub(super) timeless: bool,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    start: i64,
    last: i64,
    slot: u32,
}

/// Sessions of a key, ascending; `timeless` is the slot of its rows without an event time.
#[derive(Debug, Clone)]
struct OfKey {
    sessions: Vec<Session>,
    timeless: u32,
    changed: bool,
}

/// All sessions of a shard.
pub(super) struct Sessions {
    gap: i64,
    /// Column of the event time.
    time: usize,
    shards: usize,
    /// Number of this shard.
    number: usize,
    bounded: bool,
    /// By key number divided by the number of shards.
    keys: Vec<OfKey>,
    changed: Vec<u32>,
    groups: Accumulators,
    used: u32,
    free: Vec<u32>,
    /// An entry for every session, with a time at or before its last row.
    due: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Sessions {
    /// Of the shard `number` of `shards`.
    pub(super) fn new(
        (gap, time): (i64, usize),
        (number, shards): (usize, usize),
        bounded: bool,
        groups: Accumulators,
    ) -> Self {
        Self {
            gap,
            time,
            shards,
            number,
            bounded,
            keys: vec![],
            changed: vec![],
            groups,
            used: 0,
            free: vec![],
            due: BinaryHeap::new(),
        }
    }

    pub(super) fn groups(&self) -> &Accumulators {
        &self.groups
    }

    fn of_key(&mut self, key: u32) -> &mut OfKey {
        let index = key as usize / self.shards;
        if self.keys.len() <= index {
            self.keys.resize(index + 1, OfKey { sessions: vec![], timeless: NONE, changed: false });
        }
        let own = &mut self.keys[index];
        if !own.changed {
            own.changed = true;
            self.changed.push(key);
        }
        own
    }

    fn new_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        })
    }

    /// Takes up rows; late ones are added to `left_out`.
    pub(super) fn take_up(&mut self, mail: &Mail, left_out: &mut Vec<RecordBatch>) -> Result<Late, Error> {
        let Some(times) = mail.batch.column(self.time).as_primitive_opt::<TimestampMicrosecondType>() else {
            return Err(Error::source("the event time is no timestamp", "report this as a bug"));
        };
        let (mut slots, mut folds, mut late) = (Vec::with_capacity(mail.keys.len()), vec![], Late::default());
        let mut dropped = Vec::new();
        for (row, (key, time)) in mail.keys.iter().zip(times.values()).enumerate() {
            let slot = if times.is_null(row) {
                late.timeless += u64::from(!self.bounded);
                if self.bounded { Some(self.timeless(*key)) } else { None }
            } else {
                let slot = self.place(*key, *time, mail.closed, &mut folds);
                if slot.is_none() {
                    late.wholly += 1;
                    left_out.push(mail.batch.slice(row, 1));
                }
                slot
            };
            match slot {
                Some(slot) => slots.push(slot),
                None => dropped.push(row),
            }
        }
        self.groups.resize(self.used as usize);
        if dropped.is_empty() {
            self.groups.update(&slots, &mail.batch)?;
        } else {
            let kept = (0..mail.keys.len()).map(|row| Some(dropped.binary_search(&row).is_err()));
            let kept: BooleanArray = kept.collect();
            let batch = arrow::compute::filter_record_batch(&mail.batch, &kept)
                .map_err(|error| Error::source(error.to_string(), "report this as a bug"))?;
            self.groups.update(&slots, &batch)?;
        }
        for (from, to) in folds {
            self.groups.fold(from, to);
            self.free.push(from);
        }
        Ok(late)
    }

    fn timeless(&mut self, key: u32) -> u32 {
        let known = self.of_key(key).timeless;
        if known != NONE {
            return known;
        }
        let slot = self.new_slot();
        self.of_key(key).timeless = slot;
        slot
    }

    /// The slot of a row's session, `None` when the row is late. Sessions that the row joins are noted in `folds`.
    fn place(&mut self, key: u32, time: i64, closed: i64, folds: &mut Vec<(u32, u32)>) -> Option<u32> {
        let gap = self.gap;
        let sessions = &mut self.of_key(key).sessions;
        // Behind the last session that the row may touch.
        let mut to = sessions.len();
        while to > 0 && sessions[to - 1].start > time.saturating_add(gap) {
            to -= 1;
        }
        let mut from = to;
        while from > 0 {
            let end = sessions[from - 1].last.saturating_add(gap);
            // One that is over takes nothing more.
            if end < time || end < closed {
                break;
            }
            from -= 1;
        }
        if from == to {
            if time.saturating_add(gap) < closed {
                return None;
            }
            let slot = self.new_slot();
            self.due.push(Reverse((time, key)));
            self.of_key(key).sessions.insert(to, Session { start: time, last: time, slot });
            return Some(slot);
        }
        let first = sessions[from];
        let last = sessions[from..to].iter().map(|session| session.last).max().unwrap_or(time);
        folds.extend(sessions[from + 1..to].iter().map(|session| (session.slot, first.slot)));
        sessions.drain(from + 1..to);
        sessions[from] = Session { start: first.start.min(time), last: last.max(time), slot: first.slot };
        Some(first.slot)
    }

    /// Takes out the sessions whose end the watermark has passed; their slots stay until they are freed.
    pub(super) fn close(&mut self, watermark: i64) -> Vec<Closed> {
        let mut closed = Vec::new();
        if watermark == END {
            for index in 0..self.keys.len() {
                let key = u32::try_from(index * self.shards + self.number).unwrap_or(NONE);
                self.close_key(key, END, &mut closed);
            }
            self.due.clear();
            return closed;
        }
        while let Some(Reverse((time, key))) = self.due.peek().copied() {
            if time.saturating_add(self.gap) >= watermark {
                break;
            }
            self.due.pop();
            self.close_key(key, watermark, &mut closed);
            if let Some(next) = self.of_key(key).sessions.first().copied() {
                self.due.push(Reverse((next.last, key)));
            }
        }
        closed
    }

    fn close_key(&mut self, key: u32, watermark: i64, closed: &mut Vec<Closed>) {
        let gap = self.gap;
        let index = key as usize / self.shards;
        let is_over = |session: &Session| watermark == END || session.last.saturating_add(gap) < watermark;
        let Some(own) = self.keys.get(index) else { return };
        let timeless = watermark == END && own.timeless != NONE;
        if !timeless && !own.sessions.iter().any(is_over) {
            return;
        }
        let own = self.of_key(key);
        own.sessions.retain(|session| {
            let over = is_over(session);
            if over {
                let Session { start, last, slot } = *session;
                closed.push(Closed { start, last, key, slot, timeless: false });
            }
            !over
        });
        if timeless {
            let slot = std::mem::replace(&mut own.timeless, NONE);
            closed.push(Closed { start: END, last: END, key, slot, timeless: true });
        }
    }

    /// Gives the slots of closed sessions to others.
    pub(super) fn free(&mut self, slots: impl Iterator<Item = u32>) {
        let slots: Vec<u32> = slots.collect();
        self.groups.clear(&slots);
        self.free.extend(slots);
    }

    pub(super) fn memory(&self) -> usize {
        let sessions = self.keys.len() * size_of::<OfKey>() + self.used as usize * size_of::<Session>();
        sessions + self.groups.memory() + self.due.len() * size_of::<Reverse<(i64, u32)>>()
    }

    /// Sessions of the keys that have changed since the last call, or of all keys.
    pub(super) fn freeze(&mut self, whole: bool) -> Vec<(u32, Vec<u8>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.iter().for_each(|key| self.keys[*key as usize / self.shards].changed = false);
        let all = 0..self.keys.len();
        let number = |index: usize| u32::try_from(index * self.shards + self.number).unwrap_or(NONE);
        let keys: Vec<u32> = if whole { all.map(number).collect() } else { changed };
        let there = |key: &u32| {
            let own = &self.keys[*key as usize / self.shards];
            !whole || !own.sessions.is_empty() || own.timeless != NONE
        };
        keys.into_iter().filter(there).map(|key| (key, self.encode(key))).collect()
    }

    fn encode(&self, key: u32) -> Vec<u8> {
        let own = &self.keys[key as usize / self.shards];
        let mut out = Vec::new();
        let timeless = (own.timeless != NONE).then_some(Session { start: END, last: END, slot: own.timeless });
        for session in own.sessions.iter().chain(&timeless) {
            out.extend_from_slice(&session.start.to_le_bytes());
            out.extend_from_slice(&session.last.to_le_bytes());
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            self.groups.encode(session.slot, &mut out);
            let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
            out[at..at + 4].copy_from_slice(&length.to_le_bytes());
        }
        out
    }

    /// Takes up what a checkpoint says of a key, in place of what is known. What the watermark has closed is left out.
    pub(super) fn restore(&mut self, key: u32, mut bytes: &[u8], watermark: i64) -> Option<()> {
        let own = self.of_key(key);
        let mut old: Vec<u32> = own.sessions.drain(..).map(|session| session.slot).collect();
        if own.timeless != NONE {
            old.push(std::mem::replace(&mut own.timeless, NONE));
        }
        self.free(old.into_iter());
        while !bytes.is_empty() {
            let (start, rest) = bytes.split_first_chunk::<8>()?;
            let (last, rest) = rest.split_first_chunk::<8>()?;
            let (length, rest) = rest.split_first_chunk::<4>()?;
            let (state, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            bytes = rest;
            let (start, last) = (i64::from_le_bytes(*start), i64::from_le_bytes(*last));
            if watermark != BEGINNING && last.saturating_add(self.gap) < watermark {
                continue;
            }
            let slot = self.new_slot();
            self.groups.resize(self.used as usize);
            self.groups.decode(slot, state)?;
            if start == END {
                self.of_key(key).timeless = slot;
            } else {
                self.of_key(key).sessions.push(Session { start, last, slot });
                self.due.push(Reverse((last, key)));
            }
        }
        Some(())
    }
}

//! `sum` and `avg`: integers in 128 bits, doubles exact.

use std::any::Any;
use std::sync::Arc;

use arrow::array::types::{Decimal128Type, Float64Type, Int64Type};
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::datatypes::DataType;

use super::exact::Exact;
use super::value::take;
use super::{Accumulator, Rows};
use crate::error::Error;
use crate::read::RecordError;

/// Most digits of a decimal.
const DIGITS: u8 = 38;
const LIMIT: i128 = 10_i128.pow(38);

/// What a sum becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Sum,
    Average,
}

pub(super) fn sum(argument: Option<&DataType>) -> Option<Box<dyn Accumulator>> {
    of(argument?, Outcome::Sum)
}

pub(super) fn average(argument: Option<&DataType>) -> Option<Box<dyn Accumulator>> {
    of(argument?, Outcome::Average)
}

fn of(argument: &DataType, result: Outcome) -> Option<Box<dyn Accumulator>> {
    match argument {
        DataType::Int64 => Some(Box::new(Integers::new(result, 0))),
        DataType::Decimal128(_, scale) => Some(Box::new(Integers::new(result, *scale))),
        DataType::Float64 => Some(Box::new(Doubles { result, sums: vec![], counts: vec![] })),
        _ => None,
    }
}

/// A sum of decimals: `low + turns · 2^128`, so that it may leave the range of 128 bits and come back.
#[derive(Debug, Clone, Copy, Default)]
struct Wide {
    low: i128,
    turns: i64,
}

impl From<i64> for Wide {
    fn from(value: i64) -> Self {
        Self { low: value.into(), turns: 0 }
    }
}

impl Wide {
    fn narrow(self) -> Option<i64> {
        i64::try_from(self.low).ok().filter(|_| self.turns == 0)
    }

    fn add(&mut self, other: Self) {
        let (low, over) = self.low.overflowing_add(other.low);
        self.low = low;
        self.turns += other.turns + if over { other.low.signum() as i64 } else { 0 };
    }
}

/// Sums of integers: 64 bits until one of them no longer fits.
#[derive(Debug)]
struct Integers {
    result: Outcome,
    /// Digits behind the point.
    scale: i8,
    narrow: Vec<i64>,
    /// In place of `narrow`, once a sum has left its range.
    wide: Option<Vec<Wide>>,
    counts: Vec<i64>,
}

impl Integers {
    fn new(result: Outcome, scale: i8) -> Self {
        Self { result, scale, narrow: vec![], wide: None, counts: vec![] }
    }

    fn widen(&mut self) -> &mut Vec<Wide> {
        let narrow = &mut self.narrow;
        self.wide.get_or_insert_with(|| std::mem::take(narrow).into_iter().map(Wide::from).collect())
    }

    fn wide(&self, slot: u32) -> Wide {
        match &self.wide {
            Some(wide) => wide[slot as usize],
            None => Wide::from(self.narrow[slot as usize]),
        }
    }

    /// The sum of a slot, if it has 38 digits.
    fn get(&self, slot: u32) -> Result<i128, Error> {
        let sum = self.wide(slot);
        let fits = sum.turns == 0 && sum.low.unsigned_abs() < LIMIT.unsigned_abs();
        if fits { Ok(sum.low) } else { Err(out_of_range()) }
    }

    fn add(&mut self, slot: u32, value: Wide) {
        if self.wide.is_none() {
            let narrow = &mut self.narrow[slot as usize];
            if let Some(sum) = value.narrow().and_then(|value| narrow.checked_add(value)) {
                *narrow = sum;
                return;
            }
        }
        self.widen()[slot as usize].add(value);
    }

    /// Rows that all count, of 64-bit integers.
    fn add_all(&mut self, slots: &[u32], values: &[i64]) {
        let mut rows = slots.iter().zip(values).enumerate();
        if self.wide.is_none() {
            let stop = rows.find_map(|(row, (slot, value))| {
                let own = &mut self.narrow[*slot as usize];
                match own.checked_add(*value) {
                    Some(sum) => {
                        *own = sum;
                        None
                    }
                    None => Some(row),
                }
            });
            let Some(stop) = stop else { return };
            self.widen();
            return self.add_all(&slots[stop..], &values[stop..]);
        }
        let wide = self.widen();
        rows.for_each(|(_, (slot, value))| wide[*slot as usize].add(Wide::from(*value)));
    }
}

fn out_of_range() -> Error {
    Error::Row(RecordError::Eval { code: "OUT_OF_RANGE", reason: "a sum has more than 38 digits".into() })
}

impl Accumulator for Integers {
    fn resize(&mut self, slots: usize) {
        match &mut self.wide {
            Some(wide) => wide.resize(slots, Wide::default()),
            None => self.narrow.resize(slots, 0),
        }
        self.counts.resize(slots, 0);
    }

    fn update(&mut self, slots: &[u32], rows: &Rows<'_>) -> Result<(), Error> {
        let Some(array) = rows.args.first() else { return Ok(()) };
        let all = rows.keep.is_none() && array.null_count() == 0;
        let longs = array.as_primitive_opt::<Int64Type>();
        if let (true, Some(longs)) = (all, longs) {
            slots.iter().for_each(|slot| self.counts[*slot as usize] += 1);
            self.add_all(slots, longs.values());
            return Ok(());
        }
        let decimals = array.as_primitive_opt::<Decimal128Type>();
        for (row, slot) in slots.iter().enumerate() {
            if !rows.counts(row) || array.is_null(row) {
                continue;
            }
            let value = match (longs, decimals) {
                (Some(longs), _) => Wide::from(longs.value(row)),
                (None, Some(decimals)) => Wide { low: decimals.value(row), turns: 0 },
                (None, None) => continue,
            };
            self.counts[*slot as usize] += 1;
            self.add(*slot, value);
        }
        Ok(())
    }

    fn merge(&mut self, to: &[u32], other: &dyn Accumulator, from: &[u32]) {
        let Some(other) = other.any().downcast_ref::<Self>() else { return };
        if other.wide.is_some() {
            self.widen();
        }
        for (to, from) in to.iter().zip(from) {
            self.counts[*to as usize] += other.counts[*from as usize];
            self.add(*to, other.wide(*from));
        }
    }

    fn fold(&mut self, from: u32, to: u32) {
        self.counts[to as usize] += self.counts[from as usize];
        self.add(to, self.wide(from));
        self.clear(&[from]);
    }

    fn clear(&mut self, slots: &[u32]) {
        for slot in slots {
            let slot = *slot as usize;
            self.counts[slot] = 0;
            match &mut self.wide {
                Some(wide) => wide[slot] = Wide::default(),
                None => self.narrow[slot] = 0,
            }
        }
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.counts[slot as usize].to_le_bytes());
        let sum = self.wide(slot);
        match sum.narrow() {
            Some(narrow) => {
                out.push(0);
                out.extend_from_slice(&narrow.to_le_bytes());
            }
            None => {
                out.push(1);
                out.extend_from_slice(&sum.low.to_le_bytes());
                out.extend_from_slice(&sum.turns.to_le_bytes());
            }
        }
    }

    fn decode(&mut self, slot: u32, bytes: &mut &[u8]) -> Option<()> {
        let count = i64::from_le_bytes(take(bytes)?);
        let own = &mut self.counts[slot as usize];
        *own = own.checked_add(count)?;
        let sum = match take(bytes)? {
            [0] => Wide::from(i64::from_le_bytes(take(bytes)?)),
            _ => Wide { low: i128::from_le_bytes(take(bytes)?), turns: i64::from_le_bytes(take(bytes)?) },
        };
        self.add(slot, sum);
        Some(())
    }

    fn finish(&self, slots: &[u32]) -> Result<ArrayRef, Error> {
        let counted = |slot: u32| self.counts[slot as usize] > 0;
        let sums = slots.iter().map(|slot| self.get(*slot)).collect::<Result<Vec<i128>, _>>()?;
        let sums = slots.iter().zip(sums);
        match self.result {
            Outcome::Sum => {
                let sums = sums.map(|(slot, sum)| counted(*slot).then_some(sum));
                let sums = Decimal128Array::from_iter(sums).with_precision_and_scale(DIGITS, self.scale);
                Ok(Arc::new(sums.map_err(|_| out_of_range())?))
            }
            Outcome::Average => {
                let scale = 10_f64.powi(i32::from(self.scale));
                let average = |slot: u32, sum: i128| sum as f64 / self.counts[slot as usize] as f64 / scale;
                let averages = sums.map(|(slot, sum)| counted(*slot).then(|| average(*slot, sum)));
                Ok(Arc::new(Float64Array::from_iter(averages)))
            }
        }
    }

    fn memory(&self) -> usize {
        let wide = self.wide.as_ref().map_or(0, |wide| wide.capacity() * size_of::<Wide>());
        (self.narrow.capacity() + self.counts.capacity()) * size_of::<i64>() + wide
    }

    fn fresh(&self) -> Box<dyn Accumulator> {
        Box::new(Self::new(self.result, self.scale))
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

/// Exact sums of doubles.
#[derive(Debug)]
struct Doubles {
    result: Outcome,
    sums: Vec<Exact>,
    counts: Vec<i64>,
}

impl Accumulator for Doubles {
    fn resize(&mut self, slots: usize) {
        self.sums.resize(slots, Exact::default());
        self.counts.resize(slots, 0);
    }

    fn update(&mut self, slots: &[u32], rows: &Rows<'_>) -> Result<(), Error> {
        let Some(values) = rows.args.first().and_then(|array| array.as_primitive_opt::<Float64Type>()) else {
            return Ok(());
        };
        let all = rows.keep.is_none() && values.null_count() == 0;
        for (row, (slot, value)) in slots.iter().zip(values.values()).enumerate() {
            if all || (rows.counts(row) && values.is_valid(row)) {
                self.sums[*slot as usize].add(*value);
                self.counts[*slot as usize] += 1;
            }
        }
        Ok(())
    }

    fn merge(&mut self, to: &[u32], other: &dyn Accumulator, from: &[u32]) {
        let Some(other) = other.any().downcast_ref::<Self>() else { return };
        for (to, from) in to.iter().zip(from) {
            self.sums[*to as usize].merge(&other.sums[*from as usize]);
            self.counts[*to as usize] += other.counts[*from as usize];
        }
    }

    fn fold(&mut self, from: u32, to: u32) {
        let sum = std::mem::take(&mut self.sums[from as usize]);
        self.sums[to as usize].merge(&sum);
        self.counts[to as usize] += std::mem::take(&mut self.counts[from as usize]);
    }

    fn clear(&mut self, slots: &[u32]) {
        for slot in slots {
            self.sums[*slot as usize] = Exact::default();
            self.counts[*slot as usize] = 0;
        }
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.counts[slot as usize].to_le_bytes());
        self.sums[slot as usize].encode(out);
    }

    fn decode(&mut self, slot: u32, bytes: &mut &[u8]) -> Option<()> {
        let own = &mut self.counts[slot as usize];
        *own = own.checked_add(i64::from_le_bytes(take(bytes)?))?;
        self.sums[slot as usize].merge(&Exact::decode(bytes)?);
        Some(())
    }

    fn finish(&self, slots: &[u32]) -> Result<ArrayRef, Error> {
        let value = |slot: u32| {
            let count = self.counts[slot as usize];
            let sum = self.sums[slot as usize].value();
            (count > 0).then(|| if self.result == Outcome::Sum { sum } else { sum / count as f64 })
        };
        Ok(Arc::new(Float64Array::from_iter(slots.iter().map(|slot| value(*slot)))))
    }

    fn memory(&self) -> usize {
        self.sums.capacity() * size_of::<Exact>() + self.counts.capacity() * size_of::<i64>()
    }

    fn fresh(&self) -> Box<dyn Accumulator> {
        Box::new(Self { result: self.result, sums: vec![], counts: vec![] })
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

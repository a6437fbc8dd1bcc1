//! `approx_distinct` and `approx_percentile`: estimates from sketches whose content does not depend on the order of rows.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::types::{Float64Type, Int64Type};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::DataType;
use twox_hash::XxHash64;

use super::value::{Value, decode_length, encode_length, is_kept, take, value_at};
use super::{Accumulator, Rows};
use crate::error::Error;

/// A state that takes up values and others of its kind.
trait Sketch: Default + Clone + Send + Sync + 'static {
    fn merge(&mut self, other: &Self);
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
    fn heap(&self) -> usize;
}

/// Sketches of many groups.
struct Sketches<S: Sketch> {
    groups: Vec<S>,
    /// Bytes beside the groups themselves.
    heap: usize,
    add: fn(&mut S, &ArrayRef, usize),
    result: Outcome<S>,
}

type Outcome<S> = Arc<dyn Fn(&mut dyn Iterator<Item = &S>) -> ArrayRef + Send + Sync>;

impl<S: Sketch> Sketches<S> {
    fn change(&mut self, slot: u32, change: impl FnOnce(&mut S)) {
        let group = &mut self.groups[slot as usize];
        self.heap -= group.heap();
        change(group);
        self.heap += group.heap();
    }
}

impl<S: Sketch> Accumulator for Sketches<S> {
    fn resize(&mut self, slots: usize) {
        self.groups.resize(slots, S::default());
    }

    fn update(&mut self, slots: &[u32], rows: &Rows<'_>) -> Result<(), Error> {
        let Some(array) = rows.args.first() else { return Ok(()) };
        for (row, slot) in slots.iter().enumerate() {
            if rows.counts(row) && array.is_valid(row) {
                let add = self.add;
                self.change(*slot, |group| add(group, array, row));
            }
        }
        Ok(())
    }

    fn merge(&mut self, to: &[u32], other: &dyn Accumulator, from: &[u32]) {
        let Some(other) = other.any().downcast_ref::<Self>() else { return };
        to.iter().zip(from).for_each(|(to, from)| self.change(*to, |own| own.merge(&other.groups[*from as usize])));
    }

    fn fold(&mut self, from: u32, to: u32) {
        let mut sketch = S::default();
        self.change(from, |own| std::mem::swap(own, &mut sketch));
        self.change(to, |own| own.merge(&sketch));
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.change(*slot, |own| *own = S::default()));
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        self.groups[slot as usize].encode(out);
    }

    fn decode(&mut self, slot: u32, bytes: &mut &[u8]) -> Option<()> {
        let read = S::decode(bytes)?;
        self.change(slot, |own| own.merge(&read));
        Some(())
    }

    fn finish(&self, slots: &[u32]) -> Result<ArrayRef, Error> {
        Ok((self.result)(&mut slots.iter().map(|slot| &self.groups[*slot as usize])))
    }

    fn memory(&self) -> usize {
        self.groups.capacity() * size_of::<S>() + self.heap
    }

    fn fresh(&self) -> Box<dyn Accumulator> {
        Box::new(Self { groups: vec![], heap: 0, add: self.add, result: Arc::clone(&self.result) })
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

/// Hashes that are kept as they are before registers take their place.
const FEW: usize = 256;
/// Bits of a hash that choose a register.
const BITS: u32 = 12;

/// Number of distinct values: exact while there are few, then by HyperLogLog.
#[derive(Debug, Clone, Default)]
struct Distinct {
    few: BTreeSet<u64>,
    registers: Option<Box<[u8]>>,
}

pub(super) fn distinct(argument: Option<&DataType>) -> Option<Box<dyn Accumulator>> {
    argument.filter(|t| is_kept(t))?;
    let add = |sketch: &mut Distinct, array: &ArrayRef, row: usize| {
        if let Some(value) = value_at(array, row) {
            sketch.add(hash(&value.normal()));
        }
    };
    let result: Outcome<Distinct> =
        Arc::new(|groups| Arc::new(Int64Array::from_iter_values(groups.map(Distinct::estimate))));
    Some(Box::new(Sketches { groups: vec![], heap: 0, add, result }))
}

/// A hash that is the same in every run.
fn hash(value: &Value) -> u64 {
    match value {
        Value::Boolean(v) => XxHash64::oneshot(1, &[u8::from(*v)]),
        Value::Long(v) => XxHash64::oneshot(2, &v.to_le_bytes()),
        Value::Unsigned(v) => XxHash64::oneshot(3, &v.to_le_bytes()),
        Value::Decimal(v) => XxHash64::oneshot(4, &v.to_le_bytes()),
        Value::Double(v) => XxHash64::oneshot(5, &v.to_le_bytes()),
        Value::Text(v) => XxHash64::oneshot(6, v.as_bytes()),
    }
}

impl Distinct {
    fn add(&mut self, hash: u64) {
        match &mut self.registers {
            Some(registers) => set(registers, hash),
            None => {
                self.few.insert(hash);
                if self.few.len() > FEW {
                    self.spread();
                }
            }
        }
    }

    fn spread(&mut self) -> &mut Box<[u8]> {
        let few = std::mem::take(&mut self.few);
        let registers = self.registers.get_or_insert_with(|| vec![0; 1 << BITS].into());
        few.into_iter().for_each(|hash| set(registers, hash));
        registers
    }

    fn estimate(&self) -> i64 {
        let Some(registers) = &self.registers else { return self.few.len() as i64 };
        let m = registers.len() as f64;
        let sum: f64 = registers.iter().map(|r| f64::powi(2.0, -i32::from(*r))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let empty = registers.iter().filter(|r| **r == 0).count() as f64;
        let estimate = if raw <= 2.5 * m && empty > 0.0 { m * (m / empty).ln() } else { raw };
        estimate.round() as i64
    }
}

fn set(registers: &mut [u8], hash: u64) {
    let register = (hash >> (64 - BITS)) as usize;
    let zeros = (hash << BITS | 1 << (BITS - 1)).leading_zeros() as u8 + 1;
    registers[register] = registers[register].max(zeros);
}

impl Sketch for Distinct {
    fn merge(&mut self, other: &Self) {
        match &other.registers {
            None => other.few.iter().for_each(|hash| self.add(*hash)),
            Some(theirs) => self.spread().iter_mut().zip(theirs).for_each(|(own, other)| *own = (*own).max(*other)),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match &self.registers {
            Some(registers) => {
                out.push(1);
                out.extend_from_slice(registers);
            }
            None => {
                out.push(0);
                encode_length(self.few.len(), out);
                self.few.iter().for_each(|hash| out.extend_from_slice(&hash.to_le_bytes()));
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        if take::<1>(bytes)? == [1] {
            let registers: [u8; 1 << BITS] = take(bytes)?;
            return Some(Self { few: BTreeSet::new(), registers: Some(registers.to_vec().into()) });
        }
        let count = decode_length(bytes)?.min(FEW + 1);
        let few = (0..count).map(|_| take(bytes).map(u64::from_le_bytes)).collect::<Option<_>>()?;
        Some(Self { few, registers: None })
    }

    fn heap(&self) -> usize {
        self.few.len() * 16 + self.registers.as_ref().map_or(0, |r| r.len())
    }
}

/// Half the width of a bucket, relative to its values.
const ERROR: f64 = 0.005;

/// Values counted in buckets whose bounds grow by a constant factor.
#[derive(Debug, Clone, Default)]
struct Buckets {
    negative: BTreeMap<i32, u64>,
    zero: u64,
    positive: BTreeMap<i32, u64>,
}

pub(super) fn percentile(argument: Option<&DataType>, rank: f64) -> Option<Box<dyn Accumulator>> {
    let add: fn(&mut Buckets, &ArrayRef, usize) = match argument? {
        DataType::Int64 => |buckets, array, row| buckets.add(array.as_primitive::<Int64Type>().value(row) as f64),
        DataType::Float64 => |buckets, array, row| buckets.add(array.as_primitive::<Float64Type>().value(row)),
        _ => return None,
    };
    let result: Outcome<Buckets> =
        Arc::new(move |groups| Arc::new(Float64Array::from_iter(groups.map(|group| group.at(rank)))));
    Some(Box::new(Sketches { groups: vec![], heap: 0, add, result }))
}

fn growth() -> f64 {
    ((1.0 + ERROR) / (1.0 - ERROR)).ln()
}

impl Buckets {
    fn add(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        let bucket = |magnitude: f64| (magnitude.clamp(f64::MIN_POSITIVE, f64::MAX).ln() / growth()).ceil() as i32;
        if value > 0.0 {
            *self.positive.entry(bucket(value)).or_default() += 1;
        } else if value < 0.0 {
            *self.negative.entry(bucket(-value)).or_default() += 1;
        } else {
            self.zero += 1;
        }
    }

    /// The value of rank `rank · (n − 1)`, from 0.
    fn at(&self, rank: f64) -> Option<f64> {
        let count = self.negative.values().chain(self.positive.values()).sum::<u64>() + self.zero;
        if count == 0 {
            return None;
        }
        let wanted = (rank.clamp(0.0, 1.0) * (count - 1) as f64).round() as u64;
        let middle = |bucket: &i32| {
            let value = (f64::from(*bucket) * growth()).exp() * (2.0 / (1.0 + growth().exp()));
            value.min(f64::MAX)
        };
        let mut seen = 0;
        let negative = self.negative.iter().rev().map(|(bucket, n)| (-middle(bucket), n));
        let positive = self.positive.iter().map(|(bucket, n)| (middle(bucket), n));
        for (value, n) in negative.chain(std::iter::once((0.0, &self.zero))).chain(positive) {
            seen += n;
            if seen > wanted {
                return Some(value);
            }
        }
        None
    }
}

impl Sketch for Buckets {
    fn merge(&mut self, other: &Self) {
        self.zero += other.zero;
        for (own, other) in [(&mut self.negative, &other.negative), (&mut self.positive, &other.positive)] {
            other.iter().for_each(|(bucket, n)| *own.entry(*bucket).or_default() += n);
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.zero.to_le_bytes());
        for side in [&self.negative, &self.positive] {
            encode_length(side.len(), out);
            for (bucket, n) in side {
                out.extend_from_slice(&bucket.to_le_bytes());
                out.extend_from_slice(&n.to_le_bytes());
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let zero = u64::from_le_bytes(take(bytes)?);
        let mut side = || {
            let count = decode_length(bytes)?;
            let entry = |_| Some((i32::from_le_bytes(take(bytes)?), u64::from_le_bytes(take(bytes)?)));
            (0..count).map(entry).collect::<Option<BTreeMap<i32, u64>>>()
        };
        Some(Self { zero, negative: side()?, positive: side()? })
    }

    fn heap(&self) -> usize {
        (self.negative.len() + self.positive.len()) * 24
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_values_are_estimated_closely() {
        let (mut whole, mut half) = (Distinct::default(), Distinct::default());
        let hash = |value: i64| hash(&Value::Long(value));
        (0..200).for_each(|v| whole.add(hash(v)));
        assert_eq!(whole.estimate(), 200);
        (0..60_000).for_each(|v| whole.add(hash(v)));
        (50_000..100_000).for_each(|v| half.add(hash(v)));
        whole.merge(&half);
        assert!((whole.estimate() - 100_000).abs() < 5_000, "{}", whole.estimate());
    }

    #[test]
    fn percentiles_are_within_their_error() {
        let (mut left, mut right) = (Buckets::default(), Buckets::default());
        (-500..500).for_each(|v| left.add(f64::from(v)));
        (500..=1_500).for_each(|v| right.add(f64::from(v)));
        left.merge(&right);
        let mut bytes = Vec::new();
        left.encode(&mut bytes);
        let left = Buckets::decode(&mut bytes.as_slice()).unwrap();
        for (rank, value) in [(0.0, -500.0), (0.25, 0.0), (0.5, 500.0), (0.9, 1_300.0), (1.0, 1_500.0)] {
            let found = left.at(rank).unwrap();
            assert!((found - value).abs() <= ERROR * 1.01 * f64::abs(value), "{rank}: {found}");
        }
        assert_eq!(Buckets::default().at(0.5), None);
    }
}

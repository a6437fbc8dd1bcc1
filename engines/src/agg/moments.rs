//! Variance and standard deviation, from exact sums of the values and of their squares.

use std::any::Any;
use std::sync::Arc;

use arrow::array::types::{Float64Type, Int64Type};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::DataType;

use super::exact::Exact;
use super::value::take;
use super::{Accumulator, Rows};
use crate::error::Error;
use crate::plan::Function;

#[derive(Debug, Clone, Default)]
struct Moments {
    count: i64,
    sum: Exact,
    squares: Exact,
}

#[derive(Debug)]
struct Spread {
    sample: bool,
    root: bool,
    groups: Vec<Moments>,
}

pub(super) fn moments(function: &Function, argument: Option<&DataType>) -> Option<Box<dyn Accumulator>> {
    if !matches!(argument?, DataType::Int64 | DataType::Float64) {
        return None;
    }
    let sample = matches!(function, Function::VarSamp | Function::StddevSamp);
    let root = matches!(function, Function::StddevPop | Function::StddevSamp);
    Some(Box::new(Spread { sample, root, groups: vec![] }))
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum.add(value);
        // The square as two doubles: what the first one loses is the second.
        let square = value * value;
        self.squares.add(square);
        if square.is_finite() {
            self.squares.add(value.mul_add(value, -square));
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }

    /// Sum of the squared distances from the mean: Σx² − Σx·(Σx/n), in twice the precision of a double.
    fn spread(&self) -> f64 {
        let n = self.count as f64;
        let (sum, sum_rest) = self.sum.pair();
        let (squares, squares_rest) = self.squares.pair();
        if !sum.is_finite() || squares.is_nan() {
            return f64::NAN;
        }
        if squares.is_infinite() {
            return squares;
        }
        let mean = sum / n;
        let mean_rest = ((-mean).mul_add(n, sum) + sum_rest) / n;
        let product = sum * mean;
        let product_rest = sum.mul_add(mean, -product) + sum * mean_rest + sum_rest * mean;
        (squares - product + (squares_rest - product_rest)).max(0.0)
    }
}

impl Accumulator for Spread {
    fn resize(&mut self, slots: usize) {
        self.groups.resize(slots, Moments::default());
    }

    fn update(&mut self, slots: &[u32], rows: &Rows<'_>) -> Result<(), Error> {
        let Some(array) = rows.args.first() else { return Ok(()) };
        let doubles = array.as_primitive_opt::<Float64Type>();
        let longs = array.as_primitive_opt::<Int64Type>();
        for (row, slot) in slots.iter().enumerate() {
            if !rows.counts(row) || array.is_null(row) {
                continue;
            }
            let value = match (doubles, longs) {
                (Some(values), _) => values.value(row),
                (None, Some(values)) => values.value(row) as f64,
                (None, None) => continue,
            };
            self.groups[*slot as usize].add(value);
        }
        Ok(())
    }

    fn merge(&mut self, to: &[u32], other: &dyn Accumulator, from: &[u32]) {
        let Some(other) = other.any().downcast_ref::<Self>() else { return };
        to.iter().zip(from).for_each(|(to, from)| self.groups[*to as usize].merge(&other.groups[*from as usize]));
    }

    fn fold(&mut self, from: u32, to: u32) {
        let moments = std::mem::take(&mut self.groups[from as usize]);
        self.groups[to as usize].merge(&moments);
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.groups[*slot as usize] = Moments::default());
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let group = &self.groups[slot as usize];
        out.extend_from_slice(&group.count.to_le_bytes());
        group.sum.encode(out);
        group.squares.encode(out);
    }

    fn decode(&mut self, slot: u32, bytes: &mut &[u8]) -> Option<()> {
        let count = i64::from_le_bytes(take(bytes)?);
        let read = Moments { count, sum: Exact::decode(bytes)?, squares: Exact::decode(bytes)? };
        self.groups[slot as usize].count.checked_add(count)?;
        self.groups[slot as usize].merge(&read);
        Some(())
    }

    fn finish(&self, slots: &[u32]) -> Result<ArrayRef, Error> {
        let value = |slot: &u32| {
            let group = &self.groups[*slot as usize];
            let divisor = group.count - i64::from(self.sample);
            (divisor > 0).then(|| {
                let variance = group.spread() / divisor as f64;
                if self.root { variance.sqrt() } else { variance }
            })
        };
        Ok(Arc::new(Float64Array::from_iter(slots.iter().map(value))))
    }

    fn memory(&self) -> usize {
        self.groups.capacity() * size_of::<Moments>()
    }

    fn fresh(&self) -> Box<dyn Accumulator> {
        Box::new(Self { sample: self.sample, root: self.root, groups: vec![] })
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

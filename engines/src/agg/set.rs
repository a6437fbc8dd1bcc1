//! Aggregates that keep their values: DISTINCT, `string_agg`, `array_agg`.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};

use super::exact::Exact;
use super::value::{Value, array_of, decode_length, encode_length, is_kept, take, texts, value_at};
use super::{Accumulator, Rows};
use crate::error::Error;
use crate::plan::{Call, Function};
use crate::read::RecordError;

/// Values of a group.
trait Kept: Default + Clone + Send + Sync + 'static {
    /// Takes up a value, null too, of a row.
    fn put(&mut self, value: Option<Value>, position: u64);
    fn each(&self, visit: &mut dyn FnMut(Option<&Value>, u64));
    fn len(&self) -> usize;
}

/// Every value with the lowest position it has.
#[derive(Debug, Clone, Default)]
struct Distinct(BTreeMap<Option<Value>, u64>);

impl Kept for Distinct {
    fn put(&mut self, value: Option<Value>, position: u64) {
        self.0.entry(value.map(Value::normal)).and_modify(|known| *known = position.min(*known)).or_insert(position);
    }

    fn each(&self, visit: &mut dyn FnMut(Option<&Value>, u64)) {
        self.0.iter().for_each(|(value, position)| visit(value.as_ref(), *position));
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// All values.
#[derive(Debug, Clone, Default)]
struct All(Vec<(u64, Option<Value>)>);

impl Kept for All {
    fn put(&mut self, value: Option<Value>, position: u64) {
        self.0.push((position, value));
    }

    fn each(&self, visit: &mut dyn FnMut(Option<&Value>, u64)) {
        self.0.iter().for_each(|(position, value)| visit(value.as_ref(), *position));
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// What becomes of the values.
#[derive(Debug, Clone)]
enum Outcome {
    Count,
    /// Digits behind the point of an integer sum.
    Sum(i8),
    SumDoubles,
    Average(i8),
    Texts(String),
    List(DataType),
}

struct Sets<K: Kept> {
    outcome: Outcome,
    /// Nulls are values too.
    nulls: bool,
    groups: Vec<K>,
    held: usize,
}

/// DISTINCT of `count`, `sum`, `avg`, `string_agg`, `array_agg`.
pub(super) fn distinct(call: &Call, argument: DataType) -> Option<Box<dyn Accumulator>> {
    Some(Box::new(Sets::<Distinct>::new(outcome(&call.function, argument)?)))
}

/// `string_agg`, `array_agg`.
pub(super) fn list(call: &Call, argument: Option<&DataType>) -> Option<Box<dyn Accumulator>> {
    let argument = argument.filter(|t| is_kept(t))?;
    Some(Box::new(Sets::<All>::new(outcome(&call.function, argument.clone())?)))
}

fn outcome(function: &Function, argument: DataType) -> Option<Outcome> {
    let scale = match &argument {
        DataType::Int64 => Some(0),
        DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    };
    Some(match function {
        Function::Count => Outcome::Count,
        Function::Sum if argument == DataType::Float64 => Outcome::SumDoubles,
        Function::Sum => Outcome::Sum(scale?),
        Function::Avg if argument == DataType::Float64 => Outcome::Average(0),
        Function::Avg => Outcome::Average(scale?),
        Function::StringAgg(separator) if matches!(argument, DataType::Dictionary(..)) => {
            Outcome::Texts(separator.clone())
        }
        Function::ArrayAgg => Outcome::List(argument),
        _ => return None,
    })
}

impl<K: Kept> Sets<K> {
    fn new(outcome: Outcome) -> Self {
        let nulls = matches!(outcome, Outcome::List(_));
        Self { outcome, nulls, groups: vec![], held: 0 }
    }

    fn put(&mut self, slot: u32, value: Option<Value>, position: u64) {
        let group = &mut self.groups[slot as usize];
        let before = group.len();
        let bytes = bytes_of(value.as_ref());
        group.put(value, position);
        if group.len() > before {
            self.held += bytes;
        }
    }

    fn take(&mut self, slot: u32) -> K {
        let group = std::mem::take(&mut self.groups[slot as usize]);
        group.each(&mut |value, _| self.held -= bytes_of(value));
        group
    }

    /// Values in the order of their positions.
    fn ordered(&self, slot: u32) -> Vec<Option<Value>> {
        let mut list = Vec::with_capacity(self.groups[slot as usize].len());
        self.groups[slot as usize].each(&mut |value, position| list.push((position, value.cloned())));
        // Rows of one record share a position; they came in order.
        list.sort_by_key(|(position, _)| *position);
        list.into_iter().map(|(_, value)| value).collect()
    }

    fn integers(&self, slot: u32) -> Option<i128> {
        let mut sum = Some(0_i128);
        self.groups[slot as usize].each(&mut |value, _| {
            let term = match value {
                Some(Value::Long(v)) => i128::from(*v),
                Some(Value::Decimal(v)) => *v,
                _ => 0,
            };
            sum = sum.and_then(|sum| sum.checked_add(term));
        });
        sum
    }

    fn doubles(&self, slot: u32) -> Exact {
        let mut sum = Exact::default();
        self.groups[slot as usize].each(&mut |value, _| {
            if let Some(Value::Double(v)) = value {
                sum.add(*v);
            }
        });
        sum
    }

    fn average(&self, slot: u32, scale: i8) -> Option<f64> {
        let count = self.groups[slot as usize].len();
        if count == 0 {
            return None;
        }
        let whole = self.integers(slot)? as f64 / 10_f64.powi(i32::from(scale));
        let doubles = self.doubles(slot).value();
        Some((if whole == 0.0 { doubles } else { whole }) / count as f64)
    }

    fn lists(&self, slots: &[u32], item: &DataType) -> ArrayRef {
        let (mut values, mut lengths) = (Vec::new(), Vec::with_capacity(slots.len()));
        for slot in slots {
            let own = self.ordered(*slot);
            lengths.push(own.len());
            values.extend(own);
        }
        let items = array_of(item, values.iter().map(Option::as_ref));
        let there = NullBuffer::from_iter(lengths.iter().map(|length| *length > 0));
        let offsets = OffsetBuffer::from_lengths(lengths);
        Arc::new(ListArray::new(Field::new("item", item.clone(), true).into(), offsets, items, Some(there)))
    }
}

/// Bytes that a value takes in a group, about.
fn bytes_of(value: Option<&Value>) -> usize {
    size_of::<(Option<Value>, u64)>() + value.map_or(0, Value::heap)
}

fn out_of_range() -> Error {
    Error::Row(RecordError::Eval { code: "OUT_OF_RANGE", reason: "a sum has more than 38 digits".into() })
}

impl<K: Kept> Accumulator for Sets<K> {
    fn resize(&mut self, slots: usize) {
        self.groups.resize(slots, K::default());
    }

    fn update(&mut self, slots: &[u32], rows: &Rows<'_>) -> Result<(), Error> {
        let Some(array) = rows.args.first() else { return Ok(()) };
        for (row, slot) in slots.iter().enumerate().filter(|(row, _)| rows.counts(*row)) {
            let value = value_at(array, row);
            if value.is_some() || self.nulls {
                self.put(*slot, value, rows.position(row));
            }
        }
        Ok(())
    }

    fn merge(&mut self, to: &[u32], other: &dyn Accumulator, from: &[u32]) {
        let Some(other) = other.any().downcast_ref::<Self>() else { return };
        for (to, from) in to.iter().zip(from) {
            other.groups[*from as usize].each(&mut |value, position| self.put(*to, value.cloned(), position));
        }
    }

    fn fold(&mut self, from: u32, to: u32) {
        let group = self.take(from);
        group.each(&mut |value, position| self.put(to, value.cloned(), position));
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| drop(self.take(*slot)));
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let group = &self.groups[slot as usize];
        encode_length(group.len(), out);
        group.each(&mut |value, position| {
            out.extend_from_slice(&position.to_le_bytes());
            out.push(u8::from(value.is_some()));
            value.into_iter().for_each(|value| value.encode(out));
        });
    }

    fn decode(&mut self, slot: u32, bytes: &mut &[u8]) -> Option<()> {
        for _ in 0..decode_length(bytes)? {
            let position = u64::from_le_bytes(take(bytes)?);
            let value = if take::<1>(bytes)? == [0] { None } else { Some(Value::decode(bytes)?) };
            self.put(slot, value, position);
        }
        Some(())
    }

    fn finish(&self, slots: &[u32]) -> Result<ArrayRef, Error> {
        let empty = |slot: &u32| self.groups[*slot as usize].len() == 0;
        Ok(match &self.outcome {
            Outcome::Count => Arc::new(Int64Array::from_iter_values(
                slots.iter().map(|slot| self.groups[*slot as usize].len() as i64),
            )),
            Outcome::Sum(scale) => {
                let mut sums = Vec::with_capacity(slots.len());
                for slot in slots {
                    let sum = self.integers(*slot).filter(|sum| sum.unsigned_abs() < 10_u128.pow(38));
                    sums.push(if empty(slot) { None } else { Some(sum.ok_or_else(out_of_range)?) });
                }
                let sums = Decimal128Array::from_iter(sums).with_precision_and_scale(38, *scale);
                Arc::new(sums.map_err(|_| out_of_range())?)
            }
            Outcome::SumDoubles => {
                let sum = |slot: &u32| (!empty(slot)).then(|| self.doubles(*slot).value());
                Arc::new(Float64Array::from_iter(slots.iter().map(sum)))
            }
            Outcome::Average(scale) => {
                Arc::new(Float64Array::from_iter(slots.iter().map(|slot| self.average(*slot, *scale))))
            }
            Outcome::Texts(separator) => {
                let joined: Vec<Option<String>> = slots
                    .iter()
                    .map(|slot| {
                        let parts = self.ordered(*slot);
                        let parts: Vec<&str> = parts
                            .iter()
                            .filter_map(|part| match part {
                                Some(Value::Text(text)) => Some(&**text),
                                _ => None,
                            })
                            .collect();
                        (!parts.is_empty()).then(|| parts.join(separator))
                    })
                    .collect();
                Arc::new(texts(joined.iter().map(Option::as_deref)))
            }
            Outcome::List(item) => self.lists(slots, item),
        })
    }

    fn memory(&self) -> usize {
        self.groups.capacity() * size_of::<K>() + self.held
    }

    fn fresh(&self) -> Box<dyn Accumulator> {
        Box::new(Self::new(self.outcome.clone()))
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

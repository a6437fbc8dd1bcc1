//! `min`, `max`, `bool_and`, `bool_or`: the smallest or largest value.

use std::any::Any;
use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, Float64Array, Int64Array, TimestampMicrosecondArray,
};
use arrow::datatypes::DataType;

use super::value::{Value, array_of, is_kept, take, value_at};
use super::{Accumulator, Rows};
use crate::error::Error;

pub(super) fn extreme(argument: Option<&DataType>, largest: bool) -> Option<Box<dyn Accumulator>> {
    let argument = argument?;
    match argument {
        DataType::Int64 | DataType::Float64 | DataType::Timestamp(..) | DataType::Boolean if is_kept(argument) => {
            Some(Box::new(Numbers { data_type: argument.clone(), largest, best: vec![], seen: vec![] }))
        }
        other if is_kept(other) => Some(Box::new(Values { data_type: other.clone(), largest, best: vec![], heap: 0 })),
        _ => None,
    }
}

/// All true is the smallest being true; one true is the largest being true.
pub(super) fn boolean(argument: Option<&DataType>, or: bool) -> Option<Box<dyn Accumulator>> {
    (argument? == &DataType::Boolean).then(|| extreme(argument, or)).flatten()
}

/// Extremes of types that order like integers of 64 bits.
#[derive(Debug)]
struct Numbers {
    data_type: DataType,
    largest: bool,
    best: Vec<i64>,
    seen: Vec<bool>,
}

/// Doubles as integers of the same total order; NaN, of either sign, is the largest.
fn ordered(value: f64) -> i64 {
    let value = if value.is_nan() { f64::NAN } else { value };
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

fn unordered(key: i64) -> f64 {
    f64::from_bits((key ^ ((key >> 63).cast_unsigned() >> 1).cast_signed()).cast_unsigned())
}

impl Numbers {
    #[inline]
    fn offer(&mut self, slot: u32, value: i64) {
        let slot = slot as usize;
        let best = &mut self.best[slot];
        if !self.seen[slot] || (value > *best) == self.largest && value != *best {
            *best = value;
            self.seen[slot] = true;
        }
    }

    fn offer_all(&mut self, slots: &[u32], rows: &Rows<'_>, array: &dyn Array, value: impl Fn(usize) -> i64) {
        let all = rows.keep.is_none() && array.null_count() == 0;
        for (row, slot) in slots.iter().enumerate() {
            if all || (rows.counts(row) && array.is_valid(row)) {
                self.offer(*slot, value(row));
            }
        }
    }
}

impl Accumulator for Numbers {
    fn resize(&mut self, slots: usize) {
        self.best.resize(slots, 0);
        self.seen.resize(slots, false);
    }

    fn update(&mut self, slots: &[u32], rows: &Rows<'_>) -> Result<(), Error> {
        let Some(array) = rows.args.first() else { return Ok(()) };
        if let Some(values) = array.as_primitive_opt::<Int64Type>() {
            self.offer_all(slots, rows, array, |row| values.values()[row]);
        } else if let Some(values) = array.as_primitive_opt::<TimestampMicrosecondType>() {
            self.offer_all(slots, rows, array, |row| values.values()[row]);
        } else if let Some(values) = array.as_primitive_opt::<Float64Type>() {
            self.offer_all(slots, rows, array, |row| ordered(values.values()[row]));
        } else if let Some(values) = array.as_boolean_opt() {
            self.offer_all(slots, rows, array, |row| i64::from(values.value(row)));
        }
        Ok(())
    }

    fn merge(&mut self, to: &[u32], other: &dyn Accumulator, from: &[u32]) {
        let Some(other) = other.any().downcast_ref::<Self>() else { return };
        for (to, from) in to.iter().zip(from) {
            if other.seen[*from as usize] {
                self.offer(*to, other.best[*from as usize]);
            }
        }
    }

    fn fold(&mut self, from: u32, to: u32) {
        if std::mem::take(&mut self.seen[from as usize]) {
            self.offer(to, self.best[from as usize]);
        }
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.seen[*slot as usize] = false);
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        out.push(u8::from(self.seen[slot as usize]));
        out.extend_from_slice(&self.best[slot as usize].to_le_bytes());
    }

    fn decode(&mut self, slot: u32, bytes: &mut &[u8]) -> Option<()> {
        let [seen] = take(bytes)?;
        let best = i64::from_le_bytes(take(bytes)?);
        if seen != 0 {
            self.offer(slot, best);
        }
        Some(())
    }

    fn finish(&self, slots: &[u32]) -> Result<ArrayRef, Error> {
        let best = slots.iter().map(|slot| self.seen[*slot as usize].then(|| self.best[*slot as usize]));
        Ok(match &self.data_type {
            DataType::Float64 => Arc::new(Float64Array::from_iter(best.map(|b| b.map(unordered)))),
            DataType::Boolean => Arc::new(BooleanArray::from_iter(best.map(|b| b.map(|b| b != 0)))),
            DataType::Timestamp(..) => Arc::new(TimestampMicrosecondArray::from_iter(best)),
            _ => Arc::new(Int64Array::from_iter(best)),
        })
    }

    fn memory(&self) -> usize {
        self.best.capacity() * size_of::<i64>() + self.seen.capacity()
    }

    fn fresh(&self) -> Box<dyn Accumulator> {
        Box::new(Self { data_type: self.data_type.clone(), largest: self.largest, best: vec![], seen: vec![] })
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

/// Extremes of texts and of what else is kept as it is.
#[derive(Debug)]
struct Values {
    data_type: DataType,
    largest: bool,
    best: Vec<Option<Value>>,
    /// Bytes beside the values themselves.
    heap: usize,
}

impl Values {
    fn offer(&mut self, slot: u32, value: Value) {
        let best = &mut self.best[slot as usize];
        let wanted = if self.largest { Ordering::Greater } else { Ordering::Less };
        if best.as_ref().is_none_or(|best| value.cmp(best) == wanted) {
            self.heap += value.heap();
            self.heap -= best.replace(value).map_or(0, |old| old.heap());
        }
    }

    fn take(&mut self, slot: u32) -> Option<Value> {
        let value = self.best[slot as usize].take();
        self.heap -= value.as_ref().map_or(0, Value::heap);
        value
    }

    /// Texts become values only when they are better than what is known.
    fn offer_texts(&mut self, slots: &[u32], rows: &Rows<'_>, texts: &DictionaryArray<Int32Type>) {
        let Some(values) = texts.values().as_string_opt::<i32>() else { return };
        for (row, slot) in slots.iter().enumerate() {
            if !rows.counts(row) || texts.is_null(row) {
                continue;
            }
            let text = values.value(texts.keys().value(row).cast_unsigned() as usize);
            let better = match &self.best[*slot as usize] {
                Some(Value::Text(best)) => (text > &**best) == self.largest && text != &**best,
                _ => true,
            };
            if better {
                self.offer(*slot, Value::Text(text.into()));
            }
        }
    }
}

impl Accumulator for Values {
    fn resize(&mut self, slots: usize) {
        self.best.resize(slots, None);
    }

    fn update(&mut self, slots: &[u32], rows: &Rows<'_>) -> Result<(), Error> {
        let Some(array) = rows.args.first() else { return Ok(()) };
        if let Some(texts) = array.as_dictionary_opt::<Int32Type>() {
            self.offer_texts(slots, rows, texts);
            return Ok(());
        }
        for (row, slot) in slots.iter().enumerate().filter(|(row, _)| rows.counts(*row)) {
            if let Some(value) = value_at(array, row) {
                self.offer(*slot, value);
            }
        }
        Ok(())
    }

    fn merge(&mut self, to: &[u32], other: &dyn Accumulator, from: &[u32]) {
        let Some(other) = other.any().downcast_ref::<Self>() else { return };
        for (to, from) in to.iter().zip(from) {
            if let Some(value) = &other.best[*from as usize] {
                self.offer(*to, value.clone());
            }
        }
    }

    fn fold(&mut self, from: u32, to: u32) {
        if let Some(value) = self.take(from) {
            self.offer(to, value);
        }
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| drop(self.take(*slot)));
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let best = &self.best[slot as usize];
        out.push(u8::from(best.is_some()));
        best.iter().for_each(|value| value.encode(out));
    }

    fn decode(&mut self, slot: u32, bytes: &mut &[u8]) -> Option<()> {
        if take::<1>(bytes)? != [0] {
            self.offer(slot, Value::decode(bytes)?);
        }
        Some(())
    }

    fn finish(&self, slots: &[u32]) -> Result<ArrayRef, Error> {
        Ok(array_of(&self.data_type, slots.iter().map(|slot| self.best[*slot as usize].as_ref())))
    }

    fn memory(&self) -> usize {
        self.best.capacity() * size_of::<Option<Value>>() + self.heap
    }

    fn fresh(&self) -> Box<dyn Accumulator> {
        Box::new(Self { data_type: self.data_type.clone(), largest: self.largest, best: vec![], heap: 0 })
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn doubles_order_like_their_keys(a in any::<f64>(), b in any::<f64>()) {
            let one_nan = |v: f64| if v.is_nan() { f64::NAN } else { v };
            prop_assert_eq!(ordered(a).cmp(&ordered(b)), one_nan(a).total_cmp(&one_nan(b)));
            prop_assert_eq!(unordered(ordered(a)).to_bits(), one_nan(a).to_bits());
        }
    }
}

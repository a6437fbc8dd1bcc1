//! `count`.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array};

use super::value::take;
use super::{Accumulator, Rows};
use crate::error::Error;

#[derive(Debug, Default)]
pub(super) struct Count(Vec<i64>);

impl Accumulator for Count {
    fn resize(&mut self, slots: usize) {
        self.0.resize(slots, 0);
    }

    fn update(&mut self, slots: &[u32], rows: &Rows<'_>) -> Result<(), Error> {
        let nulls = rows.args.first().and_then(|array| array.logical_nulls()).filter(|nulls| nulls.null_count() > 0);
        if nulls.is_none() && rows.keep.is_none() {
            slots.iter().for_each(|slot| self.0[*slot as usize] += 1);
            return Ok(());
        }
        for (row, slot) in slots.iter().enumerate() {
            let counts = rows.counts(row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            self.0[*slot as usize] += i64::from(counts);
        }
        Ok(())
    }

    fn merge(&mut self, to: &[u32], other: &dyn Accumulator, from: &[u32]) {
        let Some(other) = other.any().downcast_ref::<Self>() else { return };
        to.iter().zip(from).for_each(|(to, from)| self.0[*to as usize] += other.0[*from as usize]);
    }

    fn fold(&mut self, from: u32, to: u32) {
        self.0[to as usize] += std::mem::take(&mut self.0[from as usize]);
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.0[*slot as usize] = 0);
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0[slot as usize].to_le_bytes());
    }

    fn decode(&mut self, slot: u32, bytes: &mut &[u8]) -> Option<()> {
        let own = &mut self.0[slot as usize];
        *own = own.checked_add(i64::from_le_bytes(take(bytes)?))?;
        Some(())
    }

    fn finish(&self, slots: &[u32]) -> Result<ArrayRef, Error> {
        Ok(Arc::new(Int64Array::from_iter_values(slots.iter().map(|slot| self.0[*slot as usize]))))
    }

    fn memory(&self) -> usize {
        self.0.capacity() * size_of::<i64>()
    }

    fn fresh(&self) -> Box<dyn Accumulator> {
        Box::<Self>::default()
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

//! `first`, `last`, `any_value`, `arg_min`, `arg_max`: the value of one row.

use std::any::Any;
use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

use super::value::{Value, array_of, is_kept, take, value_at};
use super::{Accumulator, Rows};
use crate::error::Error;
use crate::plan::Function;

/// Which row is picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    First,
    Last,
    /// The first that is not null.
    Any,
    Smallest,
    Largest,
}

/// A row that is the best so far.
#[derive(Debug, Clone)]
struct Picked {
    by: Option<Value>,
    position: u64,
    value: Option<Value>,
}

#[derive(Debug)]
struct Pick {
    which: Which,
    data_type: DataType,
    best: Vec<Option<Picked>>,
    /// Bytes beside the rows themselves.
    heap: usize,
}

pub(super) fn pick(
    function: &Function,
    argument: Option<&DataType>,
    by: Option<&DataType>,
) -> Option<Box<dyn Accumulator>> {
    let which = match function {
        Function::First => Which::First,
        Function::Last => Which::Last,
        Function::ArgMin => Which::Smallest,
        Function::ArgMax => Which::Largest,
        _ => Which::Any,
    };
    let data_type = argument.filter(|t| is_kept(t))?.clone();
    if matches!(which, Which::Smallest | Which::Largest) && !by.is_some_and(is_kept) {
        return None;
    }
    Some(Box::new(Pick { which, data_type, best: vec![], heap: 0 }))
}

impl Picked {
    fn heap(&self) -> usize {
        self.by.iter().chain(&self.value).map(Value::heap).sum()
    }
}

impl Pick {
    /// Whether a row is better than the best so far.
    fn is_better(&self, slot: u32, by: Option<&Value>, position: u64) -> bool {
        let Some(best) = &self.best[slot as usize] else { return true };
        let earlier = position < best.position;
        match self.which {
            Which::First | Which::Any => earlier,
            // Rows of one record follow each other: the later of them counts.
            Which::Last => position >= best.position,
            Which::Smallest => by.cmp(&best.by.as_ref()).then(position.cmp(&best.position)) == Ordering::Less,
            Which::Largest => best.by.as_ref().cmp(&by).then(position.cmp(&best.position)) == Ordering::Less,
        }
    }

    fn offer(&mut self, slot: u32, row: Picked) {
        if self.is_better(slot, row.by.as_ref(), row.position) {
            self.heap += row.heap();
            self.heap -= self.best[slot as usize].replace(row).map_or(0, |old| old.heap());
        }
    }

    fn take(&mut self, slot: u32) -> Option<Picked> {
        let row = self.best[slot as usize].take();
        self.heap -= row.as_ref().map_or(0, Picked::heap);
        row
    }
}

impl Accumulator for Pick {
    fn resize(&mut self, slots: usize) {
        self.best.resize(slots, None);
    }

    fn update(&mut self, slots: &[u32], rows: &Rows<'_>) -> Result<(), Error> {
        let Some(array) = rows.args.first() else { return Ok(()) };
        let by = rows.args.get(1);
        for (row, slot) in slots.iter().enumerate().filter(|(row, _)| rows.counts(*row)) {
            let by = by.map(|by| value_at(by, row));
            // What orders must be there; only first and last take a null.
            let takes_null = matches!(self.which, Which::First | Which::Last);
            if by == Some(None) || (!takes_null && array.is_null(row)) {
                continue;
            }
            let (by, position) = (by.flatten(), rows.position(row));
            if self.is_better(*slot, by.as_ref(), position) {
                self.offer(*slot, Picked { by, position, value: value_at(array, row) });
            }
        }
        Ok(())
    }

    fn merge(&mut self, to: &[u32], other: &dyn Accumulator, from: &[u32]) {
        let Some(other) = other.any().downcast_ref::<Self>() else { return };
        for (to, from) in to.iter().zip(from) {
            if let Some(row) = &other.best[*from as usize] {
                self.offer(*to, row.clone());
            }
        }
    }

    fn fold(&mut self, from: u32, to: u32) {
        if let Some(row) = self.take(from) {
            self.offer(to, row);
        }
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| drop(self.take(*slot)));
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let Some(row) = &self.best[slot as usize] else {
            out.push(0);
            return;
        };
        out.push(1 | u8::from(row.by.is_some()) << 1 | u8::from(row.value.is_some()) << 2);
        out.extend_from_slice(&row.position.to_le_bytes());
        row.by.iter().chain(&row.value).for_each(|value| value.encode(out));
    }

    fn decode(&mut self, slot: u32, bytes: &mut &[u8]) -> Option<()> {
        let [flags] = take(bytes)?;
        if flags & 1 == 0 {
            return Some(());
        }
        let position = u64::from_le_bytes(take(bytes)?);
        let by = if flags & 2 != 0 { Some(Value::decode(bytes)?) } else { None };
        let value = if flags & 4 != 0 { Some(Value::decode(bytes)?) } else { None };
        self.offer(slot, Picked { by, position, value });
        Some(())
    }

    fn finish(&self, slots: &[u32]) -> Result<ArrayRef, Error> {
        let value = |slot: &u32| self.best[*slot as usize].as_ref().and_then(|row| row.value.as_ref());
        Ok(array_of(&self.data_type, slots.iter().map(value)))
    }

    fn memory(&self) -> usize {
        self.best.capacity() * size_of::<Option<Picked>>() + self.heap
    }

    fn fresh(&self) -> Box<dyn Accumulator> {
        Box::new(Self { which: self.which, data_type: self.data_type.clone(), best: vec![], heap: 0 })
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

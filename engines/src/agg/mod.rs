//! Aggregates: accumulators of many groups side by side.
//!
//! An [`Accumulators`] holds the state of every aggregate of a grouping for a number of slots; a slot is one group. What an
//! accumulator holds never depends on the order of updates and merges, so any number of workers gives the same result.

use std::any::Any;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;

use crate::error::Error;
use crate::plan::{Aggregate, Call, Function};
use crate::sql::SqlError;

mod count;
mod exact;
mod extreme;
mod moments;
mod pick;
mod set;
mod sketch;
mod sum;
mod value;

/// The accumulators of one aggregate.
pub(crate) trait Accumulator: Send + Sync {
    /// Makes room for slots up to, not including, `slots`; new ones are empty.
    fn resize(&mut self, slots: usize);

    /// Takes up rows: `slots[i]` is the slot of row `i`. Rows that the filter leaves out have been taken out of `rows.keep`.
    ///
    /// # Errors
    /// A value is out of range.
    fn update(&mut self, slots: &[u32], rows: &Rows<'_>) -> Result<(), Error>;

    /// Takes up slots `from` of another accumulator of the same aggregate into slots `to`.
    fn merge(&mut self, to: &[u32], other: &dyn Accumulator, from: &[u32]);

    /// Takes one slot up into another; the first is empty after it.
    fn fold(&mut self, from: u32, to: u32);

    /// Empties slots.
    fn clear(&mut self, slots: &[u32]);

    /// Appends the state of a slot.
    fn encode(&self, slot: u32, out: &mut Vec<u8>);

    /// Takes up an encoded state; `None` when it is none.
    fn decode(&mut self, slot: u32, bytes: &mut &[u8]) -> Option<()>;

    /// The results of slots.
    ///
    /// # Errors
    /// A result is out of range.
    fn finish(&self, slots: &[u32]) -> Result<ArrayRef, Error>;

    /// Bytes it holds, about.
    fn memory(&self) -> usize;

    /// An empty one of the same kind.
    fn fresh(&self) -> Box<dyn Accumulator>;

    /// Itself, to be told from others.
    fn any(&self) -> &dyn Any;
}

/// Rows of one batch as one aggregate sees them.
pub(crate) struct Rows<'a> {
    /// Its arguments.
    pub(crate) args: Vec<&'a ArrayRef>,
    /// The rows that count; `None`: all.
    pub(crate) keep: Option<&'a BooleanArray>,
    /// Positions of the rows, where the aggregate needs them.
    pub(crate) positions: &'a [u64],
}

impl Rows<'_> {
    /// Whether a row counts.
    #[inline]
    pub(crate) fn counts(&self, row: usize) -> bool {
        self.keep.is_none_or(|keep| keep.value(row) && keep.is_valid(row))
    }

    /// Position of a row.
    #[inline]
    pub(crate) fn position(&self, row: usize) -> u64 {
        self.positions.get(row).copied().unwrap_or(0)
    }
}

/// State of all aggregates of a grouping.
pub(crate) struct Accumulators {
    calls: Vec<Call>,
    each: Vec<Box<dyn Accumulator>>,
    position: Option<usize>,
    slots: usize,
}

impl Accumulators {
    /// Empty ones for rows of `input`.
    ///
    /// # Errors
    /// An aggregate is not there for the type of its argument.
    pub(crate) fn new(aggregate: &Aggregate, input: &[DataType]) -> Result<Self, Error> {
        let each = aggregate.calls.iter().map(|call| accumulator(call, input)).collect::<Result<_, _>>()?;
        Ok(Self { calls: aggregate.calls.clone(), each, position: aggregate.position, slots: 0 })
    }

    /// Empty ones of the same kind.
    pub(crate) fn fresh(&self) -> Self {
        let each = self.each.iter().map(|one| one.fresh()).collect();
        Self { calls: self.calls.clone(), each, position: self.position, slots: 0 }
    }

    /// Makes room for slots.
    pub(crate) fn resize(&mut self, slots: usize) {
        if slots > self.slots {
            self.slots = slots;
            self.each.iter_mut().for_each(|one| one.resize(slots));
        }
    }

    /// Takes up the rows of a batch; `slots[i]` is the slot of row `i`.
    ///
    /// # Errors
    /// A value is out of range.
    pub(crate) fn update(&mut self, slots: &[u32], batch: &RecordBatch) -> Result<(), Error> {
        let positions = self.position.and_then(|column| {
            batch.column(column).as_primitive_opt::<arrow::array::types::UInt64Type>().map(|p| p.values().as_ref())
        });
        for (call, one) in self.calls.iter().zip(&mut self.each) {
            let args = call.args.iter().map(|column| batch.column(*column)).collect();
            let keep = call.filter.and_then(|column| batch.column(column).as_boolean_opt());
            one.update(slots, &Rows { args, keep, positions: positions.unwrap_or(&[]) })?;
        }
        Ok(())
    }

    /// Takes up slots of others.
    pub(crate) fn merge(&mut self, to: &[u32], other: &Self, from: &[u32]) {
        for (own, other) in self.each.iter_mut().zip(&other.each) {
            own.merge(to, other.as_ref(), from);
        }
    }

    /// Takes one slot up into another.
    pub(crate) fn fold(&mut self, from: u32, to: u32) {
        self.each.iter_mut().for_each(|one| one.fold(from, to));
    }

    /// Empties slots.
    pub(crate) fn clear(&mut self, slots: &[u32]) {
        self.each.iter_mut().for_each(|one| one.clear(slots));
    }

    /// Appends the state of a slot.
    pub(crate) fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        self.each.iter().for_each(|one| one.encode(slot, out));
    }

    /// Takes up an encoded state; `None` when it is none.
    pub(crate) fn decode(&mut self, slot: u32, mut bytes: &[u8]) -> Option<()> {
        for one in &mut self.each {
            one.decode(slot, &mut bytes)?;
        }
        bytes.is_empty().then_some(())
    }

    /// The results of slots, a column for each aggregate.
    ///
    /// # Errors
    /// A result is out of range.
    pub(crate) fn finish(&self, slots: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        self.each.iter().map(|one| one.finish(slots)).collect()
    }

    /// Bytes held, about.
    pub(crate) fn memory(&self) -> usize {
        self.each.iter().map(|one| one.memory()).sum()
    }
}

/// Types of the columns of a schema.
pub(crate) fn types_of(schema: &SchemaRef) -> Vec<DataType> {
    schema.fields().iter().map(|field| field.data_type().clone()).collect()
}

fn accumulator(call: &Call, input: &[DataType]) -> Result<Box<dyn Accumulator>, Error> {
    let of = |index: usize| call.args.get(index).and_then(|column| input.get(*column));
    let refused = || {
        let data_type = of(0).map_or_else(|| "nothing".to_owned(), ToString::to_string);
        let reason = format!("{} of {data_type} is not supported", call.function.name());
        Error::from(SqlError::Type { reason, hint: "CAST the argument to BIGINT, DOUBLE, VARCHAR or TIMESTAMP".into() })
    };
    let argument = of(0).cloned();
    if call.distinct {
        let argument = argument.filter(value::is_kept).ok_or_else(refused)?;
        return set::distinct(call, argument).ok_or_else(refused);
    }
    let made: Option<Box<dyn Accumulator>> = match &call.function {
        Function::Count => Some(Box::new(count::Count::default())),
        Function::Sum => sum::sum(argument.as_ref()),
        Function::Avg => sum::average(argument.as_ref()),
        Function::Min => extreme::extreme(argument.as_ref(), false),
        Function::Max => extreme::extreme(argument.as_ref(), true),
        Function::First | Function::Last | Function::AnyValue | Function::ArgMin | Function::ArgMax => {
            pick::pick(&call.function, argument.as_ref(), of(1))
        }
        Function::VarPop | Function::VarSamp | Function::StddevPop | Function::StddevSamp => {
            moments::moments(&call.function, argument.as_ref())
        }
        Function::BoolAnd => extreme::boolean(argument.as_ref(), false),
        Function::BoolOr => extreme::boolean(argument.as_ref(), true),
        Function::ApproxDistinct => sketch::distinct(argument.as_ref()),
        Function::ApproxPercentile(rank) => sketch::percentile(argument.as_ref(), *rank),
        Function::StringAgg(_) | Function::ArrayAgg => set::list(call, argument.as_ref()),
    };
    made.ok_or_else(refused)
}

impl Function {
    /// Its name in SQL.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::First => "first",
            Self::Last => "last",
            Self::AnyValue => "any_value",
            Self::ArgMin => "arg_min",
            Self::ArgMax => "arg_max",
            Self::VarPop => "var_pop",
            Self::VarSamp => "var_samp",
            Self::StddevPop => "stddev_pop",
            Self::StddevSamp => "stddev_samp",
            Self::BoolAnd => "bool_and",
            Self::BoolOr => "bool_or",
            Self::ApproxDistinct => "approx_distinct",
            Self::ApproxPercentile(_) => "approx_percentile",
            Self::StringAgg(_) => "string_agg",
            Self::ArrayAgg => "array_agg",
        }
    }
}

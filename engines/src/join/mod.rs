//! Joins: with a table that is held whole, and of two streams within a distance of time.

mod band;
mod interval;
mod lookup;
mod run;
mod side;

pub use interval::IntervalJoin;
pub use lookup::LookupTable;

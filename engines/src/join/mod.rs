//! Joins: of two streams whose rows lie close in time, and of a stream with a table.

mod gather;
mod interval;
mod lookup;
mod matching;
mod rows;
mod shard;
mod stored;
#[cfg(test)]
mod tests;

pub use interval::IntervalJoin;
pub use lookup::LookupTable;

use crate::error::Error;

/// What cannot happen with a plan that fits its rows.
fn bug(error: impl std::fmt::Display) -> Error {
    Error::source(format!("rows cannot be joined: {error}"), "report this as a bug")
}

//! Weir's data and rules: records, descriptors, environments, flags, statistics and the append-only archive.
//!
//! Pure values and functions. Nothing here touches the network, starts a process or reads a clock.

#[macro_use]
mod words;

pub mod archive;
pub mod binding;
pub mod comparability;
pub mod descriptor;
pub mod diagnostic;
pub mod digest;
mod document;
pub mod environment;
pub mod error;
pub mod flag;
pub mod id;
pub mod metric;
pub mod record;
pub mod retract;
pub mod schema;
pub mod staleness;
pub mod stats;
pub mod status;
pub mod summary;
pub mod units;

pub use words::UnknownWord;

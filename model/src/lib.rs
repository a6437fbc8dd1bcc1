//! Weir's data and rules: records, descriptors, environments, flags, statistics and the append-only archive.
//!
//! Pure values and functions. Nothing here touches the network, starts a process or reads a clock.

pub mod error;

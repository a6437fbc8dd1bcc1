//! ClickHouse over its HTTP interface.

pub mod config;
pub mod sink;

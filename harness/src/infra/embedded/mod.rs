//! The infrastructure without containers: child processes of the harness, bound to loopback.

pub mod broker;
pub mod clickhouse;
pub mod registry;

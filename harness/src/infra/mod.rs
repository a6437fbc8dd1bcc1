//! The infrastructure an arm runs against: broker, schema registry, ClickHouse.

pub mod broker;
pub mod clickhouse;
pub mod container;
pub mod embedded;
pub mod registry;

//! The infrastructure an arm runs against: broker, schema registry, ClickHouse.

pub mod clickhouse;
pub mod embedded;

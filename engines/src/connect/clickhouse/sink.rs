//! ClickHouse as a sink.

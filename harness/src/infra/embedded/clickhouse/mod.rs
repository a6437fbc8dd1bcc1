//! The ClickHouse engine from `libchdb.so`, served over the HTTP interface of ClickHouse.

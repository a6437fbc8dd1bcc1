//! Record formats: payload bytes to Arrow columns.

pub mod avro;
pub mod csv;
mod grown;
pub mod json;
pub mod parquet;
pub mod timestamp;

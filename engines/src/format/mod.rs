//! Record formats: payload bytes to Arrow columns.

pub mod avro;
pub mod json;
pub mod timestamp;

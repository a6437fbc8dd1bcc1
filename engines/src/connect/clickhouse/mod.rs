//! ClickHouse tables, written over its HTTP interface.
//!
//! `table` reads what the table is and maps the query's columns to it; `column` converts Arrow columns to ClickHouse's
//! own bytes; `block` collects them, as a Native block or as RowBinary rows; `sink` sends blocks over connections of
//! `http` and reports each one that ClickHouse has acknowledged.

mod block;
mod column;
pub mod config;
mod dictionary;
pub mod flow;
mod http;
mod order;
mod row;
pub mod sink;
mod table;
mod types;

pub(crate) use http::base64;

//! Freshet: a streaming SQL engine in one process.
//!
//! A query is compiled against the schema of its source ([`sql::Query`]); what it reads becomes a [`read::ReadPlan`]; a
//! [`read::Decoder`] turns records into flat Arrow batches; a [`sql::Transform`] filters and projects them; a sink writes
//! them. [`run`] joins these for files and for Kafka.

mod agg;
pub mod cli;
pub mod connect;
pub mod error;
pub mod flow;
pub mod format;
pub mod join;
pub mod plan;
pub mod read;
pub mod registry;
pub mod run;
pub mod sql;
pub mod state;
pub mod window;

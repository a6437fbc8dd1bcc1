//! State: group keys, runs of entries in files, checkpoints.

pub mod checkpoint;
pub(crate) mod keys;
mod mapper;
pub mod run;

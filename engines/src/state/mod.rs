//! State: group keys, runs of entries in files, checkpoints.

pub mod checkpoint;
pub mod run;

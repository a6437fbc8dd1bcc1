//! The measuring loop of Weir: plan, prepare, measure, judge, append.
//!
//! Folders are the nouns of that loop. Only this crate talks to the world; what it decides is decided in
//! [`plan`] and [`verdict`], which are pure.

pub mod build;
pub mod cgroup;
pub mod cmd;
pub mod doctor;
pub mod infra;
pub mod measure;
pub mod plan;
pub mod runtime;
pub mod setup;
pub mod sitting;
pub mod verdict;
pub mod workload;

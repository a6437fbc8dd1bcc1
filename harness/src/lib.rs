//! The measuring loop of Weir: plan, prepare, measure, judge, append.
//!
//! Folders are the nouns of that loop. Only this crate talks to the world; what it decides is decided in
//! [`plan`] and [`verdict`], which are pure.

/// A line on standard output; a reader that has gone is no error.
macro_rules! say {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($what)*);
    }};
}

/// As [`say`], without ending the line.
macro_rules! say_on {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stdout(), $($what)*);
    }};
}

pub mod build;
pub mod cgroup;
pub mod cmd;
pub mod doctor;
pub mod image;
pub mod infra;
pub mod measure;
pub mod plan;
pub mod runtime;
pub mod setup;
pub mod sitting;
pub mod verdict;
pub mod workload;

//! A sitting: the infrastructure up, the topic full, then every run of the plan, one after the other.
//!
//! A run goes through types, so that the compiler holds the order: [`arm::Planned`] → [`arm::Prepared`] →
//! [`arm::Measured`] → [`arm::Judged`]. Only the last has a record.

pub mod arm;
pub mod report;
pub mod scene;
pub mod values;

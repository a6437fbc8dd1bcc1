//! The flow: rounds of parallel work between which state is advanced, and output leaves in order.

pub mod operator;

//! What is measured while an arm runs, all of it from outside the arm.

pub mod drain;
pub mod recorder;
pub mod sampler;
pub mod series;

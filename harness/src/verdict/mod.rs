//! Facts in, verdict out: gates, flags, status. Pure; what gathers the facts is elsewhere.

pub mod gates;

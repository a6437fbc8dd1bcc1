//! Control groups, version 2 and version 1, behind one type.

/// A control group of this sitting.
#[derive(Debug)]
pub struct Cgroup {}

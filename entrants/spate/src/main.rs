//! Placeholder while the arm is written.
fn main() {}

//! Weir harness command.
fn main() {}

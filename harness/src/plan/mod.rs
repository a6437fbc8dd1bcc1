//! From arguments, descriptors and an environment to a plan of runs, or a refusal. Pure; `--dry-run` prints it.

pub mod order;

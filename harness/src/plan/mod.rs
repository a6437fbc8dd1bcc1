//! From arguments, descriptors and an environment to a plan of runs, or a refusal.

//! What is measured while an arm runs.

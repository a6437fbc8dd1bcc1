//! What a file address means.

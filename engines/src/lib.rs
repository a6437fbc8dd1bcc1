//! Freshet: a streaming SQL engine in one process.

//! Facts in, verdict out: gates, flags, status.

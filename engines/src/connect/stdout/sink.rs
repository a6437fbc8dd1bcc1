//! Rows as text.

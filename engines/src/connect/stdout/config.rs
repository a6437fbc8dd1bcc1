//! What standard output writes.

use clap::ValueEnum;

/// How rows are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object a line.
    #[default]
    Ndjson,
    /// A header line, then comma-separated values.
    Csv,
}

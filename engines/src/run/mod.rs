//! Running a query: from a source, through the transform, to a sink.

use crate::cli::Cli;
use crate::connect::Uri;
use crate::error::Error;

pub mod file;
pub mod kafka;
mod kafka_worker;
pub mod stop;

use stop::Stop;

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records read.
    pub records: u64,
    /// Rows written.
    pub rows: u64,
    /// Records and rows left out because they could not be read or computed.
    pub skipped: u64,
}

impl std::ops::Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            rows: self.rows + other.rows,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// Runs the command until its source ends or `stop` is requested.
///
/// # Errors
/// Whatever ends the run early.
pub fn run(cli: &Cli, stop: &Stop) -> Result<Totals, Error> {
    let from = Uri::parse_source(&cli.from)?;
    let to = Uri::parse_sink(&cli.to)?;
    match from.scheme.as_str() {
        "file" | "stdin" => file::run(cli, &from, &to, stop),
        "kafka" => kafka::run(cli, &from, &to, stop),
        other => Err(Error::usage(format!("no source reads {other}://"), "read from file://, - or kafka://")),
    }
}

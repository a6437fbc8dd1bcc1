//! Running a query: from a source, through the transform, to a sink.

use std::num::NonZero;
use std::thread;

use crate::cli::{BadRecords, Cli};
use crate::connect::Uri;
use crate::error::Error;

pub mod args;
pub mod kafka;
mod kafka_worker;
mod keep;
mod metrics;
mod query;
pub mod stop;
mod watch;

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
    // A query that only filters and projects a topic needs no rounds: its workers share nothing.
    let plain = cli.flow.streams.is_empty() && cli.flow.tables.is_empty() && cli.kafka.start.is_none();
    let plain = plain && cli.kafka.end.is_none() && !matches!(cli.bad_records, BadRecords::Quarantine(_));
    let plain = plain && cli.flow.checkpoint.is_none() && cli.progress.is_none() && cli.metrics.is_none();
    let plain = plain && from.scheme == "kafka" && matches!(to.scheme.as_str(), "clickhouse" | "stdout" | "null");
    if plain && let Some(totals) = kafka::run(cli, &from, &to, stop)? {
        return Ok(totals);
    }
    query::run(cli, stop)
}

/// Threads of a run.
fn workers(cli: &Cli) -> usize {
    cli.flow.workers.map_or_else(|| thread::available_parallelism().map_or(1, NonZero::get), usize::from)
}

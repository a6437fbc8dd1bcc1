//! `bench sampler`: hidden; the process that samples what services use, started by the harness itself.

use std::path::PathBuf;
use std::time::Duration;

use weir_model::error::Coded;

use crate::measure::recorder;

/// What to sample comes on stdin.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The series file to create, or `-` for standard output
    #[arg(long)]
    out: PathBuf,
    /// Milliseconds from tick to tick
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    period_ms: u64,
}

/// Samples until stdin ends.
///
/// # Errors
/// When the series file cannot be written or stdin holds nonsense.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    recorder::sample(&args.out, Duration::from_millis(args.period_ms))
        .map_err(|error| Box::new(error) as Box<dyn Coded>)
}

//! `bench setup`: fetch what the embedded environment needs, once.

use indicatif::DecimalBytes;
use weir_model::error::Coded;

use crate::setup::{self, Home, Outcome, Report, SetupError};

/// Fetch what the embedded environment needs into the cache directory, once.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Compute the checksum of every file that is there already.
    #[arg(long)]
    verify: bool,
}

/// Fills the cache and prints what is in it, one line a piece, on stdout.
///
/// # Errors
/// See [`SetupError`].
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let report = fill(args.verify).map_err(|error| Box::new(error) as Box<dyn Coded>)?;
    show(&report);
    Ok(())
}

fn fill(verify: bool) -> Result<Report, SetupError> {
    let home = Home::find()?;
    if verify { setup::verify(&home) } else { setup::ensure(&home) }
}

fn show(report: &Report) {
    for piece in &report.pieces {
        let outcome = match piece.outcome {
            Outcome::Present => "present",
            Outcome::Verified => "verified",
            Outcome::Fetched => "fetched",
        };
        let size = DecimalBytes(piece.size).to_string();
        say!("{:24} {outcome:9} {size:>10}  {}", piece.piece, piece.dir.display());
    }
    say!("{:24} {:9} {:>10}  {}", format!("java {}", report.java.version), "found", "", report.java.path.display());
}

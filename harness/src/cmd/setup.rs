//! `bench setup`: fetch what the embedded environment needs, once.

use clap::Args;
use indicatif::DecimalBytes;

use crate::setup::{self, Home, Outcome, SetupError};

/// Fetch what the embedded environment needs into the cache directory, once.
#[derive(Debug, Args)]
pub struct SetupArgs {
    /// Compute the checksum of every file that is there already.
    #[arg(long)]
    verify: bool,
}

impl SetupArgs {
    /// Fills the cache and prints what is in it, one line a piece, on stdout.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn run(&self) -> Result<(), SetupError> {
        let home = Home::find()?;
        let report = if self.verify { setup::verify(&home)? } else { setup::ensure(&home)? };
        for piece in &report.pieces {
            let outcome = match piece.outcome {
                Outcome::Present => "present",
                Outcome::Verified => "verified",
                Outcome::Fetched => "fetched",
            };
            let size = DecimalBytes(piece.size).to_string();
            println!("{:24} {outcome:9} {size:>10}  {}", piece.piece, piece.dir.display());
        }
        println!("{:24} {:9} {:>10}  {}", format!("java {}", report.java.version), "found", "", report.java.path.display());
        Ok(())
    }
}

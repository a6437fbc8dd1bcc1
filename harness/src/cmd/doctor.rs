//! `bench doctor`: what this host is and what would flag a record made on it.

use weir_model::error::Coded;

use crate::doctor;

/// Say what this host is, what would flag a record made here, and whether a run is possible.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

/// A run is not possible on this host; the page says why.
#[derive(Debug, thiserror::Error)]
#[error("`bench run` is not possible here: {0}")]
pub struct Impossible(String);

impl Coded for Impossible {
    fn code(&self) -> &'static str {
        "cannot_run_here"
    }
}

/// Prints the page on stdout.
///
/// # Errors
/// [`Impossible`] when something keeps `bench run` from being possible.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let found = doctor::examine().map_err(|error| Box::new(error) as Box<dyn Coded>)?;
    if args.json {
        say!("{:#}", serde_json::json!(found));
    } else {
        say_on!("{found}");
    }
    if found.can_run() {
        return Ok(());
    }
    let codes: Vec<_> = found.obstacles.iter().map(|obstacle| obstacle.code).collect();
    Err(Box::new(Impossible(codes.join(", "))))
}

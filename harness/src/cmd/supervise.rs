//! `bench supervise`: hidden; one supervisor process a service, started by the process runtime.

use weir_model::error::Coded;

use crate::runtime::supervise;

/// It takes no arguments: the service comes on stdin.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Supervises the service described on stdin.
///
/// # Errors
/// When the supervisor cannot set itself up.
pub fn run(_: &Args) -> Result<(), Box<dyn Coded>> {
    supervise::supervise().map_err(|error| Box::new(error) as Box<dyn Coded>)
}

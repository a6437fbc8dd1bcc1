//! `bench registry`: hidden; the schema registry as a process of its own, in a container.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weir_model::error::Coded;

use crate::infra::embedded::registry::{Registry, RegistryError};
use crate::runtime::interrupt::{self, Interrupt};

/// Between two looks at whether it should end.
const PAUSE: Duration = Duration::from_millis(50);

/// Serve schemas until SIGTERM.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// File that keeps the schemas
    #[arg(long)]
    state: PathBuf,
}

/// Serves until a signal.
///
/// # Errors
/// When the state cannot be read or the address cannot be had.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    interrupt::install().map_err(RegistryError::Serve)?;
    let _serving = Registry::start_at(&args.state, args.listen)?;
    while interrupt::pending() == Interrupt::None {
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

//! `bench publish`: draw the archive.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use weir_model::error::Coded;

use super::root::Root;

/// Arguments of `bench publish`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Where the pages go
    #[arg(long, default_value = "public")]
    out: PathBuf,
    #[command(flatten)]
    root: Root,
}

/// Runs the verb.
///
/// # Errors
/// When the archive or a descriptor cannot be read, or the pages not be written.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let root = args.root.find()?;
    let out = if args.out.is_absolute() { args.out.clone() } else { root.join(&args.out) };
    publish(&root, &out)
}

/// Draws the archive of the repository `root` into `out`.
///
/// # Errors
/// As [`run`].
pub fn publish(root: &Path, out: &Path) -> Result<(), Box<dyn Coded>> {
    let summary = weir_site::publish(&root.join("results"), &root.join("entrants"), &root.join("environments"), out)?;
    eprintln!("{summary}");
    Ok(())
}

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
    publish(&args.root.find()?, &args.out)
}

/// Draws the archive of the repository `root` into `out`, which is below it unless it is absolute.
///
/// # Errors
/// As [`run`].
pub fn publish(root: &Path, out: &Path) -> Result<(), Box<dyn Coded>> {
    let published =
        weir_site::publish(&root.join("results"), &root.join("entrants"), &root.join("environments"), &root.join(out))?;
    eprintln!("{} records in {} groups: {}", published.records, published.groups, published.index.display());
    if !published.archive_is_whole {
        eprintln!("the archive is damaged, and the page says so; `bench verify` names the place");
    }
    Ok(())
}

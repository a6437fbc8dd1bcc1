//! `bench retract`: take a run back without erasing it.

use clap::Args as ClapArgs;
use jiff::Timestamp;
use weir_model::archive::Archive;
use weir_model::error::Coded;
use weir_model::id::RunId;
use weir_model::retract::retract;

use super::root::Root;

/// Append a retraction: the run stays where it is, struck through, with the reason
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The run
    run_id: RunId,
    /// Why, as readers will see it
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The run that takes its place
    #[arg(long, value_name = "RUN_ID")]
    superseded_by: Option<RunId>,
    #[command(flatten)]
    root: Root,
}

/// Runs the verb.
///
/// # Errors
/// When there is no such run, it is retracted already, or the archive cannot be grown.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let root = args.root.find()?;
    let archive = Archive::open(root.join("results"))?;
    let records = archive.read()?.records;
    let retraction = retract(&records, args.run_id, &args.reason, args.superseded_by, Timestamp::now())?;
    let appended = archive.append(&retraction)?;
    say!("{}:{}: run {} is retracted", appended.file.display(), appended.line, args.run_id);
    eprintln!("`bench publish` strikes it through");
    Ok(())
}

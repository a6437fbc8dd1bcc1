//! `bench prefill`: fill the topic and verify it.

use clap::Args as ClapArgs;
use weir_model::error::Coded;

use super::root::Root;
use crate::cgroup::Hierarchy;
use crate::plan::{self, Catalog, PlanError};
use crate::setup::{Home, host};
use crate::sitting::upstream;

/// Fill the topic with the corpus and read it back; a topic that holds it already is kept
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Messages in the topic, 100 events each
    #[arg(long, default_value_t = 100_000)]
    batches: u64,
    /// Environment profile
    #[arg(long, default_value = "embedded")]
    env: String,
    #[command(flatten)]
    root: Root,
}

/// Runs the verb.
///
/// # Errors
/// A refusal before anything is started, or why the topic does not hold the corpus.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    if args.batches == 0 {
        return Err(PlanError::Number { what: "--batches", must: "at least 1" }.into());
    }
    let root = args.root.find()?;
    let catalog = Catalog::load(&root)?;
    let home = Home::find()?;
    let host = host::detect(&Hierarchy::detect()?)?;
    let (environment, resolved) = plan::environment(&args.env, &catalog, &host)?;
    let (filled, took) = upstream::prefill((&environment, &resolved), &root, &home, args.batches)?;
    say!(
        "topic holds exactly {} batches in {} partitions: {} kept, {} produced, verified; {:.1} s",
        args.batches,
        environment.infra.partitions,
        filled.reused,
        filled.produced,
        took.as_secs_f64()
    );
    Ok(())
}

//! `bench build`: the artefacts and images that a run would need, before it.

use clap::Args as ClapArgs;
use weir_model::environment::RuntimeKind;
use weir_model::error::Coded;
use weir_model::id::{Mode, Selector, Trigger, WorkloadId};

use super::root::Root;
use crate::build;
use crate::cgroup::Hierarchy;
use crate::plan::{Catalog, Request, RunPlan};
use crate::setup::{Home, host};
use crate::sitting;

/// Build the artefacts of arms, and in an environment of containers every image; what is there already is kept
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Arms, as in `bench run`; none means every active entrant's default variant
    #[arg(value_name = "SELECTOR")]
    selectors: Vec<Selector>,
    /// Environment profile
    #[arg(long, default_value = "embedded")]
    env: String,
    #[command(flatten)]
    root: Root,
}

/// Runs the verb.
///
/// # Errors
/// A refusal before anything is built, or what cannot be built.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let root = args.root.find()?;
    let catalog = Catalog::load(&root)?;
    let home = Home::find()?;
    let request = Request {
        selectors: args.selectors.clone(),
        env: args.env.clone(),
        workload: WorkloadId::IngestB,
        mode: Mode::Drain,
        reps: 1,
        batches: 1,
        seed: 0,
        trigger: Trigger::Manual,
    };
    let plan = RunPlan::resolve(&request, &catalog, host::detect(&Hierarchy::detect()?)?)?;
    if plan.environment.runtime == RuntimeKind::Process {
        build::build(&root, &plan.bins())?;
        say!("built: {}", plan.bins().join(", "));
        return Ok(());
    }
    for (image, id) in sitting::build_images(&plan, &root, &home)? {
        say!("{image:<32} {id}");
    }
    Ok(())
}

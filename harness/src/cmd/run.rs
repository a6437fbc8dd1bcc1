//! `bench run`: measure, gate, append, publish.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use weir_model::error::Coded;
use weir_model::id::{Mode, Selector, Tier, Trigger, WorkloadId};

use super::root::Root;
use crate::cgroup::Hierarchy;
use crate::plan::{Catalog, Request, RunPlan};
use crate::setup::{Home, host};
use crate::sitting::Sitting;

/// Batches of a `--quick` run: 2 million events.
const QUICK_BATCHES: u64 = 20_000;

/// Arguments of `bench run`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Arms: `<entrant>`, `<entrant>:<variant>`, `<entrant>:*` or `*`; none means every active entrant
    #[arg(value_name = "SELECTOR")]
    selectors: Vec<Selector>,
    /// Environment profile
    #[arg(long, default_value = "embedded")]
    env: String,
    /// Workload; the same choice as --tier
    #[arg(long, conflicts_with = "tier")]
    workload: Option<WorkloadId>,
    /// Tier of the ingest pipeline: `a` transports, `b` also filters and derives [default: b]
    #[arg(long)]
    tier: Option<Tier>,
    /// How load is offered
    #[arg(long, default_value = "drain")]
    mode: Mode,
    /// Repetitions of each arm [default: 5, with --quick 1]
    #[arg(long)]
    reps: Option<u32>,
    /// Messages in the topic, 100 events each [default: 100000, with --quick 20000]
    #[arg(long)]
    batches: Option<u64>,
    /// Seed of the order of runs; drawn and recorded if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Why this sitting takes place
    #[arg(long, default_value = "manual")]
    trigger: Trigger,
    /// A first look: one repetition of a small corpus
    #[arg(long)]
    quick: bool,
    /// Print the plan and start nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the records as JSON lines on standard output
    #[arg(long)]
    json: bool,
    /// Where the page goes, below the repository unless absolute
    #[arg(long, default_value = "public")]
    out: PathBuf,
    #[command(flatten)]
    root: Root,
}

impl Args {
    fn request(&self) -> Request {
        let workload = self.workload.unwrap_or_else(|| self.tier.unwrap_or(Tier::B).into());
        // an order that nobody can foresee is enough; it is recorded
        let drawn = || u64::from(std::process::id()) ^ jiff::Timestamp::now().as_microsecond().unsigned_abs();
        Request {
            selectors: self.selectors.clone(),
            env: self.env.clone(),
            workload,
            mode: self.mode,
            reps: self.reps.unwrap_or(if self.quick { 1 } else { 5 }),
            batches: self.batches.unwrap_or(if self.quick { QUICK_BATCHES } else { 100_000 }),
            seed: self.seed.unwrap_or_else(drawn),
            trigger: self.trigger,
        }
    }
}

/// Runs the verb.
///
/// # Errors
/// A refusal before anything is started, or what went wrong in the sitting.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let root = args.root.find()?;
    let catalog = Catalog::load(&root)?;
    let home = Home::find()?;
    let plan = RunPlan::resolve(&args.request(), &catalog, host::detect(&Hierarchy::detect()?)?)?;
    if args.dry_run {
        say_on!("{plan}");
        return Ok(());
    }
    eprint!("{plan}");
    let outcome = Sitting::open(plan, &root, home)?.run()?;
    outcome.print(args.json);
    super::publish::publish(&root, &args.out)?;
    outcome.verdict()?;
    Ok(())
}

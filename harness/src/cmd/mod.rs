//! The command line: one file per verb, each its arguments and a call into the library.

pub mod build;
pub mod clickhouse;
pub mod compare;
pub mod doctor;
pub mod gate;
pub mod list;
pub mod prefill;
pub mod publish;
pub mod registry;
pub mod retract;
pub mod root;
pub mod run;
pub mod sampler;
pub mod schema;
pub mod setup;
pub mod stale;
pub mod supervise;
pub mod validate;
pub mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use weir_model::error::Coded;

/// Measure streaming systems on the same pipeline, bytes and hardware, and publish what was found.
#[derive(Debug, Parser)]
#[command(name = "bench", version, propagate_version = true)]
pub struct Bench {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure arms, gate every row, append records and draw the page
    Run(Box<run::Args>),
    Build(build::Args),
    Prefill(prefill::Args),
    /// Show entrants and variants, workloads, environments
    List(list::Args),
    Validate(validate::Args),
    Schema(schema::Args),
    Stale(stale::Args),
    Compare(compare::Args),
    Gate(gate::Args),
    Retract(retract::Args),
    /// Draw the archive
    Publish(publish::Args),
    /// Prove that no results file was changed
    Verify(verify::Args),
    Setup(setup::Args),
    /// Sample what services use (started by the harness itself).
    #[command(hide = true)]
    Sampler(sampler::Args),
    Doctor(doctor::Args),
    /// Watch over one service (started by the harness itself).
    #[command(hide = true)]
    Supervise(supervise::Args),
    /// Serve schemas (started by the harness itself).
    #[command(hide = true)]
    Registry(registry::Args),
    #[command(hide = true)]
    Clickhouse(Box<clickhouse::Args>),
}

/// The exit code of a request that makes no sense here.
const REFUSED: u8 = 3;

impl Bench {
    /// Reads the arguments of this process and runs the verb. Arguments that cannot be read are refused.
    #[must_use]
    pub fn main() -> ExitCode {
        match Self::try_parse() {
            Ok(bench) => bench.run(),
            Err(error) => {
                let code = if error.use_stderr() { REFUSED } else { 0 };
                let _ = error.print();
                ExitCode::from(code)
            }
        }
    }

    /// Runs the verb and turns its outcome into an exit code: 0 ok, 1 error, 3 refused.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let outcome: Result<(), Box<dyn Coded>> = match self.verb {
            Verb::Run(args) => run::run(&args),
            Verb::Build(args) => build::run(&args),
            Verb::Registry(args) => registry::run(&args),
            Verb::Prefill(args) => prefill::run(&args),
            Verb::List(args) => list::run(&args),
            Verb::Validate(args) => validate::run(&args),
            Verb::Schema(args) => schema::run(&args),
            Verb::Stale(args) => stale::run(&args),
            Verb::Compare(args) => compare::run(&args),
            Verb::Gate(args) => gate::run(&args),
            Verb::Retract(args) => retract::run(&args),
            Verb::Publish(args) => publish::run(&args),
            Verb::Verify(args) => verify::run(&args),
            Verb::Setup(args) => setup::run(&args),
            Verb::Sampler(args) => sampler::run(&args),
            Verb::Doctor(args) => doctor::run(&args),
            Verb::Supervise(args) => supervise::run(&args),
            Verb::Clickhouse(args) => clickhouse::run(*args).map_err(|error| Box::new(error) as Box<dyn Coded>),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report(error.as_ref()),
        }
    }
}

/// Prints an error with its code, causes and hint to stderr, and gives its exit code.
fn report(error: &dyn Coded) -> ExitCode {
    eprintln!("error[{}]: {error}", error.code());
    let mut cause = error.source();
    while let Some(inner) = cause {
        eprintln!("  because: {inner}");
        cause = inner.source();
    }
    if let Some(hint) = error.hint() {
        eprintln!("  hint: {hint}");
    }
    ExitCode::from(if error.refused() { REFUSED } else { 1 })
}

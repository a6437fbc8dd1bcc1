//! The command line of the arm.

use std::path::PathBuf;

/// What the arm is asked to do.
pub(crate) enum Command {
    /// Print the version of the linked Spate.
    Version,
    /// Run the pipeline.
    Run(Job),
}

/// One run: the tier, its configuration file and the knobs Spate has in code only.
pub(crate) struct Job {
    pub(crate) tier: Tier,
    pub(crate) config: PathBuf,
    /// Chunks queued between a pipeline thread and the sink before the source is paused.
    pub(crate) queue_capacity: usize,
    /// Messages taken from a partition queue at a time.
    pub(crate) max_records: usize,
}

/// The pipeline of the workload that is run.
#[derive(Clone, Copy)]
pub(crate) enum Tier {
    /// Transport: decode, flatten, insert.
    A,
    /// Transform: tier A with the filter and the derived columns.
    B,
}

const USAGE: &str = "usage: spate-arm --tier a|b --config FILE [--queue-capacity N] [--max-records N] | --version";

/// Reads the arguments (without the program's name); the error is the message to print.
pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut tier, mut config) = (None, None);
    let (mut queue_capacity, mut max_records) = (8, 512);
    while let Some(flag) = args.next() {
        if flag == "--version" {
            return Ok(Command::Version);
        }
        let value = args.next().ok_or_else(|| format!("{flag} needs a value; {USAGE}"))?;
        match flag.as_str() {
            "--tier" => tier = Some(tier_named(&value)?),
            "--config" => config = Some(PathBuf::from(value)),
            "--queue-capacity" => queue_capacity = count(&flag, &value)?,
            "--max-records" => max_records = count(&flag, &value)?,
            _ => return Err(format!("unknown option {flag}; {USAGE}")),
        }
    }
    match (tier, config) {
        (Some(tier), Some(config)) => Ok(Command::Run(Job { tier, config, queue_capacity, max_records })),
        _ => Err(USAGE.to_string()),
    }
}

fn tier_named(name: &str) -> Result<Tier, String> {
    match name {
        "a" => Ok(Tier::A),
        "b" => Ok(Tier::B),
        _ => Err(format!("--tier is a or b, not {name}")),
    }
}

fn count(flag: &str, value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(format!("{flag} is a whole number above zero, not {value}")),
    }
}

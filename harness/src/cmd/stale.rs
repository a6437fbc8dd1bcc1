//! `bench stale`: which arms want measuring again, and why.

use clap::Args as ClapArgs;
use jiff::Timestamp;
use weir_model::archive::Archive;
use weir_model::error::Coded;
use weir_model::staleness::{Present, Stale, stale};

use super::root::Root;
use crate::plan::Catalog;
use crate::sitting::report::HARNESS_VERSION;
use crate::workload::IngestSpec;

/// Show arms that were measured with an older protocol, corpus or version, long ago, or never
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Days after which a measurement is old
    #[arg(long, default_value_t = 90)]
    days: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// End with exit code 1 if anything is stale
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    root: Root,
}

/// Something is stale, and that was asked to be an error.
#[derive(Debug, thiserror::Error)]
#[error("{0} arms want measuring")]
pub struct IsStale(usize);

impl Coded for IsStale {
    fn code(&self) -> &'static str {
        "stale"
    }
}

/// Runs the verb.
///
/// # Errors
/// When something cannot be read, or is stale and `--check` was given.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let root = args.root.find()?;
    let catalog = Catalog::load(&root)?;
    let dataset_version = IngestSpec::load(&root.join("workload/ingest"))?.dataset_version();
    let contents = Archive::open(root.join("results"))?.read()?;
    let present = Present {
        harness_version: HARNESS_VERSION,
        dataset_version: &dataset_version,
        ts: Timestamp::now(),
        days: args.days.into(),
    };
    let found = stale(&contents.records, catalog.entrants(), &present);
    if args.json {
        say!("{:#}", serde_json::json!(found));
    } else {
        for it in &found {
            say!("{}", line(it));
        }
        if found.is_empty() {
            say!("nothing is stale");
        }
    }
    if args.check && !found.is_empty() { Err(IsStale(found.len()).into()) } else { Ok(()) }
}

fn line(it: &Stale) -> String {
    let reasons: Vec<String> = it.reasons.iter().map(ToString::to_string).collect();
    let env = it.env.as_ref().map_or_else(|| "–".to_owned(), ToString::to_string);
    format!("{:<36} {:<9} {env:<18} {}", it.arm, it.workload, reasons.join("; "))
}

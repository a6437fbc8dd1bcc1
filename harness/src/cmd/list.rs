//! `bench list`: entrants and variants, workloads, environments.

use clap::{Args as ClapArgs, ValueEnum};
use weir_model::error::Coded;
use weir_model::id::WorkloadId;

use super::root::Root;
use crate::plan::Catalog;

/// What to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Systems and their variants
    Entrants,
    /// Pipelines
    Workloads,
    /// Profiles
    Environments,
}

/// Arguments of `bench list`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// What to list; all of it if not said
    what: Option<What>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    root: Root,
}

/// Runs the verb.
///
/// # Errors
/// Everything wrong with a descriptor or profile.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let catalog = Catalog::load(&args.root.find()?)?;
    let wants = |what| args.what.is_none_or(|asked| asked == what);
    let mut all = serde_json::Map::new();
    if wants(What::Entrants) {
        all.insert("entrants".into(), catalog.entrants().iter().map(entrant).collect());
    }
    if wants(What::Workloads) {
        let workloads = [WorkloadId::IngestA, WorkloadId::IngestB];
        all.insert("workloads".into(), workloads.iter().map(|id| serde_json::json!({ "id": id })).collect());
    }
    if wants(What::Environments) {
        all.insert("environments".into(), catalog.environments().iter().map(environment).collect());
    }
    if args.json {
        say!("{:#}", serde_json::Value::Object(all));
        return Ok(());
    }
    for (title, rows) in &all {
        say!("{title}");
        for row in rows.as_array().into_iter().flatten() {
            say!("  {}", line(row));
        }
    }
    Ok(())
}

fn entrant(entrant: &weir_model::descriptor::Entrant) -> serde_json::Value {
    let variants: Vec<serde_json::Value> = entrant
        .variants
        .iter()
        .map(|variant| {
            serde_json::json!({
                "id": variant.id, "default": variant.default, "approach": variant.approach,
                "wire_format": variant.wire_format, "workloads": variant.workloads,
            })
        })
        .collect();
    serde_json::json!({
        "id": entrant.identity.id, "name": entrant.identity.name, "version": entrant.version.pinned, "status": entrant.identity.status,
        "vendor": entrant.identity.vendor, "licence": entrant.identity.licence, "variants": variants,
    })
}

fn environment(environment: &weir_model::environment::Environment) -> serde_json::Value {
    serde_json::json!({
        "id": environment.id, "class": environment.class, "runtime": environment.runtime,
        "caveats": environment.caveats,
    })
}

/// One listed thing for people: its id, then what distinguishes it.
fn line(row: &serde_json::Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let mut words = vec![format!("{:<24}", text("id"))];
    for key in ["version", "status", "class", "runtime"] {
        if !row[key].is_null() {
            words.push(text(key));
        }
    }
    for variant in row["variants"].as_array().into_iter().flatten() {
        let id = variant["id"].as_str().unwrap_or_default();
        let star = if variant["default"] == true { "*" } else { "" };
        words.push(format!("{id}{star}"));
    }
    words.join("  ").trim_end().to_owned()
}

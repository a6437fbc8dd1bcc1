//! `bench validate`: everything that people write here, checked.

use std::path::Path;

use clap::Args as ClapArgs;
use weir_model::archive::Archive;
use weir_model::binding;
use weir_model::descriptor::Entrant;
use weir_model::diagnostic::{Place, Problem, Problems};
use weir_model::error::Coded;

use super::root::Root;
use crate::plan::{Catalog, PlanError};
use crate::workload::IngestSpec;
use crate::workload::spec::SpecError;

/// Check every descriptor, profile and workload, and each binding constraint against the archive
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Print the problems as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    root: Root,
}

/// Runs the verb.
///
/// # Errors
/// Everything wrong, at once.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let root = args.root.find()?;
    let mut problems = Problems::default();
    let catalog = match Catalog::load(&root) {
        Ok(catalog) => Some(catalog),
        Err(PlanError::Problems(found)) => {
            problems.0.extend(found.0);
            None
        }
        Err(error) => return Err(error.into()),
    };
    problems.0.extend(workload(&root));
    if let Some(catalog) = &catalog {
        problems.0.extend(bindings(&root, catalog)?);
    }
    let below = format!("{}/", root.display());
    for problem in &mut problems.0 {
        problem.file = problem.file.trim_start_matches(&below).to_owned();
    }
    if args.json {
        say!("{:#}", problems.0.iter().map(json).collect::<serde_json::Value>());
    }
    let (entrants, environments) = catalog.map_or((0, 0), |it| (it.entrants().len(), it.environments().len()));
    problems.or(()).map_err(|problems| Box::new(problems) as Box<dyn Coded>)?;
    if !args.json {
        say!("{entrants} entrants, {environments} environments and the ingest workload are sound");
    }
    Ok(())
}

fn json(problem: &Problem) -> serde_json::Value {
    let place = |of: fn(&Place) -> usize| problem.place.as_ref().map(of);
    serde_json::json!({
        "code": problem.code, "file": problem.file, "line": place(|it| it.line), "column": place(|it| it.column),
        "width": place(|it| it.width), "message": problem.message, "hint": problem.hint,
    })
}

/// What is wrong with the ingest workload's folder.
fn workload(root: &Path) -> Vec<Problem> {
    let folder = root.join("workload/ingest");
    let whole = |message: String| Problem {
        code: "workload_unreadable",
        file: folder.display().to_string(),
        message,
        hint: None,
        place: None,
    };
    match IngestSpec::load(&folder) {
        Ok(_) => Vec::new(),
        Err(SpecError::Invalid { problems }) => problems
            .into_iter()
            .map(|it| {
                let text = std::fs::read_to_string(&it.file).unwrap_or_default();
                let start = text.split_inclusive('\n').take(it.line.saturating_sub(1)).map(str::len).sum::<usize>();
                let length = text[start..].lines().next().map_or(0, str::len);
                let place = Some(Place::of(&text, start..start + length));
                let file = it.file.display().to_string();
                Problem { code: "workload_invalid", file, message: it.what, hint: None, place }
            })
            .collect(),
        Err(error) => vec![whole(error.to_string())],
    }
}

/// Binding constraints that every run of the newest sitting contradicts.
fn bindings(root: &Path, catalog: &Catalog) -> Result<Vec<Problem>, Box<dyn Coded>> {
    let contents = Archive::open(root.join("results"))?.read()?;
    let mut problems = Vec::new();
    for entrant in catalog.entrants() {
        for variant in &entrant.variants {
            for found in binding::contradictions(&contents.records, entrant, variant) {
                let message = format!(
                    "variant `{}` says its constraint is `{}`, but in every run of sitting {} ({}, {}) {}",
                    variant.id, found.claimed, found.sitting, found.profile, found.workload, found.fact
                );
                let (file, place) = place_of(root, entrant, variant.id.as_str());
                let hint = Some("find the real constraint and say it, or retract the runs".to_owned());
                problems.push(Problem { code: "binding_contradicted", file, message, hint, place });
            }
        }
    }
    Ok(problems)
}

/// Where a variant's id stands in its descriptor.
fn place_of(root: &Path, entrant: &Entrant, variant: &str) -> (String, Option<Place>) {
    let file = root.join("entrants").join(entrant.id().as_str()).join("entrant.toml");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let sections = text.match_indices("[[variants]]").map(|(at, _)| at);
    let quoted = format!("\"{variant}\"");
    let found = sections.filter_map(|section| {
        let line = text[section..].find("id = ")? + section + "id = ".len();
        text[line..].starts_with(&quoted).then(|| Place::of(&text, line..line + quoted.len()))
    });
    let place = found.into_iter().next();
    (file.display().to_string(), place)
}

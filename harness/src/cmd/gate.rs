//! `bench gate`: fail on a regression.

use clap::Args as ClapArgs;
use weir_model::archive::Archive;
use weir_model::descriptor::EntrantStatus;
use weir_model::error::Coded;
use weir_model::id::{EntrantId, VariantId};
use weir_model::metric::Metric;
use weir_model::record::Record;
use weir_model::summary::{Side, compare, sittings_of};
use weir_model::units::percent;

use super::root::Root;
use crate::plan::Catalog;

/// The metrics that must not get worse.
const GATED: [Metric; 2] = [Metric::CpuUsPerRow, Metric::RowsPerS];

/// Compare each arm's newest sitting with the one before it in the same group; end with exit code 1 if it got worse
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Entrants to look at; every active one's default variant if none is named
    #[arg(value_name = "ENTRANT")]
    entrants: Vec<EntrantId>,
    /// The least relative change that counts, beside being told apart
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    least: f64,
    #[command(flatten)]
    root: Root,
}

/// Arms got worse.
#[derive(Debug, thiserror::Error)]
#[error("worse than in the sitting before:\n{}", .0.join("\n"))]
pub struct Regressed(Vec<String>);

impl Coded for Regressed {
    fn code(&self) -> &'static str {
        "regression"
    }

    fn hint(&self) -> Option<String> {
        Some("`bench compare <arm> <arm>@<sitting>` shows every metric".into())
    }
}

/// Runs the verb.
///
/// # Errors
/// [`Regressed`] with every metric of every arm that got worse.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let root = args.root.find()?;
    let catalog = Catalog::load(&root)?;
    let contents = Archive::open(root.join("results"))?.read()?;
    let records: Vec<&Record> = contents.records.iter().map(|found| &found.record).collect();
    let mut arms: Vec<(EntrantId, VariantId)> = Vec::new();
    for id in &args.entrants {
        arms.extend(catalog.entrant(id)?.default_variant().map(|variant| (id.clone(), variant.id.clone())));
    }
    if args.entrants.is_empty() {
        for entrant in catalog.entrants().iter().filter(|it| it.identity.status == EntrantStatus::Active) {
            arms.extend(entrant.default_variant().map(|variant| (entrant.id().clone(), variant.id.clone())));
        }
    }
    let mut worse = Vec::new();
    for (entrant, variant) in arms {
        worse.extend(regressions(&records, &entrant, &variant, args.least)?);
    }
    if worse.is_empty() { Ok(()) } else { Err(Regressed(worse).into()) }
}

/// What got worse for one arm, in the group of its newest sitting.
fn regressions(
    records: &[&Record],
    entrant: &EntrantId,
    variant: &VariantId,
    least: f64,
) -> Result<Vec<String>, Box<dyn Coded>> {
    let sittings = sittings_of(records, entrant, variant);
    let pair = sittings.split_first().and_then(|(newest, earlier)| {
        earlier.iter().find(|earlier| earlier.0 == newest.0).map(|earlier| (earlier.1, newest.1))
    });
    let Some((before, now)) = pair else {
        say!("{entrant}:{variant}: no two sittings to compare");
        return Ok(Vec::new());
    };
    let side = |sitting: weir_model::id::SittingId| Side::Arm {
        entrant: entrant.clone(),
        variant: Some(variant.clone()),
        sitting: Some(sitting.to_string()),
    };
    let comparison = compare(records, &side(before), &side(now))?;
    let mut worse = Vec::new();
    for metric in GATED {
        let Some(it) = comparison.of(metric) else { continue };
        let change = it.relative.unwrap_or(0.0);
        let is_worse = it.told_apart && it.b_is_better == Some(false) && change.abs() >= least;
        let line =
            format!("{entrant}:{variant} {metric}: {}{}", if change < 0.0 { "−" } else { "+" }, percent(change.abs()));
        say!("{line}{}", if is_worse { ", worse" } else { "" });
        if is_worse {
            worse.push(line);
        }
    }
    Ok(worse)
}

//! `bench compare`: is there a difference between two runs or two arms?

use std::fmt::Write as _;

use clap::Args as ClapArgs;
use weir_model::archive::Archive;
use weir_model::error::Coded;
use weir_model::metric::Metric;
use weir_model::record::Record;
use weir_model::summary::{Comparison, Difference, Side, compare};
use weir_model::units::{figure, percent};

use super::root::Root;
use crate::plan::{Catalog, PlanError};

/// Put two runs or arms of one group side by side, and say whether the runs tell them apart
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A run id, or `<entrant>[:<variant>][@<beginning of a sitting's id>]`
    a: Side,
    /// The other; the same arm again means the control of its sitting
    b: Side,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    root: Root,
}

/// Runs the verb.
///
/// # Errors
/// When a side has no run that stands, or they are not comparable.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let root = args.root.find()?;
    let catalog = Catalog::load(&root)?;
    let contents = Archive::open(root.join("results"))?.read()?;
    let records: Vec<&Record> = contents.records.iter().map(|found| &found.record).collect();
    let (a, b) = (with_variant(&args.a, &catalog)?, with_variant(&args.b, &catalog)?);
    let comparison = compare(&records, &a, &b)?;
    if args.json {
        say!("{:#}", serde_json::json!(comparison));
    } else {
        say_on!("{}", table(&comparison));
    }
    Ok(())
}

/// The side with its entrant's default variant, where none is named and the entrant is still there.
fn with_variant(side: &Side, catalog: &Catalog) -> Result<Side, PlanError> {
    let Side::Arm { entrant, variant: None, sitting } = side else { return Ok(side.clone()) };
    let variant = catalog.entrant(entrant)?.default_variant().map(|variant| variant.id.clone());
    Ok(Side::Arm { entrant: entrant.clone(), variant, sitting: sitting.clone() })
}

/// The comparison for people.
fn table(it: &Comparison) -> String {
    let mut out = String::new();
    for (name, side) in [("a", &it.a), ("b", &it.b)] {
        let runs = if side.runs.len() == 1 { "1 run".to_owned() } else { format!("{} runs", side.runs.len()) };
        let control = if it.control && name == "b" { ", the control" } else { "" };
        let _ = writeln!(out, "{name}  {} {}, {runs} of sitting {}{control}", side.arm, side.version, side.sitting);
    }
    let _ = writeln!(out, "on {}, {}\n", it.env, it.workload);
    let _ = writeln!(out, "{:<28} {:>12} {:>12} {:>9}  {:<20} {:>7}", "", "a", "b", "b/a", "95 % interval", "p");
    for difference in &it.differences {
        let _ = writeln!(out, "{}", row(difference));
    }
    if let Some(difference) = it.of(Metric::CpuUsPerRow) {
        let _ = writeln!(out, "\n{}", sentence(it, difference));
    }
    out
}

fn signed(share: f64) -> String {
    format!("{}{}", if share >= 0.0 { "+" } else { "−" }, percent(share.abs()))
}

fn row(it: &Difference) -> String {
    let relative = it.relative.map_or_else(|| "–".to_owned(), signed);
    let interval = it.ci95.map_or_else(|| "–".to_owned(), |(low, high)| format!("{} … {}", signed(low), signed(high)));
    let verdict = match (it.told_apart, it.b_is_better) {
        (false, _) => "",
        (true, None) => "  different",
        (true, Some(true)) => "  b is better",
        (true, Some(false)) => "  a is better",
    };
    let name = format!("{} [{}]", it.metric, it.metric.unit());
    let (a, b) = (figure(it.a.median), figure(it.b.median));
    format!("{name:<28} {a:>12} {b:>12} {relative:>9}  {interval:<20} {:>7.4}{verdict}", it.p)
}

/// What it comes to, by CPU per row.
fn sentence(it: &Comparison, difference: &Difference) -> String {
    let runs = it.a.runs.len().min(it.b.runs.len());
    let spread = percent(difference.aa_spread);
    let apart = difference.relative.map(signed).unwrap_or_default();
    match (it.control, difference.told_apart) {
        (true, false) => format!("The control shows no difference in CPU per row ({apart})."),
        (true, true) => {
            format!("The control shows a difference of {apart} where there is none: distrust this sitting.")
        }
        (false, true) => format!("{apart} CPU per row: a difference, beyond the {spread} of the control."),
        (false, false) if runs < 4 => format!("{apart} CPU per row: too few runs to say whether it is a difference."),
        (false, false) => format!("{apart} CPU per row: no difference that these runs show."),
    }
}

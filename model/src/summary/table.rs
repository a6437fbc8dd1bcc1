//! A group as a table for the terminal.

use std::fmt::Write as _;

use crate::id::Approach;
use crate::metric::Metric;
use crate::status::Status;
use crate::units::{compact, figure, percent};

use super::{Arm, Figure, Group};

/// How a table is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// With bold and dimmed text.
    pub colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

const HEAD: [&str; 7] = ["", "arm", "CPU µs/row", "rows/s", "ClickHouse µs/row", "peak MB", "status"];

/// A group as a table: arms with medians and ranges, and below it what a reader should know.
#[must_use]
pub fn table(group: &Group<'_>, style: Style) -> String {
    let arms: Vec<&Arm<'_>> = group.arms.iter().chain(&group.apart).collect();
    let rows: Vec<[String; 7]> = arms.iter().map(|arm| row(arm)).collect();
    let mut widths = HEAD.map(|head| head.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(widths).enumerate().map(|(at, (cell, width))| match at {
            2..=5 => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let key = &group.key;
    let title = format!(
        "{} · {} · {} · {} batches · class {}",
        key.workload, key.mode, key.env, key.batches, group.newest.env.class
    );
    let mut out = format!("{}\n", style.paint("1", &title));
    let head = HEAD.map(str::to_owned);
    let _ = writeln!(out, "{}", style.paint("2", &line(&head)));
    for row in &rows {
        let _ = writeln!(out, "{}", line(row));
    }
    out.push_str(&notes(group, &arms, style));
    out
}

fn row(arm: &Arm<'_>) -> [String; 7] {
    let of = |metric, written: fn(f64) -> String| {
        arm.figure(metric).map_or_else(|| "–".to_owned(), |figure| with_range(figure, written))
    };
    let rank = arm.rank.map_or_else(String::new, |rank| rank.to_string());
    let standing = arm.runs.iter().filter(|run| run.stands()).count();
    let status = if arm.status == Status::Ok {
        format!("ok, {standing} run{}", if standing == 1 { "" } else { "s" })
    } else {
        format!("{}, {standing} of {} runs stand", arm.status, arm.runs.len())
    };
    [
        rank,
        match arm.approach {
            Approach::Realistic => format!("{}:{}", arm.entrant, arm.variant),
            other => format!("{}:{} ({other})", arm.entrant, arm.variant),
        },
        of(Metric::CpuUsPerRow, figure),
        of(Metric::RowsPerS, compact),
        of(Metric::ClickhouseCpuUsPerRow, figure),
        of(Metric::DataPlanePeakAnonMb, figure),
        status,
    ]
}

fn with_range(it: &Figure, written: fn(f64) -> String) -> String {
    if it.values.len() < 2 {
        return written(it.median);
    }
    format!("{} ({}–{})", written(it.median), written(it.low), written(it.high))
}

/// What a reader should know, below the table.
fn notes(group: &Group<'_>, arms: &[&Arm<'_>], style: Style) -> String {
    let mut out = String::new();
    let visible = match group.smallest_visible.get(&Metric::CpuUsPerRow) {
        Some(share) => format!("differences in CPU per row below {} do not show in these runs", percent(*share)),
        None => "too few runs to tell arms apart: ranks are shared".to_owned(),
    };
    let _ = writeln!(out, "{}", style.paint("2", &visible));
    if let Some(spread) = group.aa_spread.get(&Metric::CpuUsPerRow) {
        let control = format!("the control differed from itself by {}", percent(*spread));
        let _ = writeln!(out, "{}", style.paint("2", &control));
    }
    for arm in arms {
        for run in arm.runs.iter().filter(|run| !run.record.status.is_measured()) {
            let what = format!("{}:{} rep {} {}", arm.entrant, arm.variant, run.record.rep, run.record.status);
            let _ = writeln!(out, "{}: {}", style.paint("31", &what), run.record.note);
        }
        for run in &arm.runs {
            if let Some(retraction) = run.retraction {
                let what = format!("{}:{} rep {} retracted", arm.entrant, arm.variant, run.record.rep);
                let _ = writeln!(out, "{}: {}", style.paint("31", &what), retraction.reason);
            }
        }
        for (flag, times) in &arm.flags {
            let runs = if *times == arm.runs.len() { "every run".to_owned() } else { format!("{times} runs") };
            let what = format!("{}:{} {}", arm.entrant, arm.variant, flag.name());
            let _ = writeln!(out, "{} ({runs}): {}", style.paint("33", &what), flag.wording());
        }
    }
    for flag in group.host_flags.iter().chain(&group.sitting_flags) {
        let _ = writeln!(out, "{}: {}; {}", style.paint("33", flag.name()), flag.wording(), flag.remedy());
    }
    out
}

//! Bars from zero, with the spread and every run as a dot. Places are percentages, so a chart fits any width.

use weir_model::metric::{Direction, Metric};
use weir_model::summary::{Arm, Figure};
use weir_model::units::{compact, figure, plain};

/// A chart of one metric over the arms of a group.
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: &'static str,
    pub(crate) note: &'static str,
    pub(crate) bars: Vec<Bar>,
    pub(crate) ticks: Vec<Tick>,
}

/// One arm of a chart.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) variant: String,
    pub(crate) ours: bool,
    /// Absent where there is no number: then `instead` says why.
    pub(crate) drawn: Option<Drawn>,
    pub(crate) instead: String,
}

/// A bar that has a number. Places are percent of the axis.
pub(crate) struct Drawn {
    pub(crate) median: String,
    pub(crate) low: String,
    pub(crate) span: String,
    pub(crate) high: String,
    pub(crate) dots: Vec<String>,
    pub(crate) value: String,
    pub(crate) range: String,
}

/// A mark on the axis.
pub(crate) struct Tick {
    pub(crate) place: String,
    pub(crate) label: String,
    pub(crate) anchor: &'static str,
}

/// What a chart shows.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) metric: Metric,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) note: &'static str,
}

/// The charts of a group; the first leads.
pub(crate) const SUBJECTS: [Subject; 4] = [
    Subject {
        metric: Metric::CpuUsPerRow,
        title: "CPU per row",
        unit: "µs of the system’s CPU for each landed row",
        note: "",
    },
    Subject { metric: Metric::RowsPerS, title: "Throughput", unit: "rows landed per second, full window", note: "" },
    Subject {
        metric: Metric::ClickhouseCpuUsPerRow,
        title: "ClickHouse CPU per row",
        unit: "µs that ClickHouse spends on each row",
        note: "",
    },
    Subject {
        metric: Metric::DataPlanePeakAnonMb,
        title: "Memory",
        unit: "MB, highest anonymous memory",
        note: "A revealed preference, not a requirement: what each chose to use with plenty to spare.",
    },
];

/// How a value of a metric is written.
pub(crate) fn written(metric: Metric, value: f64) -> String {
    match metric {
        Metric::RowsPerS | Metric::PlateauRowsPerS => compact(value),
        _ => figure(value),
    }
}

/// Lowest and highest value; nothing for one run.
pub(crate) fn range(metric: Metric, it: &Figure) -> String {
    if it.values.len() < 2 {
        return String::new();
    }
    format!("{}–{}", written(metric, it.low), written(metric, it.high))
}

impl Chart {
    /// The chart of a subject over some arms; none if no arm has a number for it.
    pub(crate) fn new(subject: Subject, arms: &[&Arm<'_>], name: impl Fn(&Arm<'_>) -> (String, bool)) -> Option<Self> {
        let Subject { metric, title, unit, note } = subject;
        let highest = arms.iter().filter_map(|arm| arm.figure(metric)).map(|it| it.high).fold(0.0, f64::max);
        if highest <= 0.0 {
            return None;
        }
        let (step, count) = steps(highest);
        let end = step * count as f64;
        let bar = |arm: &&Arm<'_>| {
            let (label, ours) = name(arm);
            let drawn = arm.figure(metric).map(|it| Drawn {
                median: place(it.median, end),
                low: place(it.low, end),
                span: place(it.high - it.low, end),
                high: place(it.high, end),
                dots: it.values.iter().map(|value| place(*value, end)).collect(),
                value: written(metric, it.median),
                range: range(metric, it),
            });
            let instead = if arm.status.is_measured() { "not measured".to_owned() } else { arm.status.to_string() };
            Bar { label, variant: arm.variant.to_string(), ours, drawn, instead }
        };
        let better = match metric.direction() {
            Direction::Lower => "less is better",
            Direction::Higher => "more is better",
            Direction::Neutral => "",
        };
        let bars = arms.iter().map(bar).collect();
        Some(Self { title, unit, better, note, bars, ticks: ticks(metric, step, count) })
    }
}

fn place(value: f64, end: f64) -> String {
    format!("{:.2}", (value / end * 100.0).clamp(0.0, 100.0))
}

/// The step of an axis from zero that ends at or after `highest`, and how many steps it has: at most five.
fn steps(highest: f64) -> (f64, usize) {
    let base = 10_f64.powf((highest / 5.0).log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * base).into_iter().find(|step| highest / step <= 5.0);
    let step = step.unwrap_or(base * 10.0);
    (step, (highest / step).ceil() as usize)
}

fn ticks(metric: Metric, step: f64, count: usize) -> Vec<Tick> {
    let label = |value: f64| match metric {
        Metric::RowsPerS => {
            let text = compact(value);
            let (number, letter) = text.split_once('\u{202f}').unwrap_or((&text, ""));
            let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
            if letter.is_empty() { number.to_owned() } else { format!("{number}\u{202f}{letter}") }
        }
        _ => plain(value),
    };
    let tick = |at: usize| Tick {
        place: place(at as f64, count as f64),
        label: label(step * at as f64),
        anchor: match at {
            0 => "start",
            at if at == count => "end",
            _ => "middle",
        },
    };
    (0..=count).map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_starts_at_zero_and_holds_every_value() {
        for highest in [0.0031, 0.52, 1.0, 1.22, 9.99, 10.0, 1_960_784.0, 3e9] {
            let (step, count) = steps(highest);
            assert!((1..=5).contains(&count), "{highest}: {count} steps of {step}");
            assert!(step * count as f64 >= highest * 0.999_999, "{highest}: {count} steps of {step}");
            let ticks = ticks(Metric::CpuUsPerRow, step, count);
            assert_eq!((ticks[0].label.as_str(), ticks[0].place.as_str()), ("0", "0.00"));
            assert_eq!(ticks[count].place, "100.00");
        }
    }
}

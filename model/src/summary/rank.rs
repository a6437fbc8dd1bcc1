//! Which arms the runs tell apart.

use std::collections::BTreeMap;

use crate::metric::{Direction, Metric};
use crate::record::Measurement;
use crate::stats::{LEVEL, least_p, median, permutation_p, smallest_shift};

use super::{Arm, Figure};

/// An arm run twice in a sitting, and how far its two sets of runs lie apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Control {
    /// Difference of the two medians as a share of their mean, by metric.
    pub spread: BTreeMap<Metric, f64>,
}

/// The A/A control of a sitting's measurements; none if no arm was run twice.
#[must_use]
pub fn control(sitting: &[&Measurement]) -> Option<Control> {
    let again: Vec<_> = sitting.iter().filter(|it| it.aa && it.status.is_measured()).collect();
    let first = again.first()?;
    let same = |it: &Measurement| it.entrant.id == first.entrant.id && it.entrant.variant == first.entrant.variant;
    let ours: Vec<_> = sitting.iter().filter(|it| !it.aa && it.status.is_measured() && same(it)).collect();
    let middle =
        |runs: &[&&Measurement], metric| median(&runs.iter().filter_map(|it| it.value(metric)).collect::<Vec<_>>());
    let spread = Metric::ALL
        .iter()
        .filter_map(|metric| Some((*metric, apart(middle(&ours, *metric)?, middle(&again, *metric)?)?)))
        .collect();
    Some(Control { spread })
}

/// The difference of two values as a share of their mean; none around zero.
fn apart(a: f64, b: f64) -> Option<f64> {
    let mean = f64::midpoint(a, b);
    (mean != 0.0).then(|| ((a - b) / mean).abs())
}

/// Whether two arms' runs are told apart: by a permutation test, and by more than the control differs from itself.
#[must_use]
pub fn told_apart(a: &Figure, b: &Figure, aa_spread: f64) -> bool {
    apart(a.median, b.median).is_some_and(|apart| apart > aa_spread) && permutation_p(&a.values, &b.values, 1) <= LEVEL
}

/// Orders arms by CPU per row and gives each a rank. An arm shares the rank of the first arm before it that its runs
/// are not told apart from. Arms without a rank follow, by name.
pub(super) fn rank(arms: &mut [Arm<'_>], aa_spread: f64) {
    let by = Metric::CpuUsPerRow;
    let ranked = |arm: &Arm<'_>| arm.status.is_ranked() && arm.runs.iter().any(|run| run.stands());
    let place = |arm: &Arm<'_>| arm.figure(by).filter(|_| ranked(arm)).map_or(f64::INFINITY, |figure| figure.median);
    arms.sort_by(|a, b| {
        place(a).total_cmp(&place(b)).then_with(|| (a.entrant, a.variant).cmp(&(b.entrant, b.variant)))
    });
    let mut leader: Option<(usize, Figure)> = None;
    for (at, arm) in arms.iter_mut().enumerate() {
        let Some(figure) = arm.figures.get(&by).filter(|_| ranked(arm)) else { continue };
        let (rank, _) = match leader.take() {
            Some(shared) if !told_apart(&shared.1, figure, aa_spread) => leader.insert(shared),
            _ => leader.insert((at + 1, figure.clone())),
        };
        arm.rank = Some(*rank);
    }
}

/// The smallest relative difference between two arms that runs as noisy as the noisiest arm's could have shown, by
/// metric, and never less than the control differs from itself. None where no difference up to a doubling would show.
/// Metrics that have no better direction are left out.
#[must_use]
pub fn smallest_visible(arms: &[Arm<'_>], aa_spread: &BTreeMap<Metric, f64>) -> BTreeMap<Metric, f64> {
    let of = |metric: &Metric| {
        let figures: Vec<&Figure> = arms.iter().filter_map(|arm| arm.figure(*metric)).collect();
        let fewest = figures.iter().map(|figure| figure.values.len()).min()?;
        let noisiest = figures.iter().max_by(|a, b| a.spread().unwrap_or(0.0).total_cmp(&b.spread().unwrap_or(0.0)))?;
        let shift = smallest_shift(&noisiest.values).filter(|_| least_p(fewest, fewest) <= LEVEL)?;
        Some((*metric, shift.max(aa_spread.get(metric).copied().unwrap_or(0.0))))
    };
    Metric::ALL.iter().filter(|metric| metric.direction() != Direction::Neutral).filter_map(of).collect()
}

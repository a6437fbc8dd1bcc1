//! From records to what is shown: comparability groups, their arms, figures with spread, shared ranks.
//!
//! The terminal and the page draw the same summary. An arm stands with the runs of its newest sitting in a group;
//! earlier ones are counted.

mod compare;
mod rank;
mod sitting;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::comparability::Key;
use crate::flag::Flag;
use crate::id::{Approach, EntrantId, RunId, SittingId, VariantId};
use crate::metric::Metric;
use crate::record::{Measurement, Record, Retraction, Verdict};
use crate::stats;
use crate::status::Status;

pub use compare::{Chosen, CompareError, Comparison, Difference, Side, compare, sittings_of};
pub use rank::{Control, control, smallest_visible, told_apart};
pub use sitting::verdict;
pub use table::{Style, table};

/// Records that may be drawn together.
#[derive(Debug)]
pub struct Group<'r> {
    /// What they share.
    pub key: Key,
    /// The newest record: environment, host and infrastructure as they are now.
    pub newest: &'r Measurement,
    /// Arms that are realistic: ranked ones by rank, then the others.
    pub arms: Vec<Arm<'r>>,
    /// Tuned and stripped arms, never ranked.
    pub apart: Vec<Arm<'r>>,
    /// The control's runs in the sittings drawn; they count for no arm.
    pub control: Vec<Run<'r>>,
    /// Flags about the host, which every record carries: said once.
    pub host_flags: Vec<Flag>,
    /// How far the control differed from itself in the sittings drawn, by metric.
    pub aa_spread: BTreeMap<Metric, f64>,
    /// Smallest relative difference that the sittings drawn could have seen, by metric.
    pub smallest_visible: BTreeMap<Metric, f64>,
    /// Flags of the sittings drawn.
    pub sitting_flags: Vec<Flag>,
}

/// An entrant and a variant with the runs of its newest sitting.
#[derive(Debug)]
pub struct Arm<'r> {
    /// The entrant.
    pub entrant: &'r EntrantId,
    /// The variant.
    pub variant: &'r VariantId,
    /// What it may claim.
    pub approach: Approach,
    /// The worst status of its runs that stand.
    pub status: Status,
    /// Its rank by CPU per row; shared where runs do not tell arms apart; none if it is not ranked.
    pub rank: Option<usize>,
    /// Its runs, by repetition.
    pub runs: Vec<Run<'r>>,
    /// Figures over the runs that stand.
    pub figures: BTreeMap<Metric, Figure>,
    /// Flags of its runs but those about the host, and how many runs carry each kind; the last figure is shown.
    pub flags: Vec<(Flag, usize)>,
    /// Runs of earlier sittings.
    pub earlier: usize,
}

/// A run and what became of it.
#[derive(Debug, Clone, Copy)]
pub struct Run<'r> {
    /// The run.
    pub record: &'r Measurement,
    /// Its retraction, if there is one.
    pub retraction: Option<&'r Retraction>,
}

impl Run<'_> {
    /// Whether its numbers stand: measured and not retracted.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.retraction.is_none() && self.record.status.is_measured()
    }
}

/// Values of one metric over an arm's runs.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Figure {
    /// One value a run, by repetition.
    pub values: Vec<f64>,
    /// The middle one.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Figure {
    /// The figure of some values; none of nothing.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let (low, high) = stats::range(&values)?;
        let median = stats::median(&values)?;
        Some(Self { values, median, low, high })
    }

    /// 95 % bootstrap interval of the median; none of fewer than three runs.
    #[must_use]
    pub fn ci95(&self) -> Option<(f64, f64)> {
        stats::median_ci95(&self.values, 1)
    }

    /// Highest less lowest, as a share of the median; none of one run.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        stats::spread(&self.values)
    }
}

impl<'r> Arm<'r> {
    /// The newest run that stands, or else the newest.
    #[must_use]
    pub fn latest(&self) -> Option<&'r Measurement> {
        let run = self.runs.iter().rev().find(|run| run.stands()).or_else(|| self.runs.last())?;
        Some(run.record)
    }

    /// A figure, if any run that stands has it.
    #[must_use]
    pub fn figure(&self, metric: Metric) -> Option<&Figure> {
        self.figures.get(&metric)
    }

    /// Duplicates over the runs that stand; none if no run stands.
    #[must_use]
    pub fn duplicates(&self) -> Option<u64> {
        let gates: Vec<_> =
            self.runs.iter().filter(|run| run.stands()).filter_map(|run| run.record.gates.as_ref()).collect();
        (!gates.is_empty()).then(|| gates.iter().map(|gates| gates.duplicates).sum())
    }
}

/// The comparability groups of some records, the one with the newest record first.
pub fn summarise<'r>(records: impl IntoIterator<Item = &'r Record>) -> Vec<Group<'r>> {
    let mut groups: BTreeMap<Key, Vec<&'r Measurement>> = BTreeMap::new();
    let mut retractions: HashMap<RunId, &'r Retraction> = HashMap::new();
    let mut verdicts: HashMap<SittingId, &'r Verdict> = HashMap::new();
    for record in records {
        match record {
            Record::Measurement(it) => groups.entry(it.key()).or_default().push(it),
            Record::Retraction(it) => {
                retractions.insert(it.run_id, it);
            }
            Record::Verdict(it) => {
                verdicts.insert(it.sitting, it);
            }
            Record::Seal(_) => {}
        }
    }
    let mut groups: Vec<Group<'r>> =
        groups.into_iter().filter_map(|(key, runs)| group(key, &runs, &retractions, &verdicts)).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.newest.ts));
    groups
}

fn group<'r>(
    key: Key,
    measurements: &[&'r Measurement],
    retractions: &HashMap<RunId, &'r Retraction>,
    verdicts: &HashMap<SittingId, &'r Verdict>,
) -> Option<Group<'r>> {
    let newest = *measurements.iter().max_by_key(|it| (it.ts, it.run_id))?;
    let mut by_arm: BTreeMap<(&EntrantId, &VariantId), Vec<&'r Measurement>> = BTreeMap::new();
    for it in measurements {
        by_arm.entry((&it.entrant.id, &it.entrant.variant)).or_default().push(it);
    }
    let mut drawn: BTreeSet<SittingId> = BTreeSet::new();
    let mut all: Vec<Arm<'r>> = Vec::new();
    for runs in by_arm.into_values() {
        let Some(sitting) = runs.iter().max_by_key(|it| (it.ts, it.run_id)).map(|it| it.sitting) else { continue };
        drawn.insert(sitting);
        all.extend(arm(&runs, sitting, retractions));
    }
    let seen: Vec<&Measurement> = measurements
        .iter()
        .filter(|it| drawn.contains(&it.sitting) && !retractions.contains_key(&it.run_id))
        .copied()
        .collect();
    let mut aa_spread = BTreeMap::new();
    for sitting in &drawn {
        let of_sitting: Vec<_> = seen.iter().filter(|it| it.sitting == *sitting).copied().collect();
        let spread = control(&of_sitting).map(|control| control.spread).unwrap_or_default();
        let written = verdicts.get(sitting).map(|verdict| verdict.aa_spread.clone()).unwrap_or_default();
        for (metric, spread) in spread.into_iter().chain(written) {
            let largest = aa_spread.entry(metric).or_insert(spread);
            *largest = spread.max(*largest);
        }
    }
    let (mut arms, apart): (Vec<_>, Vec<_>) = all.into_iter().partition(|arm| arm.approach == Approach::Realistic);
    rank::rank(&mut arms, aa_spread.get(&Metric::CpuUsPerRow).copied().unwrap_or(0.0));
    let smallest_visible = smallest_visible(&arms, &aa_spread);
    let sitting_flags = drawn.iter().filter_map(|it| verdicts.get(it)).flat_map(|it| it.flags.clone()).collect();
    let host_flags = newest.flags.iter().filter(|flag| flag.is_about_host()).cloned().collect();
    let control = measurements
        .iter()
        .filter(|it| it.aa && drawn.contains(&it.sitting))
        .map(|record| Run { record, retraction: retractions.get(&record.run_id).copied() })
        .collect();
    Some(Group { key, newest, arms, apart, control, host_flags, aa_spread, smallest_visible, sitting_flags })
}

/// The runs of an arm in a sitting, without those of the control.
fn arm<'r>(
    all: &[&'r Measurement],
    sitting: SittingId,
    retractions: &HashMap<RunId, &'r Retraction>,
) -> Option<Arm<'r>> {
    let mut runs: Vec<Run<'r>> = all
        .iter()
        .filter(|it| it.sitting == sitting && !it.aa)
        .map(|record| Run { record, retraction: retractions.get(&record.run_id).copied() })
        .collect();
    runs.sort_by_key(|run| (run.record.rep, run.record.ts));
    let latest = runs.last()?.record;
    let standing: Vec<&Measurement> = runs.iter().filter(|run| run.stands()).map(|run| run.record).collect();
    let figures = Metric::ALL
        .iter()
        .filter_map(|metric| {
            let values: Vec<f64> = standing.iter().filter_map(|it| it.value(*metric)).collect();
            Some((*metric, Figure::of(values)?))
        })
        .collect();
    let mut flags: Vec<(Flag, usize)> = Vec::new();
    for flag in standing.iter().flat_map(|it| &it.flags).filter(|flag| !flag.is_about_host()) {
        match flags.iter_mut().find(|(known, _)| known.name() == flag.name()) {
            Some((known, times)) => {
                *known = flag.clone();
                *times += 1;
            }
            None => flags.push((flag.clone(), 1)),
        }
    }
    let kept = runs.iter().filter(|run| run.retraction.is_none()).map(|run| run.record.status);
    let status = kept.max_by_key(|status| badness(*status)).unwrap_or(latest.status);
    let earlier = all.iter().filter(|it| it.sitting != sitting && !it.aa).count();
    Some(Arm {
        entrant: &latest.entrant.id,
        variant: &latest.entrant.variant,
        approach: latest.approach,
        status,
        rank: None,
        runs,
        figures,
        flags,
        earlier,
    })
}

const fn badness(status: Status) -> u8 {
    match status {
        Status::Ok => 0,
        Status::InfraBound => 1,
        Status::Saturated => 2,
        Status::NotRun => 3,
        Status::Unsupported => 4,
        Status::Failed => 5,
    }
}

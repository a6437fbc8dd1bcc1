//! Two runs or two arms side by side, with the difference and whether it is one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::comparability::Key;
use crate::error::Coded;
use crate::id::{EntrantId, IdError, RunId, SittingId, VariantId};
use crate::metric::{Direction, Metric};
use crate::record::{Measurement, Record};
use crate::stats::{difference_ci95, permutation_p};

use super::rank::control;
use super::{Figure, told_apart};

/// One side of a comparison: a run id, or `<entrant>[:<variant>][@<sitting>]`, where the beginning of the sitting's id
/// is enough. Without a sitting, the newest that the other side can be compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// One run.
    Run(RunId),
    /// The runs of an arm in one sitting.
    Arm {
        /// The entrant.
        entrant: EntrantId,
        /// The variant; none is the default one, which the caller fills in.
        variant: Option<VariantId>,
        /// The beginning of a sitting's id.
        sitting: Option<String>,
    },
}

impl FromStr for Side {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if let Ok(run) = text.parse() {
            return Ok(Self::Run(run));
        }
        let (arm, sitting) = text.split_once('@').map_or((text, None), |(arm, it)| (arm, Some(it.to_owned())));
        let (entrant, variant) = arm.split_once(':').map_or((arm, None), |(entrant, it)| (entrant, Some(it)));
        Ok(Self::Arm {
            entrant: entrant.parse()?,
            variant: variant.map(str::parse).transpose()?,
            sitting: sitting.filter(|it| !it.is_empty()),
        })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run) => run.fmt(f),
            Self::Arm { entrant, variant, sitting } => {
                write!(f, "{entrant}")?;
                variant.iter().try_for_each(|it| write!(f, ":{it}"))?;
                sitting.iter().try_for_each(|it| write!(f, "@{it}"))
            }
        }
    }
}

/// Why two sides are not compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// Nothing that stands is called so.
    #[error("no run of `{0}` stands")]
    Nothing(String),
    /// They have no comparability key in common.
    #[error("`{a}` and `{b}` are not comparable: they differ in {differences}")]
    NotComparable {
        /// The one side.
        a: String,
        /// The other.
        b: String,
        /// In what their newest runs differ.
        differences: String,
    },
    /// They are the same runs.
    #[error("`{0}` is compared with itself, and its sitting has no control")]
    Same(String),
}

impl Coded for CompareError {
    fn code(&self) -> &'static str {
        match self {
            Self::Nothing(_) => "nothing_to_compare",
            Self::NotComparable { .. } => "not_comparable",
            Self::Same(_) => "same_side",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Nothing(_) => Some("a failed or retracted run has no number to compare".into()),
            Self::Same(_) => Some("name a sitting: `<entrant>:<variant>@<sitting>`".into()),
            Self::NotComparable { .. } => None,
        }
    }

    fn refused(&self) -> bool {
        true
    }
}

/// The runs that a side turned out to mean.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chosen {
    /// `<entrant>:<variant>`.
    pub arm: String,
    /// The version that ran.
    pub version: String,
    /// Their sitting.
    pub sitting: SittingId,
    /// The runs.
    pub runs: Vec<RunId>,
}

/// One metric on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The metric.
    pub metric: Metric,
    /// On the one side.
    pub a: Figure,
    /// On the other.
    pub b: Figure,
    /// How far the median of `b` lies above that of `a`, as a share of the latter; none around zero.
    pub relative: Option<f64>,
    /// 95 % bootstrap interval of it; none of fewer than three runs on a side.
    pub ci95: Option<(f64, f64)>,
    /// How often chance alone splits the runs this far apart.
    pub p: f64,
    /// How far the control differed from itself.
    pub aa_spread: f64,
    /// Whether the runs tell the sides apart, beyond what the control differs from itself.
    pub told_apart: bool,
    /// Whether `b` is better, where the metric has a better direction.
    pub b_is_better: Option<bool>,
}

/// Two sides of one comparability group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The one side.
    pub a: Chosen,
    /// The other.
    pub b: Chosen,
    /// The environment both were measured in.
    pub env: String,
    /// The workload both ran.
    pub workload: String,
    /// Whether it is a control: the same arm of the same sitting, run twice.
    pub control: bool,
    /// Every metric that both sides have.
    pub differences: Vec<Difference>,
}

impl Comparison {
    /// A metric, if both sides have it.
    #[must_use]
    pub fn of(&self, metric: Metric) -> Option<&Difference> {
        self.differences.iter().find(|it| it.metric == metric)
    }
}

/// The runs of one arm in one sitting.
struct Set<'r> {
    key: Key,
    runs: Vec<&'r Measurement>,
}

impl Set<'_> {
    /// The newest run's time, as the set's age.
    fn age(&self) -> (jiff::Timestamp, RunId) {
        self.runs.iter().map(|run| (run.ts, run.run_id)).max().unwrap_or((jiff::Timestamp::MIN, self.runs[0].run_id))
    }

    fn chosen(&self) -> Chosen {
        let first = self.runs[0];
        Chosen {
            arm: format!("{}:{}", first.entrant.id, first.entrant.variant),
            version: first.entrant.version.clone(),
            sitting: first.sitting,
            runs: self.runs.iter().map(|run| run.run_id).collect(),
        }
    }
}

/// Measurements that stand: measured and not retracted.
fn standing<'r>(records: &[&'r Record]) -> Vec<&'r Measurement> {
    let retracted: BTreeSet<RunId> = records
        .iter()
        .filter_map(|record| match record {
            Record::Retraction(it) => Some(it.run_id),
            _ => None,
        })
        .collect();
    let stands = |record: &&'r Record| match record {
        Record::Measurement(it) if it.status.is_measured() && !retracted.contains(&it.run_id) => Some(&**it),
        _ => None,
    };
    records.iter().filter_map(stands).collect()
}

/// What a side can mean, the newest first.
fn sets<'r>(side: &Side, standing: &[&'r Measurement]) -> Vec<Set<'r>> {
    let wanted = |it: &&&Measurement| match side {
        Side::Run(run) => it.run_id == *run,
        Side::Arm { entrant, variant, sitting } => {
            !it.aa
                && it.entrant.id == *entrant
                && variant.as_ref().is_none_or(|variant| it.entrant.variant == *variant)
                && sitting.as_ref().is_none_or(|begin| it.sitting.to_string().starts_with(begin))
        }
    };
    let mut by_sitting: BTreeMap<(SittingId, &VariantId, Key), Vec<&'r Measurement>> = BTreeMap::new();
    for it in standing.iter().filter(wanted) {
        by_sitting.entry((it.sitting, &it.entrant.variant, it.key())).or_default().push(it);
    }
    let mut sets: Vec<Set<'r>> = by_sitting.into_iter().map(|((_, _, key), runs)| Set { key, runs }).collect();
    sets.sort_by_key(|set| std::cmp::Reverse(set.age()));
    sets
}

/// The sittings in which an arm has runs that stand, the newest first, with what each may be compared with.
#[must_use]
pub fn sittings_of(records: &[&Record], entrant: &EntrantId, variant: &VariantId) -> Vec<(Key, SittingId)> {
    let side = Side::Arm { entrant: entrant.clone(), variant: Some(variant.clone()), sitting: None };
    sets(&side, &standing(records)).into_iter().map(|set| (set.key, set.runs[0].sitting)).collect()
}

/// Compares two sides by the newest runs that share a comparability key. The same arm of the same sitting on both
/// sides is compared with its control.
///
/// # Errors
/// When a side has no run that stands, or the two have no key in common.
pub fn compare(records: &[&Record], a: &Side, b: &Side) -> Result<Comparison, CompareError> {
    let standing = standing(records);
    let (ours, theirs) = (sets(a, &standing), sets(b, &standing));
    let newest = |sets: &[Set<'_>], side: &Side| {
        sets.first().map(|set| set.key.clone()).ok_or_else(|| CompareError::Nothing(side.to_string()))
    };
    let (our_key, their_key) = (newest(&ours, a)?, newest(&theirs, b)?);
    let pair = ours.iter().find_map(|ours| Some((ours, theirs.iter().find(|theirs| theirs.key == ours.key)?)));
    let Some((ours, theirs)) = pair else {
        let differences: Vec<String> = our_key
            .differences(&their_key)
            .into_iter()
            .map(|it| format!("{} ({} and {})", it.what, it.ours, it.theirs))
            .collect();
        let differences = differences.join(", ");
        return Err(CompareError::NotComparable { a: a.to_string(), b: b.to_string(), differences });
    };
    let same = ours.runs[0].run_id == theirs.runs[0].run_id;
    if same {
        let again = again(ours, &standing).ok_or_else(|| CompareError::Same(a.to_string()))?;
        return Ok(sides(ours, &again, &BTreeMap::new(), true));
    }
    let mut aa_spread: BTreeMap<Metric, f64> = BTreeMap::new();
    for set in [ours, theirs] {
        let sitting: Vec<&Measurement> =
            standing.iter().filter(|it| it.sitting == set.runs[0].sitting).copied().collect();
        for (metric, spread) in control(&sitting).map(|it| it.spread).unwrap_or_default() {
            let largest = aa_spread.entry(metric).or_insert(spread);
            *largest = spread.max(*largest);
        }
    }
    Ok(sides(ours, theirs, &aa_spread, false))
}

/// The control's runs of the same arm and sitting.
fn again<'r>(set: &Set<'r>, standing: &[&'r Measurement]) -> Option<Set<'r>> {
    let first = set.runs[0];
    let same = |it: &&&Measurement| {
        it.aa
            && it.sitting == first.sitting
            && it.entrant.id == first.entrant.id
            && it.entrant.variant == first.entrant.variant
    };
    let runs: Vec<&'r Measurement> = standing.iter().filter(same).copied().collect();
    (!runs.is_empty()).then(|| Set { key: set.key.clone(), runs })
}

fn sides(ours: &Set<'_>, theirs: &Set<'_>, aa_spread: &BTreeMap<Metric, f64>, control: bool) -> Comparison {
    let figure = |set: &Set<'_>, metric| Figure::of(set.runs.iter().filter_map(|it| it.value(metric)).collect());
    let difference = |metric: &Metric| {
        let (a, b) = (figure(ours, *metric)?, figure(theirs, *metric)?);
        let spread = aa_spread.get(metric).copied().unwrap_or(0.0);
        let better = match metric.direction() {
            Direction::Lower => Some(b.median < a.median),
            Direction::Higher => Some(b.median > a.median),
            Direction::Neutral => None,
        };
        Some(Difference {
            metric: *metric,
            relative: (a.median != 0.0).then(|| (b.median - a.median) / a.median.abs()),
            ci95: difference_ci95(&a.values, &b.values, 1),
            p: permutation_p(&a.values, &b.values, 1),
            aa_spread: spread,
            told_apart: told_apart(&a, &b, spread),
            b_is_better: better,
            a,
            b,
        })
    };
    Comparison {
        a: ours.chosen(),
        b: theirs.chosen(),
        env: ours.key.env.to_string(),
        workload: ours.key.workload.to_string(),
        control,
        differences: Metric::ALL.iter().filter_map(difference).collect(),
    }
}

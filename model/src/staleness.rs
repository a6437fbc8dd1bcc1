//! What has moved on since an arm was last measured.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::archive::Located;
use crate::descriptor::{Entrant, EntrantStatus, Variant};
use crate::id::{ProfileId, WorkloadId};
use crate::record::{Measurement, Record};

/// How things are now.
#[derive(Debug, Clone)]
pub struct Present<'a> {
    /// Version of the protocol.
    pub harness_version: u32,
    /// Version of corpus, schema and tables.
    pub dataset_version: &'a str,
    /// The time.
    pub ts: Timestamp,
    /// Days after which a measurement is old.
    pub days: i64,
}

/// One thing that has moved on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// Nothing of it stands.
    NeverMeasured,
    /// The protocol is another.
    HarnessVersion {
        /// Measured with.
        measured: u32,
        /// Now.
        now: u32,
    },
    /// Corpus, schema or tables are others.
    DatasetVersion {
        /// Measured with.
        measured: String,
        /// Now.
        now: String,
    },
    /// It is old.
    Age {
        /// Days since.
        days: i64,
    },
    /// The descriptor pins another version than was measured.
    Version {
        /// Measured.
        measured: String,
        /// Pinned.
        pinned: String,
    },
    /// A newer release is known than the descriptor pins.
    Upstream {
        /// Pinned.
        pinned: String,
        /// Known.
        newest: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverMeasured => f.write_str("never measured"),
            Self::HarnessVersion { measured, now } => write!(f, "measured with protocol {measured}, now {now}"),
            Self::DatasetVersion { measured, now } => write!(f, "measured on dataset {measured}, now {now}"),
            Self::Age { days } => write!(f, "measured {days} days ago"),
            Self::Version { measured, pinned } => write!(f, "measured at version {measured}, pinned is {pinned}"),
            Self::Upstream { pinned, newest } => write!(f, "pinned is version {pinned}, upstream has {newest}"),
        }
    }
}

/// An arm that wants measuring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stale {
    /// `<entrant>:<variant>`.
    pub arm: String,
    /// The workload.
    pub workload: WorkloadId,
    /// The environment; none where it was never measured.
    pub env: Option<ProfileId>,
    /// Why.
    pub reasons: Vec<Reason>,
}

/// Every active variant and workload whose newest run that stands is behind the present, by environment.
#[must_use]
pub fn stale(records: &[Located], entrants: &[Entrant], present: &Present<'_>) -> Vec<Stale> {
    let retracted: BTreeSet<_> = records
        .iter()
        .filter_map(|found| match &found.record {
            Record::Retraction(it) => Some(it.run_id),
            _ => None,
        })
        .collect();
    let standing: Vec<&Measurement> = records
        .iter()
        .filter_map(|found| match &found.record {
            Record::Measurement(it) if it.status.is_measured() && !retracted.contains(&it.run_id) => Some(&**it),
            _ => None,
        })
        .collect();
    let mut found = Vec::new();
    for entrant in entrants.iter().filter(|entrant| entrant.identity.status == EntrantStatus::Active) {
        for variant in &entrant.variants {
            for workload in &variant.workloads {
                found.extend(of_arm(&standing, entrant, variant, *workload, present));
            }
        }
    }
    found
}

fn of_arm(
    standing: &[&Measurement],
    entrant: &Entrant,
    variant: &Variant,
    workload: WorkloadId,
    present: &Present<'_>,
) -> Vec<Stale> {
    let runs: Vec<&&Measurement> = standing
        .iter()
        .filter(|it| it.entrant.id == *entrant.id() && it.entrant.variant == variant.id && it.workload == workload)
        .collect();
    let arm = format!("{}:{}", entrant.id(), variant.id);
    let pinned = &entrant.version.pinned;
    let newer = entrant.version.newest.as_ref().filter(|newest| *newest != pinned);
    let upstream = newer.map(|newest| Reason::Upstream { pinned: pinned.clone(), newest: newest.clone() });
    let places: BTreeSet<&ProfileId> = runs.iter().map(|it| &it.env.profile).collect();
    if places.is_empty() {
        let reasons = [Reason::NeverMeasured].into_iter().chain(upstream).collect();
        return vec![Stale { arm, workload, env: None, reasons }];
    }
    let place = |profile: &ProfileId| {
        let newest = runs.iter().filter(|it| it.env.profile == *profile).max_by_key(|it| (it.ts, it.run_id))?;
        let reasons: Vec<Reason> = behind(newest, pinned, present).into_iter().chain(upstream.clone()).collect();
        let stale = Stale { arm: arm.clone(), workload, env: Some(profile.clone()), reasons };
        (!stale.reasons.is_empty()).then_some(stale)
    };
    places.into_iter().filter_map(place).collect()
}

/// In what a run is behind the present.
fn behind(run: &Measurement, pinned: &str, present: &Present<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let (measured, now) = (run.protocol.harness_version, present.harness_version);
    if measured != now {
        reasons.push(Reason::HarnessVersion { measured, now });
    }
    if run.protocol.dataset_version != present.dataset_version {
        let (measured, now) = (run.protocol.dataset_version.clone(), present.dataset_version.to_owned());
        reasons.push(Reason::DatasetVersion { measured, now });
    }
    if run.entrant.version != pinned {
        reasons.push(Reason::Version { measured: run.entrant.version.clone(), pinned: pinned.to_owned() });
    }
    let days = present.ts.duration_since(run.ts).as_hours() / 24;
    if days > present.days {
        reasons.push(Reason::Age { days });
    }
    reasons
}

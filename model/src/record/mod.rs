//! The record: one line of the archive.

mod facts;
mod line;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::comparability::Key;
use crate::digest::Digest;
use crate::flag::Flag;
use crate::id::{Approach, EntrantId, EnvId, Mode, RunId, SittingId, Trigger, WireFormat, WorkloadId};
use crate::metric::{Latency, Metric, Metrics};
use crate::status::Status;

pub use facts::{
    AppliedCaps, EntrantFacts, EnvFacts, Expected, GateFacts, Guarantees, InfraFacts, Knob, ProtocolFacts,
    ServiceFacts, Window, Windows,
};
pub use line::RecordError;

/// The schema this version writes, and the newest it reads.
pub const SCHEMA: u64 = 1;

/// One line of the archive, without its link to the line before.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A run.
    Measurement(Box<Measurement>),
    /// A run found wrong.
    Retraction(Retraction),
    /// What a sitting could tell apart.
    Verdict(Verdict),
    /// Closes a line that a crash left unfinished.
    Seal(Seal),
}

/// One run of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// Identity of the run.
    pub run_id: RunId,
    /// The sitting it belongs to.
    pub sitting: SittingId,
    /// When the record was made.
    pub ts: Timestamp,
    /// Why the sitting was started.
    pub trigger: Trigger,
    /// Which repetition, from 1.
    pub rep: u32,
    /// Of how many.
    pub reps: u32,
    /// Its place in the order of the sitting, from 1.
    pub order: u32,
    /// Whether it is the sitting's second run of one arm, its A/A control.
    pub aa: bool,
    /// What ran.
    pub workload: WorkloadId,
    /// How it ended.
    pub status: Status,
    /// Who ran.
    pub entrant: EntrantFacts,
    /// What the variant may claim.
    pub approach: Approach,
    /// The format it inserts in.
    pub wire_format: WireFormat,
    /// What it guarantees.
    pub guarantees: Guarantees,
    /// The knobs it ran with.
    pub knobs: BTreeMap<String, Knob>,
    /// Why it is this fast and not twice as fast.
    pub binding: String,
    /// Where it ran.
    pub env: EnvFacts,
    /// How it was measured.
    pub protocol: ProtocolFacts,
    /// What it ran against.
    pub infra: InfraFacts,
    /// The mode and what was measured in it. Its fields stand at the top of the line.
    pub reading: Reading,
    /// The windows the metrics are over; none without metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// The raw samples, relative to the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// The digest of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series_digest: Option<Digest>,
    /// What the gates found; none if it did not come to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gates: Option<GateFacts>,
    /// What a reader should know.
    pub flags: Vec<Flag>,
    /// Why it failed, or empty.
    pub note: String,
}

/// The mode and what was measured in it: a drain cannot carry a latency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum Reading {
    /// The topic was filled first.
    Drain {
        /// What was measured; empty unless the status is a measured one.
        metrics: Metrics,
    },
    /// A producer offered a fixed rate.
    Sustained {
        /// Rows per second that were offered.
        offered_rows_per_s: f64,
        /// What was measured; empty unless the status is a measured one.
        metrics: Metrics,
        /// Row latency, if measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latency: Option<Latency>,
    },
}

impl Reading {
    /// The mode.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self {
            Self::Drain { .. } => Mode::Drain,
            Self::Sustained { .. } => Mode::Sustained,
        }
    }

    /// The metrics.
    #[must_use]
    pub const fn metrics(&self) -> &Metrics {
        match self {
            Self::Drain { metrics } | Self::Sustained { metrics, .. } => metrics,
        }
    }
}

impl Measurement {
    /// What a record must share with another to be drawn beside it.
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            env: self.env.id.clone(),
            harness_version: self.protocol.harness_version,
            dataset_version: self.protocol.dataset_version.clone(),
            batches: self.protocol.batches,
            infra: self.infra.digest(),
            workload: self.workload,
            mode: self.reading.mode(),
        }
    }

    /// A metric's value, if the gates passed and it was measured.
    #[must_use]
    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.status.is_measured().then(|| self.reading.metrics().value(metric)).flatten()
    }

    /// Refuses a record that contradicts itself.
    ///
    /// # Errors
    /// [`RecordError::Contradiction`] with the sentence that is not true of it.
    pub fn check(&self) -> Result<(), RecordError> {
        let measured = self.status.is_measured();
        let rules = [
            (measured || self.reading.metrics().is_empty(), "a run that was not measured carries no metrics"),
            (!measured || !self.reading.metrics().is_empty(), "a measured run carries metrics"),
            (measured || !self.note.trim().is_empty(), "a run that was not measured says why in its note"),
            (!measured || self.gates.is_some(), "a measured run passed the gates"),
            (!measured || self.windows.is_some(), "a measured run has a window"),
            (!measured || self.entrant.artefact.is_some(), "a measured run identifies its artefact"),
            (
                !measured || self.gates.as_ref().is_none_or(|gates| gates.rows.expected == gates.rows.got),
                "a measured run landed every row",
            ),
            (
                self.status != Status::Saturated || self.reading.mode() == Mode::Sustained,
                "only a sustained run can be saturated",
            ),
            (self.rep >= 1 && self.rep <= self.reps, "a repetition is one of those planned"),
            (
                self.env.id.as_str().ends_with(&self.env.digest.short())
                    && self.env.id.as_str().starts_with(self.env.profile.as_str()),
                "an environment id is its profile and its digest",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => Err(RecordError::Contradiction { run_id: self.run_id, rule }),
        }
    }
}

/// A run found wrong. The number stays visible, struck through, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retraction {
    /// The run.
    pub run_id: RunId,
    /// Its environment.
    pub env: EnvId,
    /// Its entrant.
    pub entrant: EntrantId,
    /// Why.
    pub reason: String,
    /// The run that takes its place, if there is one.
    pub superseded_by: Option<RunId>,
    /// When.
    pub ts: Timestamp,
}

/// What a sitting could tell apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// The sitting.
    pub sitting: SittingId,
    /// Its environment.
    pub env: EnvId,
    /// Largest relative difference between runs of the control arm, by metric.
    pub aa_spread: BTreeMap<Metric, f64>,
    /// Smallest relative difference that the sitting could have seen, by metric.
    pub smallest_visible: BTreeMap<Metric, f64>,
    /// What a reader should know about the sitting as a whole.
    pub flags: Vec<Flag>,
    /// Where the files that the sitting wrote to ended, by their path in the archive: nothing before these lines can
    /// change, or be taken off the end, unseen.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub heads: BTreeMap<String, Head>,
    /// When.
    pub ts: Timestamp,
}

/// The end of a file's chain at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Lines of the file.
    pub lines: u64,
    /// The digest of the last of them.
    pub digest: Digest,
}

/// Closes a line that a crash left unfinished, so that the next record starts on a line of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// Bytes of the unfinished line.
    pub torn_bytes: u64,
}

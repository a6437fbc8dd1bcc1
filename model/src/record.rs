//! The record: one line of the archive.
//!
//! A line is a JSON object with `schema`, `kind`, the fields of the kind and `prev`. Unknown keys and a newer schema
//! are refused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::comparability::Key;
use crate::digest::Digest;
use crate::environment::HostFacts;
use crate::error::Coded;
use crate::flag::Flag;
use crate::id::{
    Approach, Class, Delivery, EntrantId, EnvId, Mode, ProfileId, Role, RunId, SittingId, Trigger, VariantId,
    WireFormat, WorkloadId,
};
use crate::metric::{Latency, Metric, Metrics};
use crate::status::Status;

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

/// The keys of [`Reading`] at the top of a line.
const READING_KEYS: [&str; 4] = ["mode", "metrics", "offered_rows_per_s", "latency"];

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

/// A knob's value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Knob {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Another number.
    Float(f64),
    /// Anything else.
    Text(String),
}

impl Knob {
    /// Its value as a number, if it is one.
    #[must_use]
    pub const fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Bool(_) | Self::Text(_) => None,
        }
    }
}

impl std::fmt::Display for Knob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

/// Who ran, as read from what ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntrantFacts {
    /// The entrant.
    pub id: EntrantId,
    /// Its variant.
    pub variant: VariantId,
    /// The version that the artefact reported.
    pub version: String,
    /// The digest of the artefact that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artefact: Option<Digest>,
    /// What it was built with, where it was built here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolchain: Option<String>,
    /// The commit of the suite it was built from, where it was built here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// What an arm guarantees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarantees {
    /// About each row.
    pub delivery: Delivery,
    /// By what, such as `offset-commit` or `checkpoint`.
    pub durability: String,
    /// How often, in milliseconds.
    pub interval_ms: u64,
}

/// Where a run took place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvFacts {
    /// The profile on this host.
    pub id: EnvId,
    /// The profile.
    pub profile: ProfileId,
    /// How far its numbers reach.
    pub class: Class,
    /// The whole digest of which the id carries eight digits.
    pub digest: Digest,
    /// Share of the reference envelope of 4 CPUs and 16 GiB.
    pub envelope_scale: f64,
    /// The host.
    pub host: HostFacts,
    /// The caps of each container of the arm.
    pub envelope: Vec<AppliedCaps>,
}

/// The caps of one container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppliedCaps {
    /// The container.
    pub name: String,
    /// Whose work it does.
    pub role: Role,
    /// CPUs asked for.
    pub cpus: f64,
    /// Bytes asked for.
    pub memory: u64,
    /// Bytes of swap allowed; 0 by protocol.
    pub swap: u64,
    /// Whether the running control group gave back exactly these values.
    pub read_back: bool,
}

/// How a run was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolFacts {
    /// Version of the protocol; see METHODOLOGY.md.
    pub harness_version: u32,
    /// Version of corpus, schema and tables.
    pub dataset_version: String,
    /// The commit of the suite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness_commit: Option<String>,
    /// Seed of the order of arms.
    pub seed: u64,
    /// Messages in the corpus.
    pub batches: u64,
}

/// What a run went against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InfraFacts {
    /// Partitions of the topic.
    pub partitions: u32,
    /// The broker.
    pub broker: ServiceFacts,
    /// ClickHouse.
    pub clickhouse: ServiceFacts,
    /// The schema registry.
    pub registry: ServiceFacts,
    /// The ceilings of this infrastructure, in rows per second by name, where measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ceilings: BTreeMap<String, f64>,
}

/// A part of the infrastructure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceFacts {
    /// Which product, such as `kafka`.
    pub kind: String,
    /// Its version, as it reports it.
    pub version: String,
    /// CPUs it may use, if capped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Bytes it may use, if capped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

impl InfraFacts {
    /// What comparability asks of the infrastructure: kinds, the first two numbers of each version, caps and
    /// partitions. A patch release is provenance, not another experiment.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let part = |service: &ServiceFacts| {
            let series: Vec<&str> = service.version.split('.').take(2).collect();
            serde_json::json!({
                "kind": service.kind, "series": series.join("."), "cpus": service.cpus, "memory": service.memory,
            })
        };
        Digest::of_json(&serde_json::json!({
            "partitions": self.partitions,
            "broker": part(&self.broker),
            "clickhouse": part(&self.clickhouse),
            "registry": part(&self.registry),
        }))
    }
}

/// The windows that metrics are over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    /// First consumption to the last row.
    pub full: Window,
    /// The steady part, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plateau: Option<Window>,
}

/// A stretch of time and the rows that landed in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Its beginning.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// Rows that landed.
    pub rows: u64,
}

/// What the gates found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateFacts {
    /// Distinct rows.
    pub rows: Expected,
    /// Rows that landed more than once.
    pub duplicates: u64,
    /// Batches whose values were compared with their closed form.
    pub checked_batches: u64,
}

/// A count and what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// What it should be.
    pub expected: u64,
    /// What it is.
    pub got: u64,
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
    /// When.
    pub ts: Timestamp,
}

/// Closes a line that a crash left unfinished, so that the next record starts on a line of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// Bytes of the unfinished line.
    pub torn_bytes: u64,
}

/// Why a line is not a record, or a record not fit to be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The line is not a JSON object.
    #[error("not a JSON object: {0}")]
    Json(serde_json::Error),
    /// A key that every record has is missing or of another type.
    #[error("`{0}` is missing or not of its type")]
    Missing(&'static str),
    /// Written by a newer version.
    #[error("schema {0} is newer than {SCHEMA}, the newest this version reads")]
    NewerSchema(u64),
    /// A kind this version does not know.
    #[error("`{0}` is not a kind of record")]
    UnknownKind(String),
    /// The fields are not those of the kind.
    #[error("not a {kind}: {source}")]
    Fields {
        /// The kind.
        kind: String,
        /// What is wrong with them.
        source: serde_json::Error,
    },
    /// The record contradicts itself.
    #[error("run {run_id} contradicts itself: {rule}")]
    Contradiction {
        /// The run.
        run_id: RunId,
        /// The sentence that is not true of it.
        rule: &'static str,
    },
}

impl Coded for RecordError {
    fn code(&self) -> &'static str {
        match self {
            Self::Json(_) => "record_not_json",
            Self::Missing(_) => "record_incomplete",
            Self::NewerSchema(_) => "record_newer_schema",
            Self::UnknownKind(_) => "record_unknown_kind",
            Self::Fields { .. } => "record_fields",
            Self::Contradiction { .. } => "record_contradiction",
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::NewerSchema(_))
            .then(|| "use the version of the suite that wrote it, or a newer one".into())
    }
}

#[derive(Serialize)]
struct LineOut<'a, T> {
    schema: u64,
    kind: &'static str,
    #[serde(flatten)]
    body: T,
    prev: &'a Digest,
}

impl Record {
    /// The name of its kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Measurement(_) => "measurement",
            Self::Retraction(_) => "retraction",
            Self::Verdict(_) => "verdict",
            Self::Seal(_) => "seal",
        }
    }

    /// The line that says it, without a line end.
    ///
    /// # Errors
    /// When it contradicts itself or holds a number that JSON cannot.
    pub fn to_line(&self, prev: &Digest) -> Result<String, RecordError> {
        fn line(kind: &'static str, body: impl Serialize, prev: &Digest) -> Result<String, RecordError> {
            serde_json::to_string(&LineOut { schema: SCHEMA, kind, body, prev }).map_err(RecordError::Json)
        }
        let kind = self.kind();
        match self {
            Self::Measurement(measurement) => {
                measurement.check()?;
                let mut body = serde_json::to_value(measurement).map_err(RecordError::Json)?;
                if let Some(fields) = body.as_object_mut()
                    && let Some(serde_json::Value::Object(reading)) = fields.remove("reading")
                {
                    fields.extend(reading);
                }
                line(kind, body, prev)
            }
            Self::Retraction(retraction) => line(kind, retraction, prev),
            Self::Verdict(verdict) => line(kind, verdict, prev),
            Self::Seal(seal) => line(kind, seal, prev),
        }
    }

    /// Reads a line: the record and the digest of the line before it.
    ///
    /// # Errors
    /// When it is not a record of a schema this version knows, with exactly its keys.
    pub fn from_line(line: &[u8]) -> Result<(Self, Digest), RecordError> {
        let mut fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(line).map_err(RecordError::Json)?;
        let mut take = |key: &'static str| fields.remove(key).ok_or(RecordError::Missing(key));
        let schema = take("schema")?.as_u64().ok_or(RecordError::Missing("schema"))?;
        if schema > SCHEMA {
            return Err(RecordError::NewerSchema(schema));
        }
        let kind = take("kind")?.as_str().ok_or(RecordError::Missing("kind"))?.to_owned();
        let prev = serde_json::from_value(take("prev")?).map_err(|_| RecordError::Missing("prev"))?;
        let wrong = |source| RecordError::Fields { kind: kind.clone(), source };
        let record = match kind.as_str() {
            "measurement" => {
                let reading: serde_json::Map<_, _> =
                    READING_KEYS.iter().filter_map(|key| fields.remove_entry(*key)).collect();
                fields.insert("reading".to_owned(), reading.into());
                Self::Measurement(serde_json::from_value(fields.into()).map_err(wrong)?)
            }
            "retraction" => Self::Retraction(serde_json::from_value(fields.into()).map_err(wrong)?),
            "verdict" => Self::Verdict(serde_json::from_value(fields.into()).map_err(wrong)?),
            "seal" => Self::Seal(serde_json::from_value(fields.into()).map_err(wrong)?),
            _ => return Err(RecordError::UnknownKind(kind)),
        };
        Ok((record, prev))
    }
}

//! What a record says about who ran, where, against what, and what was found.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::environment::HostFacts;
use crate::id::{Class, Delivery, EntrantId, EnvId, ProfileId, Role, VariantId};

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
    /// The image it ran from, where it ran in a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Digest>,
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

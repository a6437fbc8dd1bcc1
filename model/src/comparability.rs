//! What two records must share to be drawn beside each other.

use crate::digest::Digest;
use crate::id::{EnvId, Mode, WorkloadId};

/// The comparability key. Records of two keys are never drawn on one axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Hardware and infrastructure envelope.
    pub env: EnvId,
    /// The pipeline.
    pub workload: WorkloadId,
    /// How load was offered.
    pub mode: Mode,
    /// Protocol.
    pub harness_version: u32,
    /// Corpus, schema and tables.
    pub dataset_version: String,
    /// Messages in the corpus: a window's edges weigh more in a smaller one.
    pub batches: u64,
    /// Kinds, release series, caps and partitions of the infrastructure.
    pub infra: Digest,
}

/// One thing in which two keys differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What differs, as a reader would call it.
    pub what: &'static str,
    /// On the one side.
    pub ours: String,
    /// On the other.
    pub theirs: String,
}

impl Key {
    /// Everything in which `self` and `other` differ; nothing if they may be drawn together.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let sides = [
            ("environment", self.env.to_string(), other.env.to_string()),
            ("workload", self.workload.to_string(), other.workload.to_string()),
            ("mode", self.mode.to_string(), other.mode.to_string()),
            ("protocol version", self.harness_version.to_string(), other.harness_version.to_string()),
            ("dataset version", self.dataset_version.clone(), other.dataset_version.clone()),
            ("corpus size in batches", self.batches.to_string(), other.batches.to_string()),
            ("infrastructure", self.infra.short(), other.infra.short()),
        ];
        sides
            .into_iter()
            .filter(|(_, ours, theirs)| ours != theirs)
            .map(|(what, ours, theirs)| Difference { what, ours, theirs })
            .collect()
    }
}

//! How a measurement ended.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// How a measurement ended. A word that this version does not know is read as [`Status::Failed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Gated and measured; may be ranked.
    Ok,
    /// Gated and measured, above the limit of a ceiling; never ranked.
    InfraBound,
    /// Sustained mode: the arm did not keep up; latencies are backlog ages.
    Saturated,
    /// No metric may be drawn from it; the note says why.
    Failed,
    /// The system cannot express the workload.
    Unsupported,
    /// Planned and not measured.
    NotRun,
}

impl Status {
    /// The spelling in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::InfraBound => "infra_bound",
            Self::Saturated => "saturated",
            Self::Failed => "failed",
            Self::Unsupported => "unsupported",
            Self::NotRun => "not_run",
        }
    }

    /// The status a word means; a word that is not known means failed.
    #[must_use]
    pub fn of_word(word: &str) -> Self {
        let all = [Self::Ok, Self::InfraBound, Self::Saturated, Self::Failed, Self::Unsupported, Self::NotRun];
        all.into_iter().find(|status| status.as_str() == word).unwrap_or(Self::Failed)
    }

    /// Whether the gates passed, so that metrics exist.
    #[must_use]
    pub const fn is_measured(self) -> bool {
        matches!(self, Self::Ok | Self::InfraBound | Self::Saturated)
    }

    /// Whether the metrics may be ranked against others.
    #[must_use]
    pub const fn is_ranked(self) -> bool {
        matches!(self, Self::Ok)
    }

    /// What it means, for a reader of the table.
    #[must_use]
    pub const fn wording(self) -> &'static str {
        match self {
            Self::Ok => "measured, every gate passed",
            Self::InfraBound => "measured the infrastructure rather than the system; not ranked",
            Self::Saturated => "did not keep up with the offered rate",
            Self::Failed => "failed; no number is drawn from it",
            Self::Unsupported => "the system cannot express this workload",
            Self::NotRun => "not run",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::of_word(&String::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_status_is_a_failure() {
        assert_eq!(serde_json::from_str::<Status>("\"splendid\"").unwrap(), Status::Failed);
        assert_eq!(serde_json::from_str::<Status>("\"infra_bound\"").unwrap(), Status::InfraBound);
        assert_eq!(serde_json::to_string(&Status::NotRun).unwrap(), "\"not_run\"");
    }
}

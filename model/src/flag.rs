//! What a reader should know about a run: one list with each flag's figure, wording and remedy.

use serde::{Deserialize, Serialize};

use crate::units::{bytes, compact, count as number, percent, plain};

/// Something about a run that bears on its numbers. The terminal, the record and the page share this list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "flag", rename_all = "snake_case", deny_unknown_fields)]
pub enum Flag {
    /// The host does not permit the declared caps.
    EnvelopeUnenforced {
        /// What the host refused.
        reason: String,
    },
    /// The CPU cap held the data plane back.
    CpuThrottled {
        /// Share of scheduler periods that were throttled.
        share: f64,
    },
    /// No ceiling of this message size, format and infrastructure stands behind the number.
    HeadroomUnproven {
        /// What is missing or does not match.
        reason: String,
    },
    /// Rows seen in ClickHouse and offsets seen at the broker give different throughputs.
    EstimatesDisagree {
        /// Rows per second from row counts.
        rows_per_s: f64,
        /// Rows per second from consumed offsets.
        offsets_per_s: f64,
    },
    /// Rows that landed more than once.
    Duplicates {
        /// How many rows too many.
        count: u64,
    },
    /// Others used the host's CPUs during the window.
    HostNoisy {
        /// Share of all CPU time that the hypervisor took away.
        steal_share: f64,
        /// Share of all CPU time that processes outside the run used.
        other_share: f64,
    },
    /// The window is too short for its edges not to matter.
    ShortWindow {
        /// Its length.
        seconds: f64,
    },
    /// No steady part was found.
    NoPlateau,
    /// The sampler missed readings.
    SamplesMissed {
        /// Share of the readings due in the window.
        share: f64,
    },
    /// CPU frequency was not held up.
    GovernorNotPerformance {
        /// The governor in force.
        governor: String,
    },
    /// Sibling hardware threads share cores.
    SmtOn,
    /// The host is a virtual machine.
    Virtualised {
        /// Which kind.
        kind: String,
    },
    /// The host has swap; the arm's own is off.
    SwapOn {
        /// Its size.
        bytes: u64,
    },
    /// The suite's own checkout had uncommitted changes.
    DirtyTree,
    /// A descriptor's binding constraint is not what the run shows.
    BindingContradicted {
        /// The constraint that is claimed.
        claimed: String,
        /// The fact against it.
        fact: String,
    },
    /// The sitting's control differed from itself by more than the environment declares.
    AaSpreadExceeded {
        /// Largest relative difference between the control's runs.
        spread: f64,
        /// The declared limit.
        declared: f64,
    },
}

impl Flag {
    /// Stable name, as in records.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::EnvelopeUnenforced { .. } => "envelope_unenforced",
            Self::CpuThrottled { .. } => "cpu_throttled",
            Self::HeadroomUnproven { .. } => "headroom_unproven",
            Self::EstimatesDisagree { .. } => "estimates_disagree",
            Self::Duplicates { .. } => "duplicates",
            Self::HostNoisy { .. } => "host_noisy",
            Self::ShortWindow { .. } => "short_window",
            Self::NoPlateau => "no_plateau",
            Self::SamplesMissed { .. } => "samples_missed",
            Self::GovernorNotPerformance { .. } => "governor_not_performance",
            Self::SmtOn => "smt_on",
            Self::Virtualised { .. } => "virtualised",
            Self::SwapOn { .. } => "swap_on",
            Self::DirtyTree => "dirty_tree",
            Self::BindingContradicted { .. } => "binding_contradicted",
            Self::AaSpreadExceeded { .. } => "aa_spread_exceeded",
        }
    }

    /// What was found, with its figure.
    #[must_use]
    pub fn wording(&self) -> String {
        match self {
            Self::EnvelopeUnenforced { reason } => format!("the envelope was not enforced: {reason}"),
            Self::CpuThrottled { share } => format!("held back by its CPU cap in {} of periods", percent(*share)),
            Self::HeadroomUnproven { reason } => {
                format!("nothing proves that the infrastructure was not the limit: {reason}")
            }
            Self::EstimatesDisagree { rows_per_s, offsets_per_s } => format!(
                "row counts say {} rows/s and consumed offsets say {} rows/s",
                compact(*rows_per_s),
                compact(*offsets_per_s)
            ),
            Self::Duplicates { count } => format!("{} rows landed more than once", number(*count)),
            Self::HostNoisy { steal_share, other_share } => format!(
                "the host was shared: {} of CPU time stolen, {} used by other processes",
                percent(*steal_share),
                percent(*other_share)
            ),
            Self::ShortWindow { seconds } => format!("the window is only {} s long", plain(*seconds)),
            Self::NoPlateau => "no steady part was found in the drain".to_owned(),
            Self::SamplesMissed { share } => format!("{} of the samples are missing", percent(*share)),
            Self::GovernorNotPerformance { governor } => format!("the CPU governor is `{governor}`"),
            Self::SmtOn => "sibling hardware threads share cores".to_owned(),
            Self::Virtualised { kind } => format!("the host is virtual ({kind})"),
            Self::SwapOn { bytes: size } => format!("the host has {} of swap; the arm's own is off", bytes(*size)),
            Self::DirtyTree => "the suite's checkout had uncommitted changes".to_owned(),
            Self::BindingContradicted { claimed, fact } => {
                format!("the descriptor says the constraint is {claimed}, but {fact}")
            }
            Self::AaSpreadExceeded { spread, declared } => format!(
                "the control differed from itself by {}, more than the declared {}",
                percent(*spread),
                percent(*declared)
            ),
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::EnvelopeUnenforced { .. } => "run as root, or delegate the cpu and memory controllers",
            Self::CpuThrottled { .. } => "expected where CPU is the declared constraint; otherwise look for bursts",
            Self::HeadroomUnproven { .. } => "measure it: `bench ceiling --measure --write`",
            Self::EstimatesDisagree { .. } => "look at the series: one of the two counts moved outside the window",
            Self::Duplicates { .. } => "allowed at-least-once; look at the arm's retries and commits",
            Self::HostNoisy { .. } => "stop what else runs here, or use a host of your own",
            Self::ShortWindow { .. } => "raise `--batches`",
            Self::NoPlateau => "raise `--batches`, or look at the series for stalls",
            Self::SamplesMissed { .. } => "give the sampler a CPU that nothing else uses",
            Self::GovernorNotPerformance { .. } => "`cpupower frequency-set -g performance`",
            Self::SmtOn => "turn it off for authoritative numbers",
            Self::Virtualised { .. } => "use bare metal for authoritative numbers",
            Self::SwapOn { .. } => "`swapoff -a`",
            Self::DirtyTree => "commit first, so that the record can be repeated",
            Self::BindingContradicted { .. } => "correct the variant's `binding`, or find the real constraint",
            Self::AaSpreadExceeded { .. } => "read differences smaller than this as none, or quiet the host",
        }
    }

    /// Whether it is about the host rather than the run, and so the same for every run there.
    #[must_use]
    pub const fn is_about_host(&self) -> bool {
        matches!(
            self,
            Self::EnvelopeUnenforced { .. }
                | Self::GovernorNotPerformance { .. }
                | Self::SmtOn
                | Self::Virtualised { .. }
                | Self::SwapOn { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_written_under_its_name_with_its_figure() {
        let flag = Flag::CpuThrottled { share: 0.12 };
        let text = serde_json::to_string(&flag).unwrap();
        assert_eq!(text, r#"{"flag":"cpu_throttled","share":0.12}"#);
        assert_eq!(serde_json::from_str::<Flag>(&text).unwrap(), flag);
        assert_eq!(flag.wording(), "held back by its CPU cap in 12 % of periods");
        for flag in [Flag::SmtOn, Flag::NoPlateau, Flag::DirtyTree, Flag::Duplicates { count: 3 }] {
            let value = serde_json::to_value(&flag).unwrap();
            assert_eq!(value["flag"], flag.name());
        }
    }
}

//! Rule 6: what a variant says holds it back, against what its runs show.
//!
//! A claim is contradicted, never proven: each rule names a fact that cannot be if the claim is true.

use crate::archive::Located;
use crate::descriptor::{BindingConstraint, Entrant, Variant};
use crate::flag::Flag;
use crate::id::{ProfileId, Role, SittingId, WorkloadId};
use crate::metric::Metric;
use crate::record::{Measurement, Record};
use crate::units::percent;

/// Idle share of the CPU cap below which CPU is what holds an arm back.
const BUSY: f64 = 0.1;
/// Idle share of the CPU cap above which CPU is not what holds an arm back.
const IDLE: f64 = 0.5;
/// Share of throttled periods below which a CPU cap does not hold an arm back.
const UNTHROTTLED: f64 = 0.05;
/// Share of throttled periods from which it does.
const THROTTLED: f64 = 0.5;
/// Share of the window in pauses below which a collector does not hold an arm back.
const LITTLE_GC: f64 = 0.05;
/// Share of a ceiling below which the thing it is of does not hold an arm back.
const FAR_BELOW: f64 = 0.1;
/// Share of the memory cap below which memory is not what holds an arm back.
const LITTLE_MEMORY: f64 = 0.5;

/// What a run shows about its constraint, as shares; none where it was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Evidence {
    /// Of the CPU cap that was not used.
    pub idle: Option<f64>,
    /// CPUs of the cap.
    pub cpus: Option<f64>,
    /// Of the scheduler's periods that were throttled.
    pub throttled: Option<f64>,
    /// Of ClickHouse's ceiling that was reached.
    pub sink: Option<f64>,
    /// Of the broker's ceiling that was reached.
    pub broker: Option<f64>,
    /// Of the window that a collector stopped the arm.
    pub gc: Option<f64>,
    /// Of the memory cap that anonymous memory reached.
    pub memory: Option<f64>,
}

impl Evidence {
    /// What a run shows. Without enforced caps nothing is a share of them, and a window that is too short for its edges
    /// not to matter shows nothing.
    #[must_use]
    pub fn of(run: &Measurement) -> Self {
        if run.flags.iter().any(|flag| matches!(flag, Flag::ShortWindow { .. })) {
            return Self::default();
        }
        let caps = run.env.envelope.iter().find(|caps| caps.role == Role::DataPlane && caps.read_back);
        let idle = |caps: &crate::record::AppliedCaps| {
            Some((1.0 - run.value(Metric::DataPlaneCoresUsed)? / caps.cpus).clamp(0.0, 1.0))
        };
        let memory = |caps: &crate::record::AppliedCaps| {
            Some(run.value(Metric::DataPlanePeakAnonMb)? * 1e6 / caps.memory as f64)
        };
        Self {
            idle: caps.and_then(idle),
            cpus: caps.map(|caps| caps.cpus),
            throttled: run.value(Metric::ThrottledShare),
            sink: run.value(Metric::ClickhouseCeilingShare),
            broker: run.value(Metric::BrokerCeilingShare),
            gc: run.value(Metric::GcPauseShare),
            memory: caps.and_then(memory),
        }
    }

    /// The fact against `claimed`, if there is one.
    #[must_use]
    pub fn against(&self, claimed: BindingConstraint) -> Option<String> {
        let below = |share: Option<f64>, limit: f64| share.filter(|share| *share < limit);
        let idle =
            self.idle.filter(|idle| *idle > IDLE).map(|idle| format!("{} of its CPU cap was idle", percent(idle)));
        let unthrottled = self.throttled.is_none_or(|share| share < UNTHROTTLED);
        match claimed {
            BindingConstraint::Cpu => idle.filter(|_| unthrottled),
            BindingConstraint::Memory => {
                let little = below(self.memory, LITTLE_MEMORY)?;
                Some(format!("{} and it used {} of its memory cap", idle?, percent(little)))
            }
            BindingConstraint::Gc => below(self.gc, LITTLE_GC)
                .map(|share| format!("its collector stopped it for {} of the window", percent(share)))
                .or_else(|| self.busy()),
            BindingConstraint::Sink => below(self.sink, FAR_BELOW)
                .map(|share| format!("it reached {} of what ClickHouse can take", percent(share)))
                .or_else(|| self.busy()),
            BindingConstraint::Broker => below(self.broker, FAR_BELOW)
                .map(|share| format!("it reached {} of what the broker can give", percent(share)))
                .or_else(|| self.busy()),
            BindingConstraint::Network => self.busy(),
            // one serial part fills a cap of one CPU
            BindingConstraint::Lock => self.busy().filter(|_| self.cpus.is_some_and(|cpus| cpus > 1.0)),
        }
    }

    /// That the arm used its whole CPU cap and was held back by it.
    fn busy(&self) -> Option<String> {
        let idle = self.idle.filter(|idle| *idle < BUSY)?;
        let throttled = self.throttled.filter(|share| *share >= THROTTLED)?;
        let (used, throttled) = (percent(1.0 - idle), percent(throttled));
        Some(format!("it used {used} of its CPU cap and was throttled in {throttled} of periods"))
    }
}

/// The flag of a run whose variant claims what the run contradicts.
#[must_use]
pub fn flag(claimed: BindingConstraint, run: &Measurement) -> Option<Flag> {
    let fact = Evidence::of(run).against(claimed)?;
    Some(Flag::BindingContradicted { claimed: claimed.to_string(), fact })
}

/// A claim that the archive contradicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// What the descriptor claims.
    pub claimed: BindingConstraint,
    /// The environment whose runs contradict it.
    pub profile: ProfileId,
    /// The workload they ran.
    pub workload: WorkloadId,
    /// Their sitting.
    pub sitting: SittingId,
    /// The fact of the last of them.
    pub fact: String,
}

/// Every environment and workload in whose newest sitting all runs of a variant contradict its claim. Retracted runs
/// and runs of another version or with other knobs say nothing about the variant as it is now.
#[must_use]
pub fn contradictions(records: &[Located], entrant: &Entrant, variant: &Variant) -> Vec<Contradiction> {
    let retracted: Vec<_> = records
        .iter()
        .filter_map(|found| match &found.record {
            Record::Retraction(it) => Some(it.run_id),
            _ => None,
        })
        .collect();
    let about = |it: &Measurement| {
        it.entrant.id == *entrant.id()
            && it.entrant.variant == variant.id
            && it.entrant.version == entrant.version.pinned
            && it.knobs == variant.knobs
            && it.status.is_measured()
            && !retracted.contains(&it.run_id)
    };
    let runs: Vec<&Measurement> = records
        .iter()
        .filter_map(|found| match &found.record {
            Record::Measurement(it) if about(it) => Some(&**it),
            _ => None,
        })
        .collect();
    let mut places: Vec<(&ProfileId, WorkloadId)> = runs.iter().map(|it| (&it.env.profile, it.workload)).collect();
    places.sort();
    places.dedup();
    let claimed = variant.binding.constraint;
    let contradicted = |(profile, workload): (&ProfileId, WorkloadId)| {
        let here = || runs.iter().filter(move |it| it.env.profile == *profile && it.workload == workload);
        let sitting = here().max_by_key(|it| (it.ts, it.run_id))?.sitting;
        let facts: Option<Vec<String>> =
            here().filter(|it| it.sitting == sitting).map(|it| Evidence::of(it).against(claimed)).collect();
        let fact = facts?.pop()?;
        Some(Contradiction { claimed, profile: profile.clone(), workload, sitting, fact })
    };
    places.into_iter().filter_map(contradicted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_falls_by_a_fact_that_cannot_be() {
        let idle = Evidence { idle: Some(0.7), throttled: Some(0.0), memory: Some(0.1), ..Evidence::default() };
        let busy = Evidence { idle: Some(0.02), throttled: Some(0.9), cpus: Some(4.0), ..Evidence::default() };
        let bursts = Evidence { throttled: Some(0.3), ..idle };
        let falls = |evidence: Evidence, claimed| evidence.against(claimed).is_some();
        for (claimed, by_idle, by_busy) in [
            (BindingConstraint::Cpu, true, false),
            (BindingConstraint::Memory, true, false),
            (BindingConstraint::Sink, false, true),
            (BindingConstraint::Broker, false, true),
            (BindingConstraint::Network, false, true),
            (BindingConstraint::Lock, false, true),
            (BindingConstraint::Gc, false, true),
        ] {
            assert_eq!((falls(idle, claimed), falls(busy, claimed)), (by_idle, by_busy), "{claimed}");
            assert!(!falls(Evidence::default(), claimed), "{claimed} falls by nothing");
        }
        assert!(!falls(bursts, BindingConstraint::Cpu), "a cap can hold back in bursts");
        assert!(!falls(Evidence { cpus: Some(1.0), ..busy }, BindingConstraint::Lock));
        assert!(falls(Evidence { gc: Some(0.01), ..Evidence::default() }, BindingConstraint::Gc));
        assert!(falls(Evidence { sink: Some(0.05), ..Evidence::default() }, BindingConstraint::Sink));
        assert!(falls(Evidence { broker: Some(0.05), ..Evidence::default() }, BindingConstraint::Broker));
        assert_eq!(idle.against(BindingConstraint::Cpu).as_deref(), Some("70 % of its CPU cap was idle"));
    }
}

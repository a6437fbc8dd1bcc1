//! What a descriptor claims and what has moved on, against the archive.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use weir_model::archive::Located;
use weir_model::binding::{contradictions, flag};
use weir_model::descriptor::{BindingConstraint, Entrant};
use weir_model::flag::Flag;
use weir_model::metric::Metric;
use weir_model::record::{Knob, Measurement, Reading, Record};
use weir_model::staleness::{Present, Reason, stale};

use support::{measurement, retraction};

/// The accepted example, with a claim.
fn rill(claimed: BindingConstraint) -> Entrant {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accepted/rill");
    let mut entrant = Entrant::load(&folder).unwrap();
    entrant.variants[0].binding.constraint = claimed;
    entrant
}

/// A run of the example that used this share of its one CPU and was throttled in this share of periods.
fn used(number: u64, cores: f64, throttled: f64) -> Measurement {
    let mut it = measurement(number);
    it.knobs = rill(BindingConstraint::Cpu).variants[0].knobs.clone();
    let metrics = [
        (Metric::CpuUsPerRow, 1.0),
        (Metric::DataPlaneCoresUsed, cores),
        (Metric::ThrottledShare, throttled),
        (Metric::DataPlanePeakAnonMb, 100.0),
    ];
    it.reading = Reading::Drain { metrics: metrics.into_iter().collect() };
    it
}

fn located(records: Vec<Record>) -> Vec<Located> {
    records.into_iter().map(|record| Located { file: "x".into(), line: 1, record }).collect()
}

fn of(runs: &[Measurement]) -> Vec<Located> {
    located(runs.iter().map(|it| Record::Measurement(Box::new(it.clone()))).collect())
}

#[test]
fn a_claim_is_refused_where_every_run_contradicts_it() {
    let idle = [used(1, 0.2, 0.0), used(2, 0.25, 0.01)];
    let entrant = rill(BindingConstraint::Cpu);
    let variant = &entrant.variants[0];
    let found = contradictions(&of(&idle), &entrant, variant);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].fact, "75 % of its CPU cap was idle");
    assert!(matches!(flag(BindingConstraint::Cpu, &idle[0]), Some(Flag::BindingContradicted { .. })));

    let mixed = [used(1, 0.2, 0.0), used(2, 0.9, 0.7)];
    assert!(contradictions(&of(&mixed), &entrant, variant).is_empty(), "one run may be an accident");
    let sink = rill(BindingConstraint::Sink);
    assert!(contradictions(&of(&idle), &sink, &sink.variants[0]).is_empty());
    let busy = [used(1, 0.98, 0.9)];
    assert_eq!(contradictions(&of(&busy), &sink, &sink.variants[0]).len(), 1);
}

#[test]
fn only_runs_of_the_variant_as_it_is_now_count() {
    let entrant = rill(BindingConstraint::Cpu);
    let variant = &entrant.variants[0];
    let none = |change: fn(&mut Measurement)| {
        let mut it = used(1, 0.2, 0.0);
        change(&mut it);
        assert!(contradictions(&of(&[it]), &entrant, variant).is_empty());
    };
    none(|it| it.entrant.version = "0.9.0".into());
    none(|it| drop(it.knobs.insert("threads".into(), Knob::Int(1))));
    none(|it| it.env.envelope[0].read_back = false);
    none(|it| it.flags.push(Flag::ShortWindow { seconds: 1.0 }));
    let mut all = of(&[used(1, 0.2, 0.0)]);
    all.extend(located(vec![Record::Retraction(retraction(1))]));
    assert!(contradictions(&all, &entrant, variant).is_empty());

    let mut newer = used(2, 0.95, 0.6);
    (newer.sitting, newer.ts) = (support::sitting(2), "2026-12-05T10:00:00Z".parse().unwrap());
    assert!(contradictions(&of(&[used(1, 0.2, 0.0), newer]), &entrant, variant).is_empty(), "a newer sitting decides");
}

#[test]
fn what_has_moved_on_is_named() {
    let mut entrant = rill(BindingConstraint::Cpu);
    let present = Present {
        harness_version: 2,
        dataset_version: "d1-fresh",
        ts: "2027-06-01T00:00:00Z".parse().unwrap(),
        days: 90,
    };
    let never = stale(&[], std::slice::from_ref(&entrant), &present);
    assert_eq!(never.len(), 2, "each workload of each variant");
    assert_eq!(never[0].reasons, [Reason::NeverMeasured]);

    entrant.version.pinned = "1.3.0".into();
    entrant.version.newest = Some("1.4.0".into());
    let all = of(&[used(1, 0.9, 0.5)]);
    let found = stale(&all, std::slice::from_ref(&entrant), &present);
    let it = found.iter().find(|it| it.env.is_some()).unwrap();
    let said: Vec<String> = it.reasons.iter().map(ToString::to_string).collect();
    let expected = [
        "measured with protocol 1, now 2",
        "measured on dataset d1-0123456789ab, now d1-fresh",
        "measured at version 1.2.3, pinned is 1.3.0",
        "measured 181 days ago",
        "pinned is version 1.3.0, upstream has 1.4.0",
    ];
    assert_eq!(said, expected);

    let fresh = Present {
        harness_version: 1,
        dataset_version: "d1-0123456789ab",
        ts: "2026-12-02T00:00:00Z".parse().unwrap(),
        days: 90,
    };
    let entrant = rill(BindingConstraint::Cpu);
    let found = stale(&all, std::slice::from_ref(&entrant), &fresh);
    assert_eq!(
        found.iter().map(|it| it.workload.as_str()).collect::<Vec<_>>(),
        ["ingest-a"],
        "only what was never run"
    );
}

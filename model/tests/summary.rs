//! What is shown: groups, ranks, figures, failures and retractions.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use weir_model::flag::Flag;
use weir_model::id::Approach;
use weir_model::metric::{Metric, Metrics};
use weir_model::record::{Measurement, Reading, Record, Retraction};
use weir_model::status::Status;
use weir_model::summary::{Style, summarise, table};

use support::{measurement, retraction, sitting};

/// Runs of an entrant with these CPU figures.
fn runs(entrant: &str, first: u64, cpu: &[f64]) -> Vec<Measurement> {
    let run = |(at, cpu): (usize, &f64)| {
        let mut it = measurement(first + at as u64);
        it.entrant.id = entrant.parse().unwrap();
        it.rep = at as u32 + 1;
        it.reps = cpu_count(it.rep);
        it.reading = Reading::Drain {
            metrics: [(Metric::CpuUsPerRow, *cpu), (Metric::RowsPerS, 1e6 / cpu)].into_iter().collect(),
        };
        it
    };
    cpu.iter().enumerate().map(run).collect()
}

fn cpu_count(rep: u32) -> u32 {
    rep.max(3)
}

fn failed(mut it: Measurement) -> Measurement {
    it.status = Status::Failed;
    it.reading = Reading::Drain { metrics: Metrics::new() };
    it.note = "rows: expected 72000, got 71999; first differing batch 17".into();
    (it.gates, it.windows) = (None, None);
    it
}

fn records(runs: Vec<Measurement>) -> Vec<Record> {
    runs.into_iter().map(|it| Record::Measurement(Box::new(it))).collect()
}

#[test]
fn arms_are_ranked_only_where_their_runs_tell_them_apart() {
    let mut all = runs("slow", 10, &[2.0, 2.1, 2.15, 2.2]);
    all.extend(runs("fast", 20, &[1.0, 1.02, 1.03, 1.05]));
    all.extend(runs("near", 30, &[1.01, 1.03, 1.02, 1.04]));
    let all = records(all);
    let groups = summarise(&all);
    let ranks: Vec<_> = groups[0].arms.iter().map(|arm| (arm.entrant.as_str(), arm.rank)).collect();
    assert_eq!(ranks, [("fast", Some(1)), ("near", Some(1)), ("slow", Some(3))]);
}

#[test]
fn a_control_that_differs_from_itself_hides_smaller_differences() {
    let mut all = runs("slow", 10, &[1.2, 1.21, 1.21, 1.22]);
    all.extend(runs("fast", 20, &[1.0, 1.01, 1.01, 1.02]));
    let mut again = runs("fast", 30, &[1.3, 1.31, 1.31, 1.32]);
    again.iter_mut().for_each(|it| it.aa = true);
    all.extend(again);
    let all = records(all);
    let groups = summarise(&all);
    let group = &groups[0];
    assert_eq!(group.arms.iter().map(|arm| arm.rank).collect::<Vec<_>>(), [Some(1), Some(1)]);
    assert_eq!(group.arms[0].runs.len(), 4, "the control's runs are not the arm's");
    let spread = group.aa_spread[&Metric::CpuUsPerRow];
    assert!((spread - 0.3 / 1.16).abs() < 1e-9, "{spread}");
    assert_eq!(group.smallest_visible[&Metric::CpuUsPerRow], spread);
}

#[test]
fn one_run_each_tells_nothing_apart() {
    let mut all = runs("slow", 10, &[2.0]);
    all.extend(runs("fast", 20, &[1.0]));
    let all = records(all);
    let groups = summarise(&all);
    assert_eq!(groups[0].arms.iter().map(|arm| arm.rank).collect::<Vec<_>>(), [Some(1), Some(1)]);
    assert!(groups[0].smallest_visible.is_empty());
    assert_eq!(groups[0].arms[0].figure(Metric::CpuUsPerRow).unwrap().spread(), None);
}

#[test]
fn a_failed_run_takes_the_rank_and_gives_no_number() {
    let mut all = runs("rill", 10, &[1.0, 1.1, 1.2]);
    all[1] = failed(all[1].clone());
    let all = records(all);
    let groups = summarise(&all);
    let arm = &groups[0].arms[0];
    assert_eq!((arm.status, arm.rank), (Status::Failed, None));
    assert_eq!(arm.figure(Metric::CpuUsPerRow).unwrap().values, [1.0, 1.2]);
}

#[test]
fn a_retracted_run_stays_and_counts_for_nothing() {
    let mut all = records(runs("rill", 10, &[1.0, 9.0, 1.2]));
    all.push(Record::Retraction(Retraction { reason: "the cap was not applied".into(), ..retraction(11) }));
    let groups = summarise(&all);
    let arm = &groups[0].arms[0];
    assert_eq!(arm.runs.len(), 3);
    assert_eq!(arm.runs[1].retraction.unwrap().reason, "the cap was not applied");
    assert_eq!(arm.figure(Metric::CpuUsPerRow).unwrap().values, [1.0, 1.2]);
    assert_eq!(arm.rank, Some(1));
}

#[test]
fn what_differs_in_the_key_is_never_in_one_group() {
    let mut all = runs("rill", 10, &[1.0, 1.1, 1.2]);
    all[1].protocol.harness_version = 2;
    all[2].infra.clickhouse.version = "26.8.1".into();
    let mut patched = all[0].clone();
    patched.infra.clickhouse.version = "26.7.9".into();
    patched.run_id = support::run(99);
    all.push(patched);
    let all = records(all);
    let groups = summarise(&all);
    assert_eq!(groups.len(), 3, "a patch release of ClickHouse is the same group");
    let differences = groups[0].key.differences(&groups[1].key);
    assert!(!differences.is_empty());
}

#[test]
fn an_arm_stands_with_its_newest_sitting() {
    let mut all = runs("rill", 10, &[5.0, 5.1]);
    let mut newer = runs("rill", 20, &[1.0, 1.1, 1.2]);
    for it in &mut newer {
        it.sitting = sitting(2);
        it.ts = "2026-12-03T10:00:00Z".parse().unwrap();
    }
    all.extend(newer);
    let all = records(all);
    let groups = summarise(&all);
    let arm = &groups[0].arms[0];
    assert_eq!((arm.runs.len(), arm.earlier), (3, 2));
    assert_eq!(arm.figure(Metric::CpuUsPerRow).unwrap().median, 1.1);
}

#[test]
fn the_terminal_shows_arms_and_why_one_has_no_number() {
    let mut all = runs("fast", 10, &[0.5, 0.51, 0.51, 0.52]);
    all.extend(runs("slow", 20, &[1.5, 1.51, 1.51, 1.52]));
    all.extend(runs("broken", 30, &[1.0]).into_iter().map(failed));
    let mut tuned = runs("tuned", 40, &[0.3]);
    tuned[0].approach = Approach::Tuned;
    tuned[0].flags.push(Flag::Virtualised { kind: "kvm".into() });
    tuned[0].flags.push(Flag::CpuThrottled { share: 0.123 });
    tuned[0].ts = "2026-12-01T10:30:00Z".parse().unwrap();
    all.extend(tuned);
    let all = records(all);
    insta::assert_snapshot!(table(&summarise(&all)[0], Style::default()));
}

//! What a sitting can tell apart, what it cannot, and what becomes of a run that was wrong.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;

use weir_model::archive::Archive;
use weir_model::flag::Flag;
use weir_model::id::SittingId;
use weir_model::metric::Metric;
use weir_model::record::{Measurement, Reading, Record};
use weir_model::retract::{RetractError, retract};
use weir_model::stats::Random;
use weir_model::summary::{CompareError, Side, compare, sittings_of, summarise, verdict};

use support::{measurement, run, sitting};

const CPU: Metric = Metric::CpuUsPerRow;

/// A value near 1, with a standard deviation of about two percent.
fn noise(random: &mut Random) -> f64 {
    let uniform = |random: &mut Random| (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    let sum: f64 = (0..12).map(|_| uniform(random)).sum();
    1.0 + 0.02 * (sum - 6.0)
}

/// A run of an arm that spends `cpu` on a row.
fn of(entrant: &str, number: u64, (rep, reps): (u32, u32), aa: bool, cpu: f64) -> Measurement {
    let mut it = measurement(number);
    it.entrant.id = entrant.parse().unwrap();
    (it.rep, it.reps, it.aa) = (rep, reps, aa);
    it.reading = Reading::Drain { metrics: [(CPU, cpu), (Metric::RowsPerS, 1e6 / cpu)].into_iter().collect() };
    it
}

/// A sitting of `reps` repetitions: `rill` and its control spend 1 on a row, `mire` spends `slower`.
fn sitting_of(reps: u32, slower: f64, seed: u64) -> Vec<Measurement> {
    let mut random = Random::seeded(seed);
    let mut runs = Vec::new();
    for rep in 1..=reps {
        for (entrant, aa, cpu) in [("rill", false, 1.0), ("rill", true, 1.0), ("mire", false, slower)] {
            let number = runs.len() as u64 + 1;
            runs.push(of(entrant, number, (rep, reps), aa, cpu * noise(&mut random)));
        }
    }
    runs
}

fn records(runs: &[Measurement]) -> Vec<Record> {
    runs.iter().map(|it| Record::Measurement(Box::new(it.clone()))).collect()
}

fn side(text: &str) -> Side {
    text.parse().unwrap()
}

#[test]
fn a_control_of_ten_shows_nothing_and_a_tenth_slower_shows() {
    let (mut false_alarms, mut seen, mut held) = (0, 0, 0);
    for seed in 0..60 {
        let all = records(&sitting_of(10, 1.1, seed));
        let refs: Vec<&Record> = all.iter().collect();
        let control = compare(&refs, &side("rill"), &side("rill")).unwrap();
        assert!(control.control && control.b.runs.len() == 10);
        false_alarms += u32::from(control.of(CPU).unwrap().told_apart);
        let slowed = compare(&refs, &side("rill"), &side("mire")).unwrap();
        let it = slowed.of(CPU).unwrap();
        assert!((it.relative.unwrap() - 0.1).abs() < 0.05, "{it:?}");
        let (low, high) = it.ci95.unwrap();
        assert!(low > 0.0 && high < 0.2, "{low} {high}");
        held += u32::from(low < 0.1 && high > 0.1);
        assert_eq!((it.b_is_better, slowed.control), (Some(false), false));
        seen += u32::from(it.told_apart);
    }
    assert!(false_alarms <= 6, "{false_alarms} of 60 controls showed a difference: more than one in ten");
    assert_eq!(seen, 60, "a tenth is seen each time");
    assert!(held >= 52, "{held} of 60 intervals hold the difference");
}

#[test]
fn five_repetitions_rank_a_tenth_and_hide_a_hundredth() {
    let ranks = |slower: f64, seed| {
        let all = records(&sitting_of(5, slower, seed));
        let groups = summarise(&all);
        let visible = groups[0].smallest_visible[&CPU];
        assert!((0.01..0.1).contains(&visible), "{visible}");
        groups[0].arms.iter().map(|arm| (arm.entrant.to_string(), arm.rank.unwrap())).collect::<BTreeMap<_, _>>()
    };
    let shared = (0..20).filter(|seed| ranks(1.01, *seed)["mire"] == 1 || ranks(1.01, *seed)["rill"] == 2).count();
    let told = (0..20).filter(|seed| ranks(1.1, *seed)["mire"] == 2).count();
    assert!(shared >= 15 && told == 20, "{shared} {told}");
}

#[test]
fn a_verdict_says_what_its_sitting_could_see() {
    let runs = sitting_of(5, 1.1, 7);
    let ts = "2026-12-01T12:00:00Z".parse().unwrap();
    let quiet = verdict(&runs, 0.05, BTreeMap::new(), ts).unwrap();
    assert_eq!((quiet.sitting, quiet.flags.len()), (runs[0].sitting, 0));
    let (spread, visible) = (quiet.aa_spread[&CPU], quiet.smallest_visible[&CPU]);
    assert!(spread > 0.0 && spread < 0.05 && visible >= spread && visible < 0.1, "{spread} {visible}");
    assert!(!quiet.smallest_visible.contains_key(&Metric::DataPlanePeakAnonMb));

    let strict = verdict(&runs, spread / 2.0, BTreeMap::new(), ts).unwrap();
    assert!(matches!(strict.flags[..], [Flag::AaSpreadExceeded { .. }]), "{:?}", strict.flags);
    assert!(verdict(&[], 0.05, BTreeMap::new(), ts).is_none());

    // three repetitions cannot tell anything apart, so nothing is visible
    assert!(verdict(&sitting_of(3, 2.0, 1), 0.05, BTreeMap::new(), ts).unwrap().smallest_visible.is_empty());
}

/// Two sittings of `rill`, the newer one slower.
fn two_sittings(second: SittingId) -> Vec<Record> {
    let mut all = sitting_of(5, 1.0, 1);
    let mut newer = sitting_of(5, 1.0, 2);
    for (at, it) in newer.iter_mut().enumerate() {
        (it.sitting, it.run_id) = (second, run(500 + at as u64));
        it.ts = "2026-12-02T10:00:00Z".parse().unwrap();
        let cpu = it.value(CPU).unwrap() * 1.2;
        it.reading = Reading::Drain { metrics: [(CPU, cpu)].into_iter().collect() };
    }
    all.extend(newer);
    records(&all)
}

#[test]
fn an_arm_is_compared_with_itself_in_another_sitting() {
    let all = two_sittings(sitting(9));
    let refs: Vec<&Record> = all.iter().collect();
    let sittings = sittings_of(&refs, &"rill".parse().unwrap(), &"native".parse().unwrap());
    assert_eq!(sittings.iter().map(|it| it.1).collect::<Vec<_>>(), [sitting(9), sitting(1)]);
    let it = compare(&refs, &side(&format!("rill:native@{}", sitting(1))), &side("rill")).unwrap();
    assert!(!it.control && it.of(CPU).unwrap().told_apart && it.of(CPU).unwrap().b_is_better == Some(false));
    let text = format!("rill:native@{}", sitting(1));
    assert_eq!(side(&text).to_string(), text);
}

#[test]
fn two_runs_show_no_difference_and_other_groups_none_at_all() {
    let mut all = sitting_of(5, 1.1, 3);
    all.retain(|it| !it.aa);
    let (a, b) = (all[0].run_id.to_string(), all[1].run_id.to_string());
    let mut elsewhere = of("sedge", 900, (1, 1), false, 1.0);
    elsewhere.protocol.harness_version = 9;
    all.push(elsewhere);
    let all = records(&all);
    let refs: Vec<&Record> = all.iter().collect();
    let single = compare(&refs, &side(&a), &side(&b)).unwrap();
    let it = single.of(CPU).unwrap();
    assert_eq!((it.told_apart, it.ci95, it.p), (false, None, 1.0));
    let error = compare(&refs, &side("rill"), &side("sedge")).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("differ in protocol version (1 and 9)"), "{text}");
    assert_eq!(compare(&refs, &side("rill"), &side("rill")), Err(CompareError::Same("rill".into())));
    assert_eq!(compare(&refs, &side("rill"), &side("nobody")), Err(CompareError::Nothing("nobody".into())));
}

#[test]
fn a_retraction_is_appended_once_with_a_reason_and_a_successor_that_stands() {
    let folder = tempfile::tempdir().unwrap();
    let archive = Archive::open(folder.path()).unwrap();
    for number in 1..=3 {
        archive.append(&Record::Measurement(Box::new(measurement(number)))).unwrap();
    }
    let ts = "2026-12-03T10:00:00Z".parse().unwrap();
    let records = archive.read().unwrap().records;
    let refused = |run_id, reason, by| retract(&records, run_id, reason, by, ts).unwrap_err();
    assert_eq!(refused(run(9), "x", None), RetractError::NoSuchRun(run(9)));
    assert_eq!(refused(run(1), " \n", None), RetractError::NoReason);
    for by in [run(1), run(9)] {
        assert!(matches!(refused(run(1), "x", Some(by)), RetractError::Successor { .. }));
    }

    archive.append(&retract(&records, run(1), " a cap was wrong ", Some(run(2)), ts).unwrap()).unwrap();
    let records = archive.read().unwrap().records;
    let Record::Retraction(it) = &records.last().unwrap().record else { panic!("a retraction is the last record") };
    assert_eq!((it.reason.as_str(), it.superseded_by), ("a cap was wrong", Some(run(2))));
    let again = retract(&records, run(1), "x", None, ts).unwrap_err();
    assert_eq!(again.to_string(), format!("run {} is retracted already: a cap was wrong", run(1)));
    assert!(retract(&records, run(3), "x", Some(run(1)), ts).is_err(), "a retracted run takes no place");
    assert!(archive.verify().unwrap().is_whole());
}

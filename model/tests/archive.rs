//! The archive grows, proves what it holds, and has no other write.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use weir_model::archive::{Archive, ArchiveError, DamageKind};
use weir_model::digest::Digest;
use weir_model::flag::Flag;
use weir_model::id::Mode;
use weir_model::metric::{Latency, LatencyOf, Metric, Metrics};
use weir_model::record::{Head, Knob, Measurement, Reading, Record, RecordError, Verdict};
use weir_model::status::Status;

use support::{measurement, retraction, run};

fn archive() -> (tempfile::TempDir, Archive) {
    let folder = tempfile::tempdir().unwrap();
    let archive = Archive::open(folder.path().join("results")).unwrap();
    (folder, archive)
}

fn of(number: u64) -> Record {
    Record::Measurement(Box::new(measurement(number)))
}

/// Three runs of one entrant in one file.
fn three() -> (tempfile::TempDir, Archive, PathBuf) {
    let (folder, archive) = archive();
    let mut file = PathBuf::new();
    for number in 1..=3 {
        file = archive.append(&of(number)).unwrap().file;
    }
    (folder, archive, file)
}

#[test]
fn what_was_appended_is_read_back_in_order() {
    let (_folder, archive, file) = three();
    archive.append(&Record::Retraction(retraction(2))).unwrap();
    let placed = archive.append(&Record::Verdict(verdict())).unwrap();
    assert!(placed.file.ends_with("_sittings/2026-12.jsonl"), "{}", placed.file.display());
    assert!(file.ends_with("rill/2026-12.jsonl"));

    let contents = archive.read().unwrap();
    assert!(contents.report.is_whole(), "{:?}", contents.report.damage);
    let kinds: Vec<_> = contents.records.iter().map(|found| (found.line, found.record.kind())).collect();
    let expected = [(1, "verdict"), (1, "measurement"), (2, "measurement"), (3, "measurement"), (4, "retraction")];
    assert_eq!(kinds, expected);
    assert_eq!(contents.report.files[0].head, placed.head);
}

#[test]
fn each_line_carries_the_digest_of_the_line_before() {
    let (_folder, _, file) = three();
    let text = fs::read_to_string(file).unwrap();
    let mut before = Digest::of("");
    for line in text.lines() {
        let (_, prev) = Record::from_line(line.as_bytes()).unwrap();
        assert_eq!(prev, before);
        before = Digest::of(line);
    }
}

#[test]
fn a_changed_byte_is_found_by_file_line_and_byte() {
    let (_folder, archive, file) = three();
    let whole = fs::read(&file).unwrap();
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let third = second + whole[second..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for at in (0..third).step_by(7) {
        let mut changed = whole.clone();
        changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
        fs::write(&file, &changed).unwrap();
        let report = archive.verify().unwrap();
        let first = report.damage.iter().min_by_key(|damage| damage.line).expect("the change is found");
        let chain_by_second = matches!(first.what, DamageKind::Chain { by: 2, .. });
        let line = if at < second || chain_by_second { 1 } else { 2 };
        let start = if line == 1 { 0 } else { second };
        assert_eq!(first.line, line, "byte {at}: {first}");
        let stopped_within = matches!(first.what, DamageKind::NotARecord(RecordError::Json(_)));
        assert!(first.byte == start || (stopped_within && first.byte >= at), "byte {at}: {first}");
        assert!(first.file.ends_with("rill/2026-12.jsonl"));
    }
    fs::write(&file, &whole).unwrap();
    assert!(archive.verify().unwrap().is_whole());
}

#[test]
fn a_line_taken_out_is_found_and_the_last_one_by_the_head() {
    let (_folder, archive, file) = three();
    let head = archive.verify().unwrap().files[0].head;
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();

    fs::write(&file, format!("{}\n{}\n", lines[0], lines[2])).unwrap();
    let report = archive.verify().unwrap();
    assert!(matches!(report.damage[0].what, DamageKind::Chain { by: 2, .. }), "{}", report.damage[0]);

    fs::write(&file, format!("{}\n{}\n", lines[1], lines[2])).unwrap();
    let report = archive.verify().unwrap();
    assert!(matches!(report.damage[0].what, DamageKind::Beginning { .. }), "{}", report.damage[0]);

    fs::write(&file, format!("{}\n{}\n", lines[0], lines[1])).unwrap();
    let report = archive.verify().unwrap();
    assert!(report.is_whole());
    assert_ne!(report.files[0].head, head);
}

#[test]
fn an_unfinished_line_is_sealed_by_the_next_append() {
    let (_folder, archive, file) = three();
    let whole = fs::read(&file).unwrap();
    for keep in [1, 30, 200] {
        let start = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        fs::write(&file, &whole[..start + keep]).unwrap();
        let report = archive.verify().unwrap();
        assert!(report.is_whole(), "{:?}", report.damage);
        assert_eq!((report.torn[0].line, report.torn[0].byte, report.torn[0].sealed), (3, start, false));

        let placed = archive.append(&of(4)).unwrap();
        assert_eq!(placed.line, 5);
        let contents = archive.read().unwrap();
        assert!(contents.report.is_whole(), "{:?}", contents.report.damage);
        assert!(contents.report.torn[0].sealed);
        let kinds: Vec<_> = contents.records.iter().map(|found| (found.line, found.record.kind())).collect();
        assert_eq!(kinds, [(1, "measurement"), (2, "measurement"), (4, "seal"), (5, "measurement")]);
        assert_eq!(&fs::read(&file).unwrap()[..start + keep], &whole[..start + keep], "what was there stays");
    }
}

#[test]
fn a_line_whole_but_for_its_end_is_no_record_either() {
    let (_folder, archive, file) = three();
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    archive.append(&of(3)).unwrap();
    let contents = archive.read().unwrap();
    assert!(contents.report.is_whole(), "{:?}", contents.report.damage);
    let runs = contents.records.iter().filter(|found| found.record.kind() == "measurement").count();
    assert_eq!(runs, 3);
}

#[test]
fn a_run_is_measured_once() {
    let (_folder, archive, file) = three();
    let error = archive.append(&of(2)).unwrap_err();
    assert!(matches!(error, ArchiveError::DuplicateRun { line: 2, .. }), "{error}");

    let folder = file.parent().unwrap().with_file_name("other");
    fs::create_dir(&folder).unwrap();
    fs::copy(&file, folder.join("2026-12.jsonl")).unwrap();
    let report = archive.verify().unwrap();
    let kinds = |wanted: fn(&DamageKind) -> bool| report.damage.iter().filter(|it| wanted(&it.what)).count();
    assert_eq!(kinds(|what| matches!(what, DamageKind::DuplicateRun { .. })), 3);
    assert_eq!(kinds(|what| matches!(what, DamageKind::Misplaced(_))), 3);
}

#[test]
fn only_a_run_that_is_there_can_be_retracted() {
    let (_folder, archive, _) = three();
    let error = archive.append(&Record::Retraction(retraction(9))).unwrap_err();
    assert!(matches!(error, ArchiveError::NoSuchRun { run_id, .. } if run_id == run(9)), "{error}");
}

#[test]
fn a_record_that_contradicts_itself_is_not_written() {
    let (_folder, archive, file) = three();
    let before = fs::read(&file).unwrap();
    let mut failed = measurement(4);
    failed.status = Status::Failed;
    failed.note = "it lost a row".into();
    let mut silent = measurement(5);
    silent.gates = None;
    let mut lossy = measurement(6);
    lossy.gates.as_mut().unwrap().rows.got -= 1;
    for record in [failed, silent, lossy] {
        let error = archive.append(&Record::Measurement(Box::new(record))).unwrap_err();
        assert!(matches!(error, ArchiveError::Record(RecordError::Contradiction { .. })), "{error}");
    }
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn a_series_is_kept_once() {
    let (_folder, archive) = archive();
    let env = measurement(1).env.id;
    let kept = archive.keep_series(&env, run(1), b"samples").unwrap();
    assert_eq!(fs::read(archive.root().join(&kept.path)).unwrap(), b"samples");
    assert!(archive.keep_series(&env, run(1), b"others").is_err());

    let mut it = measurement(1);
    (it.series, it.series_digest) = (Some(kept.path.clone()), Some(kept.digest));
    archive.append(&Record::Measurement(Box::new(it))).unwrap();
    assert!(archive.verify().unwrap().is_whole());
    for tamper in [|path: &Path| fs::write(path, b"sample!").unwrap(), |path: &Path| fs::remove_file(path).unwrap()] {
        tamper(&archive.root().join(&kept.path));
        let report = archive.verify().unwrap();
        assert!(matches!(report.damage[0].what, DamageKind::Series { .. }), "{}", report.damage[0]);
    }
}

/// Three runs and the verdict of their sitting, which says where their file ended.
fn sitting_with_verdict() -> (tempfile::TempDir, Archive, PathBuf) {
    let (folder, archive) = archive();
    let appended = [1, 2, 3].map(|number| archive.append(&of(number)).unwrap())[2].clone();
    let file = appended.file.strip_prefix(archive.root()).unwrap().display().to_string();
    let head = Head { lines: appended.line as u64, digest: appended.head };
    archive.append(&Record::Verdict(Verdict { heads: BTreeMap::from([(file, head)]), ..verdict() })).unwrap();
    (folder, archive, appended.file)
}

#[test]
fn a_verdict_holds_the_last_line_of_its_sitting() {
    let (_folder, archive, file) = sitting_with_verdict();
    assert!(archive.verify().unwrap().is_whole());
    let whole = fs::read_to_string(&file).unwrap();

    let last = whole[..whole.len() - 1].rfind('\n').unwrap() + 1;
    let at = last + whole[last..].find("\"note\":\"").unwrap() + "\"note\":\"".len();
    let mut changed = whole.clone();
    changed.insert(at, '!');
    fs::write(&file, changed).unwrap();
    let report = archive.verify().unwrap();
    assert!(matches!(report.damage[0].what, DamageKind::Head { .. }), "{}", report.damage[0]);
    let change = archive.first_change(&report.damage[0]).unwrap().unwrap();
    assert_eq!((change.byte, change.was, change.is), (at, None, Some(b'!')));

    fs::write(&file, &whole[..last]).unwrap();
    let report = archive.verify().unwrap();
    assert_eq!(
        report.damage[0].what.to_string(),
        format!("the file has 2 lines, but the verdict of sitting {} was written when it had 3", verdict().sitting)
    );
}

#[test]
fn the_byte_that_was_changed_is_named() {
    let (_folder, archive, file) = three();
    let whole = fs::read(&file).unwrap();
    for (from, to, offset) in [("72000", "92000", 0), ("\"reps\":3", "\"reps\":8", 7), ("rill", "rell", 1)] {
        let text = String::from_utf8(whole.clone()).unwrap();
        let at = text.find(from).unwrap();
        fs::write(&file, text.replacen(from, to, 1)).unwrap();
        let report = archive.verify().unwrap();
        let changes: Vec<_> = report.damage.iter().filter_map(|damage| archive.first_change(damage).unwrap()).collect();
        assert_eq!(changes.iter().map(|change| change.byte).collect::<Vec<_>>(), [at + offset], "{:?}", report.damage);
    }
}

#[test]
fn writers_at_the_same_time_keep_the_chain() {
    let (_folder, archive) = archive();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let archive = &archive;
            scope.spawn(move || {
                for number in 0..10 {
                    archive.append(&of(writer * 100 + number)).unwrap();
                }
            });
        }
    });
    let contents = archive.read().unwrap();
    assert!(contents.report.is_whole(), "{:?}", contents.report.damage);
    assert_eq!(contents.records.len(), 40);
}

/// What can be done to an archive: each operation that its type has, and a crash in the middle of one.
#[derive(Debug, Clone)]
enum Deed {
    Measure(u64),
    Retract(u64),
    Judge,
    Keep(u64),
    Read,
    Crash(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => (0..6_u64).prop_map(Deed::Measure),
        2 => (0..6_u64).prop_map(Deed::Retract),
        1 => Just(Deed::Judge),
        2 => (0..6_u64).prop_map(Deed::Keep),
        1 => Just(Deed::Read),
        1 => (1..200_usize).prop_map(Deed::Crash),
    ];
    prop::collection::vec(deed, 1..14)
}

/// Every file below a folder with its bytes.
fn bytes_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_done_to_an_archive_every_byte_stays(deeds in deeds()) {
        let (_folder, archive) = archive();
        let env = measurement(1).env.id;
        for deed in deeds {
            let before = bytes_below(archive.root());
            match &deed {
                Deed::Measure(number) => drop(archive.append(&of(*number))),
                Deed::Retract(number) => drop(archive.append(&Record::Retraction(retraction(*number)))),
                Deed::Judge => drop(archive.append(&Record::Verdict(verdict()))),
                Deed::Keep(number) => drop(archive.keep_series(&env, run(*number), b"samples")),
                Deed::Read => drop((archive.read(), archive.verify(), Archive::open(archive.root()))),
                // what a crash leaves: the beginning of a line
                Deed::Crash(bytes) => {
                    let line = of(99).to_line(&Digest::of("")).unwrap();
                    let file = before.keys().find(|path| path.extension().is_some_and(|it| it == "jsonl"));
                    if let Some(file) = file {
                        let mut torn = before[file].clone();
                        torn.extend_from_slice(&line.as_bytes()[..*bytes]);
                        fs::write(file, torn).unwrap();
                    }
                }
            }
            let after = bytes_below(archive.root());
            for (file, bytes) in &before {
                prop_assert!(after.get(file).is_some_and(|now| now.starts_with(bytes)), "{deed:?} changed {file:?}");
            }
        }
        prop_assert!(archive.verify().unwrap().is_whole());
    }
}

#[test]
fn the_archive_has_no_write_but_append_and_create_new() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/archive");
    let mut code = String::new();
    for entry in fs::read_dir(source).unwrap() {
        code += &fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    for capability in [
        "File::create",
        "truncate",
        "set_len",
        "rename",
        "remove_",
        "fs::write",
        "fs::copy",
        "seek",
        "hard_link",
        "mmap",
    ] {
        assert!(!code.contains(capability), "the archive can `{capability}`");
    }
    let opens: Vec<&str> =
        code.split("OpenOptions::new()").skip(1).map(|rest| rest.split(".open(").next().unwrap()).collect();
    assert_eq!(opens.len(), 2, "every opening is looked at here");
    for open in opens {
        assert!(open.contains(".append(true)") || open.contains(".create_new(true)"), "{open}");
    }
}

#[test]
fn a_line_with_an_unknown_key_or_a_newer_schema_is_refused() {
    let line = of(1).to_line(&Digest::of("")).unwrap();
    let read = |line: String| Record::from_line(line.as_bytes()).unwrap_err().to_string();
    let newer = read(line.replace("\"schema\":1", "\"schema\":2"));
    assert_eq!(newer, "schema 2 is newer than 1, the newest this version reads");
    let unknown = read(line.replace("\"rep\":1", "\"rep\":1,\"repp\":1"));
    assert!(unknown.contains("unknown field `repp`"), "{unknown}");
    let latency = read(line.replace("\"mode\":\"drain\"", "\"mode\":\"drain\",\"latency\":null"));
    assert!(latency.contains("unknown field `latency`"), "a drain carries no latency: {latency}");
    let kind = read(line.replace("\"kind\":\"measurement\"", "\"kind\":\"opinion\""));
    assert_eq!(kind, "`opinion` is not a kind of record");
}

fn verdict() -> Verdict {
    let of = measurement(1);
    Verdict {
        sitting: of.sitting,
        env: of.env.id,
        aa_spread: BTreeMap::from([(Metric::CpuUsPerRow, 0.013)]),
        smallest_visible: BTreeMap::new(),
        flags: vec![Flag::AaSpreadExceeded { spread: 0.5, declared: 0.05 }],
        heads: BTreeMap::new(),
        ts: "2026-12-01T11:00:00Z".parse().unwrap(),
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), ".{0,12}", Just("\"\\\u{0}\n\r\u{2028}é€𝄞</script>".to_owned())]
}

fn flags() -> impl Strategy<Value = Vec<Flag>> {
    let flag = prop_oneof![
        Just(Flag::SmtOn),
        (0.0..1.0_f64).prop_map(|share| Flag::CpuThrottled { share: weir_model::units::nine_digits(share) }),
        any::<u64>().prop_map(|count| Flag::Duplicates { count }),
        text().prop_map(|reason| Flag::EnvelopeUnenforced { reason }),
    ];
    prop::collection::vec(flag, 0..4)
}

fn metrics() -> impl Strategy<Value = Metrics> {
    let value = prop_oneof![-1e12..1e12_f64, 0.0..1e-6_f64, Just(0.0), Just(f64::INFINITY)];
    prop::collection::vec((prop::sample::select(Metric::ALL), value), 1..8)
        .prop_map(|values| values.into_iter().chain([(Metric::PeakMb, 1.5)]).collect())
}

fn reading() -> impl Strategy<Value = Reading> {
    let sustained = |metrics| Reading::Sustained {
        offered_rows_per_s: 1e6,
        metrics,
        latency: Some(Latency {
            of: LatencyOf::Pipeline,
            p50_ms: 1.0,
            p90_ms: 2.0,
            p99_ms: 3.5,
            p999_ms: 4.0,
            max_ms: 5.25,
            hist: "HISTF".into(),
        }),
    };
    (metrics(), prop::sample::select(Mode::ALL)).prop_map(move |(metrics, mode)| match mode {
        Mode::Drain => Reading::Drain { metrics },
        Mode::Sustained => sustained(metrics),
    })
}

fn knobs() -> impl Strategy<Value = BTreeMap<String, Knob>> {
    let knob = prop_oneof![
        any::<bool>().prop_map(Knob::Bool),
        any::<i64>().prop_map(Knob::Int),
        (1..1000_i32).prop_map(|value| Knob::Float(f64::from(value) + 0.5)),
        text().prop_map(Knob::Text),
    ];
    prop::collection::btree_map("[a-z_]{1,6}", knob, 0..4)
}

/// Measured and failed runs with ids from `numbers`.
fn measurements(numbers: std::ops::Range<u64>) -> impl Strategy<Value = Measurement> {
    (numbers, reading(), knobs(), flags(), text(), any::<bool>(), any::<u64>()).prop_map(
        |(number, reading, knobs, flags, binding, failed, seed)| {
            let mut it = Measurement { reading, knobs, flags, binding, ..measurement(number) };
            it.protocol.seed = seed;
            if failed {
                it.status = Status::Failed;
                it.reading = Reading::Drain { metrics: Metrics::new() };
                (it.windows, it.gates) = (None, None);
                it.note = "it lost a row".into();
            }
            it
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_record_survives_its_line(measurement in measurements(1..1000)) {
        let record = Record::Measurement(Box::new(measurement));
        let prev = Digest::of("before");
        let line = record.to_line(&prev).unwrap();
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(Record::from_line(line.as_bytes()).unwrap(), (record, prev));
    }

    #[test]
    fn an_archive_gives_back_what_it_took(many in prop::collection::vec(measurements(0..u64::from(u32::MAX)), 1..6)) {
        let (_folder, archive) = archive();
        let mut kept = Vec::new();
        for measurement in many {
            let record = Record::Measurement(Box::new(measurement));
            if archive.append(&record).is_ok() {
                kept.push(record);
            }
        }
        let contents = archive.read().unwrap();
        prop_assert!(contents.report.is_whole(), "{:?}", contents.report.damage);
        let found: Vec<_> = contents.records.into_iter().map(|found| found.record).collect();
        prop_assert_eq!(found, kept);
    }
}

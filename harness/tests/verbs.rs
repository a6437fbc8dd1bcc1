//! The verbs that look, check, compare and retract, as a user runs them, on a made-up archive.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../model/tests/support/mod.rs"]
mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weir_model::archive::Archive;
use weir_model::metric::Metric;
use weir_model::record::{Measurement, Reading, Record};

use support::{measurement, run, sitting};

/// A repository with the example entrant, an archive and nothing to run.
struct Repository {
    folder: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let it = Self { folder: tempfile::tempdir().unwrap() };
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        fs::create_dir_all(it.path("entrants/rill")).unwrap();
        for entry in fs::read_dir(repository.join("model/tests/accepted/rill")).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, it.path("entrants/rill").join(path.file_name().unwrap())).unwrap();
        }
        for folder in ["environments", "workload"] {
            symlink(repository.join(folder), it.path(folder)).unwrap();
        }
        it
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn add(&self, runs: impl IntoIterator<Item = Measurement>) {
        let archive = Archive::open(self.path("results")).unwrap();
        for it in runs {
            archive.append(&Record::Measurement(Box::new(it))).unwrap();
        }
    }

    fn edit(&self, from: &str, to: &str) {
        let path = self.path("entrants/rill/entrant.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    /// Exit code, standard output, standard error.
    fn bench(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_bench"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env("WEIR_HOME", self.path("home"))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

/// Five runs of the example and five of its control in sitting `number`, each spending about `cpu` on a row.
fn five(number: u64, cpu: f64) -> Vec<Measurement> {
    let one = |at: u64| {
        let mut it = measurement(number * 100 + at);
        it.sitting = sitting(number);
        it.ts += std::time::Duration::from_secs(number * 3600 + at);
        (it.rep, it.reps, it.aa) = (at as u32 / 2 + 1, 5, at % 2 == 1);
        let cpu = cpu * (1.0 + 0.002 * (at % 5) as f64);
        it.knobs = [("threads", 4), ("max_rows", 1000), ("buffered_rows", 2000)]
            .map(|(name, value)| (name.to_owned(), weir_model::record::Knob::Int(value)))
            .into();
        let metrics = [
            (Metric::CpuUsPerRow, cpu),
            (Metric::RowsPerS, 1e6 / cpu),
            (Metric::DataPlaneCoresUsed, 0.2),
            (Metric::ThrottledShare, 0.0),
        ];
        it.reading = Reading::Drain { metrics: metrics.into_iter().collect() };
        it
    };
    (0..10).map(one).collect()
}

#[test]
fn what_is_sound_validates_and_what_is_not_is_refused_with_every_problem() {
    let it = Repository::new();
    let (code, out, _) = it.bench(&["validate"]);
    assert_eq!((code, out.as_str()), (0, "1 entrants, 3 environments and the ingest workload are sound\n"));

    it.edit("status = \"active\"", "status = \"actve\"");
    it.edit("interval_ms = 5000", "interval_s = 5");
    let (code, out, err) = it.bench(&["validate"]);
    assert_eq!((code, out.as_str()), (3, ""));
    for part in
        ["error[unknown_word]", "--> entrants/rill/entrant.toml:13:10", "^^^^^^^", "error[missing_key]", "3 problems"]
    {
        assert!(err.contains(part), "{part}: {err}");
    }
    let (code, out, _) = it.bench(&["validate", "--json"]);
    let problems: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, problems.as_array().unwrap().len()), (3, 3));
    assert_eq!((&problems[0]["code"], &problems[0]["line"]), (&"unknown_word".into(), &13.into()));
}

#[test]
fn a_binding_that_every_run_contradicts_is_refused_at_its_variant() {
    let it = Repository::new();
    it.add(five(1, 1.0));
    let (code, _, err) = it.bench(&["validate"]);
    assert_eq!(code, 3, "{err}");
    for part in
        ["error[binding_contradicted]", "its constraint is `cpu`", "80 % of its CPU cap was idle", "| id = \"native\""]
    {
        assert!(err.contains(part), "{part}: {err}");
    }
    it.edit("constraint = \"cpu\"", "constraint = \"sink\"");
    assert_eq!(it.bench(&["validate"]).0, 0);
}

#[test]
fn sittings_are_compared_and_a_regression_fails_the_gate() {
    let it = Repository::new();
    it.add(five(1, 1.0));
    let (code, out, err) = it.bench(&["compare", "rill", "rill"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("the control") && out.contains("The control shows no difference in CPU per row"), "{out}");
    assert_eq!(it.bench(&["gate"]).0, 0, "one sitting is no regression");

    it.add(five(2, 1.3));
    let before = format!("rill@{}", sitting(1));
    let (code, out, _) = it.bench(&["compare", &before, "rill", "--json"]);
    let comparison: Value = serde_json::from_str(&out).unwrap();
    let cpu = &comparison["differences"][0];
    assert_eq!((code, &cpu["metric"], &cpu["told_apart"]), (0, &"cpu_us_per_row".into(), &true.into()));
    let (code, _, err) = it.bench(&["gate", "rill"]);
    assert!(code == 1 && err.contains("rill:native cpu_us_per_row: +30 %"), "{code} {err}");
    assert_eq!(it.bench(&["gate", "--least", "0.5"]).0, 0);
    assert_eq!(it.bench(&["compare", "rill", "nobody"]).0, 3);
    let (code, out, _) = it.bench(&["compare", &run(200).to_string(), &run(100).to_string()]);
    assert!(code == 0 && out.contains("too few runs to say"), "{out}");
}

#[test]
fn a_retracted_run_is_struck_through_with_its_reason() {
    let it = Repository::new();
    it.add(five(1, 1.0));
    let wrong = run(100).to_string();
    let (code, out, err) =
        it.bench(&["retract", &wrong, "--reason", "the cap was not applied", "--superseded-by", &run(102).to_string()]);
    assert!(code == 0 && out.contains("2026-12.jsonl:11: run"), "{out} {err}");
    assert_eq!(it.bench(&["retract", &wrong, "--reason", "again"]).0, 3);
    assert_eq!(it.bench(&["retract", &run(999).to_string(), "--reason", "x"]).0, 3);
    assert_eq!(it.bench(&["retract", &run(102).to_string(), "--reason", " "]).0, 3);
    assert_eq!(it.bench(&["verify"]).0, 0);
    assert_eq!(it.bench(&["publish"]).0, 0);
    let page = fs::read_to_string(it.path("public/index.html")).unwrap();
    assert!(page.contains("<s>1.00</s>") && page.contains("the cap was not applied"), "{page}");
}

#[test]
fn verify_names_the_byte_that_was_tampered_with() {
    let it = Repository::new();
    it.add(five(1, 1.0));
    let file = it.path("results").join(measurement(1).env.id.as_str()).join("rill/2026-12.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    let third = whole.match_indices('\n').nth(1).unwrap().0;
    let at = third + whole[third..].find("\"rows\":72000").unwrap() + "\"rows\":".len();
    let mut bytes = whole.clone().into_bytes();
    bytes[at] = b'9';
    fs::write(&file, bytes).unwrap();
    let (code, _, err) = it.bench(&["verify"]);
    assert!(code == 1 && err.contains(&format!("byte {at} was `7` and is `9`")), "{at}: {err}");
    assert!(err.contains("rill/2026-12.jsonl:3:"), "{err}");
    fs::write(&file, whole).unwrap();
    assert_eq!(it.bench(&["verify"]).0, 0);
}

#[test]
fn what_is_stale_is_listed_and_can_be_an_error() {
    let it = Repository::new();
    let (code, out, _) = it.bench(&["stale"]);
    assert!(code == 0 && out.contains("rill:native") && out.contains("never measured"), "{out}");
    it.add(five(1, 1.0));
    let (code, out, _) = it.bench(&["stale", "--json", "--check"]);
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 1);
    let reasons = found.as_array().unwrap().iter().flat_map(|it| it["reasons"].as_array().unwrap());
    assert!(reasons.clone().any(|it| it["reason"] == "dataset_version"), "{out}");
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let it = Repository::new();
    for arguments in [
        &["prefill", "--batches", "0"][..],
        &["run", "--batches", "0"],
        &["run", "--reps", "0"],
        &["run", "nobody"],
        &["run", "--env", "moon"],
        &["run", "--batches", "many"],
        &["compare", "rill"],
        &["measure"],
        &["retract", "x", "--reason", "y"],
    ] {
        let (code, out, err) = it.bench(arguments);
        assert_eq!((code, out.as_str()), (3, ""), "{arguments:?}: {err}");
        assert!(err.starts_with("error"), "{arguments:?}: {err}");
    }
    for arguments in [&["--help"][..], &["--version"], &["run", "--help"]] {
        assert_eq!(it.bench(arguments).0, 0, "{arguments:?}");
    }
}

#[test]
fn schemas_are_printed_and_written() {
    let it = Repository::new();
    let (code, out, _) = it.bench(&["schema", "record"]);
    let schema: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, schema["oneOf"].as_array().unwrap().len()), (0, 4));
    assert_eq!(it.bench(&["schema", "--out", "schemas"]).0, 0);
    for kind in ["entrant", "environment", "record"] {
        assert!(it.path(&format!("schemas/{kind}.schema.json")).is_file());
    }
    assert_eq!(it.bench(&["schema", "poem"]).0, 3);
}

//! The page of a made-up archive.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../model/tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::{measurement, retraction, sitting};
use weir_model::archive::Archive;
use weir_model::flag::Flag;
use weir_model::id::{Approach, Class, Trigger, WireFormat, WorkloadId};
use weir_model::metric::{Metric, Metrics};
use weir_model::record::{Measurement, Reading, Record};
use weir_model::status::Status;
use weir_site::{Published, publish};

/// An archive with descriptors and profiles, in a temporary folder.
struct Suite {
    folder: tempfile::TempDir,
}

impl Suite {
    fn new() -> Self {
        let suite = Self { folder: tempfile::tempdir().unwrap() };
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/accepted");
        let profile = fs::read_to_string(model.join("example.toml")).unwrap();
        let profile = profile
            .replace("id = \"example\"", "id = \"embedded\"")
            .replace("An example.", "All share one machine. <script>alert(1)</script>");
        fs::create_dir(suite.path("environments")).unwrap();
        fs::write(suite.path("environments/embedded.toml"), profile).unwrap();
        let descriptor = fs::read_to_string(model.join("rill/entrant.toml")).unwrap();
        let makers = [("brook", "Brook", "self"), ("mire", "Mire & Sons", "Mire"), ("rill", "Rill", "Rill Makers")];
        for (id, name, vendor) in makers.into_iter().chain([("sedge", "Sedge", "Sedge")]) {
            let folder = suite.path(&format!("entrants/{id}"));
            fs::create_dir_all(&folder).unwrap();
            for file in ["rill.yaml", "query-a.sql", "query-b.sql", "Dockerfile"] {
                fs::copy(model.join("rill").join(file), folder.join(file)).unwrap();
            }
            let mut text = descriptor
                .replace("id = \"rill\"", &format!("id = \"{id}\""))
                .replace("name = \"Rill\"", &format!("name = \"{name}\""))
                .replace("vendor = \"Rill Makers\"", &format!("vendor = \"{vendor}\""));
            if id != "rill" {
                let from = text.find("[[maintainer.review]]").unwrap();
                let to = text.find("[version]").unwrap();
                text.replace_range(from..to, "");
                text = text.replace("reviewed_upstream = true", "reviewed_upstream = false");
            }
            fs::write(folder.join("entrant.toml"), text).unwrap();
        }
        suite
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn add(&self, records: impl IntoIterator<Item = Record>) {
        let archive = Archive::open(self.path("results")).unwrap();
        for record in records {
            archive.append(&record).unwrap();
        }
    }

    fn publish(&self) -> (Published, String) {
        let published =
            publish(&self.path("results"), &self.path("entrants"), &self.path("environments"), &self.path("public"));
        let published = published.unwrap();
        let html = fs::read_to_string(&published.index).unwrap();
        (published, html)
    }
}

fn record(it: Measurement) -> Record {
    Record::Measurement(Box::new(it))
}

/// Runs of an arm: CPU per row, rows per second, ClickHouse's CPU per row, memory.
fn runs(entrant: &str, variant: &str, first: u64, figures: &[[f64; 4]]) -> Vec<Measurement> {
    let run = |(at, [cpu, rate, server, memory]): (usize, &[f64; 4])| {
        let mut it = measurement(first + at as u64);
        it.entrant.id = entrant.parse().unwrap();
        it.entrant.variant = variant.parse().unwrap();
        (it.rep, it.reps) = (at as u32 + 1, figures.len() as u32);
        let metrics = [
            (Metric::CpuUsPerRow, *cpu),
            (Metric::RowsPerS, *rate),
            (Metric::ClickhouseCpuUsPerRow, *server),
            (Metric::DataPlanePeakAnonMb, *memory),
        ];
        it.reading = Reading::Drain { metrics: metrics.into_iter().collect() };
        it.flags = vec![Flag::Virtualised { kind: "kvm".into() }];
        it
    };
    figures.iter().enumerate().map(run).collect()
}

/// A sitting with everything a page has to show.
fn sitting_of_everything() -> Vec<Record> {
    let mut own = runs(
        "brook",
        "native",
        10,
        &[
            [0.48, 1.31e6, 0.41, 212.0],
            [0.47, 1.34e6, 0.4, 215.0],
            [0.49, 1.29e6, 0.42, 209.0],
            [0.48, 1.3e6, 0.41, 211.0],
        ],
    );
    own[0].flags.push(Flag::ShortWindow { seconds: 6.2 });
    let mut other = runs(
        "rill",
        "native",
        20,
        &[
            [1.52, 6.1e5, 0.45, 990.0],
            [1.61, 5.8e5, 0.43, 1010.0],
            [1.55, 6.0e5, 0.44, 1002.0],
            [0.2, 5e6, 0.4, 900.0],
            [1.54, 6.0e5, 0.44, 1001.0],
        ],
    );
    other[1].flags.push(Flag::CpuThrottled { share: 0.31 });
    other.iter_mut().for_each(|it| it.gates.as_mut().unwrap().duplicates = 4);
    let mut row_binary = runs(
        "rill",
        "rowbinary",
        30,
        &[
            [1.5, 6.0e5, 1.4, 1320.0],
            [1.6, 5.9e5, 1.39, 1330.0],
            [1.57, 6.0e5, 1.41, 1300.0],
            [1.55, 6.0e5, 1.4, 1310.0],
        ],
    );
    row_binary.iter_mut().for_each(|it| it.wire_format = WireFormat::RowBinary);
    let mut control = runs("brook", "native", 80, &[[0.485, 1.3e6, 0.41, 210.0], [0.48, 1.31e6, 0.4, 212.0]]);
    control.iter_mut().for_each(|it| it.aa = true);
    let mut tuned = runs("rill", "tuned", 40, &[[1.2, 7.1e5, 0.45, 1990.0]]);
    tuned[0].approach = Approach::Tuned;
    let mut failed = runs("mire", "native", 50, &[[1.0, 1.0, 1.0, 1.0]]);
    failed[0].status = Status::Failed;
    failed[0].reading = Reading::Drain { metrics: Metrics::new() };
    failed[0].note = "values: batch 17 has name_upper <metric_3>, expected METRIC_3".into();
    (failed[0].gates, failed[0].windows) = (None, None);
    let mut tuning = runs("brook", "native", 60, &[[0.01, 9e9, 0.01, 1.0]]);
    tuning[0].trigger = Trigger::Tuning;
    let all = own.into_iter().chain(other).chain(row_binary).chain(control).chain(tuned).chain(failed).chain(tuning);
    let mut records: Vec<Record> = all.map(record).collect();
    let mut wrong = retraction(23);
    wrong.reason = "the window closed before the last insert".into();
    records.push(Record::Retraction(wrong));
    records
}

#[test]
fn the_page_says_everything() {
    let suite = Suite::new();
    suite.add(sitting_of_everything());
    let mut elsewhere = runs("brook", "native", 70, &[[0.41, 1.5e6, 0.3, 200.0]]);
    elsewhere[0].workload = WorkloadId::IngestA;
    elsewhere[0].env.class = Class::Indicative;
    elsewhere[0].sitting = sitting(2);
    elsewhere[0].ts = "2026-11-20T10:00:00Z".parse().unwrap();
    suite.add(elsewhere.into_iter().map(record));

    let (published, html) = suite.publish();
    assert_eq!((published.groups, published.archive_is_whole), (2, true));
    insta::assert_snapshot!(html);
}

#[test]
fn nothing_is_asked_of_another_host_and_nothing_is_run() {
    let suite = Suite::new();
    suite.add(sitting_of_everything());
    let (_, html) = suite.publish();
    for wanted in ["<script", "src=", "@import", "url(", "<iframe", "http-equiv"] {
        assert!(!html.contains(wanted), "the page has `{wanted}`");
    }
    assert!(html.contains("&#60;script&#62;alert(1)"), "what people write is escaped");
    let links: Vec<&str> = html.split("<link ").skip(1).map(|rest| rest.split('>').next().unwrap()).collect();
    assert_eq!(links, ["rel=\"icon\" href=\"data:,\""]);
}

#[test]
fn a_failure_is_a_word_and_a_retraction_is_struck_through() {
    let suite = Suite::new();
    suite.add(sitting_of_everything());
    let (_, html) = suite.publish();
    assert!(html.contains("<span class=\"plot none\">failed</span>"));
    assert!(html.contains("values: batch 17 has name_upper &#60;metric_3&#62;"));
    assert!(html.contains("<s>0.200</s>"));
    assert!(html.contains("the window closed before the last insert"));
    assert!(!html.contains("0.0100"), "a run of tuning is not shown");
    assert!(html.contains("Not run here: Sedge."));
    assert!(html.contains("also makes Brook."));
}

#[test]
fn an_empty_archive_has_a_page_and_a_broken_one_says_so() {
    let suite = Suite::new();
    let (published, html) = suite.publish();
    assert_eq!((published.records, published.groups), (0, 0));
    assert!(html.contains("Nothing measured yet"));

    suite.add(sitting_of_everything());
    let file = suite.path("results").join(measurement(1).env.id.as_str()).join("brook/2026-12.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("1310000", "9310000", 1)).unwrap();
    let (published, html) = suite.publish();
    assert!(!published.archive_is_whole);
    assert!(html.contains("The archive does not verify."));
}

#[test]
fn the_same_archive_gives_the_same_page() {
    let suite = Suite::new();
    suite.add(sitting_of_everything());
    assert_eq!(suite.publish().1, suite.publish().1);
}

/// Ten thousand records in many groups, written as the archive writes them.
#[test]
fn ten_thousand_records_give_one_page_of_the_newest_sittings() {
    let suite = Suite::new();
    let folder = suite.path("results").join(measurement(1).env.id.as_str());
    for (entrant, number) in [("brook", 0_u64), ("mire", 1), ("rill", 2), ("sedge", 3)] {
        let mut prev = weir_model::archive::genesis();
        let mut text = String::new();
        for at in 0..2500 {
            let figures = [[0.5 + at as f64 * 1e-4, 1e6, 0.4, 300.0]];
            let mut it = runs(entrant, "native", number * 10_000 + at, &figures).remove(0);
            it.sitting = sitting(1 + at / 5);
            (it.rep, it.reps) = ((at % 5) as u32 + 1, 5);
            it.ts += std::time::Duration::from_secs(at * 60);
            let line = record(it).to_line(&prev).unwrap();
            prev = weir_model::digest::Digest::of(&line);
            text += &format!("{line}\n");
        }
        fs::create_dir_all(folder.join(entrant)).unwrap();
        fs::write(folder.join(entrant).join("2026-12.jsonl"), text).unwrap();
    }
    let (published, html) = suite.publish();
    assert_eq!((published.records, published.groups, published.archive_is_whole), (10_000, 1, true));
    assert!(html.contains("2\u{202f}495 earlier"));
    assert!(html.len() < 200 * 1024, "{} bytes", html.len());
}

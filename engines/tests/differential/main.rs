//! Generated data and generated queries: Freshet's answers are those of the DuckDB CLI, whole processes on the same files.
//!
//! `FRESHET_SEEDS` says how many are asked (default 300), `FRESHET_FIRST_SEED` which is the first (default 0).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../broker/mod.rs"]
mod broker;
mod data;
mod queries;
mod random;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use queries::{Needs, Question, question};
use random::Random;
use serde_json::Value;

/// Seeds that one process of DuckDB answers.
const AT_ONCE: u64 = 25;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// What one seed asks, of inputs that are in `dir`.
struct Asked {
    seed: u64,
    question: Question,
    options: Vec<String>,
}

fn ask(seed: u64, dir: &Path) -> Asked {
    let mut random = Random::new(seed);
    let data = data::data(&mut random);
    for (name, text) in [("events", &data.events), ("other", &data.other), ("names", &data.names)] {
        fs::write(dir.join(format!("{name}-{seed}.ndjson")), text).unwrap();
    }
    let question = question(&mut random);
    let mut options = vec!["--workers".to_owned(), (1 + random.below(3)).to_string()];
    if random.once_in(2) {
        // Rows come out of order, none comes late.
        options.extend(["--watermark-delay".to_owned(), format!("{}us", data::DISORDER)]);
    }
    if random.once_in(3) {
        options.extend(["--state-memory".to_owned(), "64kB".to_owned()]);
    }
    Asked { seed, question, options }
}

/// Lets DuckDB answer, into `duckdb-SEED.ndjson`.
fn duckdb(asked: &[Asked], dir: &Path) {
    let mut script = String::from("SET threads = 1; SET TimeZone = 'UTC';\n");
    for Asked { seed, question, .. } in asked {
        for (name, columns) in [("events", data::EVENTS), ("other", data::OTHER), ("names", data::NAMES)] {
            let file = dir.join(format!("{name}-{seed}.ndjson"));
            let read = format!("read_json('{}', format = 'newline_delimited', columns = {columns})", file.display());
            writeln!(script, "CREATE OR REPLACE TABLE {name} AS FROM {read};").unwrap();
        }
        let out = dir.join(format!("duckdb-{seed}.ndjson"));
        writeln!(script, "COPY ({}) TO '{}' (FORMAT json);", question.theirs, out.display()).unwrap();
    }
    let path = broker::fetched("duckdb-").join("duckdb");
    let mut command = Command::new(path);
    command.args(["-batch", "-bail", "-no-init"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "DuckDB: {errors}");
}

fn freshet(asked: &Asked, dir: &Path) -> Result<String, String> {
    let file = |name: &str| format!("file://{}/{name}-{}.ndjson", dir.display(), asked.seed);
    let question = &asked.question;
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshet"));
    // A file is a stream of its name.
    let ours = ["events", "other", "names"].into_iter().fold(question.ours.clone(), |text, name| {
        text.replace(&format!(" {name} "), &format!(" \"{name}-{}\" ", asked.seed))
    });
    command.arg(ours).args(&asked.options).arg("--from").arg(file("events"));
    command.args([
        "--columns",
        "id BIGINT, k VARCHAR, g BIGINT, v BIGINT, big BIGINT, d DOUBLE, b BOOLEAN, p BIGINT, ts TIMESTAMP",
    ]);
    match question.needs {
        Needs::Events => {}
        Needs::Other => _ = command.arg("--stream").arg(format!("other-{}={}", asked.seed, file("other"))),
        Needs::Names => _ = command.arg("--table").arg(format!("names-{}={}", asked.seed, file("names"))),
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Whether two answers are the same; the first difference otherwise.
fn compare(question: &Question, ours: &str, theirs: &str) -> Result<(), String> {
    let lines = |text: &str| -> Vec<String> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if !question.ordered {
            lines.sort();
        }
        lines
    };
    let (ours, theirs) = (lines(ours), lines(theirs));
    let same = |(a, b): (&String, &String)| a == b || !question.exact && near(a, b);
    if ours.len() == theirs.len() && ours.iter().zip(&theirs).all(same) {
        return Ok(());
    }
    let at = ours.iter().zip(&theirs).position(|pair| !same(pair)).unwrap_or(ours.len().min(theirs.len()));
    let line = |of: &[String]| of.get(at).cloned().unwrap_or_default();
    Err(format!(
        "{} rows, DuckDB {}; row {at}:\nfreshet {}\nduckdb  {}",
        ours.len(),
        theirs.len(),
        line(&ours),
        line(&theirs)
    ))
}

/// Whether two rows are equal but for the last digits of doubles.
fn near(a: &str, b: &str) -> bool {
    let (a, b): (Value, Value) = (serde_json::from_str(a).unwrap(), serde_json::from_str(b).unwrap());
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return false };
    let close = |a: &Value, b: &Value| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3),
        _ => a == b,
    };
    a.len() == b.len() && a.iter().all(|(name, value)| b.get(name).is_some_and(|other| close(value, other)))
}

/// Asks the seeds from `first` on, and says which answers differ.
fn differences(first: u64, end: u64) -> String {
    let dir = tempfile::tempdir().unwrap();
    let asked: Vec<Asked> = (first..end.min(first + AT_ONCE)).map(|seed| ask(seed, dir.path())).collect();
    duckdb(&asked, dir.path());
    let mut out = String::new();
    for one in &asked {
        let theirs = fs::read_to_string(dir.path().join(format!("duckdb-{}.ndjson", one.seed))).unwrap();
        let compared = freshet(one, dir.path()).and_then(|ours| compare(&one.question, &ours, &theirs));
        if let Err(difference) = compared {
            let Question { ours, theirs, .. } = &one.question;
            writeln!(out, "seed {}: {difference}\n{}\n{ours}\n{theirs}\n", one.seed, one.options.join(" ")).unwrap();
        }
    }
    out
}

#[test]
fn answers_are_those_of_duckdb() {
    let first = number("FRESHET_FIRST_SEED", 0);
    let end = first + number("FRESHET_SEEDS", 300);
    let (next, wrong) = (AtomicU64::new(first), Mutex::new(String::new()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let from = next.fetch_add(AT_ONCE, Ordering::Relaxed);
                    if from >= end {
                        return;
                    }
                    wrong.lock().unwrap().push_str(&differences(from, end));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "\n{wrong}");
}

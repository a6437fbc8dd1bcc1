//! Every `*.sql` here: from files and from a real broker, with one worker and three, straight through and killed and
//! resumed, the answer is the same bytes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../broker/mod.rs"]
mod broker;
mod case;

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use broker::Broker;
use case::{Case, Expected};

/// Blank lines in an input that takes long enough to be killed in its middle.
const BLANK: usize = 100_000_000;
const KILLS: u64 = 4;

fn cases() -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql");
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    let read = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Case::parse(&name, &fs::read_to_string(path).unwrap()).unwrap()
    };
    let cases: Vec<Case> = files.iter().map(read).collect();
    assert!(cases.len() >= 20, "the cases are found: {}", cases.len());
    cases
}

/// The command of a case whose streams are where `address` says and whose tables are files in `dir`.
fn freshet(case: &Case, dir: &Path, address: impl Fn(&str) -> String) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshet"));
    command.arg(&case.query).args(&case.options).args(["--errors", "json"]);
    for (position, input) in case.inputs.iter().enumerate() {
        let name = &input.name;
        match (position, input.table) {
            (0, _) => command.arg("--from").arg(address(name)),
            (_, false) => command.arg("--stream").arg(format!("{name}={}", address(name))),
            (_, true) => command.arg("--table").arg(format!("{name}={}", file(dir, name))),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn file(dir: &Path, name: &str) -> String {
    format!("file://{}/{name}.ndjson", dir.display())
}

fn write_inputs(case: &Case, dir: &Path, streams: impl Fn(&[u8]) -> Vec<u8>) {
    for input in &case.inputs {
        let bytes = if input.table { input.bytes.clone() } else { streams(&input.bytes) };
        fs::write(dir.join(format!("{}.ndjson", input.name)), bytes).unwrap();
    }
}

/// Whether a run answered as the case says.
fn check(case: &Case, how: &str, output: &Output) -> Result<(), String> {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let right = match &case.expected {
        Expected::Rows(rows) => output.status.success() && stdout == *rows,
        Expected::Error { code, text } => {
            let line = stderr.lines().last().unwrap_or_default();
            let error: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let error = &error["error"];
            matches!(output.status.code(), Some(1 | 2))
                && stdout.is_empty()
                && error["code"] == code.as_str()
                && error["message"].as_str().is_some_and(|message| message.contains(text))
        }
    };
    if right {
        return Ok(());
    }
    let expected = match &case.expected {
        Expected::Rows(rows) => rows.clone(),
        Expected::Error { code, text } => format!("{code}: {text}"),
    };
    Err(format!("{}, {how}: {}\n{stdout}{stderr}expected:\n{expected}", case.name, output.status))
}

/// Runs every case, four at a time, and fails with all that are wrong.
fn every_case(run: impl Fn(&Case) -> Result<(), String> + Sync) {
    let cases = cases();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(String::new()));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = run(case) {
                        writeln!(wrong.lock().unwrap(), "{error}").unwrap();
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn from_files() {
    every_case(|case| {
        let dir = tempfile::tempdir().unwrap();
        write_inputs(case, dir.path(), <[u8]>::to_vec);
        for workers in ["1", "3"] {
            let mut command = freshet(case, dir.path(), |name| file(dir.path(), name));
            let output = command.args(["--workers", workers]).output().unwrap();
            check(case, &format!("files, {workers} workers"), &output)?;
        }
        Ok(())
    });
}

/// The records far apart: blank lines are none, and take a while to read.
fn spread(bytes: &[u8]) -> Vec<u8> {
    let records = bytes.split(|byte| *byte == b'\n').count();
    let blank = vec![b'\n'; BLANK / records];
    let mut out = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(line);
        if line.ends_with(b"\n") {
            out.extend_from_slice(&blank);
        }
    }
    out
}

/// Runs `command` `KILLS` times, ends it with SIGKILL each time, and then lets it end by itself.
fn killed(case: &Case, how: &str, longest: u64, out: &Path, command: impl Fn() -> Command) -> Result<(), String> {
    let command = || {
        let mut command = command();
        command.args(["--checkpoint-interval", "1ms", "--checkpoint"]).arg(out.with_extension("checkpoint"));
        command.arg("--to").arg(format!("file://{}", out.display()));
        command
    };
    for kill in 0..KILLS {
        let mut hasher = DefaultHasher::new();
        (&case.name, how, kill).hash(&mut hasher);
        let mut child = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(hasher.finish() % longest));
        // Which may have ended already.
        drop(child.kill());
        child.wait().unwrap();
    }
    let output = command().output().unwrap();
    check(case, how, &Output { stdout: fs::read(out).unwrap_or_default(), ..output })
}

fn is_answered(case: &Case) -> bool {
    matches!(case.expected, Expected::Rows(_))
}

#[test]
fn from_files_killed_and_resumed() {
    every_case(|case| {
        if !is_answered(case) || case.inputs[0].bytes.split(|byte| *byte == b'\n').count() > 100 {
            return Ok(());
        }
        let dir = tempfile::tempdir().unwrap();
        write_inputs(case, dir.path(), spread);
        for workers in ["1", "3"] {
            let out = dir.path().join(format!("out-{workers}.ndjson"));
            killed(case, &format!("files, killed, {workers} workers"), 900, &out, || {
                let mut command = freshet(case, dir.path(), |name| file(dir.path(), name));
                command.args(["--workers", workers]);
                command
            })?;
        }
        Ok(())
    });
}

/// A query over several inputs knows a topic by its name; the only one may be called anything.
fn topic(case: &Case, name: &str) -> String {
    if case.inputs.len() == 1 { format!("{}-{name}", case.name) } else { name.to_owned() }
}

fn produced(broker: &Broker, case: &Case) {
    for input in case.inputs.iter().filter(|input| !input.table) {
        let topic = topic(case, &input.name);
        broker.topic(&topic, 1);
        let text = std::str::from_utf8(&input.bytes).unwrap();
        broker.produce(&topic, text.lines().filter(|line| !line.trim().is_empty()).map(|line| (0, line)));
    }
}

#[test]
fn from_kafka() {
    let broker = broker::shared();
    every_case(|case| {
        if case.files_only {
            return Ok(());
        }
        produced(&broker, case);
        let dir = tempfile::tempdir().unwrap();
        write_inputs(case, dir.path(), <[u8]>::to_vec);
        let address = |name: &str| format!("kafka://{}/{}", broker.address, topic(case, name));
        let command = |workers: &str| {
            let mut command = freshet(case, dir.path(), address);
            command.args(["--workers", workers, "--group-id", &format!("{}-{workers}", case.name)]);
            command
        };
        for workers in ["1", "3"] {
            let output = command(workers).output().unwrap();
            check(case, &format!("Kafka, {workers} workers"), &output)?;
        }
        if !is_answered(case) {
            return Ok(());
        }
        killed(case, "Kafka, killed", 400, &dir.path().join("out.ndjson"), || command("2"))
    });
}

//! A repository and a cache of a test's own, and `bench` run in them.

#![allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "each test binary uses its part")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_harness::setup::Home;

#[path = "../signals/mod.rs"]
mod signals;
use signals::interruptible;

/// One sitting a host: tests that run one take turns.
static TURN: Mutex<()> = Mutex::new(());

/// An entrant whose arm is the example `liar`, with one variant for each lie.
pub const LIES: [&str; 10] = [
    "none",
    "lost",
    "duplicate",
    "upper",
    "null_region",
    "rounded",
    "tags",
    "batch_ts_1970",
    "send_ts_1970",
    "swapped",
];

/// A repository with one entrant, and a cache that borrows what was fetched for the user's.
pub struct Workbench {
    _dir: tempfile::TempDir,
    pub root: PathBuf,
    pub home: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace").to_path_buf()
}

/// The example that cargo built beside this test.
pub fn liar() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let release = test.parent().and_then(Path::parent).expect("deps of a profile");
    release.join("examples/liar")
}

impl Workbench {
    /// A repository with the entrants of this one, without sources: what is built beside the tests is what runs.
    pub fn of_this_repository() -> Self {
        let it = Self::new();
        let entrants = it.root.join("entrants");
        fs::remove_dir_all(&entrants).expect("removable");
        symlink(repository().join("entrants"), entrants).expect("linked");
        it
    }

    pub fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (root, home) = (dir.path().join("repository"), dir.path().join("home"));
        fs::create_dir_all(root.join("entrants/liar")).expect("writable");
        fs::create_dir_all(&home).expect("writable");
        for folder in ["workload", "environments"] {
            symlink(repository().join(folder), root.join(folder)).expect("linked");
        }
        let fetched = Home::find().expect("a cache directory");
        for piece in [fetched.kafka_libs(), fetched.libchdb(), fetched.duckdb()] {
            assert!(piece.exists(), "{} is missing: run `bench setup`", piece.display());
            let piece = piece.parent().expect("in its folder");
            let name = piece.file_name().expect("a name");
            symlink(piece, home.join(name)).expect("linked");
        }
        fs::write(root.join("entrants/liar/entrant.toml"), descriptor()).expect("writable");
        Self { _dir: dir, root, home, _turn: turn }
    }

    pub fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
        command.args(arguments).current_dir(&self.root).env("WEIR_HOME", &self.home);
        interruptible(&mut command);
        command
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        self.bench(arguments).output().expect("bench starts")
    }

    /// Starts `bench` with its output discarded.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.bench(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("bench starts")
    }

    /// Every measurement of every results file.
    pub fn records(&self) -> Vec<Value> {
        let mut records: Vec<Value> = Vec::new();
        let mut folders = vec![self.root.join("results")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                    let text = fs::read_to_string(&path).expect("readable");
                    records.extend(text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")));
                }
            }
        }
        records.retain(|record| record["kind"] == "measurement");
        records
    }

    /// The record of a variant.
    pub fn record(&self, variant: &str) -> Value {
        let mut found = self.records();
        found.retain(|record| record["entrant"]["variant"] == variant);
        assert_eq!(found.len(), 1, "records of {variant}");
        found.remove(0)
    }

    /// Processes that a sitting here left behind: below its scratch, or with its cache in their environment.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let mark = format!("WEIR_HOME={}", self.home.display());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("proc").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let below = fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&self.home));
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            let marked = environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
            if below || marked {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
            }
        }
        found
    }

    /// The process whose command line has `part` in it, once there is one.
    pub fn wait_for_process(&self, part: &str) -> u32 {
        let mut pid = 0;
        until(&format!("a process with {part}"), || {
            let found = self.processes().into_iter().find(|(_, line)| line.contains(part));
            found.map(|(found, _)| pid = found).is_some()
        });
        pid
    }

    /// The running arm, once there is one: not the short run that asks for its version, nor the supervisor that names it.
    pub fn wait_for_arm(&self) -> u32 {
        let liar = liar().display().to_string();
        let mut pid = 0;
        until("the arm to run", || {
            let found = self.processes().into_iter().find(|(_, line)| line.trim_end() == liar);
            found.map(|(found, _)| pid = found).is_some()
        });
        pid
    }

    pub fn wait_for_no_process(&self) {
        until("no process to be left", || self.processes().is_empty());
    }
}

/// Waits for a condition; a minute is far beyond what it takes.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn descriptor() -> String {
    let liar = liar();
    assert!(liar.is_file(), "{} is missing: run the tests of the whole workspace", liar.display());
    let liar = liar.display();
    let mut text = format!(
        r#"schema = 1

[entrant]
id = "liar"
name = "Liar"
homepage = "https://example.org"
repo = "https://example.org"
licence = "Apache-2.0"
vendor = "self"
kind = "test"
language = ["rust"]
runtime = "native"
status = "active"

[maintainer]
who = "weir"
reviewed_upstream = false

[version]
command = ["{liar}", "--version"]
pinned = "1.0.0"
artefact = "{liar}"

[process]
command = ["{liar}"]

[envelope]
cpus = 4
memory = "16GiB"

[[envelope.container]]
role = "data-plane"
name = "sut"
cpus = 4
memory = "16GiB"

[guarantees]
delivery = "at-least-once"
durability = "offset-commit"
interval_ms = 5000

[env]
BROKER = "{{{{broker}}}}"
TOPIC = "{{{{topic}}}}"
GROUP = "{{{{group_id}}}}"
CLICKHOUSE = "{{{{clickhouse}}}}"
TABLE = "{{{{table}}}}"
LIE = "{{{{knob:lie}}}}"
"#
    );
    for lie in LIES.iter().chain(&["asleep"]) {
        let id = lie.replace('_', "-");
        let default = *lie == "none";
        text.push_str(&format!(
            r#"
[[variants]]
id = "{id}"
workloads = ["ingest-b"]
approach = "realistic"
default = {default}
reports = {{ wire_format = "json_each_row" }}
knobs = {{ lie = "{lie}" }}

[variants.binding]
constraint = "cpu"
evidence = ["data_plane_cores_used"]
sentence = "It is a test."
"#
        ));
    }
    text
}

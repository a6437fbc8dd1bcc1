//! `bench setup` and `bench doctor` as commands, on the filled cache and in empty ones.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use weir_harness::setup::{Home, Presence, Tool, Tools, inspect};

/// The cache that `bench setup` filled before the tests.
fn filled() -> Home {
    let home = Home::find().expect("HOME is set");
    let filled = inspect(&home).pieces.iter().all(|(_, presence)| *presence == Presence::Proven);
    assert!(filled, "{} is not filled: cargo run --release --locked --bin bench -- setup", home.root().display());
    home
}

/// `bench` with nothing in its environment but these.
fn bench(path: &Path, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(arguments).env_clear().env("PATH", path).env("WEIR_HOME", home).stdin(Stdio::null());
    command
}

fn ran(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("bench runs");
    (status.code(), String::from_utf8(stdout).expect("utf-8"), String::from_utf8(stderr).expect("utf-8"))
}

/// A directory for programs that holds Java only.
fn java_only(dir: &Path) -> PathBuf {
    let bin = dir.join("bin");
    fs::create_dir(&bin).expect("a new directory");
    let java = Tools::from_env().find(Tool::Java).expect("apt-get install -y openjdk-17-jre-headless");
    symlink(fs::canonicalize(java).expect("java is there"), bin.join("java")).expect("a link");
    bin
}

/// Written by a child, so that no other test's fork holds it open for writing.
fn script(path: &Path, body: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#;
    assert!(Command::new("/bin/sh").args(["-c", write]).arg(path).arg(body).status().expect("sh runs").success());
}

#[test]
fn a_filled_cache_needs_no_network_and_no_client() {
    let home = filled();
    let dir = tempfile::tempdir().unwrap();
    let bin = java_only(dir.path());
    let (code, out, err) = ran(bench(&bin, home.root(), &["setup"]));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert_eq!(out.matches(" present ").count(), 3, "{out}");

    let (code, out, err) = ran(bench(&bin, home.root(), &["doctor", "--json"]));
    assert_eq!(code, Some(0), "{err}");
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(found["host"]["cores"].as_u64().unwrap() >= 1);
    assert_eq!(found["tools"][1], serde_json::json!(["mvn", null]));
    assert_eq!(found["obstacles"], serde_json::json!([]));
}

#[test]
fn every_missing_tool_is_named_with_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let (empty, home) = (dir.path().join("bin"), dir.path().join("home"));
    let (code, out, err) = ran(bench(&empty, &home, &["setup"]));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let said = "error[missing_tools]: not installed: java, mvn, npm, pip\n  \
                hint: apt-get install -y openjdk-17-jre-headless maven npm python3-pip\n";
    assert_eq!(err, said);
    assert!(!home.exists(), "nothing was begun");

    let (code, out, err) = ran(bench(&empty, &home, &["doctor"]));
    assert_eq!(code, Some(1));
    assert!(out.contains("`bench run` is not possible here\n  missing_tools: not installed: java"), "{out}");
    assert!(err.starts_with("error[cannot_run_here]: "), "{err}");
}

#[test]
fn a_setup_killed_midway_leaves_no_client_and_goes_on_where_it_was() {
    let jars = filled().kafka_libs();
    let dir = tempfile::tempdir().unwrap();
    let (bin, home) = (java_only(dir.path()), dir.path().join("home"));
    let (alive, never) = (dir.path().join("alive"), dir.path().join("never"));
    assert!(Command::new("mkfifo").args([&alive, &never]).status().unwrap().success());
    let copy = format!(
        "for a; do case $a in -DoutputDirectory=*) out=${{a#*=}};; esac; done\n/bin/mkdir -p \"$out\"\n/bin/cp {}/*.jar \"$out\"",
        jars.display()
    );
    script(&bin.join("mvn"), &copy);
    script(&bin.join("npm"), &format!("exec 3>{}\necho fetching >&3\nread _ <{}", alive.display(), never.display()));
    script(&bin.join("python3"), "exit 0");

    let mut watch = Command::new("timeout").arg("60").arg("cat").arg(&alive).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(watch.stdout.take().unwrap());
    let mut setup = bench(&bin, &home, &["setup"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    setup.kill().unwrap();
    let said = setup.wait_with_output().unwrap().stderr;
    assert_eq!(line, "fetching\n", "npm was not reached: {}", String::from_utf8_lossy(&said));
    told.read_to_string(&mut line).unwrap();
    assert!(watch.wait().unwrap().success(), "npm outlived the setup that started it");

    fs::remove_file(bin.join("mvn")).unwrap();
    script(&bin.join("npm"), "for a; do case $a in --pack-destination=*) echo bad > \"${a#*=}/x.tgz\";; esac; done");
    let (code, _, err) = ran(bench(&bin, &home, &["setup"]));
    assert_eq!(code, Some(1));
    assert!(!err.contains("kafka"), "the jars were there already: {err}");
    assert!(
        err.contains("error[wrong_checksum]: wrong SHA-256: ") && err.contains("archive.tgz\n  expected c0d32b"),
        "{err}"
    );
    assert!(err.contains("hint: the file was deleted: run `bench setup` again"), "{err}");
    assert!(home.join("kafka-4.4.0/libs").is_dir() && !home.join("chdb-26.7.3-stable.1").exists());
}

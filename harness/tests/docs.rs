//! Every command printed in the documents is run, as it is printed.
//!
//! `cargo run … --bin bench --` runs the program that cargo has built, in a repository and with a cache of this test's
//! own; `cargo test` is what runs this, so here it only has to build. Commands within a sentence must exist, with their
//! arguments.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Workbench, repository};

/// What stands for cargo while the documents run.
const CARGO: &str = r#"#!/bin/sh
set -eu
case "$*" in
"run --release --locked --bin bench -- "*) shift 6; exec bench "$@" ;;
"build --release --locked") cd "$REPOSITORY"; exec "$REAL_CARGO" "$@" --workspace --bins ;;
"test --release --workspace --locked") cd "$REPOSITORY"; exec "$REAL_CARGO" "$@" --no-run ;;
*) echo "the documents run cargo $*, which this test does not know" >&2; exit 1 ;;
esac
"#;

/// The documents whose commands are run.
fn documents() -> Vec<PathBuf> {
    let mut found = vec![repository().join("README.md"), repository().join("METHODOLOGY.md")];
    for folder in ["docs", "docs/decisions", "entrants"] {
        for entry in fs::read_dir(repository().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let path = if path.is_dir() { path.join("README.md") } else { path };
            if path.extension().is_some_and(|it| it == "md") && path.is_file() {
                found.push(path);
            }
        }
    }
    found
}

/// The fenced blocks of shell commands in a document.
fn blocks(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        match &mut block {
            None if line == "```sh" => block = Some(String::new()),
            None => {
                assert!(!matches!(line, "```bash" | "```shell" | "```console"), "a block of commands is ```sh: {line}")
            }
            Some(_) if line == "```" => found.extend(block.take()),
            Some(block) => block.push_str(&format!("{line}\n")),
        }
    }
    assert!(block.is_none(), "a block of commands has no end");
    found
}

/// The folder of this workspace's programs.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_bench")).parent().unwrap().to_path_buf()
}

#[test]
fn every_printed_command_runs() {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--workspace", "--bins"])
        .current_dir(repository())
        .status()
        .unwrap();
    assert!(built.success());
    let workbench = Workbench::of_this_repository();
    let shims = workbench.home.join("shims");
    fs::create_dir_all(&shims).unwrap();
    fs::write(shims.join("cargo"), CARGO).unwrap();
    fs::set_permissions(shims.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{}:{path}", shims.display(), programs().display());
    let mut ran = 0;
    for document in documents() {
        for block in blocks(&fs::read_to_string(&document).unwrap()) {
            let started = std::time::Instant::now();
            let output = Command::new("sh")
                .args(["-eu", "-c", &block])
                .current_dir(&workbench.root)
                .env("PATH", &path)
                .env("REAL_CARGO", env!("CARGO"))
                .env("REPOSITORY", repository())
                .env("WEIR_HOME", &workbench.home)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}:\n{block}\n{}\n{said}", document.display(), output.status);
            println!("{:.1} s: {}", started.elapsed().as_secs_f64(), block.trim().replace('\n', "; "));
            ran += 1;
        }
    }
    assert!(ran > 8, "only {ran} blocks were found");
    workbench.wait_for_no_process();
}

/// `bench …` within a sentence: the verb exists and has every option that is named.
#[test]
fn every_command_in_a_sentence_exists() {
    let mut looked_at = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for span in text.split('`').skip(1).step_by(2) {
            let mut words = span.split_whitespace();
            if words.next() != Some("bench") || span.contains('\n') {
                continue;
            }
            let Some(verb) = words.next() else { continue };
            let help = Command::new(env!("CARGO_BIN_EXE_bench")).args([verb, "--help"]).output().unwrap();
            assert!(help.status.success(), "{}: `{span}` has no such verb", document.display());
            let help = String::from_utf8_lossy(&help.stdout).into_owned();
            for option in words.filter(|word| word.starts_with("--")) {
                let option = option.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
                assert!(help.contains(option), "{}: `{span}`: no {option}", document.display());
            }
            looked_at += 1;
        }
    }
    assert!(looked_at > 10, "only {looked_at} commands were found");
}

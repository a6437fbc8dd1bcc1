//! Holds the layout that `docs/invariants.md` promises: arrows between crates, names in shared code, file sizes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CODE_LINES: usize = 500;
const MODULE_DOC_LINES: usize = 30;

/// Files allowed above [`CODE_LINES`], each with the reason it cannot be split.
const LONG_FILES: &[(&str, &str)] = &[];

/// Source that measures or shows every system and so may not know any of them.
const SHARED: &[&str] = &["harness/src", "model/src", "site/src", "site/templates"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lives in the workspace").to_path_buf()
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.expect("readable directory").path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                files(&path, found);
            }
        } else {
            found.push(path);
        }
    }
}

fn files_below(relative: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root().join(relative), &mut found);
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").display().to_string()
}

/// Lines before the first `#[cfg(test)]` module.
fn code_of(text: &str) -> Vec<&str> {
    text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).collect()
}

/// Every source file but those that hold nothing but tests.
fn rust_sources() -> Vec<PathBuf> {
    ["model/src", "harness/src", "engines/src", "site/src", "entrants"]
        .iter()
        .flat_map(|dir| files_below(dir))
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter(|path| path.file_name().is_none_or(|name| name != "tests.rs"))
        .collect()
}

#[test]
fn no_file_has_more_code_than_a_reader_can_hold() {
    let mut too_long = Vec::new();
    for path in rust_sources() {
        let text = fs::read_to_string(&path).expect("utf-8 source");
        let lines = code_of(&text).len();
        let name = shown(&path);
        if lines > CODE_LINES && !LONG_FILES.iter().any(|(allowed, _)| *allowed == name) {
            too_long.push(format!("{name}: {lines} lines before its tests"));
        }
    }
    assert!(too_long.is_empty(), "files over {CODE_LINES} lines:\n{}", too_long.join("\n"));
}

#[test]
fn module_docs_are_short() {
    let mut too_long = Vec::new();
    for path in rust_sources() {
        let text = fs::read_to_string(&path).expect("utf-8 source");
        let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
        if lines > MODULE_DOC_LINES {
            too_long.push(format!("{}: {lines} lines of module documentation", shown(&path)));
        }
    }
    assert!(too_long.is_empty(), "{}", too_long.join("\n"));
}

#[test]
fn main_files_only_dispatch() {
    for crate_dir in ["harness", "engines"] {
        let path = root().join(crate_dir).join("src/main.rs");
        let lines = fs::read_to_string(&path).expect("a binary").lines().count();
        assert!(lines < 80, "{} has {lines} lines", shown(&path));
    }
}

/// Names a shared source may not contain: every entrant's id and name, and the systems that are planned.
fn system_names() -> Vec<String> {
    let mut names: Vec<String> =
        ["flink", "vector.dev", "ubik", "proton", "risingwave", "kafka connect", "kafka-connect"]
            .iter()
            .map(ToString::to_string)
            .collect();
    for path in files_below("entrants") {
        if path.file_name().is_some_and(|name| name == "entrant.toml") {
            let folder = path.parent().expect("entrants/<id>").file_name().expect("a name");
            names.push(folder.to_string_lossy().to_lowercase());
        }
    }
    names
}

#[test]
fn shared_code_names_no_system() {
    let names = system_names();
    assert!(names.len() > 7, "no entrant was found: {names:?}");
    let mut found = Vec::new();
    for path in SHARED.iter().flat_map(|dir| files_below(dir)) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            for name in &names {
                let word = lower.match_indices(name.as_str()).any(|(at, _)| {
                    let before = lower[..at].chars().next_back();
                    let after = lower[at + name.len()..].chars().next();
                    !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
                });
                if word {
                    found.push(format!("{}:{}: {name}: {}", shown(&path), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(found.is_empty(), "shared code names a system it measures:\n{}", found.join("\n"));
}

/// Direct dependencies of every workspace member, dev-dependencies included.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("a string").to_owned();
    metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|package| {
            let needs = package["dependencies"].as_array().expect("dependencies");
            (text(&package["name"]), needs.iter().map(|need| text(&need["name"])).collect())
        })
        .collect()
}

#[test]
fn arrows_point_one_way() {
    let all = dependencies();
    let ours: Vec<&String> = all.keys().collect();
    let allowed: &[(&str, &[&str])] = &[
        ("weir-model", &[]),
        ("weir-site", &["weir-model"]),
        ("weir-harness", &["weir-model", "weir-site"]),
        ("freshet", &[]),
    ];
    for (name, needs) in &all {
        let may: &[&str] = allowed.iter().find(|(package, _)| package == name).map_or(&[], |(_, may)| may);
        for need in needs {
            assert!(
                !ours.contains(&need) || may.contains(&need.as_str()),
                "{name} depends on {need}: an arrow the architecture does not have"
            );
        }
    }
}

#[test]
fn harness_depends_on_no_system() {
    let all = dependencies();
    let entrants: Vec<String> = system_names();
    for package in ["weir-harness", "weir-model", "weir-site"] {
        for need in &all[package] {
            assert!(!entrants.contains(&need.to_lowercase()), "{package} depends on the system {need}");
        }
    }
}

#[test]
fn harness_version_is_documented() {
    let text = fs::read_to_string(root().join("METHODOLOGY.md")).expect("METHODOLOGY.md");
    let table = text.split("| version | date | change |").nth(1).expect("the table of protocol versions");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let versions: Vec<&str> = rows.filter_map(|row| row.split('|').nth(1)).map(str::trim).collect();
    let constant = weir_harness::sitting::report::HARNESS_VERSION.to_string();
    assert_eq!(versions.last(), Some(&constant.as_str()), "raise both, or neither: {versions:?}");
}

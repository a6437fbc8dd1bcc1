//! Files people write: the accepted ones are read, and each rejected one fails with exactly its message.
//!
//! A rejected example is an edit of the accepted file (lines with `-` give way to lines with `+`), `====`, and the
//! whole message. `WEIR_BLESS=1` writes the messages anew.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weir_model::descriptor::Entrant;
use weir_model::environment::{Environment, HostFacts};

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Makes the edits of an example in `text`.
fn edit(mut text: String, edits: &str) -> String {
    for block in edits.split("\n\n") {
        let side = |sign: char| -> Vec<&str> { block.lines().filter_map(|line| line.strip_prefix(sign)).collect() };
        let (old, new) = (side('-').join("\n"), side('+').join("\n"));
        assert!(text.contains(&old), "the accepted file has no\n{old}");
        text = text.replacen(&old, &new, 1);
    }
    text
}

/// Runs every rejected example below `tests/rejected/<kind>` and compares its message.
fn rejected(kind: &str, accepted: &str, read: impl Fn(&str) -> Result<(), String>) {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(tests().join("rejected").join(kind)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let example = fs::read_to_string(&path).unwrap();
        let (edits, expected) = example.split_once("\n====\n").expect("edits, `====`, message");
        let message = read(&edit(accepted.to_owned(), edits)).expect_err(&path.display().to_string());
        if std::env::var_os("WEIR_BLESS").is_some() {
            fs::write(&path, format!("{edits}\n====\n{message}\n")).unwrap();
        } else {
            assert_eq!(message, expected.trim_end(), "{}", path.display());
        }
    }
}

/// A folder called `rill` with the accepted files and this descriptor.
fn rill(descriptor: &str) -> (tempfile::TempDir, PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("rill");
    fs::create_dir(&folder).unwrap();
    for entry in fs::read_dir(tests().join("accepted/rill")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    fs::write(folder.join("entrant.toml"), descriptor).unwrap();
    (temporary, folder)
}

#[test]
fn every_rule_of_a_descriptor_rejects_its_example() {
    let accepted = fs::read_to_string(tests().join("accepted/rill/entrant.toml")).unwrap();
    rejected("entrant", &accepted, |text| {
        let (temporary, folder) = rill(text);
        let shown = format!("{}/", temporary.path().display());
        Entrant::load(&folder).map(|_| ()).map_err(|problems| problems.to_string().replace(&shown, ""))
    });
}

#[test]
fn every_rule_of_an_environment_rejects_its_example() {
    let accepted = fs::read_to_string(tests().join("accepted/example.toml")).unwrap();
    rejected("environment", &accepted, |text| {
        Environment::parse("example.toml", text, "example").map(|_| ()).map_err(|problems| problems.to_string())
    });
}

#[test]
fn every_code_has_an_example() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut codes = BTreeSet::new();
    for file in
        ["document.rs", "descriptor/read.rs", "descriptor/check.rs", "descriptor/fairness.rs", "environment/read.rs"]
    {
        let text = fs::read_to_string(source.join(file)).unwrap();
        for call in text.split(".report(").skip(1) {
            if let Some(code) = call.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next()) {
                codes.insert(code.to_owned());
            }
        }
    }
    assert!(codes.len() > 30, "the source was not read: {codes:?}");
    let mut shown = String::new();
    for kind in ["entrant", "environment"] {
        for entry in fs::read_dir(tests().join("rejected").join(kind)).unwrap() {
            shown += &fs::read_to_string(entry.unwrap().path()).unwrap();
        }
    }
    let untold: Vec<_> = codes.iter().filter(|code| !shown.contains(&format!("error[{code}]"))).collect();
    assert!(untold.is_empty(), "no rejected example shows {untold:?}");
}

#[test]
fn the_accepted_descriptor_says_what_it_says() {
    let entrant = Entrant::load(&tests().join("accepted/rill")).unwrap();
    assert_eq!(entrant.id().as_str(), "rill");
    assert_eq!(entrant.data_plane().unwrap().name, "worker");
    assert_eq!(entrant.envelope.memory, 16 << 30);
    let variant = entrant.default_variant().unwrap();
    assert_eq!(variant.knobs["threads"].to_string(), "4");
    assert!(entrant.broken_constraint(&variant.knobs).is_none());
    assert_eq!(entrant.maintainer.reviews[0].date, "2026-12-01");
    assert!(!entrant.is_our_own());
}

#[test]
fn the_entrants_and_environments_of_this_repository_are_sound() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    if let Err(problems) = Entrant::load_all(&root.join("entrants")) {
        panic!("{problems}");
    }
    let environments =
        Environment::load_all(&root.join("environments")).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(environments.iter().any(|environment| environment.id.as_str() == "embedded"));
}

fn host() -> HostFacts {
    HostFacts {
        cpu: "Example CPU".into(),
        cores: 18,
        memory: 128 << 30,
        arch: "aarch64".into(),
        os: "Example Linux".into(),
        kernel: "6.1".into(),
        governor: Some("performance".into()),
        smt: Some(false),
        cgroup: "v2".into(),
        virtualisation: None,
        swap: 0,
        boot_id: "x".into(),
    }
}

#[test]
fn an_environment_is_its_profile_on_a_host() {
    let text = fs::read_to_string(tests().join("accepted/example.toml")).unwrap();
    let profile = Environment::parse("example.toml", &text, "example").unwrap();
    let here = profile.resolve(&host()).unwrap();
    assert_eq!(here.id.as_str(), format!("example-{}", here.digest.short()));
    assert_eq!((here.clickhouse.cpus, here.broker.memory), (4.5, 8 << 30));

    let rebooted = HostFacts { boot_id: "y".into(), ..host() };
    assert_eq!(profile.resolve(&rebooted).unwrap().id, here.id);
    let other_governor = HostFacts { governor: None, ..host() };
    assert_ne!(profile.resolve(&other_governor).unwrap().id, here.id);
    let scaled =
        Environment::parse("example.toml", &text.replace("envelope_scale = 1.0", "envelope_scale = 0.5"), "example");
    assert_ne!(scaled.unwrap().resolve(&host()).unwrap().id, here.id);
    let smaller = HostFacts { cores: 8, ..host() };
    let error = profile.resolve(&smaller).unwrap_err();
    assert_eq!(error.to_string(), "environment example is for cores 18, and this host has 8");
}

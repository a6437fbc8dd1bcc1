//! The embedded schema registry as a real client uses it.

use std::path::Path;
use std::process::Command;

use weir_harness::infra::embedded::registry::Registry;
use weir_harness::setup::Home;

/// The client, pinned.
const CLIENT: &str = "confluent-kafka[schemaregistry,avro]==2.16.1";

fn run(command: &mut Command, what: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
    let streams = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy);
    assert!(output.status.success(), "{what}: {}{}", streams[0], streams[1]);
    streams[0].trim_end().to_owned()
}

#[test]
fn the_confluent_client_works() {
    let venv = Home::find().expect("a cache directory").root().join("confluent-kafka-venv");
    let python = venv.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv), "`python3 -m venv` (install python3-venv)");
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", CLIENT];
    run(Command::new(&python).args(install), "pip install");

    let dir = tempfile::tempdir().expect("a temporary directory");
    let registry = Registry::start(&dir.path().join("registry.json")).expect("it serves");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = tests.join("../workload/ingest/schema/sensor_batch.avsc");
    let mut script = Command::new(&python);
    script.arg(tests.join("tests/registry/client.py")).arg(format!("http://{}", registry.address())).arg(&schema);
    assert_eq!(run(&mut script, "the script"), "ok");

    // The ids that the client was given mean the same after a restart.
    let text = std::fs::read_to_string(&schema).expect("the workload's schema");
    let before = registry.register("sensor-batches-value", &text).expect("registered");
    drop(registry);
    let registry = Registry::start(&dir.path().join("registry.json")).expect("it serves");
    assert_eq!(registry.register("another-value", "\"string\"").expect("registered"), 5);
    assert_eq!(registry.register("sensor-batches-value", &text).expect("registered"), before);
}

#[test]
fn a_state_that_cannot_be_understood_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("registry.json");
    std::fs::write(&file, "{").expect("written");
    let error = Registry::start(&file).expect_err("it does not start").to_string();
    assert!(error.contains(&file.display().to_string()), "{error}");
}

//! Arms that lie, on the real broker and the real ClickHouse: each lie fails its gate and leaves no number.

mod common;

use common::{LIES, Workbench};
use serde_json::Value;

/// Which gate catches a lie, and what its note must name.
const CAUGHT: [(&str, &str, &str); 8] = [
    ("lost", "gate completeness", "rows"),
    ("upper", "gate values", "name"),
    ("null-region", "gate values", "region"),
    ("rounded", "gate values", "sum(value_scaled)"),
    ("tags", "gate values", "tag"),
    ("batch-ts-1970", "gate datetime", "batch_ts"),
    ("send-ts-1970", "gate datetime", "send_ts"),
    ("swapped", "gate values", "batch 3"),
];

#[test]
fn each_lie_fails_its_gate_and_leaves_no_number() {
    let workbench = Workbench::new();
    let selectors: Vec<String> = LIES.iter().map(|lie| format!("liar:{}", lie.replace('_', "-"))).collect();
    let mut arguments = vec!["run", "--batches", "200", "--reps", "1", "--seed", "1"];
    arguments.extend(selectors.iter().map(String::as_str));
    let output = workbench.output(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error[runs_failed]: 8 of 10 runs have no numbers"), "{said}");

    for (lie, gate, named) in CAUGHT {
        let record = workbench.record(lie);
        assert_eq!(record["status"], "failed", "{lie}: {record:#}");
        assert_eq!(record["metrics"], serde_json::json!({}), "{lie} has numbers");
        let note = record["note"].as_str().expect("a note");
        let first = note.lines().find(|line| line.contains("gate ")).unwrap_or_default();
        assert!(first.starts_with(gate) && first.contains(named), "{lie}: {note}");
    }

    let honest = workbench.record("none");
    assert_eq!(honest["status"], "ok", "{honest:#}");
    assert_eq!(honest["gates"]["duplicates"], 0);
    assert!(honest["metrics"]["cpu_us_per_row"]["value"].as_f64().is_some_and(|value| value > 0.0));

    let twice = workbench.record("duplicate");
    assert_eq!((&twice["status"], &twice["gates"]["duplicates"]), (&Value::from("ok"), &Value::from(1)), "{twice:#}");
    assert!(twice["flags"].as_array().expect("flags").iter().any(|flag| flag["flag"] == "duplicates"));

    caps_are_read_back(&honest);
    let verified = workbench.output(&["verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// Where this host permits caps, the record carries them as the control group gave them back.
fn caps_are_read_back(record: &Value) {
    let caps = &record["env"]["envelope"][0];
    let unenforced = record["flags"].as_array().expect("flags").iter().any(|f| f["flag"] == "envelope_unenforced");
    assert_eq!(caps["read_back"], !unenforced, "{caps:#}");
    assert!(caps["cpus"].as_f64().is_some_and(|cpus| cpus > 0.0));
    assert!(caps["memory"].as_u64().is_some_and(|memory| memory > 0));
    assert_eq!(caps["swap"], 0);
}

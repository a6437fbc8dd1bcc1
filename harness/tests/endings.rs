//! However a sitting ends, no process is left, the archive verifies and the next run works.

mod common;

use common::{Workbench, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const RUN: [&str; 6] = ["run", "liar:asleep", "--batches", "50", "--reps", "1"];

/// While the broker starts, while ClickHouse serves, while the arm runs.
const PHASES: [&str; 3] = ["kafka.Kafka", "bench clickhouse", "arm"];

fn wait_for_phase(workbench: &Workbench, phase: &str) {
    if phase == "arm" {
        workbench.wait_for_arm();
    } else {
        workbench.wait_for_process(phase);
    }
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).expect("a pid")), signal).expect("delivered");
}

/// The archive verifies and a run of the same repository succeeds.
fn the_next_run_works(workbench: &Workbench) {
    workbench.wait_for_no_process();
    let verified = workbench.output(&["verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let before = workbench.records().len();
    let output = workbench.output(&["run", "liar", "--batches", "50", "--reps", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(workbench.records().len(), before + 1);
    workbench.wait_for_no_process();
}

#[test]
fn kill_of_the_harness_in_each_phase() {
    let workbench = Workbench::new();
    for phase in PHASES {
        let mut child = workbench.start(&RUN);
        wait_for_phase(&workbench, phase);
        child.kill().expect("killed");
        child.wait().expect("reaped");
        workbench.wait_for_no_process();
    }
    the_next_run_works(&workbench);
}

#[test]
fn interrupt_in_each_phase() {
    let workbench = Workbench::new();
    for phase in PHASES {
        let mut child = workbench.start(&RUN);
        wait_for_phase(&workbench, phase);
        signal(child.id(), Signal::SIGINT);
        let status = child.wait().expect("reaped");
        assert_eq!(status.code(), Some(1), "{phase}: an interrupted run is an error, not a crash");
        workbench.wait_for_no_process();
    }
    the_next_run_works(&workbench);
}

#[test]
fn kill_of_the_system_is_recorded_as_failed() {
    let workbench = Workbench::new();
    let mut child = workbench.start(&RUN);
    let arm = workbench.wait_for_arm();
    signal(arm, Signal::SIGKILL);
    assert_eq!(child.wait().expect("reaped").code(), Some(1));
    let record = workbench.record("asleep");
    assert_eq!(record["status"], "failed");
    assert_eq!(record["metrics"], serde_json::json!({}));
    let note = record["note"].as_str().expect("a note");
    assert!(note.contains("it ended early: the arm was ended by signal 9"), "{note}");
    the_next_run_works(&workbench);
}

#[test]
fn kill_of_the_broker_ends_the_sitting() {
    let workbench = Workbench::new();
    let mut child = workbench.bench(&RUN).stderr(std::process::Stdio::piped()).spawn().expect("bench starts");
    workbench.wait_for_arm();
    let broker = workbench.wait_for_process("kafka.Kafka");
    signal(broker, Signal::SIGKILL);
    until("the sitting to end", || child.try_wait().expect("waited").is_some());
    let output = child.wait_with_output().expect("reaped");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error[infra_ended]: the broker was ended by signal 9"), "{said}");
    the_next_run_works(&workbench);
}

#[test]
fn a_second_sitting_is_refused() {
    let workbench = Workbench::new();
    let mut child = workbench.start(&RUN);
    workbench.wait_for_arm();
    let output = workbench.output(&RUN);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("error[host_busy]"), "{said}");
    signal(child.id(), Signal::SIGTERM);
    child.wait().expect("reaped");
    workbench.wait_for_no_process();
}

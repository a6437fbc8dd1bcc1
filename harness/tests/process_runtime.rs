//! The process runtime on this host: real caps where the kernel permits them, the flagged path where it does not,
//! and no process left in any case. Which path was taken is printed, and decided by the hierarchy, not by the test.

mod signals;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir_harness::cgroup::{Hierarchy, Unenforced};
use weir_harness::runtime::interrupt::{self, Interrupt};
use weir_harness::runtime::process::ProcessRuntime;
use weir_harness::runtime::{Caps, Enforcement, Exit, Running, Runtime, RuntimeError, Service, proctree};
use weir_model::error::Coded;

const BENCH: &str = env!("CARGO_BIN_EXE_bench");
const MIB: u64 = 1 << 20;
/// Longer than anything here takes on a loaded host; reached only by a failure.
const LIMIT: Duration = Duration::from_secs(60);

fn runtime(sitting: &str) -> ProcessRuntime {
    let hierarchy = Hierarchy::detect().expect("/proc is readable");
    let runtime = ProcessRuntime::with(PathBuf::from(BENCH), sitting, hierarchy);
    eprintln!("caps on this host: {:?}", runtime.enforcement());
    runtime
}

/// A runtime that behaves as on a host without control groups.
fn bare_runtime(sitting: &str) -> ProcessRuntime {
    let none = Hierarchy::none(Unenforced::NoController { missing: vec!["cpu", "memory"] });
    ProcessRuntime::with(PathBuf::from(BENCH), sitting, none)
}

fn is_enforced(runtime: &ProcessRuntime) -> bool {
    matches!(runtime.enforcement(), Enforcement::Enforced(_))
}

fn service(name: &str, script: &str, dir: &Path) -> Service {
    Service {
        name: name.into(),
        command: vec!["/bin/sh".into(), "-c".into(), script.into()],
        env: [("GREETING".to_owned(), "hello".to_owned())].into(),
        dir: dir.into(),
        log: dir.join(format!("{name}.log")),
        caps: Some(Caps { cpus: 0.5, memory: 64 * MIB }),
        grace: Duration::from_secs(20),
        contained: None,
    }
}

/// Polls until `done` gives a value.
fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(start.elapsed() < LIMIT, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn end(running: &mut dyn Running) -> Exit {
    until("the service ends", || running.exited())
}

fn log(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the log exists")
}

/// The pids a service has written to its log, one a line, once there are `count`.
fn logged_pids(path: &Path, count: usize) -> Vec<u32> {
    until("the service names its processes", || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let pids: Vec<u32> = whole.lines().filter_map(|line| line.parse().ok()).collect();
        (pids.len() >= count).then_some(pids)
    })
}

/// Asserts that every one of `pids` is gone, or becomes so without anyone's doing.
fn assert_gone(pids: &[u32]) {
    for pid in pids {
        until("a process is gone", || proctree::stat(*pid).is_none_or(|stat| stat.state == 'Z').then_some(()));
    }
}

fn is_alive(pid: u32) -> bool {
    proctree::stat(pid).is_some_and(|stat| stat.state != 'Z')
}

#[test]
fn caps_are_read_back_from_the_running_group_and_bound_it() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let runtime = runtime("caps");
    let mut busy = service("busy", "echo $$; while :; do :; done", dir.path());
    busy.caps = Some(Caps { cpus: 0.1, memory: 64 * MIB });
    let mut running = runtime.start(&busy).expect("it starts");
    if !is_enforced(&runtime) {
        assert_eq!(running.read_back(), None);
        assert!(running.cgroup().is_none());
        running.stop();
        return;
    }
    let read = running.read_back().expect("caps were asked for");
    assert_eq!((read.cpus, read.memory, read.swap), (0.1, 64 * MIB, 0));
    let group = running.cgroup().expect("a group of its own").clone();
    assert_eq!(group.procs().expect("listed"), vec![running.pid()]);
    let from = (Instant::now(), group.usage().expect("readable"));
    let to = until("the group is throttled ten times", || {
        let usage = group.usage().expect("readable");
        (usage.throttled >= from.1.throttled + 10).then_some((Instant::now(), usage))
    });
    let cpu = Duration::from_micros(to.1.cpu_us - from.1.cpu_us).as_secs_f64();
    let wall = (to.0 - from.0).as_secs_f64();
    assert!(cpu <= wall * 0.1 * 1.5, "used {cpu} s of CPU in {wall} s under a cap of 0.1");
    assert!(to.1.throttled_us > from.1.throttled_us, "{:?}", to.1);
    assert!(to.1.periods - from.1.periods >= 10, "{:?}", to.1);
    assert!(to.1.user_us + to.1.system_us > 0);
    assert!(to.1.anon > 0 && to.1.current >= to.1.anon && to.1.current <= 64 * MIB);
    assert_eq!(running.stop(), Exit::Signal(15));
    assert!(group.usage().is_ok(), "counters outlive the service");
    drop(running);
    assert!(group.usage().is_err(), "the group is removed with its handle");
}

#[test]
fn exceeding_the_memory_cap_is_told_from_any_other_death() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let runtime = runtime("oom");
    if !is_enforced(&runtime) {
        eprintln!("no memory cap to exceed on this host");
        assert!(matches!(runtime.enforcement(), Enforcement::Unenforced { .. }));
        return;
    }
    // `tail` keeps the last line, here an endless one, in memory.
    let mut hungry = service("hungry", "exec tail -n 1 /dev/zero", dir.path());
    hungry.caps = Some(Caps { cpus: 1.0, memory: 32 * MIB });
    let mut running = runtime.start(&hungry).expect("it starts");
    assert_eq!(end(running.as_mut()), Exit::OutOfMemory);
    let killed = service("killed", "kill -9 $$", dir.path());
    let mut running = runtime.start(&killed).expect("it starts");
    assert_eq!(end(running.as_mut()), Exit::Signal(9));
}

#[test]
fn environment_is_minimal_and_the_log_appended() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let runtime = runtime("env");
    let service = service("env", "env; pwd; echo done >&2; exit 7", dir.path());
    std::fs::write(&service.log, "before\n").expect("writable");
    let mut running = runtime.start(&service).expect("it starts");
    assert_eq!(end(running.as_mut()), Exit::Code(7));
    assert_eq!(running.stop(), Exit::Code(7), "stopping what ended changes nothing");
    let log = log(running.log());
    assert!(log.starts_with("before\n") && log.ends_with("done\n"), "{log}");
    assert!(log.contains("GREETING=hello\n") && log.contains("TZ=UTC\n"), "{log}");
    assert!(log.contains("WEIR_SERVICE="), "{log}");
    assert!(!log.contains("CARGO"), "nothing else is inherited: {log}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let runtime = runtime("missing");
    let mut service = service("missing", "", dir.path());
    service.command = vec!["/no/such/program".into()];
    let Err(error) = runtime.start(&service) else { panic!("it cannot start") };
    assert_eq!(error.code(), "service_spawn");
    assert!(error.to_string().contains("cannot start missing: /no/such/program"), "{error}");
    service.command = vec!["relative".into()];
    let Err(error) = runtime.start(&service) else { panic!("it cannot start") };
    assert!(matches!(error, RuntimeError::Service { .. }), "{error}");
    service.command = vec!["/bin/true".into()];
    service.dir = dir.path().join("nowhere");
    let Err(error) = runtime.start(&service) else { panic!("it cannot start") };
    assert!(error.to_string().contains("nowhere does not exist"), "{error}");
}

#[test]
fn stop_gives_grace_and_then_kills() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    for runtime in [runtime("grace"), bare_runtime("grace-bare")] {
        let polite = "trap 'echo bye; exit 3' TERM; echo $$; while :; do sleep 0.01; done";
        let polite = service("polite", polite, dir.path());
        let mut running = runtime.start(&polite).expect("it starts");
        logged_pids(running.log(), 1);
        assert_eq!(running.stop(), Exit::Code(3));
        assert!(log(running.log()).ends_with("bye\n"));
        drop(running);
        std::fs::remove_file(&polite.log).expect("it was there");

        let stubborn = "trap '' TERM; echo $$; while :; do sleep 0.01; done";
        let mut stubborn = service("stubborn", stubborn, dir.path());
        stubborn.grace = Duration::from_millis(50);
        let mut running = runtime.start(&stubborn).expect("it starts");
        let pids = logged_pids(running.log(), 1);
        assert_eq!(running.stop(), Exit::Killed);
        assert!(!is_alive(pids[0]), "gone when stop returns");
        drop(running);
        std::fs::remove_file(&stubborn.log).expect("it was there");
    }
}

/// Daemonised grandchildren, in sessions of their own, that never stop coming.
const BREEDER: &str = "echo $$; while :; do (setsid sh -c 'echo $$; exec sleep 1000' &); done";

#[test]
fn grandchildren_that_ran_away_die_with_the_service() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    for (sitting, runtime) in [("breed", runtime("breed")), ("bare", bare_runtime("breed-bare"))] {
        let service = service(sitting, BREEDER, dir.path());
        let mut running = runtime.start(&service).expect("it starts");
        logged_pids(running.log(), 20);
        assert_eq!(running.stop(), Exit::Signal(15));
        let pids = logged_pids(running.log(), 20);
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "all gone when stop returns");
        assert_eq!(left_of(sitting), Vec::<u32>::new());
    }
}

#[test]
fn what_a_service_leaves_behind_when_it_exits_is_ended() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    for runtime in [runtime("leave"), bare_runtime("leave-bare")] {
        let script = "(setsid sh -c 'echo $$; exec sleep 1000' &); while [ ! -s leave.log ]; do :; done";
        let service = service("leave", script, dir.path());
        let mut running = runtime.start(&service).expect("it starts");
        assert_eq!(end(running.as_mut()), Exit::Code(0));
        let pids = logged_pids(running.log(), 1);
        assert!(!is_alive(pids[0]));
        drop(running);
        std::fs::remove_file(&service.log).expect("it was there");
    }
}

#[test]
fn killing_the_supervisor_ends_the_service() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    for (name, runtime) in [("sv", runtime("sv")), ("sv-bare", bare_runtime("sv-bare"))] {
        let service = service(name, BREEDER, dir.path());
        let mut running = runtime.start(&service).expect("it starts");
        logged_pids(running.log(), 5);
        let supervisor = proctree::stat(running.pid()).expect("it runs").parent;
        kill(supervisor);
        assert_eq!(end(running.as_mut()), Exit::Signal(9));
        assert_eq!(left_of(name), Vec::<u32>::new());
    }
}

/// Live processes that carry the mark of service `name` of this test process or a child of it.
fn left_of(name: &str) -> Vec<u32> {
    let end = format!("/{name}");
    proctree::marked(|mark| mark.ends_with(&end))
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.expect("kill(1) is there").success());
}

/// Environment variable that makes [`stand_in`] act as a harness, in this scratch directory.
const STAND_IN: &str = "STAND_IN_DIR";

/// Says so when the terminal's signal reaches it, and ends politely when the harness stops it.
const LISTENER: &str = "trap 'echo INT' INT; trap 'echo TERM; exit 5' TERM; echo $$; while :; do sleep 0.01; done";

/// Not a test by itself: run by the tests below as a process of its own that holds a service until it is killed.
#[test]
fn stand_in() {
    let Some(dir) = std::env::var_os(STAND_IN) else {
        return;
    };
    let dir = PathBuf::from(dir);
    let set = |name: &str| std::env::var(name).is_ok();
    let runtime = if set("STAND_IN_BARE") { bare_runtime("stand-in") } else { runtime("stand-in") };
    let name = std::env::var("STAND_IN_NAME").expect("set by the parent");
    let script = if set("STAND_IN_LISTENS") { LISTENER } else { BREEDER };
    interrupt::install().expect("handlers can be set");
    let mut running = runtime.start(&service(&name, script, &dir)).expect("it starts");
    let supervisor = proctree::stat(running.pid()).expect("it runs").parent;
    println!("\nready {supervisor} {}", running.pid());
    while interrupt::pending() == Interrupt::None {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.stop(), Exit::Code(5));
}

/// Starts a stand-in harness; gives it, its supervisor and its service.
fn start_stand_in(dir: &Path, name: &str, variables: &[&str]) -> (std::process::Child, u32, u32) {
    let mut command = Command::new(std::env::current_exe().expect("this test binary"));
    command
        .args(["--exact", "stand_in", "--nocapture"])
        .env(STAND_IN, dir)
        .env("STAND_IN_NAME", name)
        .envs(variables.iter().map(|name| (name, "1")))
        .process_group(0)
        .stdout(Stdio::piped());
    signals::interruptible(&mut command);
    let mut harness = command.spawn().expect("it starts");
    let mut stdout = BufReader::new(harness.stdout.take().expect("piped"));
    let line = stdout
        .by_ref()
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with("ready "))
        .expect("the stand-in starts its service");
    let mut pids = line.split(' ').skip(1).map(|pid| pid.parse().expect("a pid"));
    let supervisor = pids.next().expect("the supervisor");
    // It goes on writing, so its pipe stays open.
    harness.stdout = Some(stdout.into_inner());
    (harness, supervisor, pids.next().expect("the service"))
}

#[test]
fn killing_the_harness_leaves_no_process_and_no_group() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    for (name, variables) in [("hk", [].as_slice()), ("hk-bare", &["STAND_IN_BARE"])] {
        let (mut harness, supervisor, service) = start_stand_in(dir.path(), name, variables);
        logged_pids(&dir.path().join(format!("{name}.log")), 10);
        harness.kill().expect("ours to kill");
        harness.wait().expect("ours to wait for");
        assert_gone(&[supervisor, service]);
        assert_eq!(left_of(name), Vec::<u32>::new());
        assert_no_group_after_sweep(harness.id());
    }
}

#[test]
fn killing_harness_and_supervisor_at_once_is_swept_up_at_the_next_start() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    for (name, variables) in [("both", [].as_slice()), ("both-bare", &["STAND_IN_BARE"])] {
        let (mut harness, supervisor, service) = start_stand_in(dir.path(), name, variables);
        logged_pids(&dir.path().join(format!("{name}.log")), 10);
        // Frozen, the supervisor cannot see the harness die before it dies itself.
        let frozen = Command::new("kill").args(["-STOP", &supervisor.to_string()]).status();
        assert!(frozen.expect("kill(1) is there").success());
        harness.kill().expect("ours to kill");
        kill(supervisor);
        harness.wait().expect("ours to wait for");
        assert_gone(&[supervisor, service]);
        assert_no_group_after_sweep(harness.id());
        assert_eq!(left_of(name), Vec::<u32>::new());
    }
}

#[test]
fn ctrl_c_reaches_the_harness_alone_which_then_stops_its_services() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (mut harness, supervisor, service) = start_stand_in(dir.path(), "ctrl-c", &["STAND_IN_LISTENS"]);
    let log_file = dir.path().join("ctrl-c.log");
    logged_pids(&log_file, 1);
    // What a terminal does: the signal goes to the whole foreground process group.
    let group = format!("-{}", harness.id());
    let sent = Command::new("kill").args(["-INT", "--", &group]).status();
    assert!(sent.expect("kill(1) is there").success());
    assert!(harness.wait().expect("ours to wait for").success(), "it stopped its service with grace");
    assert_eq!(log(&log_file), format!("{service}\nTERM\n"));
    assert_gone(&[supervisor, service]);
    assert_no_group_after_sweep(harness.id());
}

fn assert_no_group_after_sweep(harness: u32) {
    let runtime = runtime("sweeper");
    runtime.sweep().expect("it can be swept");
    let prefix = format!("{harness}-");
    let left = runtime.hierarchy().sittings();
    assert!(left.iter().all(|name| !name.starts_with(&prefix)), "{left:?}");
}

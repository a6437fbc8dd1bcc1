//! The sampler as the process it is, over a real service of this host.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir_harness::cgroup::{Hierarchy, Unenforced};
use weir_harness::measure::sampler::Sampler;
use weir_harness::measure::series::{Series, Source};
use weir_harness::runtime::process::ProcessRuntime;
use weir_harness::runtime::{Caps, Enforcement, Runtime, Service};

const BENCH: &str = env!("CARGO_BIN_EXE_bench");
/// Longer than anything here takes on a loaded host; reached only by a failure.
const LIMIT: Duration = Duration::from_secs(60);

fn busy(name: &str, dir: &Path) -> Service {
    Service {
        name: name.into(),
        command: vec!["/bin/sh".into(), "-c".into(), "while :; do :; done".into()],
        env: [].into(),
        dir: dir.into(),
        log: dir.join(format!("{name}.log")),
        caps: Some(Caps { cpus: 0.25, memory: 64 << 20 }),
        grace: Duration::from_secs(20),
        contained: None,
    }
}

/// Waits until the sampler has written `count` more lines to its file.
fn wait_for_lines(path: &Path, count: usize) {
    let lines = || std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
    let (start, before) = (Instant::now(), lines());
    while lines() < before + count {
        assert!(start.elapsed() < LIMIT, "the sampler writes no more");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn services_are_sampled_from_being_added_to_the_end() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let hierarchy = Hierarchy::detect().expect("/proc is readable");
    let real = ProcessRuntime::with(PathBuf::from(BENCH), "sampled", hierarchy);
    let none = Hierarchy::none(Unenforced::NoController { missing: vec!["cpu"] });
    let bare = ProcessRuntime::with(PathBuf::from(BENCH), "sampled-bare", none);
    eprintln!("caps on this host: {:?}", real.enforcement());
    let want = match real.enforcement() {
        Enforcement::Enforced(_) => Source::Cgroup,
        Enforcement::Unenforced { .. } => Source::Proc,
    };
    let path = dir.path().join("raw.jsonl");
    let mut sampler = Sampler::start(Path::new(BENCH), &path).expect("it starts");
    let first = real.start(&busy("first", dir.path())).expect("it starts");
    sampler.add("first", first.as_ref()).expect("it lives");
    wait_for_lines(&path, 10);
    let second = bare.start(&busy("second", dir.path())).expect("it starts");
    sampler.add("second", second.as_ref()).expect("it lives");
    wait_for_lines(&path, 20);
    sampler.mark().expect("it lives");
    drop(first);
    wait_for_lines(&path, 3);
    let series = sampler.finish().expect("it wrote a series");
    drop(second);

    let ends = |name: &str| {
        let samples = series.of(name).expect("sampled");
        (samples[0].clone(), samples[samples.len() - 1].clone(), samples.len())
    };
    let (begin, end, count) = ends("first");
    assert!(count >= 20, "{count} samples");
    assert_eq!((begin.source, end.source), (want, want));
    let used = series.window("first", begin.t_us, end.t_us).expect("within");
    assert_eq!(used.samples, count);
    assert!(used.cpu_us > 0.0 && used.peak_anon > 0, "{used:?}");
    assert!(want == Source::Proc || used.cores_used < 0.25 * 1.5, "the cap holds: {used:?}");
    let (begin, end, _) = ends("second");
    assert_eq!(begin.source, Source::Proc);
    assert!(begin.t_us > ends("first").0.t_us, "added later");
    assert!(end.t_us > ends("first").1.t_us, "the first was gone, the second was not");
    let used = series.window("second", begin.t_us, end.t_us).expect("within");
    assert!(used.cpu_us > 0.0 && used.peak_anon > 0, "{used:?}");

    let packed = dir.path().join("series/run.jsonl.zst");
    series.compress_to(&packed).expect("writable");
    let again = Series::load(&packed).expect("readable");
    assert_eq!(again.of("second"), series.of("second"));
}

#[test]
fn it_ends_with_its_stdin_and_overwrites_nothing() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("raw.jsonl");
    let mut command = Command::new(BENCH);
    command.arg("sampler").arg("--out").arg(&path).stdin(Stdio::null()).stderr(Stdio::piped());
    let first = command.output().expect("it runs");
    assert!(first.status.success());
    let second = command.output().expect("it runs");
    assert_eq!(second.status.code(), Some(1));
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(error.contains("error[sampler_io]") && error.contains("raw.jsonl"), "{error}");
}

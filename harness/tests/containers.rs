//! Arms and infrastructure in real containers, on the Docker engine that `DOCKER_HOST` names, or this host's.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use bollard::Docker;
use bollard::models::{ContainerSummary, ContainerUpdateBody};
use bollard::query_parameters::{ListContainersOptionsBuilder, ListNetworksOptionsBuilder, TagImageOptionsBuilder};
use common::{Workbench, liar, until};
use serde_json::Value;
use weir_harness::cgroup::Cgroup;
use weir_harness::measure::sampler::{Sampler, Target};
use weir_harness::runtime::docker::{DockerRuntime, Engine, Labels};
use weir_harness::runtime::{Caps, Contained, Runtime, Service};

const IMAGE: &str = "weir-test-liar";
const DOCKERFILE: &str = "ARG WEIR_BASE\nFROM ${WEIR_BASE}\nCOPY liar /usr/local/bin/liar\n";
/// What a descriptor has on top, to run in containers with a control plane.
const CONTAINED: &str = r#"
[build]
image = "weir-test-liar"
dockerfile = "Dockerfile"

[[deviations]]
what = "A helper runs beside the arm."
why = "It is a test."
affects = ["envelope"]

[[envelope.container]]
role = "control-plane"
name = "helper"
cpus = 0.5
memory = "1GiB"
command = ["sleep", "600"]

[version]"#;
const HELP: &str = "a Docker engine answers at DOCKER_HOST or /var/run/docker.sock: start `dockerd`, as .ci/run does";

/// The engine that the harness finds too.
struct Seen {
    runtime: tokio::runtime::Runtime,
    docker: Docker,
}

impl Seen {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let docker = Docker::connect_with_defaults().expect(HELP);
        let docker = runtime.block_on(docker.negotiate_version()).expect(HELP);
        Self { runtime, docker }
    }

    fn ask<T>(&self, answer: impl Future<Output = Result<T, bollard::errors::Error>>) -> T {
        self.runtime.block_on(answer).expect("the engine does what it is asked")
    }

    /// Containers of sittings, dead or alive, whose name ends like this.
    fn containers(&self, end: &str) -> Vec<ContainerSummary> {
        let labelled = HashMap::from([("label", vec!["io.weir.owner"])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&labelled).build();
        let mut found = self.ask(self.docker.list_containers(Some(options)));
        found.retain(|it| it.names.iter().flatten().any(|name| name.ends_with(end)));
        found
    }

    fn networks(&self) -> usize {
        let labelled = HashMap::from([("label", vec!["io.weir.owner"])]);
        let options = ListNetworksOptionsBuilder::default().filters(&labelled).build();
        self.ask(self.docker.list_networks(Some(options))).len()
    }

    /// The id of the running arm, once there is one.
    fn arm(&self, child: &mut Child) -> String {
        let mut id = None;
        until("the arm's container to run", || {
            assert!(child.try_wait().expect("waited for").is_none(), "the sitting ended before its arm ran");
            let running = |it: &ContainerSummary| it.state.is_some_and(|state| state.to_string() == "running");
            id = self.containers("-sut").into_iter().find(running).and_then(|it| it.id);
            id.is_some()
        });
        id.expect("found")
    }
}

/// A workbench whose entrant runs in containers.
fn contained() -> Workbench {
    let workbench = Workbench::new();
    let folder = workbench.root.join("entrants/liar");
    let descriptor = fs::read_to_string(folder.join("entrant.toml")).expect("written");
    let descriptor = descriptor.replace(&liar().display().to_string(), "/usr/local/bin/liar");
    fs::write(folder.join("entrant.toml"), descriptor.replacen("\n[version]", CONTAINED, 1)).expect("writable");
    fs::write(folder.join("Dockerfile"), DOCKERFILE).expect("writable");
    fs::copy(liar(), folder.join("liar")).expect("copied");
    // what takes minutes on a new machine is not waited for later
    let built = workbench.output(&["build", "liar", "--env", "local-docker"]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    workbench
}

fn run<'a>(what: &'a str, reps: &'a str) -> [&'a str; 8] {
    ["run", what, "--env", "local-docker", "--batches", "50", "--reps", reps]
}

fn note(record: &Value) -> &str {
    record["note"].as_str().expect("a note")
}

#[test]
fn a_run_in_containers_is_gated_and_clears_away_what_a_killed_one_left() {
    let (workbench, seen) = (contained(), Seen::new());
    let mut child = workbench.start(&run("liar:asleep", "1"));
    seen.arm(&mut child);
    let created = |end: &str| seen.containers(end)[0].created.expect("a time");
    assert!(created("-control-helper") <= created("-sut"), "the control plane comes first");
    child.kill().expect("killed");
    child.wait().expect("reaped");
    assert!(!seen.containers("-broker").is_empty() && seen.networks() > 0, "a killed harness leaves them");

    let output = workbench.output(&run("liar", "1"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("removed what dead sittings left"), "{said}");
    assert_eq!((seen.containers("").len(), seen.networks()), (0, 0), "nothing is left");

    let record = workbench.record("none");
    assert_eq!((&record["status"], &record["gates"]["checked_batches"]), (&"ok".into(), &50.into()));
    let image = seen.ask(seen.docker.inspect_image(IMAGE)).id.expect("an id");
    assert_eq!(record["entrant"]["artefact"], image.as_str());
    let envelope = record["env"]["envelope"].as_array().expect("caps");
    let names: Vec<&Value> = envelope.iter().map(|caps| &caps["name"]).collect();
    assert_eq!(names, ["sut", "helper"]);
    assert!(envelope.iter().all(|caps| caps["read_back"] == true && caps["swap"] == 0), "{envelope:?}");
    let cores = |metric: &str| record["metrics"][metric]["value"].as_f64().expect("a figure");
    assert!(cores("arm_cores_used") >= cores("data_plane_cores_used"), "the helper is counted in");
    assert!(record["infra"]["broker"]["image"].as_str().is_some_and(|id| id.starts_with("sha256:")));
    assert!(record["infra"]["broker"]["version"].as_str().is_some_and(|version| version.contains('.')));
}

#[test]
fn a_cap_changed_behind_the_harness_and_an_image_swapped_under_it_fail_their_runs() {
    let (workbench, seen) = (contained(), Seen::new());
    let mut child =
        workbench.bench(&run("liar", "2")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
    let arm = seen.arm(&mut child);
    let less = ContainerUpdateBody { cpu_quota: Some(20_000), ..ContainerUpdateBody::default() };
    seen.ask(seen.docker.update_container(&arm, less));
    let options = TagImageOptionsBuilder::default().repo(IMAGE).tag("latest").build();
    seen.ask(seen.docker.tag_image("weir-base", Some(options)));
    assert_eq!(child.wait().expect("reaped").code(), Some(1));

    let mut records = workbench.records();
    records.retain(|record| record["kind"] == "measurement");
    // Two of the arm and two of its control.
    assert_eq!(records.len(), 4, "{records:?}");
    for record in &records {
        assert_eq!(
            (&record["status"], &record["metrics"]),
            (&"failed".into(), &Value::Object([].into_iter().collect()))
        );
    }
    assert!(note(&records[0]).contains("and reads 0.2 CPUs"), "{}", note(&records[0]));
    for later in &records[1..] {
        assert!(note(later).contains("it was swapped"), "{}", note(later));
    }
    assert_eq!((seen.containers("").len(), seen.networks()), (0, 0), "nothing is left");
}

/// A container that is busy under a cap it does not reach.
fn busy(dir: &Path, engine: &Engine) -> Service {
    let image = engine.image("weir-tools").expect("built by `bench build --env local-docker`").id;
    Service {
        name: "sut".into(),
        command: ["sh", "-c", "while :; do :; done"].map(str::to_owned).to_vec(),
        env: BTreeMap::new(),
        dir: dir.into(),
        log: dir.join("log"),
        caps: Some(Caps { cpus: 1.5, memory: 256 << 20 }),
        grace: Duration::from_secs(1),
        contained: Some(Contained {
            host: String::new(),
            alias: "sut".into(),
            reference: "weir-tools".into(),
            image,
            dir: None,
            volumes: vec![],
            publish: vec![],
            files: vec![],
        }),
    }
}

#[test]
fn a_sampler_in_a_container_sees_what_one_beside_it_sees() {
    let workbench = contained();
    let dir = tempfile::tempdir().expect("a scratch directory");
    let runtime = DockerRuntime::new("sampled", &[String::new()].into()).expect(HELP);
    let engine = runtime.engine("").expect("there");
    let service = busy(dir.path(), engine);
    let running = runtime.start(&service).expect("it starts");
    let second = workbench.output(&run("liar", "1"));
    assert_eq!(second.status.code(), Some(3), "one sitting an engine");
    assert!(String::from_utf8_lossy(&second.stderr).contains("error[docker_busy]"));
    let caps = service.caps.expect("capped");
    let read = running.read_back().expect("read on this host");
    assert_eq!((read.cpus, read.memory, read.swap), (caps.cpus, caps.memory, 0));

    let tools = BTreeMap::from([(String::new(), engine.image("weir-tools").expect("built"))]);
    let mut inside = runtime.sampler(&tools, &dir.path().join("inside.jsonl")).expect("it starts");
    let bench = PathBuf::from(env!("CARGO_BIN_EXE_bench"));
    let mut beside = Sampler::start(&bench, &dir.path().join("beside.jsonl")).expect("it starts");
    let group = Cgroup::of_container(running.container().expect("an id")).expect("on this host");
    let target = Target { name: "sut".into(), cgroup: Some(group), container: None, pid: running.pid() };
    inside.add("sut", running.as_ref()).expect("it is found");
    beside.add_target("", &target).expect("it lives");
    assert_eq!(inside.caps("sut", running.as_ref(), caps).expect("as asked"), read);
    let other = Caps { cpus: 0.5, ..caps };
    let refused = inside.caps("sut", running.as_ref(), other).expect_err("another cap").to_string();
    assert!(refused.contains("0.5 CPUs and reads 1.5 CPUs"), "{refused}");
    std::thread::sleep(Duration::from_secs(2));
    let (inside, beside) = (inside.finish().expect("a series"), beside.finish().expect("a series"));

    let ends = |series: &weir_harness::measure::series::Series| {
        let samples = series.of("sut").expect("sampled");
        (samples[0].t_us, samples[samples.len() - 1].t_us)
    };
    let (a, b) = (ends(&inside), ends(&beside));
    let (from, to) = (a.0.max(b.0), a.1.min(b.1));
    let used = |series: &weir_harness::measure::series::Series| series.window("sut", from, to).expect("within");
    let (a, b) = (used(&inside), used(&beside));
    eprintln!("inside {} µs, beside {} µs over {} µs", a.cpu_us, b.cpu_us, to - from);
    assert!(a.cpu_us > 0.0 && (a.cpu_us - b.cpu_us).abs() < 0.03 * b.cpu_us, "{a:?} {b:?}");
    assert_eq!((a.source, a.peak_anon > 0), (b.source, b.peak_anon > 0));
}

#[test]
fn what_runs_in_no_container_of_ours_is_not_swept() {
    let seen = Seen::new();
    let engine = Engine::connect("", Labels::new("sweeper")).expect(HELP);
    let network = "weir-test-somebody-elses";
    let request = bollard::models::NetworkCreateRequest {
        name: network.into(),
        labels: Some(HashMap::from([("io.example".to_owned(), "x".to_owned())])),
        ..Default::default()
    };
    seen.ask(seen.docker.create_network(request));
    engine.sweep().expect("it sweeps");
    seen.ask(seen.docker.remove_network(network));
}

//! A service as a container: what Docker is told to make of it, and what becomes of it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bollard::models::{
    ContainerCreateBody, ContainerState, EndpointSettings, HostConfig, HostConfigLogConfig, NetworkingConfig,
    PortBinding,
};
use bollard::query_parameters::{LogsOptionsBuilder, StopContainerOptionsBuilder};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;

use super::engine::Engine;
use super::label::Labels;
use super::{DockerError, RUN_DIR};
use crate::cgroup::{Caps, Cgroup, ReadBack};
use crate::runtime::{Contained, Exit, Running, RuntimeError, Service};

/// Bandwidth period that Docker is told, µs: the kernel's default.
const PERIOD_US: i64 = 100_000;
/// Exit codes above this are a signal's number and this.
const SIGNALLED: i64 = 128;
/// How long a container's last words are waited for.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How long the engine is given to notice that a container has ended.
const NOTICE: Duration = Duration::from_secs(60);

/// What Docker is told to make of a service.
pub(super) fn body(service: &Service, contained: &Contained, labels: &Labels, network: &str) -> ContainerCreateBody {
    let mut env: Vec<String> = service.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    env.push("TZ=UTC".into());
    let (entrypoint, cmd) = match service.command.split_first() {
        Some((program, arguments)) => (Some(vec![program.clone()]), Some(arguments.to_vec())),
        None => (None, None),
    };
    let ports = contained.publish.iter();
    let bindings = ports.clone().map(|(port, at)| {
        let binding = PortBinding { host_ip: Some(at.ip().to_string()), host_port: Some(at.port().to_string()) };
        (format!("{port}/tcp"), Some(vec![binding]))
    });
    let endpoint = EndpointSettings { aliases: Some(vec![contained.alias.clone()]), ..EndpointSettings::default() };
    ContainerCreateBody {
        image: Some(contained.image.to_string()),
        hostname: Some(contained.alias.clone()),
        entrypoint,
        cmd,
        env: Some(env),
        labels: Some(labels.sitting()),
        working_dir: contained.dir.clone(),
        exposed_ports: Some(ports.map(|(port, _)| format!("{port}/tcp")).collect()),
        // unnamed: it goes with the container
        volumes: Some(vec![RUN_DIR.to_owned()]),
        host_config: Some(HostConfig {
            network_mode: Some(network.to_owned()),
            // signals do to a service what they would do to a process; alone, it would be the init that ignores them
            init: Some(true),
            binds: Some(contained.volumes.iter().map(|(volume, path)| format!("{volume}:{path}")).collect()),
            port_bindings: Some(bindings.collect()),
            log_config: Some(HostConfigLogConfig { typ: Some("json-file".into()), config: None }),
            ..bounds(service.caps)
        }),
        networking_config: Some(NetworkingConfig {
            endpoints_config: Some([(network.to_owned(), endpoint)].into_iter().collect()),
        }),
        ..ContainerCreateBody::default()
    }
}

/// The caps exactly as declared; swap is off, since memory and swap together may not exceed memory.
fn bounds(caps: Option<Caps>) -> HostConfig {
    let Some(caps) = caps else {
        return HostConfig::default();
    };
    let memory = i64::try_from(caps.memory).unwrap_or(i64::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "CPUs are few; a float-to-int cast saturates")]
    let quota = (caps.cpus * PERIOD_US as f64).round() as i64;
    HostConfig {
        cpu_period: Some(PERIOD_US),
        cpu_quota: Some(quota.max(1000)),
        memory: Some(memory),
        memory_swap: Some(memory),
        ..HostConfig::default()
    }
}

/// Files as an archive that unpacks at the root of a container.
pub(super) fn archive(files: &[(String, Vec<u8>)]) -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path.trim_start_matches('/'), bytes.as_slice())?;
    }
    tar.into_inner()
}

/// How a stopped container ended.
fn exit_of(state: &ContainerState, overdue: bool) -> Exit {
    let code = state.exit_code.unwrap_or(0);
    if state.oom_killed == Some(true) && code != 0 {
        return Exit::OutOfMemory;
    }
    if overdue {
        return Exit::Killed;
    }
    let code = i32::try_from(code).unwrap_or(i32::MAX);
    match i64::from(code) - SIGNALLED {
        1..=64 => Exit::Signal(code - SIGNALLED as i32),
        _ => Exit::Code(code),
    }
}

/// A running container.
#[derive(Debug)]
pub(super) struct Container {
    engine: Engine,
    id: String,
    pid: u32,
    read_back: Option<ReadBack>,
    log: PathBuf,
    grace: Duration,
    /// How it ended, as its watcher found out.
    end: Arc<Mutex<Option<ContainerState>>>,
    watcher: JoinHandle<()>,
    logger: JoinHandle<()>,
    overdue: bool,
}

impl Container {
    /// Starts what was created, checks that it is made of the image that was asked for, and reads its caps back.
    pub(super) fn start(
        engine: &Engine,
        id: String,
        service: &Service,
        contained: &Contained,
    ) -> Result<Self, RuntimeError> {
        let name = || service.name.clone();
        let failed = |source| RuntimeError::Docker { name: name(), source };
        let log = OpenOptions::new().create(true).append(true).open(&service.log);
        let log = log.map_err(|source| RuntimeError::Log { name: name(), log: service.log.clone(), source })?;
        let docker = engine.docker().clone();
        engine.ask("start it", docker.start_container(&id, None)).map_err(failed)?;
        let end = Arc::new(Mutex::new(None));
        let mut container = Self {
            watcher: engine.spawn(watch(engine.clone(), id.clone(), Arc::clone(&end))),
            logger: engine.spawn(follow(engine.clone(), id.clone(), log)),
            engine: engine.clone(),
            id,
            pid: 0,
            read_back: None,
            log: service.log.clone(),
            grace: service.grace,
            end,
            overdue: false,
        };
        let seen = engine.ask("look at it", docker.inspect_container(&container.id, None)).map_err(failed)?;
        let now = seen.image.unwrap_or_default();
        if now != contained.image.to_string() {
            let (image, first) = (contained.reference.clone(), contained.image.to_string());
            return Err(failed(DockerError::Swapped { image, first, now }));
        }
        let state = seen.state.unwrap_or_default();
        container.pid = state.pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        let is_up = state.running == Some(true);
        if let Some(caps) = service.caps.filter(|_| is_up && engine.is_local()) {
            let read = Cgroup::of_container(&container.id).and_then(|group| group.assert_caps(caps));
            match read {
                Ok(read) => container.read_back = Some(read),
                // it has ended meanwhile, and its group with it
                Err(_) if container.exited().is_some() => {}
                Err(source) => return Err(RuntimeError::Cgroup { name: name(), source }),
            }
        }
        Ok(container)
    }

    fn ended(&self) -> Option<Exit> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.as_ref().map(|state| exit_of(state, self.overdue))
    }
}

impl Running for Container {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        None
    }

    fn container(&self) -> Option<&str> {
        Some(&self.id)
    }

    fn host(&self) -> &str {
        self.engine.host()
    }

    fn read_back(&self) -> Option<ReadBack> {
        self.read_back
    }

    fn exited(&mut self) -> Option<Exit> {
        self.ended()
    }

    fn stop(&mut self) -> Exit {
        if let Some(exit) = self.ended() {
            return exit;
        }
        let begun = Instant::now();
        let grace = i32::try_from(self.grace.as_secs()).unwrap_or(i32::MAX);
        let options = StopContainerOptionsBuilder::default().t(grace).build();
        // one that ended by itself meanwhile is stopped
        let _ = self.engine.wait(self.engine.docker().stop_container(&self.id, Some(options)));
        self.overdue = begun.elapsed() >= self.grace;
        let noticed = async { tokio::time::timeout(NOTICE, &mut self.watcher).await };
        let _ = self.engine.wait(noticed);
        let logged = async { tokio::time::timeout(LAST_WORDS, &mut self.logger).await };
        let _ = self.engine.wait(logged);
        self.ended().unwrap_or(Exit::Killed)
    }

    fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.engine.remove(&self.id);
        self.watcher.abort();
        self.logger.abort();
    }
}

/// Waits for the end of a container and keeps how it ended.
async fn watch(engine: Engine, id: String, end: Arc<Mutex<Option<ContainerState>>>) {
    // an error is the answer for a code that is not zero; what it says is asked for below
    while engine.docker().wait_container(&id, None).next().await.is_some_and(|answer| answer.is_ok()) {
        match engine.docker().inspect_container(&id, None).await {
            Ok(seen) if seen.state.as_ref().is_some_and(|state| state.running == Some(true)) => {}
            _ => break,
        }
    }
    if let Ok(seen) = engine.docker().inspect_container(&id, None).await {
        *end.lock().unwrap_or_else(PoisonError::into_inner) = seen.state;
    }
}

/// Copies what a container prints into its log until it ends.
async fn follow(engine: Engine, id: String, mut log: std::fs::File) {
    let options = LogsOptionsBuilder::default().follow(true).stdout(true).stderr(true).build();
    let mut lines = engine.docker().logs(&id, Some(options));
    while let Some(Ok(line)) = lines.next().await {
        if log.write_all(line.as_ref()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn service(caps: Option<Caps>) -> Service {
        Service {
            name: "sut".into(),
            command: vec!["arm".into(), "--fast".into()],
            env: BTreeMap::from([("A".into(), "b c".into())]),
            dir: "/".into(),
            log: "/dev/null".into(),
            caps,
            grace: Duration::from_secs(5),
            contained: Some(Contained {
                host: String::new(),
                alias: "worker".into(),
                reference: "weir-arm".into(),
                image: weir_model::digest::Digest::of("image"),
                dir: Some(RUN_DIR.into()),
                volumes: vec![("weir-data".into(), "/data".into())],
                publish: vec![(8123, ([127, 0, 0, 1], 4000).into())],
                files: vec![],
            }),
        }
    }

    #[test]
    fn caps_are_told_as_declared_and_swap_is_off() {
        let service = service(Some(Caps { cpus: 1.5, memory: 3 << 30 }));
        let body = body(&service, service.contained.as_ref().expect("contained"), &Labels::of("1-1-s"), "net");
        let host = body.host_config.expect("bounds");
        assert_eq!((host.cpu_period, host.cpu_quota), (Some(100_000), Some(150_000)));
        assert_eq!((host.memory, host.memory_swap), (Some(3 << 30), Some(3 << 30)));
        assert_eq!(host.binds, Some(vec!["weir-data:/data".to_owned()]));
        assert_eq!(body.image, Some(weir_model::digest::Digest::of("image").to_string()), "by id, not by name");
        assert_eq!((body.entrypoint, body.cmd), (Some(vec!["arm".into()]), Some(vec!["--fast".into()])));
        assert_eq!(body.env, Some(vec!["A=b c".into(), "TZ=UTC".into()]));
        let ports = host.port_bindings.expect("ports");
        let binding = ports["8123/tcp"].as_ref().expect("bound")[0].clone();
        assert_eq!((binding.host_ip.as_deref(), binding.host_port.as_deref()), (Some("127.0.0.1"), Some("4000")));
        assert_eq!(body.labels.expect("labels")["io.weir.owner"], "1-1-s");
    }

    #[test]
    fn the_images_own_command_stays_where_none_is_given() {
        let service = Service { command: vec![], ..service(None) };
        let body = body(&service, service.contained.as_ref().expect("contained"), &Labels::of("o"), "net");
        assert_eq!((body.entrypoint, body.cmd), (None, None));
        assert_eq!(body.host_config.expect("some").memory, None);
    }

    #[test]
    fn an_end_is_called_what_it_was() {
        let state =
            |code, oom| ContainerState { exit_code: Some(code), oom_killed: Some(oom), ..ContainerState::default() };
        assert_eq!(exit_of(&state(0, false), false), Exit::Code(0));
        assert_eq!(exit_of(&state(1, false), false), Exit::Code(1));
        assert_eq!(exit_of(&state(255, false), false), Exit::Code(255));
        assert_eq!(exit_of(&state(143, false), false), Exit::Signal(15));
        assert_eq!(exit_of(&state(137, true), false), Exit::OutOfMemory);
        assert_eq!(exit_of(&state(137, false), true), Exit::Killed);
    }
}

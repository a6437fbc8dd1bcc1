//! A connection to one Docker engine, driven from synchronous code.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker, body_full};
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;
use weir_model::digest::Digest;

use super::DockerError;
use super::label::Labels;
use super::tunnel::Tunnel;
use crate::runtime::docker::container::archive;

/// Where the engine of this host listens unless `DOCKER_HOST` says otherwise.
const LOCAL: &str = "unix:///var/run/docker.sock";
/// Seconds that one answer may take; an image of a gigabyte is on its way for a while.
const ANSWER: u64 = 900;
/// How long what a finished container printed may take to arrive.
const LATE: Duration = Duration::from_secs(10);

/// A connection to a Docker engine; clones share it.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    host: String,
    docker: Docker,
    runtime: Runtime,
    labels: Labels,
    _tunnel: Option<Tunnel>,
}

/// An image as its engine has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Digest of its configuration, which names its layers: what Docker calls the image's id.
    pub id: Digest,
    /// Its labels.
    pub labels: HashMap<String, String>,
}

/// What a finished container printed and gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Exit code.
    pub code: i64,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Engine {
    /// Connects to the engine that `host` names: `unix://…`, `tcp://…`, `ssh://[user@]host[:port]`, or nothing for
    /// the one that `DOCKER_HOST` names, or this host's. What is made there carries `labels`.
    ///
    /// # Errors
    /// When nobody answers, or the address is of no known kind.
    pub fn connect(host: &str, labels: Labels) -> Result<Self, DockerError> {
        let address = address(host, std::env::var("DOCKER_HOST").ok());
        let (address, tunnel) = match address.starts_with("ssh://") {
            true => {
                let tunnel = Tunnel::open(&address)?;
                (tunnel.address(), Some(tunnel))
            }
            false => (address, None),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("docker")
            .enable_all()
            .build()
            .map_err(DockerError::io("start the Docker client's thread"))?;
        let absent = |source| DockerError::Absent { host: address.clone(), source: Box::new(source) };
        let docker = match address.split_once("://") {
            Some(("unix", _)) => Docker::connect_with_unix(&address, ANSWER, API_DEFAULT_VERSION),
            Some(("tcp" | "http", _)) => Docker::connect_with_http(&address, ANSWER, API_DEFAULT_VERSION),
            _ => return Err(DockerError::Address { host: address }),
        };
        let docker = docker.map_err(absent)?;
        let docker = runtime.block_on(docker.negotiate_version()).map_err(absent)?;
        Ok(Self { inner: Arc::new(Inner { host: host.to_owned(), docker, runtime, labels, _tunnel: tunnel }) })
    }

    /// The host as the profile names it; empty for this one.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.inner.host
    }

    /// Whether it runs on this host, so that its control groups can be read directly.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.inner.host.is_empty() || self.inner.host.starts_with("unix://")
    }

    /// The name by which other hosts reach ports published there; loopback for this host.
    #[must_use]
    pub fn public_name(&self) -> String {
        public_name(&self.inner.host).to_owned()
    }

    /// What is put on everything made here.
    pub(super) fn labels(&self) -> &Labels {
        &self.inner.labels
    }

    pub(super) fn docker(&self) -> &Docker {
        &self.inner.docker
    }

    /// Waits for an answer; `action` completes "Docker cannot …".
    pub(super) fn ask<T>(
        &self,
        action: impl Into<String>,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, DockerError> {
        let failed = |source| DockerError::Request { action: action.into(), source: Box::new(source) };
        self.inner.runtime.block_on(answer).map_err(failed)
    }

    /// Waits for something that cannot fail.
    pub(super) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.inner.runtime.block_on(what)
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.inner.runtime.spawn(task)
    }

    /// The control group version that containers are capped through: 1 or 2.
    ///
    /// # Errors
    /// When the engine does not say.
    pub fn cgroup_version(&self) -> Result<u32, DockerError> {
        let info = self.ask("say what it is", self.docker().info())?;
        let version = info.cgroup_version.map(|version| version.to_string());
        let silent = || DockerError::Silent { what: "which cgroup version it uses".into() };
        version.and_then(|text| text.parse().ok()).ok_or_else(silent)
    }

    /// The image that `reference` means there.
    ///
    /// # Errors
    /// [`DockerError::NoImage`]; when the engine fails.
    pub fn image(&self, reference: &str) -> Result<Image, DockerError> {
        let found = match self.wait(self.docker().inspect_image(reference)) {
            Ok(found) => found,
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => {
                return Err(DockerError::NoImage { image: reference.to_owned() });
            }
            Err(source) => {
                let action = format!("look at image {reference}");
                return Err(DockerError::Request { action, source: Box::new(source) });
            }
        };
        let silent = || DockerError::Silent { what: format!("the id of image {reference}") };
        let id = found.id.as_deref().and_then(|id| id.parse().ok()).ok_or_else(silent)?;
        Ok(Image { id, labels: found.config.and_then(|config| config.labels).unwrap_or_default() })
    }

    /// Creates a container; it does not run yet. `files` are put into it, by absolute path.
    pub(super) fn create(
        &self,
        name: &str,
        body: ContainerCreateBody,
        files: &[(String, Vec<u8>)],
    ) -> Result<String, DockerError> {
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        let created =
            self.ask(format!("create container {name}"), self.docker().create_container(Some(options), body))?;
        if !files.is_empty() {
            let tar = archive(files).map_err(DockerError::io(format!("pack the files of {name}")))?;
            let options = UploadToContainerOptionsBuilder::default().path("/").build();
            let put = self.docker().upload_to_container(&created.id, Some(options), body_full(tar.into()));
            if let Err(error) = self.ask(format!("put files into {name}"), put) {
                self.remove(&created.id);
                return Err(error);
            }
        }
        Ok(created.id)
    }

    /// Removes a container and its unnamed volumes, running or not. One that is gone is no error.
    pub(super) fn remove(&self, id: &str) {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        // what cannot be removed now, the next sweep finds by its label
        let _ = self.wait(self.docker().remove_container(id, Some(options)));
    }

    /// Runs a command in an image to its end, without network or caps, and gives what it printed.
    ///
    /// # Errors
    /// When it cannot be started. That it failed is in the answer.
    pub fn run_once(
        &self,
        image: &str,
        command: &[String],
        files: &[(String, Vec<u8>)],
        binds: Vec<String>,
    ) -> Result<Said, DockerError> {
        let (program, arguments) = command.split_first().map_or((None, &[][..]), |(it, rest)| (Some(it), rest));
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: program.map(|program| vec![program.clone()]),
            cmd: Some(arguments.to_vec()),
            labels: Some(self.labels().sitting()),
            volumes: Some(vec![super::RUN_DIR.to_owned()]),
            host_config: Some(HostConfig {
                network_mode: Some("none".into()),
                binds: Some(binds),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let name = format!("weir-once-{}", uuid::Uuid::now_v7());
        let id = self.create(&name, body, files)?;
        let said = self.run_created(&id, command);
        self.remove(&id);
        said
    }

    fn run_created(&self, id: &str, command: &[String]) -> Result<Said, DockerError> {
        let action = || format!("run `{}`", command.join(" "));
        self.ask(action(), self.docker().start_container(id, None))?;
        let waited = self.wait(self.docker().wait_container(id, None).next());
        let code = match waited {
            Some(Ok(answer)) => answer.status_code,
            Some(Err(Error::DockerContainerWaitError { code, .. })) => code,
            Some(Err(source)) => return Err(DockerError::Request { action: action(), source: Box::new(source) }),
            None => return Err(DockerError::Silent { what: "how a container ended".into() }),
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).build();
        self.wait(async {
            let mut lines = self.docker().logs(id, Some(options));
            while let Ok(Some(Ok(piece))) = tokio::time::timeout(LATE, lines.next()).await {
                match piece {
                    bollard::container::LogOutput::StdErr { message } => err.extend_from_slice(&message),
                    other => out.extend_from_slice(&other.into_bytes()),
                }
            }
        });
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Said { code, out: text(out), err: text(err) })
    }
}

/// The address to connect to: as the profile says, else as the environment says, else this host's.
fn address(host: &str, environment: Option<String>) -> String {
    let stated = Some(host.to_owned()).filter(|host| !host.is_empty());
    stated.or(environment.filter(|host| !host.is_empty())).unwrap_or_else(|| LOCAL.to_owned())
}

/// The host name in an address, without user and port.
fn public_name(host: &str) -> &str {
    match host.split_once("://") {
        Some(("tcp" | "http" | "ssh", rest)) => {
            let rest = rest.split('/').next().unwrap_or(rest);
            let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            rest.rsplit_once(':').map_or(rest, |(host, _)| host)
        }
        _ => "127.0.0.1",
    }
}

/// A fresh folder for sockets.
pub(super) fn scratch(prefix: &str) -> std::io::Result<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::Builder::new().prefix(prefix).tempdir()?;
    let socket = dir.path().join("docker.sock");
    Ok((dir, socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_comes_before_the_environment_and_that_before_the_default() {
        assert_eq!(address("ssh://me@far", Some("tcp://near:1".into())), "ssh://me@far");
        assert_eq!(address("", Some("tcp://near:1".into())), "tcp://near:1");
        assert_eq!(address("", Some(String::new())), LOCAL);
    }

    #[test]
    fn ports_of_another_host_are_reached_by_its_name() {
        let cases = [
            ("", "127.0.0.1"),
            ("unix:///run/docker.sock", "127.0.0.1"),
            ("tcp://10.0.0.5:2375", "10.0.0.5"),
            ("ssh://me@far.example:2222", "far.example"),
            ("ssh://far", "far"),
        ];
        for (host, name) in cases {
            assert_eq!(public_name(host), name, "{host}");
        }
    }

    #[test]
    fn an_engine_that_is_not_there_is_named_with_what_to_do() {
        use weir_model::error::Coded;
        let labels = Labels::of("1-1-test");
        let error = Engine::connect("unix:///nowhere/docker.sock", labels.clone()).expect_err("nobody listens");
        assert_eq!(error.code(), "docker_absent");
        assert!(error.to_string().contains("unix:///nowhere/docker.sock"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("dockerd")));
        let error = Engine::connect("pigeon://roof", labels).expect_err("no such kind");
        assert_eq!(error.code(), "docker_address");
    }
}

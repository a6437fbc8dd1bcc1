//! Starting and stopping what is measured and what it is measured against.
//!
//! A [`Runtime`] starts a [`Service`] under its caps and hands back a [`Running`]; it never decides anything.
//! [`process`] starts plain processes in control groups, [`docker`] starts containers, [`fake`] is scripted, for tests
//! of the run loop.

pub mod docker;
pub mod fake;
pub mod interrupt;
pub(crate) mod lines;
pub mod lock;
pub mod process;
pub mod proctree;
pub mod supervise;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_model::digest::Digest;
use weir_model::error::Coded;

pub use crate::cgroup::{Caps, ReadBack};
use crate::cgroup::{Cgroup, CgroupError, Version};

/// One process (or container) to start.
#[derive(Debug, Clone)]
pub struct Service {
    /// Unique within a sitting, `[a-z0-9-]+`; names its cgroup and its log.
    pub name: String,
    /// Program and arguments; the program of a process is an absolute path. Nothing means an image's own command.
    pub command: Vec<String>,
    /// Environment variables set on top of a minimal inherited set (`PATH`, `HOME`, `LANG`, `TZ=UTC`, and
    /// `WEIR_SERVICE`, by which whatever is left over is found).
    pub env: BTreeMap<String, String>,
    /// Working directory; it exists.
    pub dir: PathBuf,
    /// File that receives stdout and stderr, appended.
    pub log: PathBuf,
    /// Bounds, or none.
    pub caps: Option<Caps>,
    /// How long a SIGTERM is given before SIGKILL.
    pub grace: Duration,
    /// What surrounds it where it runs in a container.
    pub contained: Option<Contained>,
}

/// What a container has beside its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contained {
    /// The Docker host, as the profile names it; empty for this one.
    pub host: String,
    /// Its name in the sitting's network.
    pub alias: String,
    /// The image's name, for people.
    pub reference: String,
    /// The image.
    pub image: Digest,
    /// Working directory; the image's own if there is none.
    pub dir: Option<String>,
    /// Volumes by name, and where they are in it.
    pub volumes: Vec<(String, String)>,
    /// Ports of it and where they are reached from outside of its network.
    pub publish: Vec<(u16, SocketAddr)>,
    /// Files it is given before it starts, by absolute path.
    pub files: Vec<(String, Vec<u8>)>,
}

/// How a service ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited by itself or on SIGTERM, with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It outlived its grace and was killed.
    Killed,
    /// The kernel killed it, or a process it needed, for exceeding its memory cap.
    OutOfMemory,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::Killed => f.write_str("outlived its grace and was killed"),
            Self::OutOfMemory => f.write_str("ran out of memory under its cap"),
        }
    }
}

/// Whether the caps of services are enforced on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enforcement {
    /// They are, through this cgroup version.
    Enforced(Version),
    /// They are not; records are flagged `envelope_unenforced`.
    Unenforced {
        /// Exactly why, as one clause.
        reason: String,
        /// What the user can do about it.
        remedy: String,
    },
}

/// Starts services.
pub trait Runtime: Send + Sync {
    /// Starts `service` under its caps. The caps have been written, read back and compared before the program's
    /// first instruction.
    ///
    /// # Errors
    /// When the program cannot be started, or the caps that the host permits cannot be applied as asked.
    fn start(&self, service: &Service) -> Result<Box<dyn Running>, RuntimeError>;

    /// Whether caps are enforced here.
    fn enforcement(&self) -> Enforcement;
}

/// A started service. Dropping it kills it and everything it started, and removes its cgroup.
pub trait Running: Send {
    /// The main process's id.
    fn pid(&self) -> u32;
    /// Its cgroup, where the host permits one; its counters can be read until this value is dropped.
    fn cgroup(&self) -> Option<&Cgroup>;
    /// The id of its container, where it is one.
    fn container(&self) -> Option<&str> {
        None
    }
    /// The Docker host it runs on, as the profile names it; empty for this one.
    fn host(&self) -> &str {
        ""
    }
    /// The caps as read from the cgroup; `None` when none were asked or the host does not permit caps.
    fn read_back(&self) -> Option<ReadBack>;
    /// How it ended, if it has; every process of it is gone then.
    fn exited(&mut self) -> Option<Exit>;
    /// SIGTERM, then SIGKILL after the grace; returns when every process of it is gone.
    fn stop(&mut self) -> Exit;
    /// Its log file.
    fn log(&self) -> &Path;
}

/// Why a service could not be started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The program is missing or not executable.
    #[error("cannot start {name}: {program}: {source}")]
    Spawn {
        /// Service name.
        name: String,
        /// Program path.
        program: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The description of the service is wrong.
    #[error("cannot start {name}: {what}")]
    Service {
        /// Service name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// Its log cannot be opened.
    #[error("cannot start {name}: cannot open its log {log}: {source}")]
    Log {
        /// Service name.
        name: String,
        /// The log file.
        log: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Its control group cannot be made, capped or read back.
    #[error("cannot start {name}: {source}")]
    Cgroup {
        /// Service name.
        name: String,
        /// What the control group says.
        source: CgroupError,
    },
    /// The Docker engine failed.
    #[error("cannot start {name}: {source}")]
    Docker {
        /// Service name.
        name: String,
        /// What it says.
        source: docker::DockerError,
    },
    /// The process that watches over it is not there.
    #[error("cannot start {name}: its supervisor {program} failed: {what}")]
    Supervisor {
        /// Service name.
        name: String,
        /// The supervisor's program.
        program: PathBuf,
        /// What happened.
        what: String,
    },
}

impl Coded for RuntimeError {
    fn code(&self) -> &'static str {
        match self {
            Self::Spawn { .. } => "service_spawn",
            Self::Service { .. } => "service_invalid",
            Self::Log { .. } => "service_log",
            Self::Cgroup { source, .. } => source.code(),
            Self::Docker { source, .. } => source.code(),
            Self::Supervisor { .. } => "service_supervisor",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Spawn { program, .. } => Some(format!(
                "check that {program} exists and is executable; `bench setup` fetches what the suite itself needs"
            )),
            Self::Cgroup { source, .. } => source.hint(),
            Self::Docker { source, .. } => source.hint(),
            _ => None,
        }
    }
}

//! Starting and stopping what is measured and what it is measured against.
//!
//! A [`Runtime`] starts a [`Service`] under its caps and hands back a [`Running`]; it never decides anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cgroup::Cgroup;

/// Upper bounds on a service. Swap is always off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Caps {
    /// CPUs, fractions allowed.
    pub cpus: f64,
    /// Memory in bytes.
    pub memory: u64,
}

/// One process (or container) to start.
#[derive(Debug, Clone)]
pub struct Service {
    /// Unique within a sitting, `[a-z0-9-]+`; names its cgroup and its log.
    pub name: String,
    /// Program and arguments; the program is an absolute path.
    pub command: Vec<String>,
    /// Environment variables set on top of a minimal inherited set (`PATH`, `HOME`, `LANG`, `TZ=UTC`).
    pub env: BTreeMap<String, String>,
    /// Working directory; it exists.
    pub dir: PathBuf,
    /// File that receives stdout and stderr, appended.
    pub log: PathBuf,
    /// Bounds, or none.
    pub caps: Option<Caps>,
    /// How long a SIGTERM is given before SIGKILL.
    pub grace: Duration,
}

/// How a service ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// It exited by itself or on SIGTERM, with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It outlived its grace and was killed.
    Killed,
    /// The kernel killed it for exceeding its memory cap.
    OutOfMemory,
}

/// Starts services.
pub trait Runtime {
    /// Starts `service` under its caps. The caps have been written and read back when this returns.
    ///
    /// # Errors
    /// When the program cannot be started, or the caps that the host permits cannot be applied as asked.
    fn start(&self, service: &Service) -> Result<Box<dyn Running>, RuntimeError>;
}

/// A started service. Dropping it kills it and everything it started.
pub trait Running: Send {
    /// The main process's id.
    fn pid(&self) -> u32;
    /// Its cgroup, where the host permits one.
    fn cgroup(&self) -> Option<&Cgroup>;
    /// The caps as read from the running cgroup; `None` when the host does not permit caps.
    fn read_back(&self) -> Option<Caps>;
    /// How it ended, if it has.
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
}

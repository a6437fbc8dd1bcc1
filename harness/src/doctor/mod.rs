//! What this host is, what would flag a record made on it, and what keeps a run from being possible.

pub mod now;
mod page;

use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;
use weir_model::environment::HostFacts;
use weir_model::error::Coded;
use weir_model::flag::Flag;

use crate::cgroup::{Hierarchy, Unenforced};
use crate::setup::{self, Home, Presence, SetupError, Tool, Tools, host};
use now::Now;

/// Where the Docker engine listens unless `DOCKER_HOST` names another socket.
const DOCKER: &str = "/var/run/docker.sock";

/// Above this share of stolen CPU time a host is not quiet.
pub const NOISY_STEAL: f64 = 0.01;

/// Above this share of CPU time used by others a host is not quiet.
pub const NOISY_OTHER: f64 = 0.05;

/// Everything `bench doctor` finds. [`std::fmt::Display`] writes it for people.
#[derive(Debug, Serialize)]
pub struct Examination {
    /// What a record carries about the host.
    pub host: HostFacts,
    /// Whether the CPUs may exceed their base frequency, where the host says.
    pub turbo: Option<bool>,
    /// Why caps cannot be enforced, and what to do about it; none when a trial group took them.
    pub caps: Option<Refusal>,
    /// How busy it is now.
    pub now: Option<Now>,
    /// Limits on open files of this process: soft, hard.
    pub open_files: Option<[u64; 2]>,
    /// Version of the Docker engine.
    pub docker: Result<String, String>,
    /// Tools with their versions; none for a missing one.
    pub tools: Vec<(String, Option<String>)>,
    /// The cache directory.
    pub cache: Cache,
    /// What would stand beside every number.
    pub flags: Vec<Remark>,
    /// What makes `bench run` impossible on the embedded environment.
    pub obstacles: Vec<Obstacle>,
}

/// Something the host does not permit.
#[derive(Debug, Serialize)]
pub struct Refusal {
    /// What is refused.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

/// The cache directory and what is in it.
#[derive(Debug, Serialize)]
pub struct Cache {
    /// Where it is.
    pub dir: PathBuf,
    /// Bytes free there.
    pub free: u64,
    /// Name and version of every piece, and whether it is there.
    pub pieces: Vec<(String, Presence)>,
}

/// A flag with its words.
#[derive(Debug, Serialize)]
pub struct Remark {
    /// As in records.
    #[serde(flatten)]
    pub flag: Flag,
    /// What was found.
    pub wording: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// An error that a run would end with.
#[derive(Debug, Serialize)]
pub struct Obstacle {
    /// Stable code.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Examines this host. Makes and removes a control group as a trial; takes about two seconds.
///
/// # Errors
/// When the host has no readable `/proc`, or no cache directory can be named.
pub fn examine() -> Result<Examination, SetupError> {
    let home = Home::find()?;
    let cgroups = match Hierarchy::detect() {
        Ok(found) => found.proven(&format!("doctor-{}", std::process::id())),
        Err(error) => Hierarchy::none(Unenforced::Refused(error.to_string())),
    };
    let host = host::detect(&cgroups)?;
    let tools = Tools::from_env();
    let found = setup::inspect(&home);
    let now = now::watch();
    let mut flags = host::flags(&host, &cgroups);
    flags.extend(now.as_ref().and_then(noise));
    let limits = getrlimit(Resource::RLIMIT_NOFILE).ok();
    Ok(Examination {
        turbo: turbo(Path::new("/")),
        caps: cgroups.unenforced().map(|why| Refusal { reason: why.to_string(), remedy: why.remedy() }),
        now,
        open_files: limits.map(|(soft, hard)| [soft, hard]),
        docker: now::docker(&docker_socket(std::env::var("DOCKER_HOST").ok().as_deref())),
        tools: Tool::ALL.iter().map(|tool| (tool.to_string(), tools.version(*tool))).collect(),
        cache: Cache { dir: home.root().to_path_buf(), free: found.free, pieces: found.pieces },
        flags: flags.into_iter().map(Remark::from).collect(),
        obstacles: found.obstacles.iter().map(Obstacle::from).collect(),
        host,
    })
}

impl Examination {
    /// Whether `bench run` is possible here.
    #[must_use]
    pub fn can_run(&self) -> bool {
        self.obstacles.is_empty()
    }
}

impl From<Flag> for Remark {
    fn from(flag: Flag) -> Self {
        Self { wording: flag.wording(), remedy: flag.remedy(), flag }
    }
}

impl From<&SetupError> for Obstacle {
    fn from(error: &SetupError) -> Self {
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            message = format!("{message}: {inner}");
            cause = inner.source();
        }
        Self { code: error.code(), message, hint: error.hint() }
    }
}

/// The flag a run at this moment would get for its neighbours.
fn noise(now: &Now) -> Option<Flag> {
    (now.steal_share > NOISY_STEAL || now.busy_share > NOISY_OTHER)
        .then_some(Flag::HostNoisy { steal_share: now.steal_share, other_share: now.busy_share })
}

/// Intel's driver has a switch against turbo, the others one for it.
fn turbo(root: &Path) -> Option<bool> {
    let cpu = root.join("sys/devices/system/cpu");
    match host::text(&cpu, "intel_pstate/no_turbo") {
        Some(off) => Some(off == "0"),
        None => host::text(&cpu, "cpufreq/boost").map(|on| on == "1"),
    }
}

fn docker_socket(docker_host: Option<&str>) -> PathBuf {
    docker_host.and_then(|host| host.strip_prefix("unix://")).unwrap_or(DOCKER).into()
}

#[cfg(test)]
mod tests;

//! The sampler: a small process of its own, or a container of its own, that reads what services use, ten times a
//! second, and reads their caps back.
//!
//! [`Sampler`] is the harness's handle on it; [`super::recorder`] is what the process does. It is told what to sample
//! through a [`Link`], one JSON command a line with one answer each, and ends with the link, so it never outlives the
//! harness. Where services are spread over hosts there is one on each.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_model::error::Coded;

use super::series::{Series, SeriesError};
use crate::cgroup::{Caps, Cgroup, ReadBack};
use crate::runtime::Running;

/// Time from tick to tick.
pub const PERIOD: Duration = Duration::from_millis(100);
/// What an answer begins with; a sample on the same output begins otherwise.
pub(crate) const SAYS: &str = "sampler ";

/// A service to sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The service.
    pub name: String,
    /// Its group, where there is one; else its processes are summed up.
    pub cgroup: Option<Cgroup>,
    /// The id of its container, by which the sampler finds the group itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its main process.
    pub pid: u32,
}

/// What the sampler can be told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// Sample this too, from now on.
    Add(Target),
    /// Sample everything now and write it down.
    Mark,
    /// Read the caps of a sampled service and compare them with what they should be.
    Caps {
        /// The service.
        name: String,
        /// What they should be.
        caps: Caps,
    },
}

/// What the sampler answers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Done.
    Done,
    /// The caps in force, which are those asked about.
    Caps(ReadBack),
    /// Not done, and why.
    Refused(String),
}

/// The way to a sampler. Dropping it ends the sampler.
pub trait Link: Send + std::fmt::Debug {
    /// Sends a line.
    ///
    /// # Errors
    /// When the sampler is gone.
    fn tell(&mut self, line: &[u8]) -> std::io::Result<()>;
    /// The next answer, blocking; empty when the sampler is gone.
    ///
    /// # Errors
    /// When the way is broken.
    fn hear(&mut self) -> std::io::Result<String>;
    /// Ends the sampler and returns when everything it wrote is in the series file.
    ///
    /// # Errors
    /// When its end cannot be waited for.
    fn end(&mut self) -> std::io::Result<()>;
}

/// Why sampling failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// The sampler's program, pipe or file does not work.
    #[error("the sampler cannot {what}: {source}")]
    Io {
        /// What it was doing.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It ended before it was told to.
    #[error("the sampler ended early; its samples so far are in {path}")]
    Ended {
        /// The series file.
        path: PathBuf,
    },
    /// It could not do what it was told.
    #[error("the sampler, asked about {name}: {why}")]
    Refused {
        /// The service.
        name: String,
        /// Why.
        why: String,
    },
    /// It was told, or answered, nonsense.
    #[error("the sampler was told nonsense: {0}")]
    Command(#[from] serde_json::Error),
    /// What it wrote cannot be read.
    #[error(transparent)]
    Series(#[from] SeriesError),
}

impl Coded for SamplerError {
    fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "sampler_io",
            Self::Ended { .. } => "sampler_ended",
            Self::Refused { .. } => "sampler_refused",
            Self::Command(_) => "sampler_command",
            Self::Series(error) => error.code(),
        }
    }
}

/// A running sampler. Dropping it ends it.
#[derive(Debug)]
pub struct Sampler {
    /// One for each host, by the host's name.
    links: Vec<(String, Box<dyn Link>)>,
    path: PathBuf,
}

impl Sampler {
    /// Starts a sampler, `exe` being a `bench` binary, that writes its samples to the new file `path`.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(exe: &Path, path: &Path) -> Result<Self, SamplerError> {
        let mut child = std::process::Command::new(exe)
            .args(["sampler".as_ref(), "--out".as_ref(), path.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed(&format!("be started from {}", exe.display())))?;
        let Some(stdout) = child.stdout.take() else {
            return Err(SamplerError::Ended { path: path.into() });
        };
        let link = ProcessLink { stdin: child.stdin.take(), stdout: BufReader::new(stdout), child };
        Ok(Self::over(vec![(String::new(), Box::new(link))], path))
    }

    /// The samplers behind these links, each under the name of its host; they write their samples to `path`.
    #[must_use]
    pub fn over(links: Vec<(String, Box<dyn Link>)>, path: &Path) -> Self {
        Self { links, path: path.into() }
    }

    /// Samples the service `name` from now on; its first sample has been taken when this returns.
    ///
    /// # Errors
    /// When the sampler has ended, or does not find the service.
    pub fn add(&mut self, name: &str, running: &dyn Running) -> Result<(), SamplerError> {
        let target = Target {
            name: name.into(),
            cgroup: running.cgroup().cloned(),
            container: running.container().map(str::to_owned),
            pid: running.pid(),
        };
        self.add_target(running.host(), &target)
    }

    /// Samples `target` on `host` from now on; its first sample has been taken when this returns.
    ///
    /// # Errors
    /// When the sampler has ended, or does not find the target.
    pub fn add_target(&mut self, host: &str, target: &Target) -> Result<(), SamplerError> {
        self.ask(host, &target.name, &Command::Add(target.clone()))?;
        self.ask(host, &target.name, &Command::Mark).map(drop)
    }

    /// Reads the caps of the sampled service `name` from its control group, `caps` being what was asked.
    ///
    /// # Errors
    /// [`SamplerError::Refused`] when they differ; when the sampler has ended.
    pub fn caps(&mut self, name: &str, running: &dyn Running, caps: Caps) -> Result<ReadBack, SamplerError> {
        let command = Command::Caps { name: name.into(), caps };
        match self.ask(running.host(), name, &command)? {
            Answer::Caps(read) => Ok(read),
            _ => Err(SamplerError::Ended { path: self.path.clone() }),
        }
    }

    /// Takes a sample of every service now; it is in the file when this returns. Called before a service is
    /// stopped, so that its last moments are counted.
    ///
    /// # Errors
    /// When the sampler has ended.
    pub fn mark(&mut self) -> Result<(), SamplerError> {
        let hosts: Vec<String> = self.links.iter().map(|(host, _)| host.clone()).collect();
        hosts.iter().try_for_each(|host| self.ask(host, "", &Command::Mark).map(drop))
    }

    /// Takes a last sample, ends the sampler and reads what it wrote.
    ///
    /// # Errors
    /// When the sampler has ended before, or its file cannot be read.
    pub fn finish(mut self) -> Result<Series, SamplerError> {
        self.mark()?;
        for (_, link) in &mut self.links {
            link.end().map_err(failed("be waited for"))?;
        }
        Ok(Series::load(&self.path)?)
    }

    fn ask(&mut self, host: &str, name: &str, command: &Command) -> Result<Answer, SamplerError> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        let ended = || SamplerError::Ended { path: self.path.clone() };
        let (_, link) = self.links.iter_mut().find(|(it, _)| it == host).ok_or_else(ended)?;
        link.tell(&line).map_err(|_| ended())?;
        let answer = link.hear().map_err(failed("be heard"))?;
        let answer = answer.strip_prefix(SAYS).ok_or_else(ended)?;
        match serde_json::from_str(answer)? {
            Answer::Refused(why) => Err(SamplerError::Refused { name: name.to_owned(), why }),
            answer => Ok(answer),
        }
    }
}

/// A sampler that is a child process.
#[derive(Debug)]
struct ProcessLink {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Link for ProcessLink {
    fn tell(&mut self, line: &[u8]) -> std::io::Result<()> {
        self.stdin.as_mut().map_or_else(|| Err(std::io::ErrorKind::BrokenPipe.into()), |stdin| stdin.write_all(line))
    }

    fn hear(&mut self) -> std::io::Result<String> {
        let mut answer = String::new();
        self.stdout.read_line(&mut answer)?;
        Ok(answer)
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.stdin = None;
        self.child.wait().map(drop)
    }
}

impl Drop for ProcessLink {
    fn drop(&mut self) {
        // It ends with its stdin; there is nobody left to tell if it does not.
        let _ = self.end();
    }
}

pub(super) fn failed(what: &str) -> impl FnOnce(std::io::Error) -> SamplerError {
    let what = what.to_owned();
    move |source| SamplerError::Io { what, source }
}

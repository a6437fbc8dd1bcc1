//! The sampler: a small process of its own that reads what services use, ten times a second.
//!
//! [`Sampler`] is the harness's handle on it; [`sample`] is what the process does. It is told on stdin what to
//! sample (one JSON command a line) and ends with its stdin, so it never outlives the harness. Ticks are absolute
//! deadlines; a tick that was missed is missed, and every sample carries the time at which it was really taken.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use weir_model::error::Coded;

use super::series::{Sample, Series, SeriesError, Source};
use crate::cgroup::{Cgroup, Usage};
use crate::runtime::lines::Lines;
use crate::runtime::{Running, proctree};

/// Time from tick to tick.
pub const PERIOD: Duration = Duration::from_millis(100);
/// The sampler's answer to [`Command::Mark`].
const MARKED: &str = "marked";

/// A service to sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The service.
    pub name: String,
    /// Its group, where there is one; else its processes are summed up.
    pub cgroup: Option<Cgroup>,
    /// Its main process.
    pub pid: u32,
}

/// What the sampler can be told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Command {
    /// Sample this too, now and from now on.
    Add(Target),
    /// Sample everything now, write it down, and say so.
    Mark,
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
    /// Its stdin holds no command.
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
            Self::Command(_) => "sampler_command",
            Self::Series(error) => error.code(),
        }
    }
}

/// A running sampler. Dropping it ends it.
#[derive(Debug)]
pub struct Sampler {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
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
        Ok(Self { stdin: child.stdin.take(), stdout: BufReader::new(stdout), child, path: path.into() })
    }

    /// Samples the service `name` from now on; its first sample has been taken when this returns.
    ///
    /// # Errors
    /// When the sampler has ended.
    pub fn add(&mut self, name: &str, running: &dyn Running) -> Result<(), SamplerError> {
        self.add_target(&Target { name: name.into(), cgroup: running.cgroup().cloned(), pid: running.pid() })
    }

    /// Samples `target` from now on; its first sample has been taken when this returns.
    ///
    /// # Errors
    /// When the sampler has ended.
    pub fn add_target(&mut self, target: &Target) -> Result<(), SamplerError> {
        self.tell(&Command::Add(target.clone()))?;
        self.mark()
    }

    /// Takes a sample of every service now; it is in the file when this returns. Called before a service is
    /// stopped, so that its last moments are counted.
    ///
    /// # Errors
    /// When the sampler has ended.
    pub fn mark(&mut self) -> Result<(), SamplerError> {
        self.tell(&Command::Mark)?;
        let mut answer = String::new();
        let read = self.stdout.read_line(&mut answer).map_err(failed("be heard"))?;
        if read == 0 || answer.trim() != MARKED {
            return Err(SamplerError::Ended { path: self.path.clone() });
        }
        Ok(())
    }

    /// Takes a last sample, ends the sampler and reads what it wrote.
    ///
    /// # Errors
    /// When the sampler has ended before, or its file cannot be read.
    pub fn finish(mut self) -> Result<Series, SamplerError> {
        self.mark()?;
        self.end()?;
        Ok(Series::load(&self.path)?)
    }

    fn tell(&mut self, command: &Command) -> Result<(), SamplerError> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        let ended = || SamplerError::Ended { path: self.path.clone() };
        let stdin = self.stdin.as_mut().ok_or_else(ended)?;
        stdin.write_all(&line).map_err(|_| SamplerError::Ended { path: self.path.clone() })
    }

    fn end(&mut self) -> Result<(), SamplerError> {
        self.stdin = None;
        self.child.wait().map(drop).map_err(failed("be waited for"))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // It ends with its stdin; there is nobody left to tell if it does not.
        let _ = self.end();
    }
}

/// Samples what stdin names into the new file `out`, a tick every `period`, until stdin ends.
///
/// # Errors
/// When the file cannot be written or stdin holds nonsense.
pub fn sample(out: &Path, period: Duration) -> Result<(), SamplerError> {
    // Signals of the terminal are the harness's to judge; it ends this process by its stdin.
    let _ = nix::unistd::setsid();
    let file = File::create_new(out).map_err(failed(&format!("create {}", out.display())))?;
    let mut commands = Lines::of_stdin().map_err(failed("keep its stdin"))?;
    let mut recorder = Recorder { targets: Vec::new(), out: BufWriter::new(file) };
    let mut next = Instant::now() + period;
    while commands.open() {
        if wait(&commands, next)? {
            commands.fill();
            while let Some(line) = commands.next() {
                match serde_json::from_slice(&line)? {
                    Command::Add(target) => recorder.targets.push(target),
                    Command::Mark => {
                        recorder.tick()?;
                        say(MARKED).map_err(failed("be heard"))?;
                    }
                }
            }
        }
        let now = Instant::now();
        if now >= next {
            recorder.tick()?;
            next = following(next, now, period);
        }
    }
    Ok(())
}

/// The first deadline after `now` on the grid that `due` is on: what was missed is not made up for.
fn following(due: Instant, now: Instant, period: Duration) -> Instant {
    let behind = now.saturating_duration_since(due).as_nanos() / period.as_nanos().max(1);
    due + period * u32::try_from(behind + 1).unwrap_or(u32::MAX)
}

struct Recorder {
    targets: Vec<Target>,
    out: BufWriter<File>,
}

impl Recorder {
    /// One sample of every target; a target that is gone is dropped.
    fn tick(&mut self) -> Result<(), SamplerError> {
        let mut taken = Vec::with_capacity(self.targets.len());
        self.targets.retain(|target| {
            let sample = take(target);
            let there = sample.is_some();
            taken.extend(sample);
            there
        });
        for sample in taken {
            serde_json::to_writer(&mut self.out, &sample)?;
            self.out.write_all(b"\n").map_err(failed("write a sample"))?;
        }
        self.out.flush().map_err(failed("write a sample"))
    }
}

/// Reads a target, with the time in the middle of the reading.
fn take(target: &Target) -> Option<Sample> {
    let before = clocks()?;
    let (source, usage) = match &target.cgroup {
        Some(cgroup) => (Source::Cgroup, cgroup.usage().ok()?),
        None => (Source::Proc, tree_usage(target.pid)?),
    };
    let after = clocks()?;
    Some(Sample {
        t_us: u64::midpoint(before.0, after.0),
        mono_us: u64::midpoint(before.1, after.1),
        name: target.name.clone(),
        source,
        usage,
    })
}

/// Sums over a process and its descendants, from `/proc`.
fn tree_usage(pid: u32) -> Option<Usage> {
    proctree::stat(pid).filter(|stat| stat.state != 'Z')?;
    let mut usage = Usage::default();
    let mut threads = 0;
    for member in std::iter::once(pid).chain(proctree::descendants(pid)) {
        let (Some(stat), memory) = (proctree::stat(member), proctree::memory(member)) else {
            continue;
        };
        let (anon, resident) = memory.unwrap_or_default();
        usage.user_us += stat.user_us;
        usage.system_us += stat.system_us;
        usage.anon += anon;
        usage.current += resident;
        threads += stat.threads;
    }
    usage.cpu_us = usage.user_us + usage.system_us;
    usage.pids = Some(threads);
    Some(usage)
}

/// Wall clock and monotonic clock, µs.
fn clocks() -> Option<(u64, u64)> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let mono = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).ok()?);
    Some((u64::try_from(wall.as_micros()).ok()?, u64::try_from(mono.as_micros()).ok()?))
}

/// Waits for a command until `deadline`; true if there is one, or the end of all commands.
fn wait(commands: &Lines, deadline: Instant) -> Result<bool, SamplerError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let round_up = left + Duration::from_micros(999);
    let timeout = PollTimeout::try_from(round_up).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(commands.fd(), PollFlags::POLLIN)];
    match poll(&mut fds, timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(failed("wait")(errno.into())),
    }
}

fn say(word: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{word}")?;
    stdout.flush()
}

fn failed(what: &str) -> impl FnOnce(std::io::Error) -> SamplerError {
    let what = what.to_owned();
    move |source| SamplerError::Io { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_leaves_out_ticks_and_keeps_the_grid() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(following(after(100), after(100), PERIOD), after(200));
        assert_eq!(following(after(100), after(130), PERIOD), after(200));
        assert_eq!(following(after(100), after(455), PERIOD), after(500));
        assert_eq!(following(after(100), after(500), PERIOD), after(600));
    }

    #[test]
    fn processes_are_summed_up_where_there_is_no_group() {
        let own = std::process::id();
        let target = Target { name: "self".into(), cgroup: None, pid: own };
        let sample = take(&target).expect("we run");
        assert_eq!(sample.source, Source::Proc);
        assert!(sample.usage.anon > 0 && sample.usage.current >= sample.usage.anon);
        assert!(sample.usage.pids >= Some(1));
        let gone = Target { name: "gone".into(), cgroup: None, pid: u32::MAX };
        assert_eq!(take(&gone), None);
    }
}

//! `bench supervise`: the process that stands between the harness and one service, and ends it in every case.
//!
//! It is a child subreaper in a session of its own, outside of the service's cgroup. Its stdin is its lifeline: the
//! first line is a `Spec`, a line `stop` asks for a graceful end, and end of file means that the harness let go
//! or died: everything is killed and the cgroup removed. On stdout it says, a JSON line each, what becomes of the
//! service (`Report`). If the supervisor itself is killed, the kernel kills the program (its parent-death
//! signal), and the harness, which sees stdout close, kills the rest.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid, setsid};
use serde::{Deserialize, Serialize};
use weir_model::error::Coded;

use super::lines::Lines;
use super::{Exit, proctree};
use crate::cgroup::Cgroup;

/// Line on stdin that asks for a graceful end.
pub(super) const STOP: &[u8] = b"stop\n";
/// How long the processes of a service are given to vanish after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(30);
/// Walks over the descendants in one attempt to stop them all.
const MOST_PASSES: usize = 50;

/// What to start, in full.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    pub command: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    pub dir: PathBuf,
    pub log: PathBuf,
    /// The group to start it in; capped already.
    pub cgroup: Option<Cgroup>,
    pub grace_ms: u64,
}

/// What became of the service.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// It runs.
    Started {
        /// The program's process id.
        pid: u32,
    },
    /// It could not be started, for this system error.
    Failed {
        /// The `errno`; 0 when there is none.
        errno: i32,
        /// The error in words.
        message: String,
    },
    /// It ended, and every process of it is gone.
    Exited(Exit),
}

/// Why the supervisor could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuperviseError {
    /// A call to the system failed.
    #[error("supervisor cannot {what}: {source}")]
    System {
        /// What it was doing.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The first line of stdin is not a service.
    #[error("supervisor got no service on stdin: {0}")]
    Spec(#[from] serde_json::Error),
}

impl Coded for SuperviseError {
    fn code(&self) -> &'static str {
        "supervise"
    }

    fn hint(&self) -> Option<String> {
        Some("this verb is started by the harness, not by hand".into())
    }
}

/// Supervises one service until stdin ends.
///
/// # Errors
/// When the supervisor cannot set itself up. A service that does not start is a report, not an error.
pub fn supervise() -> Result<(), SuperviseError> {
    // A leader of its own session gets no signal from the terminal; it fails only if it is one already.
    let _ = setsid();
    prctl::set_child_subreaper(true).map_err(system("become a subreaper"))?;
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block().map_err(system("block SIGCHLD"))?;
    let children = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(system("watch its children"))?;
    let mut lifeline = Lines::of_stdin().map_err(system("keep its stdin"))?;
    let Some(line) = lifeline.wait() else {
        return Ok(());
    };
    let spec: Spec = serde_json::from_slice(&line)?;
    match spawn(&spec) {
        Ok(main) => {
            report(&Report::Started { pid: main.as_raw().unsigned_abs() });
            Supervisor { main, spec, stop_by: None, overdue: false, exit: None }.watch(&mut lifeline, &children)
        }
        Err(error) => {
            report(&Report::Failed { errno: error.raw_os_error().unwrap_or(0), message: error.to_string() });
            Ok(())
        }
    }
}

struct Supervisor {
    main: Pid,
    spec: Spec,
    /// When the grace of a requested stop is over.
    stop_by: Option<Instant>,
    /// The grace was over before the program was.
    overdue: bool,
    exit: Option<Exit>,
}

impl Supervisor {
    fn watch(mut self, lifeline: &mut Lines, children: &SignalFd) -> Result<(), SuperviseError> {
        while lifeline.open() {
            let mut fds =
                [PollFd::new(lifeline.fd(), PollFlags::POLLIN), PollFd::new(children.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, self.timeout()) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(system("wait")(errno)),
            }
            let spoken = fds[0].any().unwrap_or(false);
            while let Ok(Some(_)) = children.read_signal() {}
            self.reap();
            if spoken {
                lifeline.fill();
                while let Some(line) = lifeline.next() {
                    if line == STOP {
                        self.stop();
                    }
                }
            }
            if self.exit.is_none() && self.stop_by.is_some_and(|at| Instant::now() >= at) {
                self.overdue = true;
                self.finish(None);
            }
        }
        self.finish(None);
        if let Some(cgroup) = &self.spec.cgroup
            && let Err(error) = cgroup.remove()
        {
            eprintln!("supervisor: {error}");
        }
        Ok(())
    }

    /// Until the grace is over, or for ever.
    fn timeout(&self) -> PollTimeout {
        match (self.exit, self.stop_by) {
            (None, Some(at)) => {
                let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
            _ => PollTimeout::NONE,
        }
    }

    fn stop(&mut self) {
        if self.exit.is_none() && self.stop_by.is_none() {
            self.stop_by = Some(Instant::now() + Duration::from_millis(self.spec.grace_ms));
            let _ = kill(self.main, Signal::SIGTERM);
        }
    }

    /// Collects the dead; when the program is among them, ends what it left behind and reports.
    fn reap(&mut self) {
        let (status, _) = self.collect();
        if status.is_some() {
            self.finish(status);
        }
    }

    /// Waits for every dead child: the program's own end, and whether there are children left.
    fn collect(&self) -> (Option<WaitStatus>, bool) {
        let mut main = None;
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return (main, true),
                Err(Errno::EINTR) => {}
                Err(_) => return (main, false),
                Ok(status) if status.pid() == Some(self.main) => main = Some(status),
                Ok(_) => {}
            }
        }
    }

    /// Ends everything, then reports how the program ended, once: `status` if it was collected already.
    fn finish(&mut self, status: Option<WaitStatus>) {
        let found = self.kill_all();
        if let (None, Some(status)) = (self.exit, status.or(found)) {
            let exit = self.judge(status);
            self.exit = Some(exit);
            report(&Report::Exited(exit));
        }
    }

    fn judge(&self, status: WaitStatus) -> Exit {
        let plain = match status {
            WaitStatus::Exited(_, code) => Exit::Code(code),
            WaitStatus::Signaled(_, signal, _) => Exit::Signal(signal as i32),
            _ => Exit::Signal(0),
        };
        if self.overdue {
            return Exit::Killed;
        }
        let oom = self.spec.cgroup.as_ref().and_then(|group| group.oom_kills().ok()).unwrap_or(0);
        if oom > 0 && plain != Exit::Code(0) { Exit::OutOfMemory } else { plain }
    }

    /// Kills every descendant and returns when none is left, with the program's end if it was among them. As a
    /// subreaper this process inherits every orphan, so "no child" means "no descendant".
    fn kill_all(&self) -> Option<WaitStatus> {
        let deadline = Instant::now() + PATIENCE;
        let mut main = None;
        loop {
            if let Some(cgroup) = &self.spec.cgroup {
                // What it misses, the walk below finds.
                let _ = cgroup.kill_once();
            }
            self.kill_descendants();
            let (found, more) = self.collect();
            main = main.or(found);
            if !more {
                return main;
            }
            if Instant::now() > deadline {
                eprintln!("supervisor: processes of {:?} survive SIGKILL", self.spec.command);
                return main;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops every descendant first, so that none forks while the others are being killed.
    fn kill_descendants(&self) {
        let mut known = 0;
        for _ in 0..MOST_PASSES {
            let found = proctree::descendants(std::process::id());
            if found.is_empty() {
                return;
            }
            let signal = if found.len() == known { Signal::SIGKILL } else { Signal::SIGSTOP };
            for pid in &found {
                if let Ok(raw) = i32::try_from(*pid) {
                    let _ = kill(Pid::from_raw(raw), signal);
                }
            }
            if signal == Signal::SIGKILL {
                return;
            }
            known = found.len();
        }
    }
}

/// Starts the program in its group, its own process group, with its parent-death signal set.
fn spawn(spec: &Spec) -> std::io::Result<Pid> {
    let (program, arguments) =
        spec.command.split_first().ok_or_else(|| std::io::Error::other("the command is empty"))?;
    let log = OpenOptions::new().create(true).append(true).open(&spec.log)?;
    let entries = match &spec.cgroup {
        Some(cgroup) => cgroup.entry_files().map_err(std::io::Error::other)?,
        None => Vec::new(),
    };
    let supervisor = Pid::this();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(&spec.env)
        .current_dir(&spec.dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    let prepare = move || {
        for mut entry in &entries {
            entry.write_all(b"0")?;
        }
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() == supervisor { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: the closure only makes write, prctl and getppid calls on what was opened before the fork.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn()?;
    i32::try_from(child.id()).map(Pid::from_raw).map_err(std::io::Error::other)
}

/// Says it to the harness; if the harness is gone, the lifeline says so.
fn report(report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
    }
}

fn system<E: Into<std::io::Error>>(what: &'static str) -> impl Fn(E) -> SuperviseError {
    move |error| SuperviseError::System { what, source: error.into() }
}

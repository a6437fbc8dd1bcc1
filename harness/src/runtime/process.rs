//! Services as plain processes, each in a control group of its own and under a supervisor of its own.
//!
//! However the harness ends, no process of a service is left: see [`super::supervise`]. What only a simultaneous
//! SIGKILL of harness and supervisor can leave behind, [`ProcessRuntime::sweep`] ends at the next start.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::supervise::{Report, STOP, Spec};
use super::{Enforcement, Exit, ReadBack, Running, Runtime, RuntimeError, Service, proctree};
use crate::cgroup::{Cgroup, CgroupError, Hierarchy};

/// How long a supervisor is given to do what it does at once unless the host is overloaded.
const PATIENCE: Duration = Duration::from_secs(40);
/// What a service inherits of the harness's environment.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// Starts services as processes of this host.
#[derive(Debug)]
pub struct ProcessRuntime {
    exe: PathBuf,
    owner: String,
    hierarchy: Hierarchy,
}

/// What a sweep found of dead sittings and ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Control groups of dead sittings that were removed.
    pub sittings: Vec<String>,
    /// Processes killed.
    pub killed: usize,
}

impl ProcessRuntime {
    /// A runtime for one sitting on this host, with this very binary as its supervisor.
    ///
    /// # Errors
    /// When `/proc` cannot be read. A host on which caps cannot be enforced is no error: see
    /// [`Runtime::enforcement`].
    pub fn new(sitting: &str) -> Result<Self, CgroupError> {
        let exe = std::env::current_exe().map_err(|source| CgroupError::Io {
            action: "find".into(),
            path: PathBuf::from("/proc/self/exe"),
            source,
        })?;
        Ok(Self::with(exe, sitting, Hierarchy::detect()?))
    }

    /// A runtime whose supervisor is `exe` (a `bench` binary) and whose groups are made in `hierarchy`.
    #[must_use]
    pub fn with(exe: PathBuf, sitting: &str, hierarchy: Hierarchy) -> Self {
        let owner = format!("{}-{sitting}", proctree::self_name());
        let hierarchy = hierarchy.proven(&owner);
        Self { exe, owner, hierarchy }
    }

    /// The control groups of this host, as proven by a trial.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Ends what dead sittings left behind: kills the members of their control groups, removes the groups, and
    /// kills processes that carry their mark. Sittings whose harness is alive are left alone.
    ///
    /// # Errors
    /// When a group's members cannot be killed or the group cannot be removed.
    pub fn sweep(&self) -> Result<Swept, CgroupError> {
        let mut swept = Swept::default();
        for sitting in self.hierarchy.sittings() {
            if proctree::is_alive(&sitting) == Some(false) {
                let group = self.hierarchy.group(&format!("weir/{sitting}"))?;
                swept.killed += group.kill()?;
                group.remove()?;
                swept.sittings.push(sitting);
            }
        }
        swept.killed += kill_marked(|mark| proctree::is_alive(mark) == Some(false));
        Ok(swept)
    }

    /// A new group for the service, capped and read back.
    fn group(&self, service: &Service) -> Result<(Cgroup, Option<ReadBack>), CgroupError> {
        let path = format!("weir/{}/{}", self.owner, service.name);
        let old = self.hierarchy.group(&path)?;
        old.kill()?;
        old.remove()?;
        let group = self.hierarchy.create(&path)?;
        let Some(caps) = service.caps else {
            return Ok((group, None));
        };
        match group.apply(caps).and_then(|()| group.assert_caps(caps)) {
            Ok(read_back) => Ok((group, Some(read_back))),
            Err(error) => {
                group.remove()?;
                Err(error)
            }
        }
    }

    fn supervisor(&self, service: &Service) -> Result<Child, RuntimeError> {
        let log = OpenOptions::new().create(true).append(true).open(&service.log);
        let log =
            log.map_err(|source| RuntimeError::Log { name: service.name.clone(), log: service.log.clone(), source })?;
        Command::new(&self.exe)
            .arg("supervise")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| self.supervisor_failed(service, error.to_string()))
    }

    fn supervisor_failed(&self, service: &Service, what: String) -> RuntimeError {
        RuntimeError::Supervisor { name: service.name.clone(), program: self.exe.clone(), what }
    }

    fn spec(&self, service: &Service, cgroup: Option<&Cgroup>) -> Spec {
        let inherited = INHERITED.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
        let mut env: BTreeMap<String, String> = inherited.collect();
        env.insert("TZ".into(), "UTC".into());
        env.extend(service.env.clone());
        env.insert(proctree::COOKIE.into(), self.mark(service));
        Spec {
            command: service.command.clone(),
            env,
            dir: service.dir.clone(),
            log: service.log.clone(),
            cgroup: cgroup.cloned(),
            grace_ms: u64::try_from(service.grace.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn mark(&self, service: &Service) -> String {
        format!("{}/{}", self.owner, service.name)
    }
}

impl Runtime for ProcessRuntime {
    fn start(&self, service: &Service) -> Result<Box<dyn Running>, RuntimeError> {
        check(service)?;
        let mut supervisor = self.supervisor(service)?;
        let (lifeline, stdout) = (supervisor.stdin.take(), supervisor.stdout.take());
        // From here on dropping `running` ends all that was started so far.
        let mut running = Process {
            pid: 0,
            mark: self.mark(service),
            cgroup: None,
            read_back: None,
            log: service.log.clone(),
            grace: service.grace,
            supervisor,
            lifeline,
            reports: reports(stdout),
            exit: None,
        };
        if self.hierarchy.unenforced().is_none() {
            let (cgroup, read_back) =
                self.group(service).map_err(|source| RuntimeError::Cgroup { name: service.name.clone(), source })?;
            running.cgroup = Some(cgroup);
            running.read_back = read_back;
        }
        let spec = self.spec(service, running.cgroup.as_ref());
        running.send(&spec).map_err(|error| self.supervisor_failed(service, error.to_string()))?;
        match running.reports.recv_timeout(PATIENCE) {
            Ok(Report::Started { pid }) => {
                running.pid = pid;
                Ok(Box::new(running))
            }
            Ok(Report::Failed { errno, message }) => Err(RuntimeError::Spawn {
                name: service.name.clone(),
                program: service.command.first().cloned().unwrap_or_default(),
                source: match errno {
                    0 => std::io::Error::other(message),
                    errno => std::io::Error::from_raw_os_error(errno),
                },
            }),
            Ok(other) => Err(self.supervisor_failed(service, format!("it began with {other:?}"))),
            Err(RecvTimeoutError::Timeout) => Err(self.supervisor_failed(service, "it does not answer".into())),
            Err(RecvTimeoutError::Disconnected) => {
                let log = service.log.display();
                Err(self.supervisor_failed(service, format!("it ended at once; see {log}")))
            }
        }
    }

    fn enforcement(&self) -> Enforcement {
        match (self.hierarchy.unenforced(), self.hierarchy.version()) {
            (None, Some(version)) => Enforcement::Enforced(version),
            (Some(why), _) => Enforcement::Unenforced { reason: why.to_string(), remedy: why.remedy() },
            (None, None) => {
                Enforcement::Unenforced { reason: "no cgroup hierarchy is mounted".into(), remedy: String::new() }
            }
        }
    }
}

impl Drop for ProcessRuntime {
    fn drop(&mut self) {
        if let Ok(group) = self.hierarchy.group(&format!("weir/{}", self.owner)) {
            for dir in group.dirs() {
                // Not empty while a service outlives its runtime: then the next sweep removes it.
                let _ = std::fs::remove_dir(dir);
            }
        }
    }
}

/// A service and its supervisor.
#[derive(Debug)]
struct Process {
    pid: u32,
    mark: String,
    cgroup: Option<Cgroup>,
    read_back: Option<ReadBack>,
    log: PathBuf,
    grace: Duration,
    supervisor: Child,
    lifeline: Option<ChildStdin>,
    reports: Receiver<Report>,
    exit: Option<Exit>,
}

impl Process {
    fn send(&mut self, spec: &Spec) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(spec)?;
        line.push(b'\n');
        self.write(&line)
    }

    fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        self.lifeline.as_mut().map_or(Ok(()), |pipe| pipe.write_all(line))
    }

    /// The supervisor is gone without a word: the kernel has killed the program, we kill the rest.
    fn orphaned(&mut self) -> Exit {
        self.end_rest();
        let exit = Exit::Signal(Signal::SIGKILL as i32);
        *self.exit.insert(exit)
    }

    fn end_rest(&self) {
        if let Some(group) = &self.cgroup {
            // A member that survives SIGKILL is in the kernel's hands; the next sweep tries again.
            let _ = group.kill();
        }
        kill_marked(|mark| mark == self.mark);
    }
}

impl Running for Process {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    fn read_back(&self) -> Option<ReadBack> {
        self.read_back
    }

    fn exited(&mut self) -> Option<Exit> {
        if self.exit.is_none() {
            match self.reports.try_recv() {
                Ok(Report::Exited(exit)) => self.exit = Some(exit),
                Ok(_) | Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Some(self.orphaned()),
            }
        }
        self.exit
    }

    fn stop(&mut self) -> Exit {
        if let Some(exit) = self.exited() {
            return exit;
        }
        // If it cannot be written to, it is gone, and its reports end.
        let _ = self.write(STOP);
        match self.reports.recv_timeout(self.grace + PATIENCE) {
            Ok(Report::Exited(exit)) => *self.exit.insert(exit),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => self.orphaned(),
            Err(RecvTimeoutError::Timeout) => {
                let _ = self.supervisor.kill();
                self.orphaned();
                *self.exit.insert(Exit::Killed)
            }
        }
    }

    fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.lifeline = None;
        let deadline = Instant::now() + PATIENCE;
        while let Ok(_) | Err(RecvTimeoutError::Timeout) =
            self.reports.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            if Instant::now() >= deadline {
                let _ = self.supervisor.kill();
                break;
            }
        }
        let ended = self.supervisor.wait().is_ok_and(|status| status.success());
        if !ended {
            self.end_rest();
        }
        if let Some(group) = &self.cgroup {
            let _ = group.remove();
        }
    }
}

/// Refuses a service that cannot be started, in better words than the system's.
fn check(service: &Service) -> Result<(), RuntimeError> {
    let wrong = |what: String| RuntimeError::Service { name: service.name.clone(), what };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if service.name.is_empty() || !service.name.chars().all(plain) {
        return Err(wrong("its name is not of [a-z0-9-]+".into()));
    }
    let Some(program) = service.command.first() else {
        return Err(wrong("its command is empty".into()));
    };
    if !Path::new(program).is_absolute() {
        return Err(wrong(format!("its program {program} is not an absolute path")));
    }
    if !service.dir.is_dir() {
        let dir = service.dir.display();
        return Err(wrong(format!("its working directory {dir} does not exist")));
    }
    Ok(())
}

/// The supervisor's words, read by a thread that ends with them.
fn reports(stdout: Option<ChildStdout>) -> Receiver<Report> {
    let (sender, receiver) = channel();
    if let Some(stdout) = stdout {
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(report) = serde_json::from_str(&line) else {
                    return;
                };
                if sender.send(report).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

/// Kills every process with a mark that `wanted` accepts, until none is left or patience is over.
fn kill_marked(wanted: impl Fn(&str) -> bool) -> usize {
    let deadline = Instant::now() + PATIENCE;
    let mut seen: std::collections::BTreeSet<u32> = std::collections::BTreeSet::new();
    loop {
        let found = proctree::marked(&wanted);
        for pid in &found {
            if let Ok(raw) = i32::try_from(*pid) {
                let _ = kill(Pid::from_raw(raw), Signal::SIGKILL);
            }
        }
        seen.extend(&found);
        if found.is_empty() || Instant::now() > deadline {
            return seen.len();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

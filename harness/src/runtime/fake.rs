//! A runtime that follows a script, so that every path of a run is a fast test.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Enforcement, Exit, ReadBack, Running, Runtime, RuntimeError, Service};
use crate::cgroup::{Cgroup, CgroupError, Version};

/// What one start of a service does.
#[derive(Debug, Clone)]
pub enum Script {
    /// The program is missing.
    Missing,
    /// The kernel applied another CPU cap than was asked.
    WrongCap {
        /// CPUs read back.
        got: f64,
    },
    /// It starts.
    Runs(Behaviour),
}

/// How a started service behaves.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// Text it writes to its log at once.
    pub log: String,
    /// After how many calls of [`Running::exited`] it has ended, and how; `None`: it runs until stopped.
    pub ends: Option<(u32, Exit)>,
    /// How it ends when stopped.
    pub on_stop: Exit,
}

impl Default for Behaviour {
    /// Runs silently until stopped, then exits with code 0.
    fn default() -> Self {
        Self { log: String::new(), ends: None, on_stop: Exit::Code(0) }
    }
}

/// What happened to the services of a [`FakeRuntime`], in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// This service was started.
    Started(String),
    /// This service was stopped with its grace.
    Stopped(String),
    /// This service was dropped: killed if it still ran.
    Dropped(String),
}

/// The scripted runtime. A service without a script starts and runs until stopped.
#[derive(Debug, Default)]
pub struct FakeRuntime {
    scripts: Mutex<BTreeMap<String, VecDeque<Script>>>,
    events: Arc<Mutex<Vec<Event>>>,
    services: Mutex<Vec<Service>>,
    unenforced: Option<String>,
}

impl FakeRuntime {
    /// A runtime on a host that cannot enforce caps, for this reason.
    #[must_use]
    pub fn unenforced(reason: &str) -> Self {
        Self { unenforced: Some(reason.into()), ..Self::default() }
    }

    /// Adds a script for the next start of the service `name` that has none yet.
    #[must_use]
    pub fn script(self, name: &str, script: Script) -> Self {
        lock(&self.scripts).entry(name.into()).or_default().push_back(script);
        self
    }

    /// What happened so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }

    /// The services that were asked for, in order.
    #[must_use]
    pub fn services(&self) -> Vec<Service> {
        lock(&self.services).clone()
    }
}

impl Runtime for FakeRuntime {
    fn start(&self, service: &Service) -> Result<Box<dyn Running>, RuntimeError> {
        lock(&self.services).push(service.clone());
        let script = lock(&self.scripts).get_mut(&service.name).and_then(VecDeque::pop_front);
        let name = service.name.clone();
        let behaviour = match script.unwrap_or(Script::Runs(Behaviour::default())) {
            Script::Missing => {
                return Err(RuntimeError::Spawn {
                    name,
                    program: service.command.first().cloned().unwrap_or_default(),
                    source: std::io::ErrorKind::NotFound.into(),
                });
            }
            Script::WrongCap { got } => {
                return Err(RuntimeError::Cgroup {
                    source: CgroupError::Mismatch {
                        path: Path::new("/fake").join(&name).join("cpu.max"),
                        asked: format!("{} CPUs", service.caps.map_or(f64::INFINITY, |caps| caps.cpus)),
                        got: format!("{got} CPUs"),
                    },
                    name,
                });
            }
            Script::Runs(behaviour) => behaviour,
        };
        std::fs::write(&service.log, &behaviour.log).map_err(|source| RuntimeError::Log {
            name: name.clone(),
            log: service.log.clone(),
            source,
        })?;
        lock(&self.events).push(Event::Started(name.clone()));
        Ok(Box::new(FakeRunning {
            name,
            log: service.log.clone(),
            read_back: service.caps.filter(|_| self.unenforced.is_none()).map(|caps| ReadBack {
                cpus: caps.cpus,
                memory: caps.memory,
                swap: 0,
            }),
            behaviour,
            polls: 0,
            exit: None,
            events: Arc::clone(&self.events),
        }))
    }

    fn enforcement(&self) -> Enforcement {
        match &self.unenforced {
            None => Enforcement::Enforced(Version::V2),
            Some(reason) => {
                Enforcement::Unenforced { reason: reason.clone(), remedy: "none: the script says so".into() }
            }
        }
    }
}

#[derive(Debug)]
struct FakeRunning {
    name: String,
    log: PathBuf,
    read_back: Option<ReadBack>,
    behaviour: Behaviour,
    polls: u32,
    exit: Option<Exit>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Running for FakeRunning {
    fn pid(&self) -> u32 {
        0
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        None
    }

    fn read_back(&self) -> Option<ReadBack> {
        self.read_back
    }

    fn exited(&mut self) -> Option<Exit> {
        self.polls += 1;
        if let (None, Some((after, exit))) = (self.exit, self.behaviour.ends)
            && self.polls > after
        {
            self.exit = Some(exit);
        }
        self.exit
    }

    fn stop(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        lock(&self.events).push(Event::Stopped(self.name.clone()));
        *self.exit.insert(self.behaviour.on_stop)
    }

    fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for FakeRunning {
    fn drop(&mut self) {
        lock(&self.events).push(Event::Dropped(self.name.clone()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runtime::Caps;

    fn service(dir: &Path) -> Service {
        Service {
            name: "sut".into(),
            command: vec!["/opt/sut".into()],
            env: BTreeMap::new(),
            dir: dir.into(),
            log: dir.join("sut.log"),
            caps: Some(Caps { cpus: 2.0, memory: 1 << 30 }),
            grace: Duration::ZERO,
            contained: None,
        }
    }

    #[test]
    fn starts_follow_their_scripts_in_order_and_then_run_until_stopped() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let oom = Behaviour { log: "out of it\n".into(), ends: Some((1, Exit::OutOfMemory)), on_stop: Exit::Killed };
        let runtime = FakeRuntime::default()
            .script("sut", Script::Missing)
            .script("sut", Script::WrongCap { got: 1.0 })
            .script("sut", Script::Runs(oom));
        let service = service(dir.path());
        let refused = |runtime: &FakeRuntime| runtime.start(&service).map(drop).expect_err("scripted").to_string();
        assert!(refused(&runtime).starts_with("cannot start sut: /opt/sut: "));
        assert!(refused(&runtime).contains("cpu.max was set to 2 CPUs and reads 1 CPUs"));
        let mut running = runtime.start(&service).expect("scripted");
        assert_eq!(running.read_back().map(|read| (read.cpus, read.swap)), Some((2.0, 0)));
        assert_eq!((running.exited(), running.exited()), (None, Some(Exit::OutOfMemory)));
        assert_eq!(running.stop(), Exit::OutOfMemory, "stopping what ended changes nothing");
        assert_eq!(std::fs::read_to_string(running.log()).expect("written"), "out of it\n");
        drop(running);
        let mut running = runtime.start(&service).expect("unscripted");
        assert_eq!((running.exited(), running.stop()), (None, Exit::Code(0)));
        drop(running);
        let name = || "sut".to_owned();
        let life = [Event::Started(name()), Event::Dropped(name())];
        let stopped = [Event::Started(name()), Event::Stopped(name()), Event::Dropped(name())];
        assert_eq!(runtime.events(), [life.as_slice(), &stopped].concat());
        assert_eq!(runtime.services().len(), 4);
    }

    #[test]
    fn a_host_without_caps_reads_none_back() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let runtime = FakeRuntime::unenforced("read-only");
        let running = runtime.start(&service(dir.path())).expect("unscripted");
        assert_eq!(running.read_back(), None);
        assert!(matches!(runtime.enforcement(), Enforcement::Unenforced { reason, .. } if reason == "read-only"));
    }
}

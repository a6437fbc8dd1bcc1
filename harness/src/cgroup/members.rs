//! Who is in a group: entering, listing, killing, removing.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::files::{self, io};
use super::{Cgroup, CgroupError, Version};

/// How long members are given to vanish after SIGKILL, and a directory to become removable.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

impl Cgroup {
    /// Moves process `pid` and its threads into the group.
    ///
    /// # Errors
    /// When the kernel refuses, for instance because the process is gone.
    pub fn enter(&self, pid: u32) -> Result<(), CgroupError> {
        self.dirs().into_iter().try_for_each(|dir| files::write(dir, "cgroup.procs", &pid.to_string()))
    }

    /// The files to which a process writes `0` in order to enter the group itself (between fork and exec).
    ///
    /// # Errors
    /// When one of them cannot be opened for writing.
    pub fn entry_files(&self) -> Result<Vec<File>, CgroupError> {
        let open = |dir: &Path| {
            let path = dir.join("cgroup.procs");
            OpenOptions::new().write(true).open(&path).map_err(|source| io("open for writing", &path, source))
        };
        self.dirs().into_iter().map(open).collect()
    }

    /// The process ids in the group and in every group below it, ascending. Empty when the group is gone.
    ///
    /// # Errors
    /// When a `cgroup.procs` exists and cannot be read.
    pub fn procs(&self) -> Result<Vec<u32>, CgroupError> {
        let mut pids = Vec::new();
        for dir in self.dirs().into_iter().flat_map(subtree) {
            let text = files::optional_text(&dir, "cgroup.procs")?.unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Sends SIGKILL to every member once, without waiting, and keeps them from forking where the kernel can.
    /// Returns who was alive. Members of a version 2 group with `cgroup.kill` die atomically.
    ///
    /// # Errors
    /// When the members cannot be listed.
    pub fn kill_once(&self) -> Result<Vec<u32>, CgroupError> {
        let alive = self.alive()?;
        if alive.is_empty() {
            return Ok(alive);
        }
        if self.version == Version::V2 && files::write(&self.cpu, "cgroup.kill", "1").is_ok() {
            return Ok(alive);
        }
        if let Some(dir) = &self.pids {
            // The root group has no bound to set; any other lets no further fork through.
            let _ = files::write(dir, "pids.max", "0");
        }
        for pid in &alive {
            signal(*pid, Signal::SIGKILL);
        }
        Ok(alive)
    }

    /// Kills every member and returns when none is left, with the number of those seen alive.
    ///
    /// # Errors
    /// [`CgroupError::Stuck`] when members survive for 20 s.
    pub fn kill(&self) -> Result<usize, CgroupError> {
        let deadline = Instant::now() + PATIENCE;
        let mut seen: std::collections::BTreeSet<u32> = std::collections::BTreeSet::new();
        loop {
            let alive = self.kill_once()?;
            if alive.is_empty() {
                return Ok(seen.len());
            }
            seen.extend(&alive);
            if Instant::now() > deadline {
                let path = self.memory.clone();
                return Err(CgroupError::Stuck { path, pids: alive });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Removes the group and every group below it. A group that is gone already is no error.
    ///
    /// # Errors
    /// When a directory still has members after 20 s, or cannot be removed for another reason.
    pub fn remove(&self) -> Result<(), CgroupError> {
        self.dirs().into_iter().flat_map(|dir| subtree(dir).into_iter().rev()).try_for_each(|dir| remove_dir(&dir))
    }

    /// Members that a signal still reaches.
    fn alive(&self) -> Result<Vec<u32>, CgroupError> {
        let mut pids = self.procs()?;
        pids.retain(|pid| signal(*pid, None));
        Ok(pids)
    }
}

/// Sends a signal (or none, as a test); false when there is no such process.
fn signal(pid: u32, signal: impl Into<Option<Signal>>) -> bool {
    let Ok(raw) = i32::try_from(pid) else {
        return false;
    };
    kill(Pid::from_raw(raw), signal) != Err(Errno::ESRCH)
}

/// `dir` and the directories below it, parents before children.
fn subtree(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_path_buf()];
    let mut next = 0;
    while let Some(dir) = found.get(next) {
        let below: Vec<PathBuf> = std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        found.extend(below);
        next += 1;
    }
    found
}

/// Removes a group's directory; the kernel says "busy" for a moment after the last member died.
fn remove_dir(dir: &Path) -> Result<(), CgroupError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match std::fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(POLL);
            }
            Err(source) => return Err(io("remove", dir, source)),
        }
    }
}

//! Finding the group that a container runtime made.

use std::path::{Path, PathBuf};

use super::hierarchy::{Mount, missing_in, mounts};
use super::{Cgroup, CgroupError, Version, files};

/// How deep below a mount a runtime may put its containers' groups.
const DEPTH: usize = 6;

impl Cgroup {
    /// The group of the container with this id, wherever its runtime put it; reads only.
    ///
    /// # Errors
    /// [`CgroupError::NoContainer`] when no group is called after it, as when it does not run on this host.
    pub fn of_container(id: &str) -> Result<Self, CgroupError> {
        Self::of_container_at(Path::new("/"), id)
    }

    /// As [`Cgroup::of_container`], on the host whose `/proc` and mounts are below `root`.
    pub(super) fn of_container_at(root: &Path, id: &str) -> Result<Self, CgroupError> {
        let mounts = mounts(&files::text(&root.join("proc/self"), "mountinfo")?, root);
        let none = || CgroupError::NoContainer { id: id.to_owned() };
        let top = top(&mounts).ok_or_else(none)?;
        let path = search(&top.memory, id).ok_or_else(none)?;
        let below = path.strip_prefix(&top.memory).unwrap_or(&path).display().to_string();
        let found = top.join(&below);
        // a controller the runtime left out of the container has nothing to say about it
        let there = |dir: &PathBuf| dir.is_dir();
        Ok(Self { pids: found.pids.clone().filter(there), io: found.io.clone().filter(there), ..found })
    }
}

/// The tops of the mounted hierarchies as one group.
fn top(mounts: &[Mount]) -> Option<Cgroup> {
    if let Some(unified) = mounts.iter().find(|mount| mount.unified && missing_in(&mount.at).is_empty()) {
        let at = &unified.at;
        return Some(Cgroup {
            version: Version::V2,
            cpu: at.clone(),
            cpuacct: at.clone(),
            memory: at.clone(),
            pids: Some(at.clone()),
            io: Some(at.clone()),
        });
    }
    let find = |name: &str| {
        let mount = mounts.iter().find(|mount| mount.controllers.iter().any(|controller| controller == name));
        mount.map(|mount| mount.at.clone())
    };
    Some(Cgroup {
        version: Version::V1,
        cpu: find("cpu")?,
        cpuacct: find("cpuacct")?,
        memory: find("memory")?,
        pids: find("pids"),
        io: find("blkio"),
    })
}

/// The nearest directory below `top` that is called after the container: `<id>`, or `<runtime>-<id>.scope` where
/// systemd makes the groups.
fn search(top: &Path, id: &str) -> Option<PathBuf> {
    let scope = format!("-{id}.scope");
    let mut level = vec![top.to_path_buf()];
    for _ in 0..DEPTH {
        let mut next = Vec::new();
        for dir in level {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if name == id || name.ends_with(&scope) {
                    return Some(entry.path());
                }
                next.push(entry.path());
            }
        }
        level = next;
    }
    None
}

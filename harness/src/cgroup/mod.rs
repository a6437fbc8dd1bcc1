//! Control groups, version 2 and version 1, behind one type.
//!
//! A [`Hierarchy`] is what the host offers; a [`Cgroup`] is one group of it: caps written and read back, members
//! listed and killed, usage read. Version 2 is the reference. Under version 1 every controller may be a mount of
//! its own, so a group is one directory a controller; under version 2 those directories are one and the same.

mod caps;
mod files;
mod find;
mod hierarchy;
mod members;
mod usage;

#[cfg(test)]
mod fixture;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_model::error::Coded;

pub use caps::ReadBack;
pub use hierarchy::{Hierarchy, Unenforced};
pub use usage::Usage;

/// Upper bounds on a group. Swap is always off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Caps {
    /// CPUs, fractions allowed; at least 0.01.
    pub cpus: f64,
    /// Memory in bytes.
    pub memory: u64,
}

/// Which interface the kernel offers for cpu and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One hierarchy a controller.
    V1,
    /// One unified hierarchy.
    V2,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

/// One control group. A value names the group's directories; it neither creates nor removes them by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    version: Version,
    cpu: PathBuf,
    cpuacct: PathBuf,
    memory: PathBuf,
    pids: Option<PathBuf>,
    io: Option<PathBuf>,
}

impl Cgroup {
    /// The interface this group is driven through.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The group's distinct directories: one under version 2, up to five under version 1.
    #[must_use]
    pub fn dirs(&self) -> Vec<&Path> {
        let all = [Some(&self.memory), Some(&self.cpu), Some(&self.cpuacct), self.pids.as_ref(), self.io.as_ref()];
        let mut dirs: Vec<&Path> = Vec::with_capacity(all.len());
        for dir in all.into_iter().flatten() {
            if !dirs.contains(&dir.as_path()) {
                dirs.push(dir);
            }
        }
        dirs
    }

    /// The group `path` below this one.
    fn join(&self, path: &str) -> Self {
        Self {
            version: self.version,
            cpu: self.cpu.join(path),
            cpuacct: self.cpuacct.join(path),
            memory: self.memory.join(path),
            pids: self.pids.as_ref().map(|dir| dir.join(path)),
            io: self.io.as_ref().map(|dir| dir.join(path)),
        }
    }
}

/// What can go wrong with a control group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// A file of the interface cannot be read, written, created or removed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried: read, write `…` to, create, remove.
        action: String,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file of the interface does not say what it says on every kernel known.
    #[error("cannot understand {path}: {what}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: String,
    },
    /// A cap reads back as another value than was written.
    #[error("cap not applied: {path} was set to {asked} and reads {got}")]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The value asked for.
        asked: String,
        /// The value read back.
        got: String,
    },
    /// Members that do not die.
    #[error("processes {pids:?} of {path} survive SIGKILL")]
    Stuck {
        /// The group's first directory.
        path: PathBuf,
        /// Who is left.
        pids: Vec<u32>,
    },
    /// A container's group is not there.
    #[error("no control group on this host is called after container {id}")]
    NoContainer {
        /// The container's id.
        id: String,
    },
    /// A group was asked for where the host offers none.
    #[error("no control group can be made here: {0}")]
    Unenforced(#[from] Unenforced),
}

impl Coded for CgroupError {
    fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "cgroup_io",
            Self::Malformed { .. } => "cgroup_malformed",
            Self::Mismatch { .. } => "cgroup_cap_mismatch",
            Self::Stuck { .. } => "cgroup_stuck",
            Self::NoContainer { .. } => "cgroup_no_container",
            Self::Unenforced(_) => "cgroup_unenforced",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unenforced(why) => Some(why.remedy()),
            Self::Mismatch { .. } => {
                Some("a parent group or the container runtime bounds it: run `bench doctor`".into())
            }
            _ => None,
        }
    }
}

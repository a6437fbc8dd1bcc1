//! What the host offers: the version, where groups may be made, and if caps cannot be enforced, exactly why.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::files::{self, io};
use super::{Caps, Cgroup, CgroupError, Version};

/// Group below which every sitting has one of its own.
const TOP: &str = "weir";
/// Leaf into which the members of a group move that has to be divided (version 2).
const LEAF: &str = "weir-harness";

/// Why caps cannot be enforced on this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unenforced {
    /// No control group file system is mounted with the controllers that caps need.
    #[error("no mounted cgroup hierarchy offers the controllers {}", missing.join(" and "))]
    NoController {
        /// Of `cpu`, `cpuacct` and `memory`, those that are not there.
        missing: Vec<&'static str>,
    },
    /// The hierarchy is mounted read-only, as in an unprivileged container.
    #[error("{0} is mounted read-only")]
    ReadOnly(PathBuf),
    /// The user may not make groups there.
    #[error("user {euid} is not root and may not write to {dir}")]
    NotPermitted {
        /// The directory in which groups would be made.
        dir: PathBuf,
        /// The effective user.
        euid: u32,
    },
    /// Version 2: the group we may divide was not given the controllers.
    #[error("{file} does not list {}", missing.join(" and "))]
    NotDelegated {
        /// The `cgroup.controllers` looked at.
        file: PathBuf,
        /// Of `cpu` and `memory`, those that are not there.
        missing: Vec<&'static str>,
    },
    /// The kernel refused a trial.
    #[error("a trial group was refused: {0}")]
    Refused(String),
}

impl Unenforced {
    /// What the user can do about it, as one sentence.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::ReadOnly(_) => "give the container a writable cgroup mount (`--privileged --cgroupns=host`)".into(),
            Self::NotPermitted { .. } | Self::NotDelegated { .. } | Self::Refused(_) => {
                "run as root, or in a delegated scope: `systemd-run --user --scope -p Delegate=yes bench …`".into()
            }
            Self::NoController { .. } => "mount cgroup2 with the cpu and memory controllers at /sys/fs/cgroup".into(),
        }
    }
}

/// The control groups of a host.
#[derive(Debug, Clone)]
pub struct Hierarchy {
    version: Option<Version>,
    base: Result<Cgroup, Unenforced>,
}

impl Hierarchy {
    /// Looks at this host; reads only.
    ///
    /// # Errors
    /// When `/proc` cannot be read. A host without usable groups is no error: see [`Hierarchy::unenforced`].
    pub fn detect() -> Result<Self, CgroupError> {
        Self::detect_at(Path::new("/"), nix::unistd::geteuid().as_raw())
    }

    /// Looks at the host whose `/proc` and mounts are below `root`, as user `euid` would see it.
    ///
    /// # Errors
    /// As [`Hierarchy::detect`].
    pub fn detect_at(root: &Path, euid: u32) -> Result<Self, CgroupError> {
        let proc = root.join("proc/self");
        let mounts = mounts(&files::text(&proc, "mountinfo")?, root);
        let own = files::text(&proc, "cgroup")?;
        let unified = mounts.iter().find(|mount| mount.unified);
        if let Some(mount) = unified
            && missing_in(&mount.at).is_empty()
        {
            return Ok(Self { version: Some(Version::V2), base: v2(mount, &own, euid) });
        }
        let (version, base) = match v1(&mounts, &own, euid) {
            Ok(base) => (Some(Version::V1), base),
            Err(missing) => (unified.is_some().then_some(Version::V2), Err(Unenforced::NoController { missing })),
        };
        Ok(Self { version, base })
    }

    /// A host on which nothing can be enforced, for the reason given.
    #[must_use]
    pub fn none(why: Unenforced) -> Self {
        Self { version: None, base: Err(why) }
    }

    /// The version through which cpu and memory are driven; `None` where neither is there.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Why caps cannot be enforced, or `None` if they can.
    #[must_use]
    pub fn unenforced(&self) -> Option<&Unenforced> {
        self.base.as_ref().err()
    }

    /// The group at `path` (`weir/<sitting>/<name>`), whether or not it exists.
    ///
    /// # Errors
    /// [`CgroupError::Unenforced`] where no group can be made.
    pub fn group(&self, path: &str) -> Result<Cgroup, CgroupError> {
        Ok(self.base.clone()?.join(path))
    }

    /// Makes the group at `path` and those above it; one that exists already is no error.
    ///
    /// # Errors
    /// [`CgroupError::Unenforced`] where no group can be made, [`CgroupError::Io`] where the kernel refuses.
    pub fn create(&self, path: &str) -> Result<Cgroup, CgroupError> {
        let mut group = self.base.clone()?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            if group.version == Version::V2 {
                self.divide(&group.cpu)?;
            }
            group = group.join(name);
            for dir in group.dirs() {
                match std::fs::create_dir(dir) {
                    Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                        return Err(io("create", dir, error));
                    }
                    _ => {}
                }
            }
        }
        Ok(group)
    }

    /// Proves that caps are enforceable by making a group, capping it, reading the caps back and removing it.
    /// A refusal becomes the reason of [`Hierarchy::unenforced`].
    #[must_use]
    pub fn proven(mut self, sitting: &str) -> Self {
        if self.base.is_ok()
            && let Err(error) = self.trial(sitting)
        {
            self.base = Err(Unenforced::Refused(error.to_string()));
        }
        self
    }

    /// Names of the sittings that have a group, dead or alive.
    #[must_use]
    pub fn sittings(&self) -> Vec<String> {
        let Ok(top) = self.group(TOP) else {
            return Vec::new();
        };
        let mut names: Vec<String> = top
            .dirs()
            .into_iter()
            .filter_map(|dir| std::fs::read_dir(dir).ok())
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn trial(&self, sitting: &str) -> Result<(), CgroupError> {
        let caps = Caps { cpus: 0.5, memory: 64 << 20 };
        let group = self.create(&format!("{TOP}/{sitting}/trial"))?;
        let proof = group.apply(caps).and_then(|()| group.assert_caps(caps)).map(drop);
        group.remove().and(proof)
    }

    /// Version 2: hands the controllers of `dir` down to its children. A group that has members and is not the
    /// host's root cannot be divided: its members, this process among them, step into a leaf of it first.
    fn divide(&self, dir: &Path) -> Result<(), CgroupError> {
        let offered = files::text(dir, "cgroup.controllers")?;
        let on = files::text(dir, "cgroup.subtree_control")?;
        let wanted: Vec<String> = ["cpu", "memory", "pids", "io"]
            .into_iter()
            .filter(|name| lists(&offered, name) && !lists(&on, name))
            .map(|name| format!("+{name}"))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let wanted = wanted.join(" ");
        match files::write(dir, "cgroup.subtree_control", &wanted) {
            Err(CgroupError::Io { source, .. }) if source.kind() == std::io::ErrorKind::ResourceBusy => {
                step_aside(dir)?;
                files::write(dir, "cgroup.subtree_control", &wanted)
            }
            outcome => outcome,
        }
    }
}

/// Moves the members of `dir` into its leaf [`LEAF`].
fn step_aside(dir: &Path) -> Result<(), CgroupError> {
    let leaf = dir.join(LEAF);
    std::fs::create_dir_all(&leaf).map_err(|error| io("create", &leaf, error))?;
    for pid in files::text(dir, "cgroup.procs")?.lines() {
        match files::write(&leaf, "cgroup.procs", pid) {
            // It has ended since it was listed.
            Err(CgroupError::Io { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// One mounted hierarchy.
#[derive(Debug)]
pub(super) struct Mount {
    /// Where it is mounted, below the root looked at.
    pub(super) at: PathBuf,
    /// Which group of the hierarchy is seen there.
    group: String,
    pub(super) unified: bool,
    read_only: bool,
    /// Version 1: its controllers, from the mount's options.
    pub(super) controllers: Vec<String>,
}

impl Mount {
    /// Where groups may be made: at the top for root, below the process's own group otherwise.
    fn base(&self, own: &str, controller: Option<&str>, euid: u32) -> PathBuf {
        if euid == 0 {
            return self.at.clone();
        }
        let path = own_group(own, controller).unwrap_or("/");
        let below = path.strip_prefix(self.group.trim_end_matches('/')).unwrap_or(path);
        // We may have stepped aside before.
        let below = below.strip_suffix(LEAF).unwrap_or(below).trim_end_matches('/');
        self.at.join(below.trim_start_matches('/'))
    }

    fn check(&self, base: &Path, euid: u32) -> Result<(), Unenforced> {
        if self.read_only {
            return Err(Unenforced::ReadOnly(self.at.clone()));
        }
        let may_write = euid == 0
            || std::fs::metadata(base).is_ok_and(|meta| {
                let mode = meta.mode();
                (meta.uid() == euid && mode & 0o200 != 0) || mode & 0o002 != 0
            });
        if may_write { Ok(()) } else { Err(Unenforced::NotPermitted { dir: base.into(), euid }) }
    }
}

/// Version 2: the base, which has the controllers.
fn v2(mount: &Mount, own: &str, euid: u32) -> Result<Cgroup, Unenforced> {
    let base = mount.base(own, None, euid);
    mount.check(&base, euid)?;
    let missing = missing_in(&base);
    if !missing.is_empty() {
        return Err(Unenforced::NotDelegated { file: base.join("cgroup.controllers"), missing });
    }
    Ok(Cgroup {
        version: Version::V2,
        cpu: base.clone(),
        cpuacct: base.clone(),
        memory: base.clone(),
        pids: Some(base.clone()),
        io: Some(base),
    })
}

/// Version 1: the base in every controller's mount, or the controllers that are not mounted.
fn v1(mounts: &[Mount], own: &str, euid: u32) -> Result<Result<Cgroup, Unenforced>, Vec<&'static str>> {
    let find = |name: &str| {
        let mount = mounts.iter().find(|mount| mount.controllers.iter().any(|c| c == name))?;
        Some((mount, mount.base(own, Some(name), euid)))
    };
    let (Some(cpu), Some(cpuacct), Some(memory)) = (find("cpu"), find("cpuacct"), find("memory")) else {
        let missing = ["cpu", "cpuacct", "memory"].into_iter().filter(|name| find(name).is_none());
        return Err(missing.collect());
    };
    for (mount, base) in [&cpu, &cpuacct, &memory] {
        if let Err(why) = mount.check(base, euid) {
            return Ok(Err(why));
        }
    }
    let optional = |name| {
        let (mount, base) = find(name)?;
        mount.check(&base, euid).is_ok().then_some(base)
    };
    Ok(Ok(Cgroup {
        version: Version::V1,
        cpu: cpu.1,
        cpuacct: cpuacct.1,
        memory: memory.1,
        pids: optional("pids"),
        io: optional("blkio"),
    }))
}

/// Of `cpu` and `memory`, those that the `cgroup.controllers` of `dir` does not list.
pub(super) fn missing_in(dir: &Path) -> Vec<&'static str> {
    let listed = files::text(dir, "cgroup.controllers").unwrap_or_default();
    ["cpu", "memory"].into_iter().filter(|name| !lists(&listed, name)).collect()
}

fn lists(text: &str, name: &str) -> bool {
    text.split_whitespace().any(|word| word == name)
}

/// The path of this process's group: the line `0::/path` for version 2, `n:a,b:/path` for a version 1 controller.
fn own_group<'a>(text: &'a str, controller: Option<&str>) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = match controller {
            None => id == "0" && names.is_empty(),
            Some(controller) => names.split(',').any(|name| name == controller),
        };
        ours.then_some(path)
    })
}

/// The cgroup mounts in a `mountinfo`, with `root` put before each mount point.
pub(super) fn mounts(mountinfo: &str, root: &Path) -> Vec<Mount> {
    mountinfo.lines().filter_map(|line| mount(line, root)).collect()
}

fn mount(line: &str, root: &Path) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    let (group, at, options) = (left.get(3)?, left.get(4)?, left.get(5)?);
    let (kind, super_options) = (*right.first()?, right.get(2).copied().unwrap_or(""));
    if kind != "cgroup" && kind != "cgroup2" {
        return None;
    }
    let read_only = |options: &str| options.split(',').any(|option| option == "ro");
    let at = unescape(at);
    Some(Mount {
        at: root.join(at.trim_start_matches('/')),
        group: unescape(group),
        unified: kind == "cgroup2",
        read_only: read_only(options) || read_only(super_options),
        controllers: if kind == "cgroup" { super_options.split(',').map(str::to_owned).collect() } else { Vec::new() },
    })
}

/// Undoes the octal escapes of `mountinfo` (`\040` for a space).
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                plain.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

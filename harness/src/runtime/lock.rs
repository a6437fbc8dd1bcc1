//! One sitting a host: an advisory lock on a file in the cache directory, which says who holds it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_model::error::Coded;

/// Name of the lock file in the cache directory.
const FILE: &str = "host.lock";

/// Who holds the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// What it does, for people: `bench run, sitting 0197…`.
    pub what: String,
}

/// The lock, held until dropped or until this process ends, however it ends.
#[derive(Debug)]
pub struct HostLock {
    _file: File,
}

/// Why the lock is not ours.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process measures on this host.
    #[error("this host is busy: {}", describe(holder.as_ref()))]
    Busy {
        /// Who; `None` in the instant between its locking and its saying so.
        holder: Option<Holder>,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {path}: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Coded for LockError {
    fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "host_busy",
            Self::Io { .. } => "host_lock",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Busy { .. } => Some("two sittings disturb each other: wait for it, or stop it".into()),
            Self::Io { .. } => Some("set WEIR_HOME to a directory you may write to".into()),
        }
    }

    fn refused(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

impl HostLock {
    /// Takes the lock in the cache directory `home` for `what`.
    ///
    /// # Errors
    /// [`LockError::Busy`] names the holder.
    pub fn acquire(home: &Path, what: &str) -> Result<Self, LockError> {
        let path = home.join(FILE);
        let io = |source| LockError::Io { path: path.clone(), source };
        std::fs::create_dir_all(home).map_err(io)?;
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(io)?;
                return Err(LockError::Busy { holder: serde_json::from_str(&text).ok() });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let holder = Holder { pid: std::process::id(), what: what.into() };
        let text = serde_json::to_string(&holder).map_err(|error| io(error.into()))?;
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(text.as_bytes()))
            .map_err(io)?;
        Ok(Self { _file: file })
    }
}

fn describe(holder: Option<&Holder>) -> String {
    match holder {
        Some(holder) => format!("{} (pid {}) holds it", holder.what, holder.pid),
        None => "another process is taking it".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_naming_the_first_until_it_lets_go() {
        let home = tempfile::tempdir().expect("a scratch directory");
        let first = HostLock::acquire(home.path(), "bench run").expect("free");
        let error = HostLock::acquire(home.path(), "bench ceiling").expect_err("held");
        assert_eq!(error.code(), "host_busy");
        assert!(error.refused());
        let pid = std::process::id();
        assert_eq!(error.to_string(), format!("this host is busy: bench run (pid {pid}) holds it"));
        drop(first);
        let text = HostLock::acquire(home.path(), "x").map(|_| ());
        assert!(text.is_ok(), "free again: {text:?}");
    }
}

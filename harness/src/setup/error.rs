//! Why the cache directory could not be filled, and what to do about it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use indicatif::DecimalBytes;
use weir_model::error::Coded;

use super::tools::Tool;

/// Why the cache directory could not be filled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// No variable says where the cache directory is.
    #[error("no cache directory: neither WEIR_HOME, XDG_CACHE_HOME nor HOME is set")]
    NoHome,
    /// The lock file is not one.
    #[error("setup.lock: {what}")]
    Lock {
        /// What is wrong with it.
        what: String,
    },
    /// A piece does not exist for this CPU architecture.
    #[error("the embedded environment does not exist for {arch}: nobody publishes {missing} for it")]
    Platform {
        /// As `std::env::consts::ARCH`.
        arch: String,
        /// The pieces, with versions.
        missing: String,
    },
    /// Programs that are needed are not installed.
    #[error("not installed: {}", names(tools))]
    MissingTools {
        /// All of them.
        tools: Vec<Tool>,
    },
    /// The Java found is too old for the broker.
    #[error("{} is Java {version}, the broker needs {} or newer", path.display(), super::tools::JAVA_NEEDED)]
    OldJava {
        /// The program.
        path: PathBuf,
        /// Its version as it prints it.
        version: String,
    },
    /// A program is there but cannot say its version.
    #[error("{} does not answer -version: {said}", path.display())]
    BrokenJava {
        /// The program.
        path: PathBuf,
        /// What it printed, or why it did not start.
        said: String,
    },
    /// The disk is too small.
    #[error("{} has {} free, fetching {pieces} needs {}", dir.display(), DecimalBytes(*free), DecimalBytes(*needed))]
    Space {
        /// The cache directory.
        dir: PathBuf,
        /// What is to be fetched.
        pieces: String,
        /// Bytes needed, downloads included.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// A registry's client failed.
    #[error("{tool} could not fetch {piece} ({status}); its last lines, all of them in {}:\n{tail}", log.display())]
    Client {
        /// The client.
        tool: Tool,
        /// Name and version.
        piece: String,
        /// How it ended.
        status: ExitStatus,
        /// Everything it printed.
        log: PathBuf,
        /// The end of the log.
        tail: String,
    },
    /// The client succeeded, but a file of the lock is not in what it fetched.
    #[error("{tool} fetched {piece} without {file}")]
    Undelivered {
        /// The client.
        tool: Tool,
        /// Name and version.
        piece: String,
        /// Path inside the piece.
        file: String,
    },
    /// A file is not the one that is pinned.
    #[error("wrong SHA-256: {}\n  expected {expected}\n  got      {got}", file.display())]
    Checksum {
        /// The file.
        file: PathBuf,
        /// From the lock.
        expected: String,
        /// Of the file.
        got: String,
        /// The piece's directory when the file is in the cache, or none when it was just fetched.
        cached: Option<PathBuf>,
    },
    /// A file or directory cannot be used.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// A verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl SetupError {
    /// Turns a system's reason into an error about `path`, for `map_err`.
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}

impl Coded for SetupError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoHome => "no_home",
            Self::Lock { .. } => "setup_lock",
            Self::Platform { .. } => "setup_platform",
            Self::MissingTools { .. } => "missing_tools",
            Self::OldJava { .. } => "old_java",
            Self::BrokenJava { .. } => "broken_java",
            Self::Space { .. } => "no_space",
            Self::Client { .. } => "fetch_failed",
            Self::Undelivered { .. } => "fetch_incomplete",
            Self::Checksum { .. } => "wrong_checksum",
            Self::Io { .. } => "setup_io",
        }
    }

    fn refused(&self) -> bool {
        matches!(self, Self::Platform { .. })
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoHome => Some("set WEIR_HOME to a directory with 2 GB free".to_owned()),
            Self::Lock { .. } | Self::Io { .. } => None,
            Self::Platform { .. } => {
                Some("use an environment that runs containers: bench list environments".to_owned())
            }
            Self::MissingTools { tools } => Some(install(tools)),
            Self::OldJava { .. } | Self::BrokenJava { .. } => {
                Some(format!("{}, and let JAVA_HOME name it where several are installed", install(&[Tool::Java])))
            }
            Self::Space { .. } => Some("free some space, or let WEIR_HOME name a directory on another disk".to_owned()),
            Self::Client { .. } => {
                Some("what was fetched so far is kept: mend the cause and run `bench setup` again".to_owned())
            }
            Self::Undelivered { .. } => Some("setup.lock and the registry disagree: report this as a bug".to_owned()),
            Self::Checksum { cached: Some(dir), .. } => {
                Some(format!("the file changed after it was fetched: rm -r {} and run `bench setup`", dir.display()))
            }
            Self::Checksum { cached: None, .. } => Some(
                "the file was deleted: run `bench setup` again; if it stays wrong, something between here and the \
                 registry changes downloads, or the registry changed a released version"
                    .to_owned(),
            ),
        }
    }
}

fn names(tools: &[Tool]) -> String {
    let names: Vec<_> = tools.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// The command that installs `tools` on Debian and its kin.
pub(super) fn install(tools: &[Tool]) -> String {
    let mut command = "apt-get install -y".to_owned();
    for tool in tools {
        // Writing to a string cannot fail.
        let _ = write!(command, " {}", tool.debian_package());
    }
    command
}

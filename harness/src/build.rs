//! Building the artefacts of entrants whose source is in this workspace, and where they came from.

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_model::error::Coded;

/// Why artefacts could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Cargo could not be started.
    #[error("cannot start cargo to build {bins}: {source}")]
    Cargo {
        /// The binaries wanted.
        bins: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Cargo refused or failed; what it printed is on the terminal.
    #[error("cargo could not build {bins}: {status}")]
    Failed {
        /// The binaries wanted.
        bins: String,
        /// Its exit status.
        status: std::process::ExitStatus,
    },
    /// The harness does not know where it is itself.
    #[error("cannot find this program's own folder: {0}")]
    OwnFolder(std::io::Error),
}

impl Coded for BuildError {
    fn code(&self) -> &'static str {
        match self {
            Self::Cargo { .. } => "cargo_missing",
            Self::Failed { .. } => "build_failed",
            Self::OwnFolder(_) => "own_folder",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Cargo { .. } => Some("install Rust with rustup, or put cargo on PATH".into()),
            _ => None,
        }
    }
}

/// The folder this program was started from: built artefacts are its neighbours.
///
/// # Errors
/// When the system does not tell.
pub fn own_folder() -> Result<PathBuf, BuildError> {
    let program = std::env::current_exe().map_err(BuildError::OwnFolder)?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    // test binaries live one folder deeper than the programs they start
    Ok(if folder.ends_with("deps") { folder.parent().unwrap_or(folder).to_path_buf() } else { folder.to_path_buf() })
}

/// Builds `bins` of the workspace at `root` in the project's one profile. The whole workspace stays selected, so that
/// dependencies keep one set of features and are not compiled again.
///
/// # Errors
/// When cargo is missing or fails.
pub fn build(root: &Path, bins: &[String]) -> Result<(), BuildError> {
    if bins.is_empty() || !root.join("Cargo.toml").is_file() {
        // without sources, what stands beside this program is what runs
        return Ok(());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--locked", "--quiet"]).current_dir(root);
    for bin in bins {
        command.args(["--bin", bin]);
    }
    let status = command.status().map_err(|source| BuildError::Cargo { bins: bins.join(", "), source })?;
    if status.success() { Ok(()) } else { Err(BuildError::Failed { bins: bins.join(", "), status }) }
}

/// Where the workspace's code came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The commit checked out, where there is one.
    pub commit: Option<String>,
    /// Whether tracked files differ from it.
    pub dirty: bool,
    /// `rustc --version`, where it is found.
    pub toolchain: Option<String>,
}

impl Source {
    /// Reads commit and toolchain; what is not there is `None`.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        let said = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).current_dir(root).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        Self {
            commit: said("git", &["rev-parse", "HEAD"]),
            dirty: said("git", &["status", "--porcelain", "--untracked-files=no", "--", ":!results"])
                .is_some_and(|text| !text.is_empty()),
            toolchain: said("rustc", &["--version"]),
        }
    }
}

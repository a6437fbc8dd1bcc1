//! Finding the repository whose entrants and environments are meant.

use std::path::{Path, PathBuf};

use clap::Args;
use weir_model::error::Coded;

/// Where the repository is.
#[derive(Debug, Args)]
pub struct Root {
    /// The repository [default: this folder or the nearest above it that has entrants/ and environments/]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// No repository was found.
#[derive(Debug, thiserror::Error)]
#[error("no folder with entrants/ and environments/ at or above {from}")]
pub struct NoRoot {
    from: PathBuf,
}

impl Coded for NoRoot {
    fn code(&self) -> &'static str {
        "no_repository"
    }

    fn hint(&self) -> Option<String> {
        Some("change into a clone of the repository, or name it with --root".into())
    }

    fn refused(&self) -> bool {
        true
    }
}

impl Root {
    /// The repository's folder.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self) -> Result<PathBuf, NoRoot> {
        let is_root = |folder: &&Path| folder.join("entrants").is_dir() && folder.join("environments").is_dir();
        let from = match &self.root {
            Some(root) => root.clone(),
            None => std::env::current_dir().unwrap_or_default(),
        };
        let absolute = std::path::absolute(&from).unwrap_or_else(|_| from.clone());
        let mut above = absolute.ancestors();
        let found = if self.root.is_some() { Some(absolute.as_path()).filter(is_root) } else { above.find(is_root) };
        found.map(Path::to_path_buf).ok_or(NoRoot { from })
    }
}

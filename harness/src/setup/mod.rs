//! What the embedded environment needs, fetched once into a cache directory; and what this host is.

pub mod home;
pub mod lock;

use weir_model::error::Coded;

pub use home::Home;

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
}

impl Coded for SetupError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoHome => "no_home",
            Self::Lock { .. } => "setup_lock",
            Self::Platform { .. } => "setup_platform",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoHome => Some("set WEIR_HOME to a directory with 2 GB free".to_owned()),
            Self::Lock { .. } => None,
            Self::Platform { .. } => {
                Some("use an environment that runs containers: bench list environments".to_owned())
            }
        }
    }
}

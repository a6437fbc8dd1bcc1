//! What can go wrong with a Docker engine.

use weir_model::error::Coded;

/// Why a Docker engine did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DockerError {
    /// The engine does not answer.
    #[error("no Docker engine answers at {host}: {source}")]
    Absent {
        /// Where it was looked for.
        host: String,
        /// The client's reason.
        source: Box<bollard::errors::Error>,
    },
    /// The address of an engine is of no known kind.
    #[error("`{host}` is no address of a Docker engine: unix://, tcp:// and ssh:// are")]
    Address {
        /// The address.
        host: String,
    },
    /// The tunnel to another host's engine does not come up.
    #[error("cannot reach the Docker engine of {host} through ssh: {what}")]
    Tunnel {
        /// The address.
        host: String,
        /// What ssh did.
        what: String,
    },
    /// The engine refused or failed.
    #[error("Docker cannot {action}: {source}")]
    Request {
        /// What was asked.
        action: String,
        /// The engine's reason.
        source: Box<bollard::errors::Error>,
    },
    /// Another sitting runs on it.
    #[error("the Docker engine {} is busy: sitting {owner} runs there", shown(host))]
    Busy {
        /// The engine's host.
        host: String,
        /// The sitting's process and id.
        owner: String,
    },
    /// There is no such image.
    #[error("there is no image `{image}`")]
    NoImage {
        /// Its reference.
        image: String,
    },
    /// A reference means another image than it did when the sitting began.
    #[error("image `{image}` was {first} when the sitting began and is {now}: it was swapped")]
    Swapped {
        /// Its reference.
        image: String,
        /// What it was.
        first: String,
        /// What it is.
        now: String,
    },
    /// An image cannot be built; what the build printed last is repeated.
    #[error("image `{image}` cannot be built: {what}")]
    Build {
        /// Its reference.
        image: String,
        /// The builder's words.
        what: String,
    },
    /// What an image is made of cannot be had.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The engine left out something that every engine says.
    #[error("Docker did not say {what}")]
    Silent {
        /// What.
        what: String,
    },
}

impl Coded for DockerError {
    fn code(&self) -> &'static str {
        match self {
            Self::Absent { .. } => "docker_absent",
            Self::Address { .. } => "docker_address",
            Self::Tunnel { .. } => "docker_tunnel",
            Self::Request { .. } | Self::Silent { .. } => "docker_request",
            Self::Busy { .. } => "docker_busy",
            Self::NoImage { .. } => "image_missing",
            Self::Swapped { .. } => "image_swapped",
            Self::Build { .. } => "image_build",
            Self::Io { .. } => "image_io",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Absent { .. } => Some(
                "start one (Debian: `apt-get install docker.io`, then `dockerd`), or name another in DOCKER_HOST"
                    .into(),
            ),
            Self::Busy { .. } => Some(
                "two sittings disturb each other: wait for it; if its host is gone, remove the containers labelled \
                 io.weir.owner"
                    .into(),
            ),
            Self::NoImage { .. } => Some("`bench build` makes or pulls every image of an environment".into()),
            Self::Swapped { .. } => Some("let nothing else build or tag images while a sitting runs".into()),
            _ => None,
        }
    }

    fn refused(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

/// An engine's host for people.
fn shown(host: &str) -> &str {
    if host.is_empty() { "of this host" } else { host }
}

impl DockerError {
    /// Wraps a failure of the system.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}

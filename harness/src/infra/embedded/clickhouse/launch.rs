//! The harness's side: the child as a [`Service`], and its readiness.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::infra::clickhouse::Client;
use crate::runtime::{Caps, Exit, Running, Service};

/// What a child is started with.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Service name; also names its log and address file.
    pub name: String,
    /// This program, `bench`.
    pub program: PathBuf,
    /// `libchdb.so`.
    pub library: PathBuf,
    /// Data directory.
    pub data: PathBuf,
    /// Directory of the log and the address file; it exists.
    pub run: PathBuf,
    /// SQL run before it is ready.
    pub startup: Option<PathBuf>,
    /// Further server configuration.
    pub config: Option<PathBuf>,
    /// Further users, `name:password`.
    pub users: Vec<String>,
    /// Bounds of the process; the engine's memory accounting is set a tenth below the memory bound.
    pub caps: Option<Caps>,
}

impl Launch {
    /// File that appears, holding `address:port`, once the child serves.
    #[must_use]
    pub fn address_file(&self) -> PathBuf {
        self.run.join(format!("{}.address", self.name))
    }
}

/// Why a child did not become ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// It ended first.
    #[error("ClickHouse ended before it was ready ({exit:?}); its log is {}", log.display())]
    Ended {
        /// How.
        exit: Exit,
        /// Its log.
        log: PathBuf,
    },
    /// It took too long.
    #[error("ClickHouse was not ready within {} s; its log is {}", limit.as_secs(), log.display())]
    Late {
        /// The limit.
        limit: Duration,
        /// Its log.
        log: PathBuf,
    },
}

impl weir_model::error::Coded for LaunchError {
    fn code(&self) -> &'static str {
        match self {
            Self::Ended { .. } => "clickhouse_ended",
            Self::Late { .. } => "clickhouse_late",
        }
    }
}

/// The child process for `launch`. The address that an earlier child of this name left is removed, so that
/// [`wait_ready`] waits for the new one.
#[must_use]
pub fn service(launch: &Launch) -> Service {
    // Usually there is none; one that cannot be removed only makes `wait_ready` ping in vain until it is replaced.
    let _ = std::fs::remove_file(launch.address_file());
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut command = vec![path(&launch.program), "clickhouse".to_owned()];
    let mut option = |name: &str, value: String| command.extend([name.to_owned(), value]);
    option("--library", path(&launch.library));
    option("--data", path(&launch.data));
    option("--listen", "127.0.0.1:0".to_owned());
    option("--address-file", path(&launch.address_file()));
    if let Some(startup) = &launch.startup {
        option("--startup", path(startup));
    }
    if let Some(config) = &launch.config {
        option("--config", path(config));
    }
    for user in &launch.users {
        option("--user", user.clone());
    }
    if let Some(caps) = launch.caps {
        option("--max-server-memory", (caps.memory / 10 * 9).to_string());
    }
    Service {
        name: launch.name.clone(),
        command,
        env: BTreeMap::new(),
        dir: launch.run.clone(),
        log: launch.run.join(format!("{}.log", launch.name)),
        caps: launch.caps,
        grace: Duration::from_secs(30),
        contained: None,
    }
}

/// Waits until the child started from `launch` answers `/ping`; returns a client of it.
///
/// # Errors
/// When it ends first or takes longer than `limit`.
pub fn wait_ready(launch: &Launch, running: &mut dyn Running, limit: Duration) -> Result<Client, LaunchError> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(exit) = running.exited() {
            return Err(LaunchError::Ended { exit, log: running.log().to_owned() });
        }
        let address = std::fs::read_to_string(launch.address_file()).ok();
        if let Some(address) = address.and_then(|text| text.trim().parse::<SocketAddr>().ok()) {
            let client = Client::new(&format!("http://{address}"));
            if client.ping() {
                return Ok(client);
            }
        }
        if Instant::now() >= deadline {
            return Err(LaunchError::Late { limit, log: running.log().to_owned() });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

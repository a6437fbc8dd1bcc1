//! The ClickHouse engine from `libchdb.so`, served over the HTTP interface of ClickHouse.
//!
//! A child process of the harness runs [`serve`]; the harness starts it with [`service`] and waits for it with
//! [`wait_ready`]. One process holds one engine on one data directory.
//!
//! What differs from a real server: no `system.query_log`, `KILL QUERY` knows other query ids than the responses carry,
//! users are checked at the door and all are the engine's `default`, external tables and `input()` are refused, and an
//! insert is always synchronous (as with `async_insert = 0`), so a statement acknowledged is on disk.

mod body;
mod encoding;
mod engine;
mod exception;
mod ffi;
mod framing;
mod http;
mod query;
mod reply;
mod request;
mod session;
mod statement;

mod launch;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

pub use engine::EngineError;
pub use exception::Exception;
pub use ffi::LoadError;
pub use launch::{Launch, LaunchError, service, wait_ready};

use engine::Engine;
use http::{Limited, Server};
use query::Shared;
use reply::Identity;
use session::Sessions;

/// How long requests under way are given after SIGTERM.
const DRAIN: Duration = Duration::from_secs(5);

/// What the child process serves and how.
#[derive(Debug, Clone)]
pub struct Config {
    /// `libchdb.so`.
    pub library: PathBuf,
    /// Data directory; created when missing.
    pub data: PathBuf,
    /// Address to listen on; port 0 picks a free one.
    pub listen: SocketAddr,
    /// File that receives the bound address once requests are served.
    pub address_file: Option<PathBuf>,
    /// SQL run before that.
    pub startup: Option<PathBuf>,
    /// Further server configuration, a ClickHouse XML or YAML file.
    pub config: Option<PathBuf>,
    /// User and password pairs beside `default` without a password; naming `default` gives it one.
    pub users: Vec<(String, String)>,
    /// Cap on the engine's own memory accounting, in bytes.
    pub max_server_memory: Option<u64>,
    /// Most connections open at once; further clients wait.
    pub max_connections: usize,
}

/// Why the server did not start or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A file or socket.
    #[error("{what}")]
    Io {
        /// What was attempted.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A statement of the startup file.
    #[error("{}: statement {number} ({statement:?}) failed", file.display())]
    Startup {
        /// The startup file.
        file: PathBuf,
        /// Which statement, from 1.
        number: usize,
        /// How it begins.
        statement: String,
        /// What the engine said.
        #[source]
        exception: Exception,
    },
}

impl weir_model::error::Coded for ServeError {
    fn code(&self) -> &'static str {
        match self {
            Self::Engine(EngineError::Load(_)) => "clickhouse_library",
            Self::Engine(_) => "clickhouse_engine",
            Self::Io { .. } => "clickhouse_io",
            Self::Startup { .. } => "clickhouse_startup",
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::Engine(EngineError::Load(_))).then(|| "`bench setup` fetches libchdb.so".to_owned())
    }
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ServeError {
    let what = what.into();
    move |source| ServeError::Io { what, source }
}

/// The version of the library at `library`, such as `26.7.3`.
///
/// # Errors
/// When it cannot be loaded.
pub fn library_version(library: &Path) -> Result<String, ServeError> {
    Engine::library_version(library).map_err(|error| EngineError::from(error).into())
}

/// Serves until SIGTERM or SIGINT. Everything committed is on disk when this returns.
///
/// # Errors
/// When the library, the data directory, the startup file or the address is unusable.
pub fn serve(config: &Config) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, |cpus| cpus.get().clamp(2, 4)))
        .max_blocking_threads(config.max_connections + 8)
        .enable_all()
        .build()
        .map_err(io("cannot start the server's threads"))?;
    // The handlers come first, so that a signal during the boot is not lost.
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    runtime.block_on(async { watch_signals(stop) })?;
    let server = Arc::new(boot(config)?);
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(config.listen)
            .await
            .map_err(io(format!("cannot listen on {}", config.listen)))?;
        let address = listener.local_addr().map_err(io("cannot read the bound address"))?;
        announce(config, address, &server.shared.engine.version)?;
        let sweeper = tokio::spawn(sweep(Arc::clone(&server.shared.sessions)));
        let listener = Limited { listener, permits: Arc::new(Semaphore::new(config.max_connections)) };
        let mut stop = stopped.clone();
        let serving = http::serve_until(listener, Arc::clone(&server), async move {
            let _ = stop.wait_for(|stop| *stop).await;
        });
        let deadline = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! { () = serving => {}, () = deadline => {} }
        sweeper.abort();
        Ok(())
    });
    runtime.shutdown_timeout(Duration::from_secs(2));
    server.shared.sessions.sweep(true);
    if !server.shared.engine.stop() {
        eprintln!("a query outlived its grace; what it had committed is whole");
        // The engine cannot be closed under a running query, and an ordinary exit would try to.
        // SAFETY: ends the process at once, as a kill would, which the data directory is made to survive.
        unsafe { libc::_exit(0) };
    }
    served
}

fn watch_signals(stop: tokio::sync::watch::Sender<bool>) -> Result<(), ServeError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).map_err(io("cannot watch SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(io("cannot watch SIGINT"))?;
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        let _ = stop.send(true);
    });
    Ok(())
}

async fn sweep(sessions: Arc<Sessions>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        let sessions = Arc::clone(&sessions);
        let _ = tokio::task::spawn_blocking(move || sessions.sweep(false)).await;
    }
}

/// Starts the engine and runs the startup file.
fn boot(config: &Config) -> Result<Server, ServeError> {
    let data = config.data.display();
    std::fs::create_dir_all(&config.data).map_err(io(format!("cannot create {data}")))?;
    let data = config.data.canonicalize().map_err(io(format!("cannot resolve {data}")))?;
    let engine = Engine::boot(&config.library, &data, &write_config(config, &data)?)?;
    if let Some(file) = &config.startup {
        run_script(&engine, file)?;
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let identity = Identity { timezone: engine.timezone.clone(), display_name: host.trim().to_owned() };
    let mut users = BTreeMap::from([("default".to_owned(), String::new())]);
    users.extend(config.users.iter().cloned());
    Ok(Server { shared: Shared { engine, sessions: Arc::default() }, identity, users })
}

/// Writes the server configuration and returns its path. Files in `server.d` beside it are merged over it.
fn write_config(config: &Config, data: &Path) -> Result<PathBuf, ServeError> {
    let dir = data.join("config");
    let merged = dir.join("server.d");
    let cannot = || io(format!("cannot write the server configuration under {}", dir.display()));
    // Left from an earlier start with another configuration.
    match std::fs::remove_dir_all(&merged) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cannot()(error)),
        _ => {}
    }
    std::fs::create_dir_all(&merged).map_err(cannot())?;
    let memory = config
        .max_server_memory
        .map_or(String::new(), |bytes| format!("<max_server_memory_usage>{bytes}</max_server_memory_usage>"));
    let path = dir.join("server.xml");
    std::fs::write(&path, format!("<clickhouse>{memory}</clickhouse>\n")).map_err(cannot())?;
    if let Some(extra) = &config.config {
        let extension = extra.extension().and_then(|name| name.to_str()).unwrap_or("xml");
        std::fs::copy(extra, merged.join(format!("extra.{extension}")))
            .map_err(io(format!("cannot read {}", extra.display())))?;
    }
    Ok(path)
}

fn run_script(engine: &Engine, file: &Path) -> Result<(), ServeError> {
    let script = std::fs::read_to_string(file).map_err(io(format!("cannot read {}", file.display())))?;
    let failed = |number: usize, statement: &str, exception: Exception| ServeError::Startup {
        file: file.to_owned(),
        number,
        statement: statement.chars().take(80).collect(),
        exception,
    };
    let mut connection = engine.connect(&[]).map_err(|exception| failed(0, "", exception))?;
    for (index, statement) in statement::split_script(&script).into_iter().enumerate() {
        connection
            .execute(statement.as_bytes(), "Null", &[])
            .map_err(|exception| failed(index + 1, statement, exception))?;
    }
    Ok(())
}

/// Says that requests are served: the address file, whole or not at all, and one line.
fn announce(config: &Config, address: SocketAddr, version: &str) -> Result<(), ServeError> {
    if let Some(path) = &config.address_file {
        let temporary = path.with_extension("new");
        std::fs::write(&temporary, format!("{address}\n"))
            .and_then(|()| std::fs::rename(&temporary, path))
            .map_err(io(format!("cannot write {}", path.display())))?;
    }
    println!("clickhouse {version} listens on {address}");
    let _ = std::io::stdout().flush();
    Ok(())
}

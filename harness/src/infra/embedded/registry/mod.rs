//! A Confluent-compatible schema registry on loopback, in a thread of the harness.
//!
//! [`store`] decides, in pure code; `http` speaks the REST interface that real clients use. The state is one JSON file,
//! so that a kept topic's schema id means the same schema in the next sitting.

mod http;
pub mod store;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use weir_model::error::Coded;

use store::{Refusal, Store};

/// A registry that serves until it is dropped.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    shared: Shared,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The state and the file it is kept in.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    store: Arc<Mutex<Store>>,
    file: Arc<PathBuf>,
}

/// Why the registry does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Its state cannot be read, understood or written.
    #[error("schema registry: {path}: {source}")]
    State {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// No port, no thread or no runtime.
    #[error("schema registry: cannot serve: {0}")]
    Serve(io::Error),
    /// A schema was refused.
    #[error("schema registry: {0}")]
    Refused(#[from] Refusal),
}

impl Coded for RegistryError {
    fn code(&self) -> &'static str {
        match self {
            Self::State { .. } => "registry_state",
            Self::Serve(_) => "registry_serve",
            Self::Refused(_) => "registry_refused",
        }
    }
}

impl Shared {
    /// Applies a change and keeps the state; a state that cannot be kept is not changed.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Store) -> Result<T, Refusal>) -> Result<T, RegistryError> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = store.clone();
        let value = change(&mut next)?;
        if next != *store {
            keep(&self.file, &next).map_err(|source| RegistryError::State { path: self.file.to_path_buf(), source })?;
            *store = next;
        }
        Ok(value)
    }

    /// Answers a question about the state.
    pub(crate) fn read<T>(&self, question: impl FnOnce(&Store) -> T) -> T {
        question(&self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Writes the state beside the file and moves it into place.
fn keep(file: &Path, store: &Store) -> io::Result<()> {
    let fresh = file.with_extension("new");
    fs::write(&fresh, serde_json::to_vec_pretty(store)?)?;
    fs::File::open(&fresh)?.sync_all()?;
    fs::rename(&fresh, file)
}

impl Registry {
    /// Serves the state kept in `file` (created when missing) on a free loopback port.
    ///
    /// # Errors
    /// When the state cannot be read or no port can be had.
    pub fn start(file: &Path) -> Result<Self, RegistryError> {
        Self::start_at(file, (Ipv4Addr::LOCALHOST, 0).into())
    }

    /// As [`Registry::start`], on this address.
    ///
    /// # Errors
    /// When the state cannot be read or the address cannot be had.
    pub fn start_at(file: &Path, at: SocketAddr) -> Result<Self, RegistryError> {
        let state = |source| RegistryError::State { path: file.to_path_buf(), source };
        let store = match fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from).map_err(state)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Store::default(),
            Err(error) => return Err(state(error)),
        };
        let shared = Shared { store: Arc::new(Mutex::new(store)), file: Arc::new(file.to_path_buf()) };
        let listener = std::net::TcpListener::bind(at).map_err(RegistryError::Serve)?;
        listener.set_nonblocking(true).map_err(RegistryError::Serve)?;
        let address = listener.local_addr().map_err(RegistryError::Serve)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_io()
            .build()
            .map_err(RegistryError::Serve)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let routes = http::routes(shared.clone());
        let serve = move || {
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                // connections left open by clients end with the runtime
                tokio::select! {
                    _ = axum::serve(listener, routes) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("registry".into()).spawn(serve).map_err(RegistryError::Serve)?;
        Ok(Self { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Registers an Avro schema under a subject, as a client would, and gives its id.
    ///
    /// # Errors
    /// When the schema is refused or the state cannot be kept.
    pub fn register(&self, subject: &str, schema: &str) -> Result<u32, RegistryError> {
        self.shared.change(|store| store.register(subject, schema))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // a thread that has ended by itself needs no telling
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

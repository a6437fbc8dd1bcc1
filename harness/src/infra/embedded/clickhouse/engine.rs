//! The engine as safe Rust: one [`Engine`] a process, a [`Connection`] a request, its [`Rows`] and its [`Insert`].
//!
//! A connection costs about 0.2 ms and carries its own settings, current database and temporary tables, so nothing of one
//! request can reach another. The engine runs in threads of its own; these calls block on it.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use super::exception::{Exception, codes};
use super::ffi::{Api, ConnectionSlot, InsertHandle, LoadError, ResultHandle};

/// Settings in which the embedded engine differs from a server, set back to the server's.
const SERVER_DEFAULTS: [&str; 3] =
    ["--implicit_select=0", "--allow_introspection_functions=0", "--storage_file_read_method=pread"];

/// What the engine answers when asked to stream a statement that has no rows.
const NOT_A_STREAM: &str = "Streaming query is not supported for query";

/// Name and value pairs.
pub(super) type Pairs = [(String, String)];

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The library is missing or is not the engine.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The engine refused its data directory or configuration; its own reason is on standard error.
    #[error("the ClickHouse engine does not start on {}: see its message above", data.display())]
    Boot {
        /// Data directory.
        data: PathBuf,
    },
    /// A query the server needs at its start failed.
    #[error("the ClickHouse engine does not answer")]
    Probe(#[from] Exception),
}

/// Counters of a statement, as the response's summary reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) read_rows: u64,
    pub(super) read_bytes: u64,
    pub(super) written_rows: u64,
    pub(super) written_bytes: u64,
    pub(super) result_rows: u64,
    pub(super) result_bytes: u64,
}

impl std::ops::AddAssign for Progress {
    fn add_assign(&mut self, other: Self) {
        self.read_rows += other.read_rows;
        self.read_bytes += other.read_bytes;
        self.written_rows += other.written_rows;
        self.written_bytes += other.written_bytes;
        self.result_rows += other.result_rows;
        self.result_bytes += other.result_bytes;
    }
}

/// An output format as the engine knows it.
#[derive(Debug, Clone)]
pub(super) struct Format {
    pub(super) name: String,
    pub(super) content_type: String,
}

/// The running engine. It stays up while this is alive; [`Engine::stop`] ends it.
pub(super) struct Engine {
    api: &'static Api,
    path: CString,
    /// Keeps the engine up: it ends with its last connection.
    anchor: Mutex<Option<Connection>>,
    /// The build's version, such as `26.7.2.1`.
    pub(super) version: String,
    /// Its time zone.
    pub(super) timezone: String,
    /// Names of the built-in settings.
    settings: HashSet<String>,
    /// Lower-case name → output format.
    formats: HashMap<String, Format>,
}

impl Engine {
    /// Loads `library` and starts it on the data directory `data` with the server configuration `config`.
    pub(super) fn boot(library: &Path, data: &Path, config: &Path) -> Result<Self, EngineError> {
        let api = Api::load(library)?;
        let refused = || EngineError::Boot { data: data.to_owned() };
        let path = argument("--path=", data).ok_or_else(refused)?;
        let config = argument("--config-file=", config).ok_or_else(refused)?;
        // SAFETY: called once, before the first connection, as the interface asks.
        unsafe { (api.set_signal_handlers)(0) };
        let mut anchor = Connection::open(api, &[path.clone(), config]).ok_or_else(refused)?;
        let version = anchor.text("SELECT version()")?;
        Exception::set_version(&version);
        let timezone = anchor.text("SELECT timezone()")?;
        let settings = anchor.text("SELECT name FROM system.settings")?.lines().map(str::to_owned).collect();
        let formats = anchor
            .table("SELECT name, content_type FROM system.formats WHERE is_output")?
            .into_iter()
            .map(|(name, content_type)| (name.to_ascii_lowercase(), Format { name, content_type }))
            .collect();
        Ok(Self { api, path, anchor: Mutex::new(Some(anchor)), version, timezone, settings, formats })
    }

    /// The library's own version, such as `26.7.3`.
    pub(super) fn library_version(library: &Path) -> Result<String, LoadError> {
        let api = Api::load(library)?;
        // SAFETY: returns a static NUL-terminated string.
        let text = unsafe { CStr::from_ptr((api.version)()) };
        Ok(text.to_string_lossy().into_owned())
    }

    /// Opens a connection with `settings` in force, or ClickHouse's own exception about one of them.
    pub(super) fn connect(&self, settings: &Pairs) -> Result<Connection, Exception> {
        let mut arguments = vec![self.path.clone()];
        arguments.extend(SERVER_DEFAULTS.iter().filter_map(|text| CString::new(*text).ok()));
        let plain = arguments.len();
        let mut unknown = false;
        for (name, value) in settings {
            unknown |= !self.settings.contains(name);
            match CString::new(format!("--{name}={value}")) {
                Ok(argument) => arguments.push(argument),
                Err(_) => unknown = true,
            }
        }
        if !unknown && let Some(connection) = Connection::open(self.api, &arguments) {
            return Ok(connection);
        }
        let mut connection = Connection::open(self.api, &arguments[..plain])
            .ok_or_else(|| Exception::new(codes::STD_EXCEPTION, "The engine opens no further connection"))?;
        for (name, value) in settings {
            connection.execute(format!("SET {} = {}", identifier(name), literal(value)).as_bytes(), "Null", &[])?;
        }
        Ok(connection)
    }

    /// The output format called `name`, in any case.
    pub(super) fn format(&self, name: &str) -> Option<&Format> {
        self.formats.get(&name.to_ascii_lowercase())
    }

    /// Closes the engine with its last connection: background threads end and everything committed is on disk. False,
    /// and nothing is closed, when a request still has a connection open.
    pub(super) fn stop(&self) -> bool {
        let anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(anchor);
        self.api.open.load(Ordering::Acquire) == 0
    }
}

fn argument(flag: &str, path: &Path) -> Option<CString> {
    CString::new(format!("{flag}{}", path.to_str()?)).ok()
}

/// `name` as a quoted SQL identifier.
pub(super) fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

/// `value` as a SQL string literal.
pub(super) fn literal(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A connection: settings, current database, temporary tables. One statement at a time.
pub(super) struct Connection {
    api: &'static Api,
    slot: ConnectionSlot,
}

// SAFETY: the engine allows a connection to be used from any thread, one call at a time, which `&mut self` ensures.
unsafe impl Send for Connection {}

impl Connection {
    fn open(api: &'static Api, arguments: &[CString]) -> Option<Self> {
        let program = c"clickhouse";
        let mut argv: Vec<*mut c_char> = vec![program.as_ptr().cast_mut()];
        argv.extend(arguments.iter().map(|text| text.as_ptr().cast_mut()));
        let count = i32::try_from(argv.len()).ok()?;
        // SAFETY: `argv` holds `count` NUL-terminated strings that outlive the call; the engine copies them.
        let slot = unsafe { (api.connect)(count, argv.as_mut_ptr()) };
        if slot.is_null() {
            return None;
        }
        api.open.fetch_add(1, Ordering::AcqRel);
        Some(Self { api, slot })
    }

    fn raw(&self) -> *mut std::ffi::c_void {
        // SAFETY: the slot is live until `drop` and points at the connection.
        unsafe { *self.slot }
    }

    /// Runs any statement and returns its whole output.
    pub(super) fn execute(&mut self, sql: &[u8], format: &str, parameters: &Pairs) -> Result<Chunk, Exception> {
        let arrays = Arrays::new(parameters);
        // SAFETY: every pointer is valid for its length during the call, and the connection is idle.
        let handle = unsafe { call(self.api.query, self.raw(), sql, format, &arrays) };
        Chunk::checked(self.api, handle)
    }

    /// Starts a query whose output comes in chunks; `None` when the statement is of a kind without rows, in which case
    /// nothing has been executed.
    pub(super) fn rows(&mut self, sql: &[u8], format: &str, params: &Pairs) -> Result<Option<Rows<'_>>, Exception> {
        let arrays = Arrays::new(params);
        // SAFETY: as in `execute`.
        let handle = unsafe { call(self.api.stream_query, self.raw(), sql, format, &arrays) };
        // SAFETY: `handle` is the live result just returned.
        let error = unsafe { text_of((self.api.result_error)(handle)) };
        match error {
            None => Ok(Some(Rows { connection: self, handle, ended: false })),
            Some(error) => {
                // SAFETY: destroyed once, here.
                unsafe { (self.api.destroy_result)(handle) };
                if error.contains(NOT_A_STREAM) { Ok(None) } else { Err(Exception::from_engine(&error)) }
            }
        }
    }

    /// Starts an insert; `head` is the statement up to its `FORMAT` clause.
    pub(super) fn insert(&mut self, head: &[u8], format: &str, params: &Pairs) -> Result<Insert<'_>, Exception> {
        let arrays = Arrays::new(params);
        // SAFETY: as in `execute`.
        let handle = unsafe { call(self.api.insert, self.raw(), head, format, &arrays) };
        let insert = Insert { connection: self, handle };
        // SAFETY: `handle` is the live stream just returned.
        match unsafe { text_of((insert.connection.api.insert_error)(handle)) } {
            None => Ok(insert),
            Some(error) => Err(Exception::from_engine(&error)),
        }
    }

    /// The only value of a query, as text.
    pub(super) fn text(&mut self, sql: &str) -> Result<String, Exception> {
        let chunk = self.execute(sql.as_bytes(), "TSVRaw", &[])?;
        Ok(String::from_utf8_lossy(chunk.as_ref()).trim_end_matches('\n').to_owned())
    }

    /// The two columns of a query, as text.
    pub(super) fn table(&mut self, sql: &str) -> Result<Vec<(String, String)>, Exception> {
        let text = self.text(sql)?;
        Ok(text.lines().filter_map(|line| line.split_once('\t')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: closed once; streams borrow the connection, so none is open.
        unsafe { (self.api.close)(self.slot) };
        self.api.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Parameters as the parallel arrays the interface takes; the strings are borrowed from the pairs.
struct Arrays {
    names: Vec<*const c_char>,
    name_lens: Vec<usize>,
    values: Vec<*const c_char>,
    value_lens: Vec<usize>,
}

impl Arrays {
    fn new(pairs: &Pairs) -> Self {
        Self {
            names: pairs.iter().map(|(name, _)| name.as_ptr().cast()).collect(),
            name_lens: pairs.iter().map(|(name, _)| name.len()).collect(),
            values: pairs.iter().map(|(_, value)| value.as_ptr().cast()).collect(),
            value_lens: pairs.iter().map(|(_, value)| value.len()).collect(),
        }
    }
}

/// Calls one of the entry points that share the query signature.
///
/// # Safety
/// `connection` is live and idle, and the pairs behind `arrays` outlive the call.
unsafe fn call(
    function: unsafe extern "C" fn(
        *mut std::ffi::c_void,
        *const c_char,
        usize,
        *const c_char,
        usize,
        *const *const c_char,
        *const usize,
        *const *const c_char,
        *const usize,
        usize,
    ) -> *mut std::ffi::c_void,
    connection: *mut std::ffi::c_void,
    sql: &[u8],
    format: &str,
    arrays: &Arrays,
) -> *mut std::ffi::c_void {
    // SAFETY: forwarded from the caller.
    unsafe {
        function(
            connection,
            sql.as_ptr().cast(),
            sql.len(),
            format.as_ptr().cast(),
            format.len(),
            arrays.names.as_ptr(),
            arrays.name_lens.as_ptr(),
            arrays.values.as_ptr(),
            arrays.value_lens.as_ptr(),
            arrays.names.len(),
        )
    }
}

/// Copies a C string that may be null.
///
/// # Safety
/// `text` is null or NUL-terminated.
unsafe fn text_of(text: *const c_char) -> Option<String> {
    // SAFETY: forwarded from the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Output of a statement, or a part of it, in memory the engine owns.
pub(super) struct Chunk {
    api: &'static Api,
    handle: ResultHandle,
}

// SAFETY: a result belongs to no connection or thread once returned.
unsafe impl Send for Chunk {}
// SAFETY: only read through `&self`.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn checked(api: &'static Api, handle: ResultHandle) -> Result<Self, Exception> {
        let chunk = Self { api, handle };
        // SAFETY: `handle` is the live result just returned; null reads as no error.
        match unsafe { text_of((api.result_error)(handle)) } {
            None => Ok(chunk),
            Some(error) => Err(Exception::from_engine(&error)),
        }
    }

    /// What the engine did for it.
    pub(super) fn progress(&self) -> Progress {
        // SAFETY: getters of a live result.
        unsafe {
            Progress {
                read_rows: (self.api.storage_rows)(self.handle),
                read_bytes: (self.api.storage_bytes)(self.handle),
                written_rows: (self.api.rows_written)(self.handle),
                written_bytes: (self.api.bytes_written)(self.handle),
                result_rows: (self.api.result_rows)(self.handle),
                result_bytes: (self.api.result_bytes)(self.handle),
            }
        }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the buffer holds `length` bytes and lives as long as the result.
        unsafe {
            let length = (self.api.result_length)(self.handle);
            let buffer = (self.api.result_buffer)(self.handle);
            if length == 0 || buffer.is_null() { &[] } else { std::slice::from_raw_parts(buffer.cast(), length) }
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        unsafe { (self.api.destroy_result)(self.handle) };
    }
}

/// A query's output in chunks. Dropped before its end, it cancels the query.
pub(super) struct Rows<'c> {
    connection: &'c mut Connection,
    handle: ResultHandle,
    ended: bool,
}

impl Rows<'_> {
    /// The next chunk, or `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<Chunk>, Exception> {
        if self.ended {
            return Ok(None);
        }
        let api = self.connection.api;
        // SAFETY: both handles are live; `&mut self` serialises the calls.
        let chunk = Chunk::checked(api, unsafe { (api.stream_fetch)(self.connection.raw(), self.handle) });
        self.ended = chunk.as_ref().map_or(true, |chunk| chunk.as_ref().is_empty());
        Ok(Some(chunk?).filter(|_| !self.ended))
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        let api = self.connection.api;
        // SAFETY: cancelled only while unfinished, destroyed once.
        unsafe {
            if !self.ended {
                (api.stream_cancel)(self.connection.raw(), self.handle);
            }
            (api.destroy_result)(self.handle);
        }
    }
}

/// An insert being fed. Dropped before [`Insert::finish`], it is cancelled: what has not become a block is discarded.
pub(super) struct Insert<'c> {
    connection: &'c mut Connection,
    handle: InsertHandle,
}

impl Insert<'_> {
    /// Hands over bytes of the input format, cut anywhere; blocks while the engine is behind. False when the engine
    /// takes no more, whose reason [`Insert::finish`] gives.
    pub(super) fn append(&mut self, bytes: &[u8]) -> bool {
        // SAFETY: the engine copies `bytes` before it returns.
        unsafe { (self.connection.api.insert_append)(self.handle, bytes.as_ptr().cast(), bytes.len()) == 0 }
    }

    /// Ends the input and waits until everything is committed.
    pub(super) fn finish(self) -> Result<Progress, Exception> {
        let api = self.connection.api;
        // SAFETY: the stream is live; `drop` destroys it.
        let result = Chunk::checked(api, unsafe { (api.insert_done)(self.handle) })?;
        Ok(result.progress())
    }
}

impl Drop for Insert<'_> {
    fn drop(&mut self) {
        let api = self.connection.api;
        // SAFETY: cancelling a finished stream does nothing; destroyed once.
        unsafe {
            (api.insert_cancel)(self.handle);
            (api.destroy_insert)(self.handle);
        }
    }
}

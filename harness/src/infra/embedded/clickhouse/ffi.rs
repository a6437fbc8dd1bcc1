//! The C interface of `libchdb.so`: its symbols, looked up once, as raw function pointers.
//!
//! Nothing here is safe to call; [`super::engine`] wraps it.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;

use libloading::Library;

/// A connection handle (`chdb_connection *`): a pointer to the pointer that queries take.
pub(super) type ConnectionSlot = *mut *mut c_void;
/// A query's result or a result stream.
pub(super) type ResultHandle = *mut c_void;
/// An insert stream.
pub(super) type InsertHandle = *mut c_void;

type Query = unsafe extern "C" fn(
    connection: *mut c_void,
    query: *const c_char,
    query_len: usize,
    format: *const c_char,
    format_len: usize,
    names: *const *const c_char,
    name_lens: *const usize,
    values: *const *const c_char,
    value_lens: *const usize,
    parameters: usize,
) -> *mut c_void;

/// The library or one of its symbols could not be loaded.
#[derive(Debug, thiserror::Error)]
#[error("cannot load the ClickHouse engine from {}", path.display())]
pub struct LoadError {
    /// The library asked for.
    pub path: PathBuf,
    /// The loader's reason.
    #[source]
    pub source: libloading::Error,
}

/// The functions used, valid for the life of the process: the library is never unloaded.
pub(super) struct Api {
    /// Connections open now.
    pub(super) open: AtomicUsize,
    pub(super) connect: unsafe extern "C" fn(c_int, *mut *mut c_char) -> ConnectionSlot,
    pub(super) close: unsafe extern "C" fn(ConnectionSlot),
    pub(super) set_signal_handlers: unsafe extern "C" fn(c_int),
    pub(super) version: unsafe extern "C" fn() -> *const c_char,
    pub(super) query: Query,
    pub(super) stream_query: Query,
    pub(super) stream_fetch: unsafe extern "C" fn(*mut c_void, ResultHandle) -> ResultHandle,
    pub(super) stream_cancel: unsafe extern "C" fn(*mut c_void, ResultHandle),
    pub(super) destroy_result: unsafe extern "C" fn(ResultHandle),
    pub(super) insert: Query,
    pub(super) insert_append: unsafe extern "C" fn(InsertHandle, *const c_void, usize) -> c_int,
    pub(super) insert_done: unsafe extern "C" fn(InsertHandle) -> ResultHandle,
    pub(super) insert_cancel: unsafe extern "C" fn(InsertHandle),
    pub(super) insert_error: unsafe extern "C" fn(InsertHandle) -> *const c_char,
    pub(super) destroy_insert: unsafe extern "C" fn(InsertHandle),
    pub(super) result_buffer: unsafe extern "C" fn(ResultHandle) -> *mut c_char,
    pub(super) result_length: unsafe extern "C" fn(ResultHandle) -> usize,
    pub(super) result_error: unsafe extern "C" fn(ResultHandle) -> *const c_char,
    pub(super) result_rows: unsafe extern "C" fn(ResultHandle) -> u64,
    pub(super) result_bytes: unsafe extern "C" fn(ResultHandle) -> u64,
    pub(super) storage_rows: unsafe extern "C" fn(ResultHandle) -> u64,
    pub(super) storage_bytes: unsafe extern "C" fn(ResultHandle) -> u64,
    pub(super) rows_written: unsafe extern "C" fn(ResultHandle) -> u64,
    pub(super) bytes_written: unsafe extern "C" fn(ResultHandle) -> u64,
}

/// Looks a symbol up and copies its address out of the library.
macro_rules! symbol {
    ($library:expr, $name:literal) => {
        // SAFETY: the field's type is the function's signature in the library's public header.
        *unsafe { $library.get(concat!($name, "\0").as_bytes()) }?
    };
}

impl Api {
    /// Loads the library at `path` for the rest of the process.
    pub(super) fn load(path: &Path) -> Result<&'static Api, LoadError> {
        Self::resolve(path).map_err(|source| LoadError { path: path.to_owned(), source })
    }

    fn resolve(path: &Path) -> Result<&'static Api, libloading::Error> {
        // SAFETY: the library's initialisers have no precondition on this process.
        let library: &'static Library = Box::leak(Box::new(unsafe { Library::new(path) }?));
        let api = Api {
            open: AtomicUsize::new(0),
            connect: symbol!(library, "chdb_connect"),
            close: symbol!(library, "chdb_close_conn"),
            set_signal_handlers: symbol!(library, "chdb_set_signal_handlers_enabled"),
            version: symbol!(library, "chdb_version"),
            query: symbol!(library, "chdb_query_with_params_n"),
            stream_query: symbol!(library, "chdb_stream_query_with_params_n"),
            stream_fetch: symbol!(library, "chdb_stream_fetch_result"),
            stream_cancel: symbol!(library, "chdb_stream_cancel_query"),
            destroy_result: symbol!(library, "chdb_destroy_query_result"),
            insert: symbol!(library, "chdb_stream_insert_with_params_n"),
            insert_append: symbol!(library, "chdb_stream_append"),
            insert_done: symbol!(library, "chdb_stream_done"),
            insert_cancel: symbol!(library, "chdb_stream_cancel_insert"),
            insert_error: symbol!(library, "chdb_stream_insert_error"),
            destroy_insert: symbol!(library, "chdb_destroy_insert_stream"),
            result_buffer: symbol!(library, "chdb_result_buffer"),
            result_length: symbol!(library, "chdb_result_length"),
            result_error: symbol!(library, "chdb_result_error"),
            result_rows: symbol!(library, "chdb_result_rows_read"),
            result_bytes: symbol!(library, "chdb_result_bytes_read"),
            storage_rows: symbol!(library, "chdb_result_storage_rows_read"),
            storage_bytes: symbol!(library, "chdb_result_storage_bytes_read"),
            rows_written: symbol!(library, "chdb_result_rows_written"),
            bytes_written: symbol!(library, "chdb_result_bytes_written"),
        };
        Ok(Box::leak(Box::new(api)))
    }
}

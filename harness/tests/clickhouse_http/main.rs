//! The embedded ClickHouse is faithful: ordinary clients and raw HTTP against the child process.

mod clients;
mod raw;
mod server;

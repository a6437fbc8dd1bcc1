//! `bench clickhouse`: the child process that serves the embedded ClickHouse engine.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::infra::embedded::clickhouse::{Config, ServeError, library_version, serve};

/// Serve the ClickHouse engine of a `libchdb.so` over HTTP.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// `libchdb.so`
    #[arg(long)]
    library: PathBuf,
    /// Data directory
    #[arg(long, required_unless_present = "version")]
    data: Option<PathBuf>,
    /// Address to listen on; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// File that receives the bound address once requests are served
    #[arg(long)]
    address_file: Option<PathBuf>,
    /// SQL statements to run before that
    #[arg(long)]
    startup: Option<PathBuf>,
    /// Further server configuration (XML or YAML)
    #[arg(long)]
    config: Option<PathBuf>,
    /// A user beside `default`, or a password for it
    #[arg(long = "user", value_name = "NAME:PASSWORD", value_parser = user)]
    users: Vec<(String, String)>,
    /// Cap on the engine's memory accounting, in bytes
    #[arg(long)]
    max_server_memory: Option<u64>,
    /// Most connections open at once
    #[arg(long, default_value_t = 1024)]
    max_connections: usize,
    /// Print the library's version and end
    #[arg(long)]
    version: bool,
}

fn user(text: &str) -> Result<(String, String), String> {
    let (name, password) = text.split_once(':').ok_or("write it as NAME:PASSWORD")?;
    Ok((name.to_owned(), password.to_owned()))
}

/// Serves until SIGTERM.
///
/// # Errors
/// When the engine does not start or the address is unusable.
pub fn run(args: Args) -> Result<(), ServeError> {
    let Some(data) = args.data.filter(|_| !args.version) else {
        println!("{}", library_version(&args.library)?);
        return Ok(());
    };
    serve(&Config {
        library: args.library,
        data,
        listen: args.listen,
        address_file: args.address_file,
        startup: args.startup,
        config: args.config,
        users: args.users,
        max_server_memory: args.max_server_memory,
        max_connections: args.max_connections,
    })
}

//! Files and standard input.

use std::path::Path;

use self::config::InputFormat;
use super::Uri;
use super::source::Source;
use crate::cli::Cli;
use crate::error::Error;

pub mod config;
pub mod csv;
pub mod parquet;
pub mod sink;
pub mod source;
pub mod stretches;

/// Opens the files of an address in the format that is asked for, or that the first file's name says.
///
/// # Errors
/// A file cannot be opened, or is not of the format.
pub fn open(uri: &Uri, cli: &Cli) -> Result<Box<dyn Source>, Error> {
    Ok(match cli.input_format.unwrap_or_else(|| InputFormat::of(&uri.path)) {
        InputFormat::Ndjson => Box::new(stretches::Files::open(uri, cli)?),
        InputFormat::Csv => Box::new(csv::CsvFiles::open(uri, cli)?),
        InputFormat::Parquet => Box::new(parquet::ParquetFiles::open(uri, cli)?),
    })
}

/// A path as it is known from anywhere.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

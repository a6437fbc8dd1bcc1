//! The command line.

use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::connect::clickhouse::config::ClickHouseArgs;
use crate::connect::file::config::InputFormat;
use crate::connect::kafka::config::KafkaArgs;
use crate::connect::kafka::sink::KafkaSinkArgs;
use crate::connect::stdout::config::Format;
use crate::run::args::{FlowArgs, duration};

/// Runs one SQL query over a file or a stream.
#[derive(Debug, Clone, Parser)]
#[command(name = "freshet", version, about = "Runs one SQL query over a file or a stream.")]
pub struct Cli {
    /// The query, or @PATH for one in a file.
    #[arg(value_parser = query_text)]
    pub sql: String,

    /// Source: file://PATH (or a plain path, a glob, `-` for standard input), kafka://HOST:PORT/TOPIC.
    #[arg(long, value_name = "URI")]
    pub from: String,

    /// Sink: `-` for standard output, null, clickhouse://HOST:PORT/DATABASE/TABLE.
    #[arg(long, value_name = "URI", default_value = "-")]
    pub to: String,

    /// How rows are written to standard output.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    /// What files and standard input hold [default: as the end of a path says, else ndjson].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub input_format: Option<InputFormat>,

    /// Types of fields of a JSON or CSV source that are not to be inferred: 'amount DOUBLE, ts TIMESTAMP'.
    #[arg(long, value_name = "NAME TYPE, …")]
    pub columns: Option<String>,

    /// What a record that cannot be read does: fail, skip, or quarantine=URI to keep it in a file.
    #[arg(long, default_value = "fail", value_name = "fail|skip|quarantine=URI", value_parser = bad_records)]
    pub bad_records: BadRecords,

    /// Where rows that come too late, or too far ahead of the clock, are kept; else they are only counted.
    #[arg(long, value_name = "URI")]
    pub late_to: Option<String>,

    /// Write a line of JSON on standard error so often.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub progress: Option<Duration>,

    /// Serve Prometheus metrics at /metrics and a health check at /healthz.
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,

    /// How an error is printed on standard error.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub errors: ErrorFormat,

    /// Print what the query reads and writes, and stop.
    #[arg(long)]
    pub explain: bool,

    /// Flags of streaming queries.
    #[command(flatten)]
    pub flow: FlowArgs,

    /// Flags of the Kafka source.
    #[command(flatten)]
    pub kafka: KafkaArgs,

    /// Flags of the Kafka sink.
    #[command(flatten)]
    pub kafka_sink: KafkaSinkArgs,

    /// Flags of the ClickHouse sink.
    #[command(flatten)]
    pub clickhouse: ClickHouseArgs,
}

/// The text of a query, read from its file when it is written as `@PATH`.
fn query_text(text: &str) -> Result<String, String> {
    match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}")),
        None => Ok(text.to_owned()),
    }
}

/// What a record that cannot be read does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BadRecords {
    /// Ends the run.
    #[default]
    Fail,
    /// Is left out and counted.
    Skip,
    /// Is left out, counted, and kept at this address.
    Quarantine(String),
}

fn bad_records(text: &str) -> Result<BadRecords, String> {
    match text.split_once('=') {
        None if text == "fail" => Ok(BadRecords::Fail),
        None if text == "skip" => Ok(BadRecords::Skip),
        Some(("quarantine", uri)) if !uri.is_empty() => Ok(BadRecords::Quarantine(uri.to_owned())),
        _ => Err("write fail, skip or quarantine=file://bad.ndjson".to_owned()),
    }
}

/// How an error is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ErrorFormat {
    /// Message, code and hint.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

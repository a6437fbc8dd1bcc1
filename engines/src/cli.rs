//! The command line.

use clap::{Parser, ValueEnum};

use crate::connect::clickhouse::config::ClickHouseArgs;
use crate::connect::kafka::config::KafkaArgs;
use crate::connect::kafka::sink::KafkaSinkArgs;
use crate::connect::stdout::config::Format;

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

    /// Types of fields of a JSON source that are not to be inferred: 'amount DOUBLE, ts TIMESTAMP'.
    #[arg(long, value_name = "NAME TYPE, …")]
    pub columns: Option<String>,

    /// What a record that cannot be read does.
    #[arg(long, value_enum, default_value_t)]
    pub bad_records: BadRecords,

    /// How an error is printed on standard error.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub errors: ErrorFormat,

    /// Print what the query reads and writes, and stop.
    #[arg(long)]
    pub explain: bool,

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum BadRecords {
    /// Ends the run.
    #[default]
    Fail,
    /// Is left out and counted.
    Skip,
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

//! What a `clickhouse://` address and its flags mean.

use clap::Args;

/// Flags of the ClickHouse sink.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "ClickHouse sink")]
pub struct ClickHouseArgs {}

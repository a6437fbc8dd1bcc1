//! What a `clickhouse://` address and its flags mean.

use std::time::Duration;

use clap::Args;

pub use super::block::InsertFormat;

/// Flags of the ClickHouse sink.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "ClickHouse sink")]
pub struct ClickHouseArgs {
    /// Wire format of inserts.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub insert_format: InsertFormat,

    /// Rows of one insert.
    #[arg(long, default_value_t = 262_144, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_rows: u32,

    /// The longest a row waits for its insert, in milliseconds.
    #[arg(long, default_value_t = 1_000, value_name = "MS")]
    pub max_delay: u64,

    /// Inserts in flight at once.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub inserts: u16,

    /// Leave the rows of a Native block as they come. By default they are brought into the order of the table's sorting
    /// key where that is cheap, which spares ClickHouse its own sort.
    #[arg(long)]
    pub unordered: bool,

    /// How long a failing insert is tried again, in seconds.
    #[arg(long, default_value_t = 300, value_name = "S")]
    pub retry_for: u64,
}

impl ClickHouseArgs {
    /// The longest a row waits for its insert.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.max_delay)
    }
}

impl Default for ClickHouseArgs {
    fn default() -> Self {
        Self {
            insert_format: InsertFormat::Native,
            max_rows: 262_144,
            max_delay: 1_000,
            inserts: 2,
            unordered: false,
            retry_for: 300,
        }
    }
}

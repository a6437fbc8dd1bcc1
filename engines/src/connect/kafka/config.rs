//! What a `kafka://` address and its flags mean.

use clap::Args;

/// Flags of the Kafka source.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Kafka source")]
pub struct KafkaArgs {}

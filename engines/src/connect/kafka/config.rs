//! What a `kafka://` address and its flags mean.

use clap::{Args, ValueEnum};
use rdkafka::ClientConfig;

use crate::connect::Uri;
use crate::error::Error;

/// Flags of the Kafka source.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Kafka source")]
pub struct KafkaArgs {
    /// Confluent schema registry: the topic holds Avro.
    #[arg(long, value_name = "URL")]
    pub schema_registry: Option<String>,

    /// Subject of the schema the query is planned with [default: TOPIC-value].
    #[arg(long, value_name = "SUBJECT")]
    pub schema_subject: Option<String>,

    /// Consumer group; offsets are committed to it, behind the sink's acknowledgements only.
    #[arg(long, value_name = "ID")]
    pub group_id: Option<String>,

    /// Go on reading at the topic's head; without it, reading ends where the head is at the start.
    #[arg(long)]
    pub follow: bool,

    /// Where to start in a partition for which the group has no offset.
    #[arg(long, value_enum, default_value_t, value_name = "WHERE")]
    pub offset_reset: OffsetReset,

    /// Seconds between commits.
    #[arg(long, default_value_t = 5, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub commit_interval: u64,

    /// Read from here: a time such as 2026-01-01T00:00:00Z, or PARTITION:OFFSET,… [default: --offset-reset].
    #[arg(long, value_name = "TIME|P:O,…", value_parser = slice)]
    pub start: Option<Slice>,

    /// Read up to here, not including it; without --follow up to the topic's head.
    #[arg(long, value_name = "TIME|P:O,…", value_parser = slice, conflicts_with = "follow")]
    pub end: Option<Slice>,

    /// A setting of librdkafka, such as security.protocol=sasl_ssl; may be repeated.
    #[arg(long = "kafka-option", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
}

impl Default for KafkaArgs {
    fn default() -> Self {
        Self {
            schema_registry: None,
            schema_subject: None,
            group_id: None,
            follow: false,
            offset_reset: OffsetReset::Earliest,
            commit_interval: 5,
            start: None,
            end: None,
            options: vec![],
        }
    }
}

/// A bound of what is read of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slice {
    /// The first message that is not older, in microseconds since 1970.
    Time(i64),
    /// Partition and offset.
    Offsets(Vec<(i32, i64)>),
}

fn slice(text: &str) -> Result<Slice, String> {
    if let Some(time) = crate::format::timestamp::parse(text.as_bytes()) {
        return Ok(Slice::Time(time));
    }
    let pair = |pair: &str| {
        let (partition, offset) = pair.split_once(':')?;
        let offset: i64 = offset.trim().parse().ok()?;
        Some((partition.trim().parse().ok()?, (offset >= 0).then_some(offset)?))
    };
    let list: Option<Vec<(i32, i64)>> = text.split(',').map(pair).collect();
    list.map(Slice::Offsets).ok_or_else(|| "write a time such as 2026-01-01T00:00:00Z, or 0:1500,1:1490".to_owned())
}

/// Where reading starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OffsetReset {
    /// At the oldest message.
    #[default]
    Earliest,
    /// Behind the newest message.
    Latest,
}

impl OffsetReset {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Earliest => "earliest",
            Self::Latest => "latest",
        }
    }
}

/// A topic and how it is reached.
#[derive(Debug, Clone)]
pub struct Topic {
    /// `host:port,host:port`.
    pub brokers: String,
    /// The topic's name.
    pub name: String,
    options: Vec<(String, String)>,
}

/// Settings that this program gives itself: delivery rests on them.
const OWN: [&str; 6] = [
    "bootstrap.servers",
    "group.id",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "auto.offset.reset",
];

impl Topic {
    /// Takes the address and the options apart.
    ///
    /// # Errors
    /// The address names no topic, or an option is malformed or one that this program gives itself.
    pub fn new(uri: &Uri, args: &KafkaArgs) -> Result<Self, Error> {
        if uri.path.is_empty() || uri.path.contains('/') {
            return Err(Error::usage(format!("{uri} does not name one topic"), "write kafka://host:port/topic"));
        }
        let mut options = uri.parameters.clone();
        if let Some(user) = &uri.user {
            options.push(("sasl.username".into(), user.clone()));
            options.push(("sasl.password".into(), uri.password.clone().unwrap_or_default()));
        }
        for option in &args.options {
            let Some((key, value)) = option.split_once('=') else {
                return Err(Error::usage(format!("--kafka-option {option} has no value"), "write KEY=VALUE"));
            };
            options.push((key.into(), value.into()));
        }
        if let Some((key, _)) = options.iter().find(|(key, _)| OWN.contains(&key.as_str())) {
            return Err(Error::usage(
                format!("{key} cannot be set as an option"),
                "use the address, --group-id or --offset-reset",
            ));
        }
        let hosts: Vec<String> = uri
            .hosts
            .iter()
            .map(|host| if host.contains(':') { host.clone() } else { format!("{host}:9092") })
            .collect();
        Ok(Self { brokers: hosts.join(","), name: uri.path.clone(), options })
    }

    /// Settings of any client.
    #[must_use]
    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers).set("client.id", "freshet");
        for (key, value) in &self.options {
            config.set(key, value);
        }
        config
    }

    /// Settings of a consumer: of `group`, or of one that commits nothing.
    #[must_use]
    pub fn consumer(&self, args: &KafkaArgs) -> ClientConfig {
        let unnamed = format!("freshet-{}", std::process::id());
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", "freshet")
            .set("group.id", args.group_id.as_deref().unwrap_or(&unnamed))
            .set("auto.offset.reset", args.offset_reset.name())
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", if args.follow { "false" } else { "true" })
            // A restart after a crash waits for the dead member's session to end.
            .set("session.timeout.ms", "10000")
            // A full local queue is looked at again soon: the default second starves a fast reader.
            .set("fetch.queue.backoff.ms", "2")
            .set("queued.min.messages", "1000000")
            .set("queued.max.messages.kbytes", "32768");
        for (key, value) in &self.options {
            config.set(key, value);
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_becomes_settings() {
        let uri = Uri::parse_source("kafka://me:pw@a,b:1/t?security.protocol=sasl_plaintext").unwrap();
        let args = KafkaArgs { options: vec!["fetch.min.bytes=7".into()], ..KafkaArgs::default() };
        let topic = Topic::new(&uri, &args).unwrap();
        let config = topic.consumer(&args);
        assert_eq!(config.get("bootstrap.servers"), Some("a:9092,b:1"));
        assert_eq!(config.get("sasl.password"), Some("pw"));
        assert_eq!(config.get("security.protocol"), Some("sasl_plaintext"));
        assert_eq!(config.get("fetch.min.bytes"), Some("7"));
    }

    #[test]
    fn settings_that_delivery_rests_on_cannot_be_changed() {
        let uri = Uri::parse_source("kafka://a/t?enable.auto.commit=true").unwrap();
        let error = Topic::new(&uri, &KafkaArgs::default()).unwrap_err();
        assert_eq!(error.to_string(), "enable.auto.commit cannot be set as an option");
        assert!(Topic::new(&Uri::parse_source("kafka://a").unwrap(), &KafkaArgs::default()).is_err());
    }
}

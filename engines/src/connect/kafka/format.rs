//! What a topic's messages are, and the decoder for them.

use super::config::Topic;
use super::sample::sample;
use crate::cli::Cli;
use crate::error::Error;
use crate::format::avro::{AvroDecoder, source_schema};
use crate::format::json::{JsonDecoder, JsonSchema};
use crate::read::{Decoder, ReadPlan};
use crate::registry::Registry;
use crate::sql::{SourceSchema, column_types};

/// The format of a topic's messages.
pub(crate) struct Format {
    source: SourceSchema,
    kind: Kind,
}

enum Kind {
    /// Avro in Confluent's framing.
    Avro(Registry),
    /// One JSON object a message.
    Json(JsonSchema),
}

/// Messages that the types of a JSON topic are inferred from.
const SAMPLE: usize = 1_000;

impl Format {
    /// With a schema registry the topic holds Avro, else JSON.
    ///
    /// # Errors
    /// The registry does not have the subject, or the topic cannot be read.
    pub(crate) fn of(cli: &Cli, topic: &Topic) -> Result<Self, Error> {
        let args = &cli.kafka;
        let (kind, schema) = match &args.schema_registry {
            Some(url) => {
                let hint = "check --schema-registry and --schema-subject";
                let registry = Registry::new(url);
                let subject = args.schema_subject.clone().unwrap_or_else(|| format!("{}-value", topic.name));
                let text = registry.latest(&subject).map_err(|message| Error::source(message, hint))?;
                let schema = source_schema(&text);
                let schema = schema.map_err(|error| Error::source(format!("subject {subject}: {error}"), hint))?;
                (Kind::Avro(registry), schema)
            }
            None => {
                let mut schema = JsonSchema::default();
                for (name, data_type) in column_types(cli.columns.as_deref().unwrap_or(""))? {
                    schema.declare(&name, data_type);
                }
                let mut seen = 0;
                sample(topic, args, SAMPLE, |message| {
                    schema.observe(message);
                    seen += 1;
                })?;
                if seen > 0 && schema.records() == 0 {
                    let hint = "give --schema-registry when it holds Avro";
                    return Err(Error::source(format!("topic {} does not hold JSON objects", topic.name), hint));
                }
                let fields = schema.schema();
                (Kind::Json(schema), fields)
            }
        };
        Ok(Self { source: SourceSchema { name: topic.name.clone(), schema }, kind })
    }

    /// What a query can read.
    pub(crate) fn schema(&self) -> &SourceSchema {
        &self.source
    }

    /// A decoder for one worker.
    ///
    /// # Errors
    /// The query reads what the decoder cannot.
    pub(crate) fn decoder(&self, plan: &ReadPlan) -> Result<Box<dyn Decoder>, Error> {
        let decoder: Result<Box<dyn Decoder>, String> = match &self.kind {
            Kind::Avro(registry) => {
                AvroDecoder::new(plan.clone(), Box::new(registry.clone())).map(|decoder| Box::new(decoder) as _)
            }
            Kind::Json(schema) => {
                let decoder = JsonDecoder::new(plan, schema).map_err(|error| error.to_string());
                decoder.map(|decoder| Box::new(decoder) as _)
            }
        };
        decoder.map_err(|message| Error::source(message, "leave the field out of the query"))
    }
}

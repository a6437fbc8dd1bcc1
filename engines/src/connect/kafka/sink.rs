//! Writing to a topic: a changelog keyed by the upsert key.
//!
//! With `transactional`, rows and the offsets they rest on become visible in one transaction; the mark that says which
//! windows are out travels as the offsets' metadata. With `idempotent`, a row may be written again after a crash under the
//! same key, and everything written is acknowledged before a checkpoint counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use clap::{Args, ValueEnum};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use serde_json::Value;

use super::config::{KafkaArgs, Topic};
use super::error::explain;
use super::partitions::offsets_of;
use crate::connect::sink::{Encoded, Encoder, Sink, Standing};
use crate::connect::stdout::text;
use crate::error::Error;

/// Flags of the Kafka sink.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Kafka sink")]
pub struct KafkaSinkArgs {
    /// How rows reach a topic.
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub emit: Emit,

    /// Milliseconds after which the broker aborts a transaction that has not ended.
    #[arg(long, default_value_t = 60_000, value_name = "MS", value_parser = clap::value_parser!(u32).range(1_000..))]
    pub transaction_timeout: u32,
}

/// How rows reach a topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// In transactions, with the offsets they rest on: exactly once for who reads committed messages.
    #[default]
    Transactional,
    /// At once, keyed so that the last value of a key is right whatever was repeated after a crash.
    Idempotent,
}

/// How long an answer of the broker is waited for.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A topic that is written.
pub struct Changelog {
    producer: BaseProducer<Deliveries>,
    topic: Topic,
    schema: SchemaRef,
    key: Vec<usize>,
    transactions: Option<Transactions>,
}

struct Transactions {
    /// Of the group whose offsets travel along.
    consumer: BaseConsumer,
    /// Topics of the inputs, in order.
    inputs: Vec<String>,
    open: bool,
}

/// The first message that was not delivered.
#[derive(Debug, Default)]
struct Deliveries {
    failed: Arc<Mutex<Option<KafkaError>>>,
}

impl ClientContext for Deliveries {
    fn log(&self, _: rdkafka::config::RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, _: &str) {}
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
        }
    }
}

/// What a changelog is made for.
#[derive(Debug, Clone)]
pub struct Purpose {
    /// Schema of the rows.
    pub schema: SchemaRef,
    /// Columns of the key; empty: messages have none.
    pub key: Vec<usize>,
    /// Topics of the inputs in order, when all are topics.
    pub inputs: Option<Vec<String>>,
}

impl Changelog {
    /// Connects; with transactions, ends those of an earlier run with the same group and topic.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses.
    pub fn open(topic: Topic, from: &KafkaArgs, args: &KafkaSinkArgs, purpose: Purpose) -> Result<Self, Error> {
        let explained = |error: &KafkaError| explain("the Kafka producer cannot be made", &topic.brokers, error);
        let mut config = topic.client();
        config.set("enable.idempotence", "true").set("linger.ms", "0").set("queue.buffering.max.messages", "1000000");
        let transactions = match args.emit {
            Emit::Idempotent => None,
            Emit::Transactional => {
                let (Some(group), Some(inputs)) = (&from.group_id, purpose.inputs) else {
                    return Err(Error::usage(
                        "--emit transactional needs a Kafka source and --group-id: offsets are committed with the rows",
                        "add --group-id, or use --emit idempotent",
                    ));
                };
                config.set("transactional.id", format!("freshet-{group}-{}", topic.name));
                config.set("transaction.timeout.ms", args.transaction_timeout.to_string());
                let consumer = topic.client().set("group.id", group).create().map_err(|error| explained(&error))?;
                Some(Transactions { consumer, inputs, open: false })
            }
        };
        let producer: BaseProducer<Deliveries> =
            config.create_with_context(Deliveries::default()).map_err(|error| explained(&error))?;
        let metadata = producer.client().fetch_metadata(Some(&topic.name), TIMEOUT);
        let metadata = metadata
            .map_err(|error| explain(&format!("topic {} cannot be written", topic.name), &topic.brokers, &error))?;
        if let Some(code) = metadata.topics().iter().find_map(rdkafka::metadata::MetadataTopic::error) {
            let error = KafkaError::MetadataFetch(code.into());
            return Err(explain(&format!("topic {} cannot be written", topic.name), &topic.brokers, &error));
        }
        if transactions.is_some() {
            producer.init_transactions(TIMEOUT).map_err(|error| refused(&topic, &error))?;
        }
        Ok(Self { producer, topic, schema: purpose.schema, key: purpose.key, transactions })
    }

    fn begin(&mut self) -> Result<(), Error> {
        let Some(transactions) = &mut self.transactions else { return Ok(()) };
        if !transactions.open {
            self.producer.begin_transaction().map_err(|error| refused(&self.topic, &error))?;
            transactions.open = true;
        }
        Ok(())
    }

    fn send(&self, key: Option<&[u8]>, value: &[u8]) -> Result<(), Error> {
        let mut record = BaseRecord::<[u8], [u8]>::to(&self.topic.name).payload(value);
        record.key = key;
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    self.producer.poll(Duration::from_millis(10));
                    record = back;
                }
                Err((error, _)) => return Err(refused(&self.topic, &error)),
            }
        }
    }

    /// Waits until everything is acknowledged.
    fn settle(&self) -> Result<(), Error> {
        self.producer.flush(TIMEOUT).map_err(|error| refused(&self.topic, &error))?;
        self.delivered()
    }

    fn delivered(&self) -> Result<(), Error> {
        let failed = self.producer.context().failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), |error| Err(refused(&self.topic, &error)))
    }
}

/// Tells a fenced producer and a refused timeout from other errors.
fn refused(topic: &Topic, error: &KafkaError) -> Error {
    use RDKafkaErrorCode as Code;
    let code = match error {
        KafkaError::Transaction(error) => Some(error.code()),
        other => other.rdkafka_error_code(),
    };
    match code {
        Some(Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch) => Error::sink(
            format!("writing topic {} was taken over by another run with the same --group-id", topic.name),
            "only one run per --group-id and topic may write; stop the other one, or give this one another --group-id",
        ),
        Some(Code::InvalidTransactionTimeout) => Error::sink(
            "the broker does not allow a transaction timeout as long as --transaction-timeout",
            "lower it to the broker's transaction.max.timeout.ms",
        ),
        _ => {
            let text = code.map_or_else(|| error.to_string(), |code| code.to_string());
            Error::sink(
                format!("topic {} cannot be written: {text}", topic.name),
                format!("check that a broker listens at {} and that the topic may be written", topic.brokers),
            )
        }
    }
}

impl Sink for Changelog {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(Records { key: self.key.clone(), values: text::Objects::new(&self.schema) })
    }

    fn write(&mut self, encoded: Encoded) -> Result<(), Error> {
        self.begin()?;
        let mut from = 0;
        for (key, value) in encoded.records {
            let (key, end) = (key as usize, value as usize);
            let own = (key > from).then(|| &encoded.bytes[from..key]);
            self.send(own, &encoded.bytes[key..end])?;
            from = end;
        }
        self.producer.poll(Duration::ZERO);
        self.delivered()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.producer.poll(Duration::ZERO);
        self.delivered()
    }

    fn commit(&mut self) -> Result<Value, Error> {
        self.settle()?;
        Ok(Value::Null)
    }

    fn resume(&mut self, _: &Value) -> Result<(), Error> {
        Ok(())
    }

    fn transactional(&self) -> bool {
        self.transactions.is_some()
    }

    fn transact(&mut self, standing: &Standing) -> Result<(), Error> {
        self.begin()?;
        let Some(transactions) = &mut self.transactions else { return Ok(()) };
        let explained = |error: &KafkaError| refused(&self.topic, error);
        let marks = serde_json::to_string(&standing.marks).unwrap_or_default();
        let mut list = TopicPartitionList::new();
        for (topic, position) in transactions.inputs.iter().zip(&standing.positions) {
            for (partition, offset) in offsets_of(position) {
                let mut element = list.add_partition(topic, partition as i32);
                element.set_offset(Offset::Offset(offset)).map_err(|error| explained(&error))?;
                element.set_metadata(&marks);
            }
        }
        let group = transactions.consumer.group_metadata();
        let group = group.ok_or_else(|| Error::sink("the consumer group is not known", "report this as a bug"))?;
        let sent = self.producer.send_offsets_to_transaction(&list, &group, TIMEOUT);
        sent.map_err(|error| explained(&error))?;
        let until = Instant::now() + TIMEOUT;
        loop {
            match self.producer.commit_transaction(TIMEOUT) {
                Ok(()) => break,
                Err(KafkaError::Transaction(error)) if error.is_retriable() && Instant::now() < until => {}
                Err(error) => return Err(explained(&error)),
            }
        }
        transactions.open = false;
        self.delivered()
    }

    fn standing(&mut self) -> Result<Option<Standing>, Error> {
        let Some(transactions) = &self.transactions else { return Ok(None) };
        let explained = |error: &KafkaError| refused(&self.topic, error);
        let (mut positions, mut marks) = (Vec::new(), None);
        for topic in &transactions.inputs {
            let metadata = transactions.consumer.fetch_metadata(Some(topic), TIMEOUT);
            let metadata = metadata.map_err(|error| explained(&error))?;
            let mut list = TopicPartitionList::new();
            for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
                list.add_partition(topic, partition.id());
            }
            let committed = transactions.consumer.committed_offsets(list, TIMEOUT);
            let committed = committed.map_err(|error| explained(&error))?;
            let mut position = serde_json::Map::new();
            for element in committed.elements() {
                if let Offset::Offset(offset) = element.offset() {
                    position.insert(element.partition().to_string(), offset.into());
                    let own: Option<Vec<i64>> = serde_json::from_str(element.metadata()).ok();
                    marks = marks.or(own);
                }
            }
            positions.push(Value::Object(position));
        }
        Ok(marks.map(|marks| Standing { positions, marks }))
    }
}

impl Drop for Changelog {
    fn drop(&mut self) {
        if self.transactions.as_ref().is_some_and(|transactions| transactions.open) {
            // What is open was never visible; the next run, or the broker's timeout, ends it all the same.
            drop(self.producer.abort_transaction(Duration::from_secs(5)));
        }
    }
}

/// Makes keys and values.
struct Records {
    key: Vec<usize>,
    values: text::Objects,
}

impl Encoder for Records {
    fn encode(&mut self, batch: &RecordBatch) -> Result<Encoded, Error> {
        let fail = |error: arrow::error::ArrowError| Error::sink(format!("a key cannot be made: {error}"), "");
        let (mut keys, mut key_ends) = (Vec::new(), Vec::new());
        if !self.key.is_empty() {
            text::arrays(&batch.project(&self.key).map_err(fail)?, &mut keys, |out| key_ends.push(out.len()));
        }
        let mut values = Vec::new();
        self.values.rows(batch, &mut values);
        let mut encoded = Encoded { rows: batch.num_rows() as u64, ..Encoded::default() };
        let (mut key_from, mut from) = (0, 0);
        // A JSON text has no line break but the one behind it.
        for (row, end) in memchr::memchr_iter(b'\n', &values).enumerate() {
            if let Some(key_end) = key_ends.get(row) {
                encoded.bytes.extend_from_slice(&keys[key_from..*key_end]);
                key_from = *key_end;
            }
            let key = position(&encoded.bytes)?;
            encoded.bytes.extend_from_slice(&values[from..end]);
            from = end + 1;
            encoded.records.push((key, position(&encoded.bytes)?));
        }
        Ok(encoded)
    }
}

fn position(bytes: &[u8]) -> Result<u32, Error> {
    u32::try_from(bytes.len()).map_err(|_| Error::sink("a batch of rows is larger than 4 GiB", "select fewer columns"))
}

//! Records that a run leaves out, kept: refused ones with `--bad-records quarantine=URI`, late ones with `--late-to URI`.
//!
//! Each becomes a JSON object, in a line of a file or in a message of a topic: `at`, where it stood; `error`, why; `record`,
//! its text, or its row as an object. A payload that is not UTF-8 is `record_hex`. What a file holds already stays.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use serde_json::{Map, Value, json};

use crate::cli::{BadRecords, Cli};
use crate::connect::Uri;
use crate::connect::kafka::config::{KafkaArgs, Topic};
use crate::connect::kafka::error::explain;
use crate::connect::stdout::text::Objects;
use crate::error::Error;
use crate::plan::POSITION;
use crate::read::{BadRecord, Position};

/// How long a broker may take to acknowledge what is kept.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps records.
pub(super) struct Keeper {
    out: Out,
    line: Vec<u8>,
    /// Writes late rows of this schema.
    rows: Option<(SchemaRef, Objects)>,
}

enum Out {
    File { file: BufWriter<File>, path: String },
    Topic { producer: BaseProducer<Deliveries>, topic: Topic },
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

impl Keeper {
    /// The keepers that the flags ask for: of refused records, and of late rows.
    ///
    /// # Errors
    /// A URI cannot be written.
    pub(super) fn open(cli: &Cli) -> Result<(Option<Self>, Option<Self>), Error> {
        let quarantine = match &cli.bad_records {
            BadRecords::Quarantine(uri) => Some(Self::to("--bad-records quarantine", uri, &cli.kafka)?),
            BadRecords::Fail | BadRecords::Skip => None,
        };
        let late = cli.late_to.as_deref().map(|uri| Self::to("--late-to", uri, &cli.kafka)).transpose()?;
        Ok((quarantine, late))
    }

    fn to(flag: &str, text: &str, args: &KafkaArgs) -> Result<Self, Error> {
        let uri = Uri::parse_sink(text)?;
        let out = match uri.scheme.as_str() {
            "file" => {
                let opened = OpenOptions::new().append(true).create(true).open(&uri.path);
                let file = opened.map_err(|e| {
                    Error::sink(
                        format!("{} cannot be written: {e}", uri.path),
                        "check the directory and its permissions",
                    )
                })?;
                Out::File { file: BufWriter::new(file), path: uri.path }
            }
            "kafka" => {
                let topic = Topic::new(&uri, args)?;
                let mut config = topic.client();
                config.set("enable.idempotence", "true");
                let producer = config.create_with_context(Deliveries::default());
                let producer =
                    producer.map_err(|e| explain("the Kafka producer cannot be made", &topic.brokers, &e))?;
                Out::Topic { producer, topic }
            }
            other => {
                return Err(Error::usage(
                    format!("{flag} cannot write to {other}"),
                    "write file://PATH or kafka://HOST:PORT/TOPIC",
                ));
            }
        };
        Ok(Self { out, line: Vec::new(), rows: None })
    }

    /// Keeps a refused record.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn refused(&mut self, bad: &BadRecord, payload: &[u8]) -> Result<(), Error> {
        let mut entry = Map::new();
        entry.insert("at".into(), at(&bad.at));
        entry.insert("error".into(), bad.error.to_string().into());
        match std::str::from_utf8(payload) {
            Ok(text) => entry.insert("record".into(), text.into()),
            Err(_) => entry.insert("record_hex".into(), hex(payload).into()),
        };
        self.line = Value::Object(entry).to_string().into_bytes();
        self.write()
    }

    /// Keeps rows that were left out for their event time.
    ///
    /// # Errors
    /// They cannot be written.
    pub(super) fn left_out(
        &mut self,
        position: Option<&Position>,
        why: &'static str,
        rows: &RecordBatch,
    ) -> Result<(), Error> {
        let shown: Vec<usize> = rows
            .schema_ref()
            .fields()
            .iter()
            .enumerate()
            .filter(|(_, f)| f.name() != POSITION)
            .map(|(i, _)| i)
            .collect();
        let rows = rows.project(&shown).map_err(|e| Error::sink(format!("a late row cannot be written: {e}"), ""))?;
        let schema = rows.schema();
        let known = self.rows.take().filter(|(known, _)| *known == schema);
        let (schema, mut objects) = known.unwrap_or_else(|| (Arc::clone(&schema), Objects::new(&schema)));
        let mut texts = Vec::new();
        objects.rows(&rows, &mut texts);
        self.rows = Some((schema, objects));
        let head = format!("{{\"at\":{},\"error\":{},\"record\":", position.map_or(Value::Null, at), json!(why));
        // An object's text has no line break but the one behind it.
        for text in texts.split(|b| *b == b'\n').filter(|text| !text.is_empty()) {
            self.line.clear();
            self.line.extend_from_slice(head.as_bytes());
            self.line.extend_from_slice(text);
            self.line.push(b'}');
            self.write()?;
        }
        Ok(())
    }

    /// Hands on what was kept: a broker has acknowledged it, a file has it on its disk.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        match &mut self.out {
            Out::File { file, path } => {
                let written = file.flush().and_then(|()| file.get_ref().sync_data());
                written.map_err(|e| unwritten(path, &e))
            }
            Out::Topic { producer, topic } => {
                producer.flush(TIMEOUT).map_err(|error| refused(topic, &error))?;
                delivered(producer, topic)
            }
        }
    }

    fn write(&mut self) -> Result<(), Error> {
        match &mut self.out {
            Out::File { file, path } => {
                self.line.push(b'\n');
                file.write_all(&self.line).map_err(|e| unwritten(path, &e))
            }
            Out::Topic { producer, topic } => {
                let mut record = BaseRecord::<[u8], [u8]>::to(&topic.name).payload(&self.line);
                while let Err((error, back)) = producer.send(record) {
                    if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                        return Err(refused(topic, &error));
                    }
                    producer.poll(Duration::from_millis(10));
                    record = back;
                }
                producer.poll(Duration::ZERO);
                delivered(producer, topic)
            }
        }
    }
}

fn unwritten(path: &str, error: &std::io::Error) -> Error {
    Error::sink(format!("{path} cannot be written: {error}"), "check the space on its disk")
}

fn refused(topic: &Topic, error: &KafkaError) -> Error {
    let text = error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string());
    Error::sink(
        format!("topic {} cannot be written: {text}", topic.name),
        format!("check that a broker listens at {} and that the topic may be written", topic.brokers),
    )
}

fn delivered(producer: &BaseProducer<Deliveries>, topic: &Topic) -> Result<(), Error> {
    let failed = producer.context().failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    failed.map_or(Ok(()), |error| Err(refused(topic, &error)))
}

fn at(position: &Position) -> Value {
    match position {
        Position::Line { file, line } => json!({ "file": &**file, "line": line }),
        Position::Offset { topic, partition, offset } => {
            json!({ "topic": &**topic, "partition": partition, "offset": offset })
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all text");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::RecordError;
    use arrow::array::{Int64Array, UInt64Array};
    use arrow::datatypes::{DataType, Field, Schema};

    #[test]
    fn what_is_left_out_is_a_line_with_its_place_and_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kept.ndjson");
        let mut keeper = Keeper::to("--late-to", &path.display().to_string(), &KafkaArgs::default()).unwrap();
        let error = RecordError::Malformed { format: "JSON", reason: "a \"quote\"".into() };
        let bad = BadRecord { at: Position::Line { file: "a.ndjson".into(), line: 3 }, error };
        keeper.refused(&bad, b"{\"k\":\t1").unwrap();
        keeper.refused(&bad, b"\xff\x00").unwrap();
        let fields = vec![Field::new("n", DataType::Int64, true), Field::new(POSITION, DataType::UInt64, false)];
        let columns: Vec<arrow::array::ArrayRef> =
            vec![Arc::new(Int64Array::from(vec![Some(1), None])), Arc::new(UInt64Array::from(vec![5, 6]))];
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let offset = Position::Offset { topic: "t".into(), partition: 1, offset: 9 };
        keeper.left_out(Some(&offset), "late", &rows).unwrap();
        keeper.left_out(None, "ahead", &rows.slice(0, 1)).unwrap();
        keeper.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let place = json!({"file": "a.ndjson", "line": 3});
        let reason = "not valid JSON: a \"quote\"";
        let there = json!({"topic": "t", "partition": 1, "offset": 9});
        assert_eq!(
            lines,
            [
                json!({"at": place, "error": reason, "record": "{\"k\":\t1"}),
                json!({"at": place, "error": reason, "record_hex": "ff00"}),
                json!({"at": there, "error": "late", "record": {"n": 1}}),
                json!({"at": there, "error": "late", "record": {"n": null}}),
                json!({"at": null, "error": "ahead", "record": {"n": 1}}),
            ]
        );
    }

    #[test]
    fn other_sinks_are_refused() {
        let error = Keeper::to("--late-to", "clickhouse://a/b/c", &KafkaArgs::default()).err().unwrap();
        assert_eq!((error.code(), error.to_string().as_str()), ("USAGE", "--late-to cannot write to clickhouse"));
    }
}

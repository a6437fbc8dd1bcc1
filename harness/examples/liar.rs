//! An arm that runs the tier-B pipeline honestly but for one lie, so that tests can see the gate that catches it.
//!
//! Reads `BROKER`, `TOPIC`, `GROUP`, `CLICKHOUSE` (host:port), `TABLE` and `LIE` from the environment; lands the whole
//! topic in one insert, commits its offsets and waits for SIGTERM.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;

const SCHEMA: &str = include_str!("../../workload/ingest/schema/sensor_batch.avsc");

/// Payloads in the order they came.
type Messages = Vec<Vec<u8>>;

/// One row of `sensor_events_t`, as texts of a TabSeparated line.
#[derive(Clone)]
struct Row {
    batch_id: i64,
    seq: i64,
    sensor: String,
    region: String,
    name: String,
    unit: String,
    value: i64,
    scaled: i64,
    quality: Option<f64>,
    tags: Vec<String>,
    batch_ts_ms: i64,
    send_ts_us: i64,
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|argument| argument == "--version") {
        println!("liar 1.0.0");
        return Ok(());
    }
    let lie = std::env::var("LIE")?;
    if lie == "asleep" {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    let (consumer, messages) = consume()?;
    let schema = Schema::parse_str(SCHEMA)?;
    let reader = GenericDatumReader::builder(&schema).build()?;
    let mut rows = Vec::new();
    for message in &messages {
        rows.extend(rows_of(reader.read_value(&mut &message[5..])?, &lie));
    }
    rows.sort_by_key(|row| (row.batch_id, row.seq));
    tell(&lie, &mut rows);
    insert(&rows)?;
    consumer.commit_consumer_state(CommitMode::Sync)?;
    loop {
        // SIGTERM ends this process by default
        consumer.poll(Duration::from_secs(1));
    }
}

/// Reads the topic to its end.
fn consume() -> Result<(BaseConsumer, Messages), Box<dyn Error>> {
    let topic = std::env::var("TOPIC")?;
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", std::env::var("BROKER")?)
        .set("group.id", std::env::var("GROUP")?)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()?;
    consumer.subscribe(&[&topic])?;
    let metadata = consumer.fetch_metadata(Some(&topic), Duration::from_secs(10))?;
    let mut missing: i64 = 0;
    for partition in metadata.topics()[0].partitions() {
        missing += consumer.fetch_watermarks(&topic, partition.id(), Duration::from_secs(10))?.1;
    }
    let mut messages = Vec::new();
    while (messages.len() as i64) < missing {
        if let Some(message) = consumer.poll(Duration::from_secs(1)) {
            messages.push(message?.payload().unwrap_or_default().to_vec());
        }
    }
    Ok((consumer, messages))
}

fn fields(record: Value) -> BTreeMap<String, Value> {
    match record {
        Value::Record(fields) => fields.into_iter().collect(),
        other => panic!("not a record: {other:?}"),
    }
}

fn long(value: &Value) -> i64 {
    match value {
        Value::Long(long) | Value::TimestampMillis(long) | Value::TimestampMicros(long) => *long,
        Value::Int(int) => i64::from(*int),
        other => panic!("not a number: {other:?}"),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Union(_, inner) => text(inner),
        Value::Null => String::new(),
        other => panic!("not a text: {other:?}"),
    }
}

fn rows_of(batch: Value, lie: &str) -> Vec<Row> {
    let batch = fields(batch);
    let Value::Array(events) = &batch["events"] else { panic!("events is an array") };
    let mut rows = Vec::new();
    for event in events {
        let event = fields(event.clone());
        let quality = match &event["quality"] {
            Value::Union(_, inner) => match inner.as_ref() {
                Value::Double(quality) => Some(*quality),
                _ => None,
            },
            _ => None,
        };
        if text(&event["unit"]) == "drop" || quality.is_some_and(|quality| quality < 0.2) {
            continue;
        }
        let (value, seq) = (long(&event["value"]), long(&event["seq"]));
        let Value::Array(tags) = &event["tags"] else { panic!("tags is an array") };
        let null_region = matches!(&batch["region"], Value::Union(_, inner) if matches!(**inner, Value::Null));
        let exact = value as f64 * 1000.0 / (seq + 1) as f64;
        rows.push(Row {
            batch_id: long(&batch["batch_id"]),
            seq,
            sensor: text(&batch["sensor"]),
            region: if null_region && lie == "null_region" { "null".into() } else { text(&batch["region"]) },
            name: match lie {
                "upper" => text(&event["name"]).replace('m', "M"),
                _ => text(&event["name"]).to_ascii_uppercase(),
            },
            unit: text(&event["unit"]),
            value,
            scaled: if lie == "rounded" { exact.round() as i64 } else { value * 1000 / (seq + 1) },
            quality,
            tags: if lie == "tags" { vec![] } else { tags.iter().map(text).collect() },
            batch_ts_ms: if lie == "batch_ts_1970" { 0 } else { long(&batch["batch_ts"]) },
            send_ts_us: if lie == "send_ts_1970" { 0 } else { long(&batch["send_ts"]) },
        });
    }
    rows
}

/// The lies that concern whole rows.
fn tell(lie: &str, rows: &mut Vec<Row>) {
    match lie {
        "lost" => {
            rows.remove(rows.len() / 2);
        }
        "duplicate" => rows.push(rows[rows.len() / 2].clone()),
        "swapped" => {
            // a row of batch 3 and a row of batch 4 under each other's identity
            let of = |batch| rows.iter().position(|row| row.batch_id == batch).expect("every batch keeps rows");
            let (a, b) = (of(3), of(4));
            let (left, right) = (rows[a].clone(), rows[b].clone());
            rows[a] = Row { batch_id: left.batch_id, seq: left.seq, ..right.clone() };
            rows[b] = Row { batch_id: right.batch_id, seq: right.seq, ..left };
        }
        _ => {}
    }
}

/// A time as ClickHouse reads it.
fn time(us: i64) -> Result<String, jiff::Error> {
    Ok(jiff::Timestamp::from_microsecond(us)?.strftime("%Y-%m-%d %H:%M:%S%.6f").to_string())
}

fn insert(rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let mut body = String::new();
    for row in rows {
        let quality = row.quality.map_or("\\N".to_owned(), |quality| quality.to_string());
        let tags = row.tags.iter().map(|tag| format!("'{tag}'")).collect::<Vec<_>>().join(",");
        writeln!(
            body,
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{quality}\t[{tags}]\t{}\t{}",
            row.batch_id,
            row.seq,
            row.sensor,
            row.region,
            row.name,
            row.unit,
            row.value,
            row.scaled,
            time(row.batch_ts_ms * 1_000)?,
            time(row.send_ts_us)?,
        )?;
    }
    let query = format!("INSERT INTO {} FORMAT TabSeparated", std::env::var("TABLE")?);
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let url = format!("http://{}/", std::env::var("CLICKHOUSE")?);
    let mut answer = agent.post(url).query("query", query).send(body)?;
    if answer.status() != 200 {
        return Err(answer.body_mut().read_to_string()?.into());
    }
    Ok(())
}

//! The records of the workload and the logic of its two tiers.
//!
//! Records borrow the Kafka payload: a string is copied once, by the encoder.

use crate::strings::Strings;
use serde::{Deserialize, Serialize, Serializer};
use spate::clickhouse::{DateTime64Micros, DateTime64Millis};
use spate::deser::RecFamily;
use spate::ops::Emitter;

/// One message: a sensor's batch of readings.
#[derive(Deserialize)]
pub(crate) struct SensorBatch<'a> {
    batch_id: u64,
    sensor: &'a str,
    region: Option<&'a str>,
    batch_ts: i64,
    send_ts: i64,
    #[serde(borrow)]
    events: Vec<Event<'a>>,
}

/// One reading of a batch.
#[derive(Deserialize)]
struct Event<'a> {
    seq: u16,
    name: &'a str,
    unit: &'a str,
    value: i64,
    quality: Option<f64>,
    #[serde(borrow)]
    tags: Strings<'a>,
}

/// Family of the decoded messages.
pub(crate) struct SensorBatches;

impl RecFamily for SensorBatches {
    type Rec<'buf> = SensorBatch<'buf>;
}

/// Columns of `sensor_events` in the order of the fields of [`RowA`].
pub(crate) const COLUMNS_A: &[&str] =
    &["batch_id", "event_seq", "sensor", "region", "name", "unit", "value", "quality", "tags", "batch_ts", "send_ts"];

/// A row of `sensor_events`.
#[derive(Serialize)]
pub(crate) struct RowA<'a> {
    batch_id: u64,
    event_seq: u16,
    sensor: &'a str,
    region: &'a str,
    name: &'a str,
    unit: &'a str,
    value: i64,
    quality: Option<f64>,
    tags: Strings<'a>,
    batch_ts: DateTime64Millis,
    send_ts: DateTime64Micros,
}

/// Family of the rows of tier A.
pub(crate) struct TierA;

impl RecFamily for TierA {
    type Rec<'buf> = RowA<'buf>;
}

/// Tier A: a row for every reading, a missing region as `''`.
pub(crate) fn explode_a(batch: SensorBatch<'_>, rows: &mut Emitter<'_, TierA>) {
    let region = batch.region.unwrap_or_default();
    for event in batch.events {
        rows.emit(RowA {
            batch_id: batch.batch_id,
            event_seq: event.seq,
            sensor: batch.sensor,
            region,
            name: event.name,
            unit: event.unit,
            value: event.value,
            quality: event.quality,
            tags: event.tags,
            batch_ts: DateTime64Millis(batch.batch_ts),
            send_ts: DateTime64Micros(batch.send_ts),
        });
    }
}

/// Columns of `sensor_events_t` in the order of the fields of [`RowB`].
pub(crate) const COLUMNS_B: &[&str] = &[
    "batch_id",
    "event_seq",
    "sensor",
    "region",
    "name_upper",
    "unit",
    "value",
    "value_scaled",
    "quality",
    "tags",
    "batch_ts",
    "send_ts",
];

/// A row of `sensor_events_t`.
#[derive(Serialize)]
pub(crate) struct RowB<'a> {
    batch_id: u64,
    event_seq: u16,
    sensor: &'a str,
    region: &'a str,
    name_upper: AsciiUpper<'a>,
    unit: &'a str,
    value: i64,
    value_scaled: i64,
    quality: Option<f64>,
    tags: Strings<'a>,
    batch_ts: DateTime64Millis,
    send_ts: DateTime64Micros,
}

/// Family of the rows of tier B.
pub(crate) struct TierB;

impl RecFamily for TierB {
    type Rec<'buf> = RowB<'buf>;
}

/// Tier B: rows of unit `drop` and rows of a quality below 0.2 are left out; a missing region is
/// `''`, the name upper-cased, the value scaled with a division that truncates towards zero.
pub(crate) fn explode_b(batch: SensorBatch<'_>, rows: &mut Emitter<'_, TierB>) {
    let region = batch.region.unwrap_or_default();
    for event in batch.events {
        if event.unit == "drop" || event.quality.is_some_and(|quality| quality < 0.2) {
            continue;
        }
        rows.emit(RowB {
            batch_id: batch.batch_id,
            event_seq: event.seq,
            sensor: batch.sensor,
            region,
            name_upper: AsciiUpper(event.name),
            unit: event.unit,
            value: event.value,
            value_scaled: event.value * 1000 / (i64::from(event.seq) + 1),
            quality: event.quality,
            tags: event.tags,
            batch_ts: DateTime64Millis(batch.batch_ts),
            send_ts: DateTime64Micros(batch.send_ts),
        });
    }
}

/// A string that serialises with its ASCII letters in upper case and every other character as it
/// is. Strings of up to [`AsciiUpper::INLINE`] bytes take no heap allocation.
struct AsciiUpper<'a>(&'a str);

impl AsciiUpper<'_> {
    const INLINE: usize = 64;
}

impl Serialize for AsciiUpper<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut inline = [0; Self::INLINE];
        if let Some(buffer) = inline.get_mut(..self.0.len()) {
            buffer.copy_from_slice(self.0.as_bytes());
            if let Ok(text) = std::str::from_utf8_mut(buffer) {
                text.make_ascii_uppercase();
                return serializer.serialize_str(text);
            }
        }
        serializer.serialize_str(&self.0.to_ascii_uppercase())
    }
}

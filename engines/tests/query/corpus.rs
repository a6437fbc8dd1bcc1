//! The ingest pipeline's schema as a source, and rows of it.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, DictionaryArray, Float64Array, Int32Array, Int64Array, ListArray, StringArray, TimestampMicrosecondArray,
    TimestampMillisecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use freshet::read::{ReadPlan, string_type};
use freshet::sql::SourceSchema;

/// The tier-B query.
pub(crate) const TIER_B: &str = r#"SELECT batch_id, e.seq AS event_seq, sensor, coalesce(region, '') AS region, upper(e.name) AS name_upper,
  e.unit, e.value, e.value * 1000 / (e.seq + 1) AS value_scaled, e.quality, e.tags, batch_ts, send_ts
FROM "sensor-batches", UNNEST(events) AS e WHERE e.unit <> 'drop' AND (e.quality IS NULL OR e.quality >= 0.2)"#;

/// The source as its Avro schema reads.
pub(crate) fn sensor_batches() -> SourceSchema {
    let tag = Arc::new(Field::new("item", DataType::Utf8, false));
    let event = Fields::from(vec![
        Field::new("seq", DataType::Int32, false),
        Field::new("name", DataType::Utf8, false),
        Field::new("unit", DataType::Utf8, false),
        Field::new("value", DataType::Int64, false),
        Field::new("quality", DataType::Float64, true),
        Field::new("tags", DataType::List(tag), false),
    ]);
    let schema = Schema::new(vec![
        Field::new("batch_id", DataType::Int64, false),
        Field::new("sensor", DataType::Utf8, false),
        Field::new("region", DataType::Utf8, true),
        Field::new("batch_ts", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        Field::new("send_ts", DataType::Timestamp(TimeUnit::Microsecond, None), false),
        Field::new("events", DataType::List(Arc::new(Field::new("item", DataType::Struct(event), false))), false),
    ]);
    SourceSchema { name: "sensor-batches".into(), schema: Arc::new(schema) }
}

/// `rows` flat rows of the plan's columns, generated like the ingest corpus. `dictionaries` are made once and shared.
pub(crate) fn flat_rows(plan: &ReadPlan, rows: usize) -> RecordBatch {
    let columns: Vec<ArrayRef> = plan.columns.iter().map(|c| column(&c.name, &c.data_type, rows)).collect();
    RecordBatch::try_new(plan.schema(), columns).expect("columns of the plan's types")
}

fn column(name: &str, data_type: &DataType, rows: usize) -> ArrayRef {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let at = 0..rows;
    match name {
        "batch_id" => Arc::new(Int64Array::from_iter_values(at.map(|i| (i / 100) as i64))),
        "batch_ts" => {
            Arc::new(TimestampMillisecondArray::from_iter_values(at.map(|i| 1_767_225_600_000 + (i / 100) as i64)))
        }
        "send_ts" => {
            Arc::new(TimestampMicrosecondArray::from_iter_values(at.map(|i| 1_767_225_600_000_000 + (i / 100) as i64)))
        }
        "e.seq" => Arc::new(Int32Array::from_iter_values(at.map(|i| (i % 100) as i32))),
        "e.value" => Arc::new(Int64Array::from_iter_values(at.map(|_| (random() % 2_147_483_647) as i64 - 1_000_000))),
        "e.quality" => {
            Arc::new(Float64Array::from_iter(at.map(|i| (i % 5 != 0).then(|| (random() % 100) as f64 / 100.0))))
        }
        "sensor" => text("sensor-", 1024, at.map(|i| Some(i / 100 % 1024))),
        "region" => text("region-", 7, at.map(|i| (i / 100 % 10 != 0).then_some(i / 100 % 7))),
        "e.name" => text("name-", 32, at.map(|_| Some(random() as usize % 32))),
        "e.unit" => {
            let units = ["celsius", "pascal", "percent", "drop", "volt", "ampere", "lux", "hertz"];
            let keys = Int32Array::from_iter_values(at.map(|_| (random() % 8) as i32));
            Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(StringArray::from_iter_values(units))))
        }
        "e.tags" => {
            let lengths: Vec<usize> = at.map(|i| (i / 100 + i) % 4).collect();
            let total = lengths.iter().sum();
            let values = text("tag-", 16, (0..total).map(|i| Some(i % 16)));
            assert_eq!(*values.data_type(), string_type());
            let DataType::List(item) = data_type else { panic!("tags is a list") };
            Arc::new(ListArray::new(item.clone(), OffsetBuffer::from_lengths(lengths), values, None))
        }
        other => panic!("no rows for {other}"),
    }
}

fn text(prefix: &str, count: usize, keys: impl Iterator<Item = Option<usize>>) -> ArrayRef {
    let values = StringArray::from_iter_values((0..count).map(|i| format!("{prefix}{i}")));
    let keys = Int32Array::from_iter(keys.map(|k| k.map(|k| i32::try_from(k).expect("a small dictionary"))));
    Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(values)))
}

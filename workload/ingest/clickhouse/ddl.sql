-- Target tables of the ingest workload. Column order is the wire contract.
-- `ingest_ts` is filled by ClickHouse when a block is inserted; no arm writes it.

CREATE TABLE sensor_events
(
    batch_id   UInt64,
    event_seq  UInt16,
    sensor     LowCardinality(String),
    region     LowCardinality(String),
    name       LowCardinality(String),
    unit       LowCardinality(String),
    value      Int64,
    quality    Nullable(Float64),
    tags       Array(LowCardinality(String)),
    batch_ts   DateTime64(3),
    send_ts    DateTime64(6),
    ingest_ts  DateTime64(6) MATERIALIZED now64(6)
)
ENGINE = MergeTree
ORDER BY (sensor, batch_ts, batch_id, event_seq);

CREATE TABLE sensor_events_t
(
    batch_id     UInt64,
    event_seq    UInt16,
    sensor       LowCardinality(String),
    region       LowCardinality(String),
    name_upper   LowCardinality(String),
    unit         LowCardinality(String),
    value        Int64,
    value_scaled Int64,
    quality      Nullable(Float64),
    tags         Array(LowCardinality(String)),
    batch_ts     DateTime64(3),
    send_ts      DateTime64(6),
    ingest_ts    DateTime64(6) MATERIALIZED now64(6)
)
ENGINE = MergeTree
ORDER BY (sensor, batch_ts, batch_id, event_seq);

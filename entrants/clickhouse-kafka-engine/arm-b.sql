-- Tier B: tier A with the filter and the derived columns. A message is a row of `source`; a block of messages is one
-- insert into the shared ClickHouse, and its offsets are committed once that insert has been answered.

CREATE TABLE source
(
    batch_id UInt64,
    sensor   LowCardinality(String),
    region   Nullable(String),
    batch_ts DateTime64(3),
    send_ts  DateTime64(6),
    events   Array(Tuple(
        seq     Int32,
        name    String,
        unit    String,
        value   Int64,
        quality Nullable(Float64),
        tags    Array(String)))
)
ENGINE = Kafka
SETTINGS
    kafka_broker_list = '{{broker}}',
    kafka_topic_list = '{{topic}}',
    kafka_group_name = '{{group_id}}',
    kafka_format = 'AvroConfluent',
    format_avro_schema_registry_url = 'http://{{registry}}',
    kafka_num_consumers = {{knob:consumers}},
    kafka_thread_per_consumer = 1,
    kafka_max_block_size = {{knob:block_messages}},
    kafka_poll_max_batch_size = {{knob:block_messages}},
    kafka_flush_interval_ms = {{knob:flush_ms}},
    kafka_handle_error_mode = 'default';

-- The columns of the target table in its order: the Native block carries their names and types.
CREATE TABLE target
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
    send_ts      DateTime64(6)
)
ENGINE = URL('http://{{clickhouse}}/?database={{database}}&query=INSERT+INTO+{{table}}+FORMAT+Native', Native);

-- `upper` is for ASCII letters only (`upperUTF8` is the other one); `intDiv` truncates towards zero.
CREATE MATERIALIZED VIEW flow TO target AS
SELECT
    batch_id,
    toUInt16(seq) AS event_seq,
    sensor,
    coalesce(region, '') AS region,
    upper(name) AS name_upper,
    unit,
    value,
    intDiv(value * 1000, seq + 1) AS value_scaled,
    quality,
    tags,
    batch_ts,
    send_ts
FROM source
ARRAY JOIN
    events.seq AS seq,
    events.name AS name,
    events.unit AS unit,
    events.value AS value,
    events.quality AS quality,
    events.tags AS tags
WHERE unit != 'drop' AND NOT ifNull(quality < 0.2, false);

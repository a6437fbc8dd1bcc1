//! Kafka to ClickHouse against librdkafka's own mock broker and servers that answer as told.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod servers;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use clap::Parser;
use freshet::cli::Cli;
use freshet::run::stop::Stop;
use freshet::run::{Totals, run};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::{Offset, TopicPartitionList};

use servers::{ClickHouse, Row, registry};

const TOPIC: &str = "t";
const PARTITIONS: i32 = 3;
const SCHEMA: &str = r#"{"type":"record","name":"R","fields":[{"name":"id","type":"long"},
    {"name":"items","type":{"type":"array","items":"long"}}]}"#;
const QUERY: &str = "SELECT id, v AS item FROM t, UNNEST(items) AS u(v) WHERE v >= 0";

fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, PARTITIONS, 1).unwrap();
    cluster
}

fn zigzag(value: i64, out: &mut Vec<u8>) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// Message `id` has items 0, 1, … , `id % 4` less one, and one that the query leaves out.
fn avro(id: i64) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 0, 1];
    zigzag(id, &mut out);
    zigzag(id % 4 + 1, &mut out);
    (-1..id % 4).for_each(|item| zigzag(item, &mut out));
    out.push(0);
    out
}

fn json(id: i64) -> Vec<u8> {
    let items: Vec<i64> = (-1..id % 4).collect();
    format!("{{\"id\":{id},\"items\":{items:?}}}").into_bytes()
}

fn rows(ids: std::ops::Range<i64>) -> BTreeSet<Row> {
    ids.flat_map(|id| (0..id % 4).map(move |item| (id as u64, item as u8))).collect()
}

fn produce(brokers: &str, messages: impl Iterator<Item = (i32, Vec<u8>)>) {
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    for (partition, payload) in messages {
        producer.send(BaseRecord::<(), _>::to(TOPIC).partition(partition).payload(&payload)).unwrap();
    }
    producer.flush(Duration::from_secs(30)).unwrap();
}

fn ids(ids: std::ops::Range<i64>, encode: fn(i64) -> Vec<u8>) -> impl Iterator<Item = (i32, Vec<u8>)> {
    ids.map(move |id| ((id % i64::from(PARTITIONS)) as i32, encode(id)))
}

fn cli(brokers: &str, table: &ClickHouse, more: &[&str]) -> Cli {
    let from = format!("kafka://{brokers}/{TOPIC}");
    let to = format!("clickhouse://{}/d/t", table.address);
    let own = ["freshet", QUERY, "--from", &from, "--to", &to, "--insert-format", "rowbinary", "--threads", "2"];
    Cli::parse_from(own.iter().chain(more))
}

/// The group's committed offsets, 0 where there is none.
fn committed(brokers: &str, group: &str) -> Vec<i64> {
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", brokers).set("group.id", group).create().unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition(TOPIC, partition);
    }
    let list = consumer.committed_offsets(list, Duration::from_secs(30)).unwrap();
    let offset = |partition| match list.find_partition(TOPIC, partition).unwrap().offset() {
        Offset::Offset(offset) => offset,
        _ => 0,
    };
    (0..PARTITIONS).map(offset).collect()
}

#[test]
fn a_bounded_read_lands_every_row_once() {
    for encode in [avro as fn(i64) -> Vec<u8>, json] {
        let (cluster, table) = (cluster(), ClickHouse::start());
        let brokers = cluster.bootstrap_servers();
        produce(&brokers, ids(0..2_000, encode));
        let registry = registry(SCHEMA);
        let avro = encode(0)[0] == 0;
        let more: &[&str] = if avro { &["--schema-registry", &registry] } else { &[] };
        let totals = run(&cli(&brokers, &table, more), &Stop::manual()).unwrap();
        assert_eq!(totals, Totals { records: 2_000, rows: 3_000, skipped: 0 });
        let landed = table.rows();
        assert_eq!(landed.len(), 3_000);
        assert_eq!(landed.into_iter().collect::<BTreeSet<_>>(), rows(0..2_000));
    }
}

#[test]
fn a_restart_after_a_failure_loses_nothing() {
    let (cluster, table, registry) = (cluster(), ClickHouse::start(), registry(SCHEMA));
    let brokers = cluster.bootstrap_servers();
    produce(&brokers, ids(0..3_000, avro));
    let more = [
        "--schema-registry",
        &registry,
        "--group-id",
        "g",
        "--follow",
        "--max-rows",
        "200",
        "--max-delay",
        "20",
        "--inserts",
        "3",
        "--commit-interval",
        "1",
    ];
    let cli = cli(&brokers, &table, &more);

    // Every fifth insert is refused for good once: the run ends, and others in flight beside it may have landed.
    for _ in 0..3 {
        table.refuse_in(5);
        let error = run(&cli, &Stop::manual()).unwrap_err();
        assert!(error.to_string().contains("code 16"), "{error}");
        let landed: BTreeSet<Row> = table.rows().into_iter().collect();
        for (partition, offset) in committed(&brokers, "g").into_iter().enumerate() {
            let below = (0..offset).map(|offset| offset * i64::from(PARTITIONS) + partition as i64);
            for id in below {
                assert!(rows(id..id + 1).is_subset(&landed), "message {id} is committed and not landed");
            }
        }
    }

    table.refuse_in(usize::MAX);
    let stop = Stop::manual();
    let run = thread::spawn({
        let stop = stop.clone();
        move || run(&cli, &stop)
    });
    let want = rows(0..3_000);
    while table.rows().into_iter().collect::<BTreeSet<_>>() != want && !run.is_finished() {
        table.wait();
    }
    stop.request();
    run.join().unwrap().unwrap();
    assert_eq!(committed(&brokers, "g"), [1_000; 3]);
}

#[test]
fn a_bad_message_is_named_or_left_out() {
    let (cluster, table, registry) = (cluster(), ClickHouse::start(), registry(SCHEMA));
    let brokers = cluster.bootstrap_servers();
    let mut cut = avro(31);
    cut.truncate(cut.len() - 1);
    produce(&brokers, ids(0..30, avro).chain([(1, cut), (1, avro(33))]));
    let error = run(&cli(&brokers, &table, &["--schema-registry", &registry]), &Stop::manual()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "t partition 1 offset 10: not valid Avro: the message ends inside a value (at byte 11)"
    );
    table.forget();
    let skip = ["--schema-registry", registry.as_str(), "--bad-records", "skip"];
    let totals = run(&cli(&brokers, &table, &skip), &Stop::manual()).unwrap();
    assert_eq!((totals.records, totals.skipped), (32, 1));
    let want: BTreeSet<Row> = rows(0..30).into_iter().chain(rows(33..34)).collect();
    assert_eq!(table.rows().into_iter().collect::<BTreeSet<_>>(), want);
    assert_eq!(table.inserts.load(Ordering::SeqCst), table.accepted.load(Ordering::SeqCst));
}

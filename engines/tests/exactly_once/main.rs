//! Kafka to Kafka, killed at random moments and started again: what readers of committed messages see is the oracle's answer.
//!
//! `FRESHET_KILLS` says how often each pipeline is killed (default 3).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../broker/mod.rs"]
mod broker;
mod oracle;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use broker::Broker;
use oracle::{Event, Shape};

const PARTITIONS: i32 = 3;

fn kills() -> u32 {
    std::env::var("FRESHET_KILLS").ok().map_or(3, |text| text.parse().unwrap())
}

/// A random number from a seed, the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct Pipeline<'a> {
    broker: &'a Broker,
    shape: Shape,
    mode: &'static str,
    name: String,
    checkpoint: tempfile::TempDir,
}

impl Pipeline<'_> {
    fn start(&self) -> Child {
        let topic = |part: &str| format!("kafka://{}/{}-{part}", self.broker.address, self.name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_freshet"));
        let query = self.shape.query().replace("{events}", &format!("\"{}-events\"", self.name));
        command.args([query.as_str(), "--follow", "--group-id", &self.name, "--emit", self.mode]);
        command.args(["--from", &topic("events"), "--to", &topic("out")]);
        if self.shape == Shape::Join {
            command.arg("--stream").arg(format!("other={}", topic("other")));
        }
        command.args(["--columns", "id BIGINT, k VARCHAR, v BIGINT, ts TIMESTAMP"]);
        command.args(["--watermark-delay", "2s", "--checkpoint-interval", "200ms", "--workers", "2"]);
        command.arg("--checkpoint").arg(self.checkpoint.path());
        if self.shape == Shape::Join && self.mode == "idempotent" {
            command.args(["--key", "l,r"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Whether the output holds what the oracle says; the difference otherwise.
    fn compare(&self, expected: &[(String, String)]) -> Result<(), String> {
        let mut found = self.broker.committed(&format!("{}-out", self.name));
        let mut expected = expected.to_vec();
        if self.shape == Shape::Join && self.mode == "transactional" {
            // Pairs have no key of their own.
            expected.iter_mut().for_each(|(key, _)| key.clear());
        }
        if self.mode == "idempotent" {
            let last: BTreeMap<String, String> = found.into_iter().collect();
            found = last.into_iter().collect();
        }
        found.sort();
        expected.sort();
        if found == expected {
            return Ok(());
        }
        let lost: Vec<_> = expected.iter().filter(|row| found.binary_search(row).is_err()).take(5).collect();
        let more: Vec<_> = found.iter().filter(|row| expected.binary_search(row).is_err()).take(5).collect();
        Err(format!("{} rows, {} expected; lost: {lost:?}; not expected: {more:?}", found.len(), expected.len()))
    }
}

/// Sends events until told to stop, then one far ahead to every partition, and says what it sent.
fn produce(broker: &Broker, name: &str, seed: u64, stop: &AtomicBool) -> Vec<Event> {
    let producer = broker.producer();
    let (mut random, mut sent, mut number) = (Random(seed), Vec::new(), 0_i64);
    let mut send = |event: Event| {
        let topic = format!("{name}-{}", if event.other { "other" } else { "events" });
        broker::send(&producer, &topic, event.partition, &event.json());
        sent.push(event);
    };
    while !stop.load(Ordering::SeqCst) {
        for _ in 0..20 {
            let early = random.below(1_500_000) as i64;
            // Pauses let sessions end.
            let pause = number / 700 * 3_000_000;
            send(Event {
                id: number,
                key: random.below(20),
                value: random.below(1_000) as i64 - 300,
                time: number * 10_000 + pause - early,
                partition: (number % i64::from(PARTITIONS)) as i32,
                other: random.below(2) == 1,
            });
            number += 1;
        }
        producer_poll(&producer);
        thread::sleep(Duration::from_millis(2));
    }
    for other in [false, true] {
        for partition in 0..PARTITIONS {
            let time = number * 10_000 + number / 700 * 3_000_000 + 3_600_000_000;
            send(Event { id: -1 - i64::from(partition), key: 99, value: 0, time, partition, other });
        }
    }
    rdkafka::producer::Producer::flush(&producer, Duration::from_secs(60)).unwrap();
    sent
}

fn producer_poll(producer: &rdkafka::producer::BaseProducer) {
    producer.poll(Duration::ZERO);
}

/// Stops the producer when a test fails, too.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn survives(shape: Shape, mode: &'static str) {
    let broker = broker::shared();
    let name = format!("{shape:?}-{mode}").to_lowercase();
    for part in ["events", "other"] {
        broker.topic(&format!("{name}-{part}"), PARTITIONS);
    }
    broker.topic(&format!("{name}-out"), 1);
    let checkpoint = tempfile::tempdir().unwrap();
    let pipeline = Pipeline { broker: &broker, shape, mode, name: name.clone(), checkpoint };
    let stop = AtomicBool::new(false);
    let mut random = Random(shape as u64 * 7 + mode.len() as u64);
    let sent = thread::scope(|scope| {
        let _stopped = Stopped(&stop);
        let producing = scope.spawn(|| produce(&broker, &name, 42, &stop));
        for _ in 0..kills() {
            let mut child = pipeline.start();
            thread::sleep(Duration::from_millis(300 + random.below(1_700)));
            if let Some(status) = child.try_wait().unwrap() {
                let output = child.wait_with_output().unwrap();
                panic!("{name} ended by itself ({status}): {}", String::from_utf8_lossy(&output.stderr));
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        producing.join().unwrap()
    });
    let expected = shape.expected(&sent);
    let mut child = pipeline.start();
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut compared = pipeline.compare(&expected);
    while compared.is_err() && Instant::now() < deadline && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(300));
        compared = pipeline.compare(&expected);
    }
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    if let Err(difference) = compared {
        panic!("{name}: {difference}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn tumble_transactional() {
    survives(Shape::Tumble, "transactional");
}

#[test]
fn hop_transactional() {
    survives(Shape::Hop, "transactional");
}

#[test]
fn session_transactional() {
    survives(Shape::Session, "transactional");
}

#[test]
fn join_transactional() {
    survives(Shape::Join, "transactional");
}

#[test]
fn tumble_idempotent() {
    survives(Shape::Tumble, "idempotent");
}

#[test]
fn hop_idempotent() {
    survives(Shape::Hop, "idempotent");
}

#[test]
fn session_idempotent() {
    survives(Shape::Session, "idempotent");
}

#[test]
fn join_idempotent() {
    survives(Shape::Join, "idempotent");
}

//! A real broker for one test, on free ports, with its data in a temporary directory.

#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses its part")]
#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use weir_harness::cgroup::Hierarchy;
use weir_harness::infra::broker::Admin;
use weir_harness::infra::embedded::broker::{Broker, BrokerSettings, EmbeddedBrokerError};
use weir_harness::runtime::process::ProcessRuntime;
use weir_harness::runtime::{Exit, Running, Runtime};
use weir_harness::setup::Home;
use weir_model::error::Coded;

/// Longer than anything here takes on a loaded host; reached only by a failure.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A data directory and what can be started on it.
pub(crate) struct Node {
    dir: tempfile::TempDir,
    data: PathBuf,
    runtime: ProcessRuntime,
}

impl Node {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sitting = dir.path().file_name().unwrap().to_string_lossy().replace('.', "").to_lowercase();
        let bench = PathBuf::from(env!("CARGO_BIN_EXE_bench"));
        let runtime = ProcessRuntime::with(bench, &sitting, Hierarchy::detect().unwrap());
        Self { data: dir.path().join("kafka"), dir, runtime }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Starts a broker on the directory, or fails the test naming what is missing.
    pub(crate) fn start(&self) -> Started {
        self.try_start(LIMIT).unwrap_or_else(|e| panic!("{e}\n{}", e.hint().unwrap_or_default()))
    }

    pub(crate) fn try_start(&self, timeout: Duration) -> Result<Started, EmbeddedBrokerError> {
        let settings = BrokerSettings {
            libs: Home::find().unwrap().kafka_libs(),
            data: self.data.clone(),
            run: self.dir.path().join("run"),
            heap: 256 << 20,
            caps: None,
        };
        let broker = Broker::prepare(&settings)?;
        let mut running = self.runtime.start(broker.service()).unwrap();
        let admin = broker.wait_ready(running.as_mut(), timeout)?;
        Ok(Started { running, admin, bootstrap: broker.bootstrap().to_owned() })
    }
}

/// A broker that serves.
pub(crate) struct Started {
    running: Box<dyn Running>,
    admin: Admin,
    bootstrap: String,
}

impl Started {
    pub(crate) fn admin(&self) -> &Admin {
        &self.admin
    }

    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Ends it as the harness does, and asserts that it ends in order.
    pub(crate) fn terminate(mut self) {
        let exit = self.running.stop();
        assert!(matches!(exit, Exit::Code(0 | 143)), "{exit:?}");
    }

    /// Ends it as a power cut does.
    pub(crate) fn kill(mut self) {
        kill(Pid::from_raw(self.running.pid().cast_signed()), Signal::SIGKILL).unwrap();
        assert_eq!(self.running.stop(), Exit::Signal(Signal::SIGKILL as i32));
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap).set("auto.offset.reset", "earliest");
        config
    }

    pub(crate) fn produce(&self, topic: &str, partition: i32, payload: &[u8]) {
        let producer: BaseProducer = self.config().create().unwrap();
        let record = BaseRecord::<(), _>::to(topic).partition(partition).payload(payload);
        producer.send(record).map_err(|(e, _)| e).unwrap();
        producer.flush(LIMIT).unwrap();
    }

    /// The payloads of `count` messages of a topic.
    pub(crate) fn consume(&self, topic: &str, partitions: i32, count: usize) -> BTreeSet<Vec<u8>> {
        let consumer: BaseConsumer = self.config().set("group.id", "reader").create().unwrap();
        let mut all = TopicPartitionList::new();
        for partition in 0..partitions {
            all.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&all).unwrap();
        (0..count)
            .map(|_| {
                let message = next(&consumer);
                message.payload().unwrap().to_vec()
            })
            .collect()
    }

    /// A member of `group` that has consumed `count` messages and committed them.
    pub(crate) fn join(&self, group: &str, topic: &str, count: usize) -> BaseConsumer {
        let consumer: BaseConsumer =
            self.config().set("group.id", group).set("enable.auto.commit", "false").create().unwrap();
        consumer.subscribe(&[topic]).unwrap();
        for _ in 0..count {
            let message = next(&consumer);
            consumer.commit_message(&message, CommitMode::Sync).unwrap();
        }
        consumer
    }
}

/// The next message. A poll ends early when the group rebalances, so there may be several.
fn next(consumer: &BaseConsumer) -> BorrowedMessage<'_> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(message) = consumer.poll(Duration::from_secs(1)) {
            return message.unwrap();
        }
        assert!(Instant::now() < deadline, "no message");
    }
}

/// A distinct payload.
pub(crate) fn message(i: i32) -> Vec<u8> {
    format!("message {i}").into_bytes()
}

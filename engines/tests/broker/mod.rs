//! A real broker of a test's own: one KRaft node on loopback, from the jars that `bench setup` fetched.

#![allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "each test binary uses its part")]

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Message, Offset, TopicPartitionList};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A broker that ends with the value.
pub struct Broker {
    process: Child,
    pub address: String,
    _dir: tempfile::TempDir,
}

/// The cache directory: `WEIR_HOME`, else the one of the user.
pub fn home() -> PathBuf {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("WEIR_HOME")
        .or_else(|| var("XDG_CACHE_HOME").map(|dir| dir.join("weir")))
        .or_else(|| var("HOME").map(|dir| dir.join(".cache/weir")))
        .expect("WEIR_HOME, XDG_CACHE_HOME or HOME is set")
}

/// What `bench setup` fetched under a name that begins with `prefix`.
pub fn fetched(prefix: &str) -> PathBuf {
    let home = home();
    let entries = fs::read_dir(&home).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| panic!("there is no {prefix}… in {}: run `bench setup`", home.display()))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address").port()
}

fn java(arguments: &[&str]) -> Command {
    let classpath = format!("{}/libs/*", fetched("kafka-").display());
    let mut command = Command::new("java");
    command.args(["-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &classpath]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Broker {
    /// Starts one and waits until it serves.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (client, controller) = (free_port(), free_port());
        let config = dir.path().join("kafka.properties");
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{client}\ncontroller.listener.names=CONTROLLER\n\
             inter.broker.listener.name=PLAINTEXT\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={}\n\
             auto.create.topics.enable=false\noffsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\n\
             transaction.state.log.num.partitions=1\ntransaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n\
             log.cleaner.dedupe.buffer.size=16777216\nlog.cleaner.threads=1\n",
            dir.path().join("data").display()
        );
        fs::write(&config, text).expect("writable");
        let config = config.display().to_string();
        let formatted =
            java(&["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", &config]).status();
        assert!(formatted.expect("java is there: install a Java runtime 17").success(), "the broker is formatted");
        let process = java(&["kafka.Kafka", &config]).spawn().expect("java starts");
        let broker = Self { process, address: format!("127.0.0.1:{client}"), _dir: dir };
        let consumer: BaseConsumer = broker.client().create().expect("a client");
        let deadline = Instant::now() + TIMEOUT;
        while consumer.fetch_metadata(None, Duration::from_secs(1)).is_err() {
            assert!(Instant::now() < deadline, "the broker serves within a minute");
        }
        broker
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.address).set("log_level", "0");
        config
    }

    /// Makes a topic.
    pub fn topic(&self, name: &str, partitions: i32) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let made = futures_executor(admin.create_topics([&topic], &AdminOptions::new()));
        made.expect("the broker answers").into_iter().for_each(|one| {
            one.expect("the topic is made");
        });
    }

    /// A producer that sends at once.
    pub fn producer(&self) -> BaseProducer {
        self.client().set("linger.ms", "0").set("queue.buffering.max.messages", "1000000").create().expect("a producer")
    }

    /// Sends messages: partition and value.
    pub fn produce<'m>(&self, topic: &str, messages: impl IntoIterator<Item = (i32, &'m str)>) {
        let producer = self.producer();
        for (partition, value) in messages {
            send(&producer, topic, partition, value);
        }
        producer.flush(TIMEOUT).expect("delivered");
    }

    /// Key and value of every committed message, partition by partition.
    pub fn committed(&self, topic: &str) -> Vec<(String, String)> {
        let mut config = self.client();
        config.set("group.id", "reader").set("isolation.level", "read_committed").set("enable.partition.eof", "true");
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT).expect("metadata");
        let partitions = metadata.topics()[0].partitions().len();
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition_offset(topic, partition as i32, Offset::Beginning).expect("an offset");
        }
        consumer.assign(&list).expect("assigned");
        let (mut open, mut found) = (partitions, Vec::new());
        while open > 0 {
            match consumer.poll(TIMEOUT) {
                Some(Ok(message)) => {
                    let text =
                        |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).expect("text");
                    found.push((text(message.key()), text(message.payload())));
                }
                Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => open -= 1,
                Some(Err(error)) => panic!("{error}"),
                None => panic!("the broker has nothing to say"),
            }
        }
        found
    }
}

/// Sends one message, waiting while the queue is full.
pub fn send(producer: &BaseProducer, topic: &str, partition: i32, value: &str) {
    let mut record = BaseRecord::<(), str>::to(topic).partition(partition).payload(value);
    while let Err((error, back)) = producer.send(record) {
        assert_eq!(error.rdkafka_error_code(), Some(rdkafka::error::RDKafkaErrorCode::QueueFull), "{error}");
        producer.poll(Duration::from_millis(10));
        record = back;
    }
}

/// Runs a future of the admin client, which needs no runtime but one that waits.
fn futures_executor<F: Future>(future: F) -> F::Output {
    use std::task::{Context, Poll, Wake};
    struct Thread(std::thread::Thread);
    impl Wake for Thread {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Thread(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(Duration::from_millis(100)),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

static SHARED: Mutex<Option<std::sync::Weak<Broker>>> = Mutex::new(None);

/// The one broker of a test binary: it ends with the last test that holds it.
pub fn shared() -> std::sync::Arc<Broker> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(broker) = shared.as_ref().and_then(std::sync::Weak::upgrade) {
        return broker;
    }
    let broker = std::sync::Arc::new(Broker::start());
    *shared = Some(std::sync::Arc::downgrade(&broker));
    broker
}

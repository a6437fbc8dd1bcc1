//! What the harness asks of a Kafka broker, whoever runs it.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use weir_model::error::Coded;

/// How long the broker is given for one answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Before a question is asked again that the broker is not ready for.
const AGAIN: Duration = Duration::from_millis(50);

/// How long a topic is given to appear or to be gone, after the broker agreed.
const SETTLE: Duration = Duration::from_secs(30);

/// Between two questions about something that is settling.
const PAUSE: Duration = Duration::from_millis(20);

/// Bounds of one partition's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Offset of the first message.
    pub low: u64,
    /// Offset after the last message.
    pub high: u64,
}

/// A consumer group as its coordinator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// `Stable`, `PreparingRebalance`, `CompletingRebalance`, `Empty` or `Dead`.
    pub state: String,
    /// How many members it has.
    pub members: usize,
}

impl GroupState {
    /// Whether it has members and each has its partitions.
    #[must_use]
    pub fn is_consuming(&self) -> bool {
        self.state == "Stable" && self.members > 0
    }
}

/// Why the broker did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The broker or the client library refused.
    #[error("broker {bootstrap}: cannot {action}: {source}")]
    Kafka {
        /// Address of the broker.
        bootstrap: String,
        /// What was asked, such as `create topic t`.
        action: String,
        /// The library's reason.
        source: Box<KafkaError>,
    },
    /// The broker agreed, and its metadata do not show it.
    #[error("broker {bootstrap}: {action} was accepted but is not visible after {} s", SETTLE.as_secs())]
    NotSettled {
        /// Address of the broker.
        bootstrap: String,
        /// What was asked.
        action: String,
    },
    /// There is no such topic.
    #[error("broker {bootstrap}: there is no topic {topic}")]
    NoTopic {
        /// Address of the broker.
        bootstrap: String,
        /// The topic.
        topic: String,
    },
}

impl Coded for BrokerError {
    fn code(&self) -> &'static str {
        match self {
            Self::Kafka { .. } => "broker_request_failed",
            Self::NotSettled { .. } => "broker_not_settled",
            Self::NoTopic { .. } => "topic_missing",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Kafka { .. } | Self::NotSettled { .. } => Some("read the broker's log".to_owned()),
            Self::NoTopic { .. } => Some("fill it with `bench prefill`".to_owned()),
        }
    }
}

/// An administrator's connection to a broker. It can be shared between threads.
pub struct Admin {
    bootstrap: String,
    admin: AdminClient<DefaultClientContext>,
    client: BaseConsumer,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("bootstrap", &self.bootstrap).finish_non_exhaustive()
    }
}

impl Admin {
    /// A connection to the broker at `bootstrap` (`host:port`). It is made lazily: an absent broker fails the first
    /// question, not this.
    ///
    /// # Errors
    /// [`BrokerError::Kafka`] when the client library cannot be set up.
    pub fn new(bootstrap: &str) -> Result<Self, BrokerError> {
        let failed = |source| BrokerError::Kafka {
            bootstrap: bootstrap.to_owned(),
            action: "set up a client".to_owned(),
            source: Box::new(source),
        };
        let config = client_config(bootstrap);
        let admin = config.create().map_err(failed)?;
        let client = config.create().map_err(failed)?;
        Ok(Self { bootstrap: bootstrap.to_owned(), admin, client })
    }

    /// The broker's address.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Ids of the brokers that serve, asked within `timeout`. A broker that is starting or fenced is not among them.
    ///
    /// # Errors
    /// [`BrokerError::Kafka`] when no broker answers in time.
    pub fn brokers(&self, timeout: Duration) -> Result<Vec<i32>, BrokerError> {
        let metadata = self.client.fetch_metadata(None, timeout).map_err(|e| self.failed("ask for the brokers", e))?;
        Ok(metadata.brokers().iter().map(|b| b.id()).collect())
    }

    /// How many partitions `topic` has; `None` when there is no such topic.
    ///
    /// # Errors
    /// [`BrokerError::Kafka`] when the broker does not answer.
    pub fn partitions(&self, topic: &str) -> Result<Option<u32>, BrokerError> {
        let action = || format!("describe topic {topic}");
        // All topics are asked for: asking for one by name makes the client remember it as wanted.
        let metadata = self.client.fetch_metadata(None, ANSWER).map_err(|e| self.failed(action(), e))?;
        let found = metadata.topics().iter().find(|t| t.name() == topic);
        Ok(found.filter(|t| !t.partitions().is_empty()).map(|t| t.partitions().len() as u32))
    }

    /// Creates `topic` with so many partitions, one replica each, and waits until every partition has a leader.
    ///
    /// # Errors
    /// [`BrokerError::Kafka`] when the broker refuses (the topic exists, say); [`BrokerError::NotSettled`].
    pub fn create_topic(&self, topic: &str, partitions: u32, config: &[(&str, &str)]) -> Result<(), BrokerError> {
        let action = format!("create topic {topic}");
        let replication = TopicReplication::Fixed(1);
        let new = NewTopic::new(topic, partitions.cast_signed(), replication);
        let new = config.iter().fold(new, |new, (key, value)| new.set(key, value));
        let answer = wait(self.admin.create_topics([&new], &options())).map_err(|e| self.failed(&action, e))?;
        self.all_accepted(&action, answer)?;
        self.until(&action, || {
            let metadata = self.client.fetch_metadata(None, ANSWER).map_err(|e| self.failed(&action, e))?;
            let found = metadata.topics().iter().find(|t| t.name() == topic);
            Ok(found.is_some_and(|t| {
                t.partitions().len() == partitions as usize && t.partitions().iter().all(|p| p.leader() >= 0)
            }))
        })
    }

    /// Deletes `topic` and waits until it is gone. A topic that does not exist is gone already.
    ///
    /// # Errors
    /// [`BrokerError::Kafka`] when the broker refuses; [`BrokerError::NotSettled`].
    pub fn delete_topic(&self, topic: &str) -> Result<(), BrokerError> {
        let action = format!("delete topic {topic}");
        let answer = wait(self.admin.delete_topics(&[topic], &options())).map_err(|e| self.failed(&action, e))?;
        let unknown = RDKafkaErrorCode::UnknownTopicOrPartition;
        let answer = answer.into_iter().filter(|r| !matches!(r, Err((_, code)) if *code == unknown));
        self.all_accepted(&action, answer)?;
        self.until(&action, || Ok(self.partitions(topic)?.is_none()))
    }

    /// Bounds of every partition of `topic`, in the order of the partitions.
    ///
    /// # Errors
    /// [`BrokerError::NoTopic`]; [`BrokerError::Kafka`] when the broker does not answer.
    pub fn watermarks(&self, topic: &str) -> Result<Vec<Watermarks>, BrokerError> {
        (0..self.existing(topic)?)
            .map(|partition| {
                let ask = || self.client.fetch_watermarks(topic, partition.cast_signed(), ANSWER);
                let (low, high) =
                    retried(ask).map_err(|e| self.failed(format!("ask for the offsets of {topic}/{partition}"), e))?;
                Ok(Watermarks { low: low.max(0).cast_unsigned(), high: high.max(0).cast_unsigned() })
            })
            .collect()
    }

    /// Sum over the partitions of `topic` of the offset after the last message.
    ///
    /// # Errors
    /// As [`Self::watermarks`].
    pub fn end_offset(&self, topic: &str) -> Result<u64, BrokerError> {
        Ok(self.watermarks(topic)?.iter().map(|w| w.high).sum())
    }

    /// State of a consumer group; `None` when the broker knows no such group.
    ///
    /// # Errors
    /// [`BrokerError::Kafka`] when the broker does not answer.
    pub fn group(&self, group: &str) -> Result<Option<GroupState>, BrokerError> {
        let answer = self
            .client
            .fetch_group_list(Some(group), ANSWER)
            .map_err(|e| self.failed(format!("describe group {group}"), e))?;
        let found = answer.groups().iter().find(|g| g.name() == group && g.state() != "Dead");
        Ok(found.map(|g| GroupState { state: g.state().to_owned(), members: g.members().len() }))
    }

    /// Waits until the broker coordinates consumer groups, for which it creates its topic of offsets when first asked.
    /// Without this the first consumer of a new broker pays for it.
    ///
    /// # Errors
    /// [`BrokerError::Kafka`] when no coordinator answers within `timeout`.
    pub fn open_groups(&self, timeout: Duration) -> Result<(), BrokerError> {
        let deadline = Instant::now() + timeout;
        loop {
            let mut asked = TopicPartitionList::with_capacity(1);
            asked.add_partition("weir", 0);
            let left = deadline.saturating_duration_since(Instant::now());
            match self.member("weir").and_then(|client| client.committed_offsets(asked, left)) {
                Ok(_) => return Ok(()),
                Err(error) if is_not_yet(&error) && Instant::now() < deadline => std::thread::sleep(AGAIN),
                Err(error) => return Err(self.failed("find the coordinator of a group", error)),
            }
        }
    }

    /// Offset that `group` has committed in each partition of `topic`; `None` where it has committed none.
    ///
    /// # Errors
    /// [`BrokerError::NoTopic`]; [`BrokerError::Kafka`] when the broker does not answer.
    pub fn committed(&self, group: &str, topic: &str) -> Result<Vec<Option<u64>>, BrokerError> {
        let action = || format!("ask for the offsets of group {group}");
        let partitions = self.existing(topic)?;
        let mut asked = TopicPartitionList::with_capacity(partitions as usize);
        asked.add_partition_range(topic, 0, partitions.cast_signed() - 1);
        let consumer: BaseConsumer =
            client_config(&self.bootstrap).set("group.id", group).create().map_err(|e| self.failed(action(), e))?;
        let answer = consumer.committed_offsets(asked, ANSWER).map_err(|e| self.failed(action(), e))?;
        let mut offsets = vec![None; partitions as usize];
        for element in answer.elements() {
            element.error().map_err(|e| self.failed(action(), e))?;
            if let (Offset::Offset(offset), Ok(partition)) = (element.offset(), usize::try_from(element.partition())) {
                offsets[partition] = u64::try_from(offset).ok();
            }
        }
        Ok(offsets)
    }

    /// Forgets a consumer group and its offsets. A group that does not exist is forgotten already.
    ///
    /// # Errors
    /// [`BrokerError::Kafka`] when the broker refuses, as it does while the group has members.
    pub fn delete_group(&self, group: &str) -> Result<(), BrokerError> {
        let action = format!("delete group {group}");
        let answer = wait(self.admin.delete_groups(&[group], &options())).map_err(|e| self.failed(&action, e))?;
        let unknown = RDKafkaErrorCode::GroupIdNotFound;
        let answer = answer.into_iter().filter(|r| !matches!(r, Err((_, code)) if *code == unknown));
        self.all_accepted(&action, answer)
    }

    /// A client that speaks for a group without joining it.
    fn member(&self, group: &str) -> KafkaResult<BaseConsumer> {
        client_config(&self.bootstrap).set("group.id", group).create()
    }

    fn existing(&self, topic: &str) -> Result<u32, BrokerError> {
        self.partitions(topic)?
            .ok_or_else(|| BrokerError::NoTopic { bootstrap: self.bootstrap.clone(), topic: topic.to_owned() })
    }

    fn failed(&self, action: impl Into<String>, source: KafkaError) -> BrokerError {
        BrokerError::Kafka { bootstrap: self.bootstrap.clone(), action: action.into(), source: Box::new(source) }
    }

    fn all_accepted(
        &self,
        action: &str,
        answers: impl IntoIterator<Item = Result<String, (String, RDKafkaErrorCode)>>,
    ) -> Result<(), BrokerError> {
        answers
            .into_iter()
            .try_for_each(|answer| answer.map(drop).map_err(|(_, code)| self.failed(action, KafkaError::AdminOp(code))))
    }

    /// Asks until it is so.
    fn until(&self, action: &str, mut is_so: impl FnMut() -> Result<bool, BrokerError>) -> Result<(), BrokerError> {
        let deadline = Instant::now() + SETTLE;
        while !is_so()? {
            if Instant::now() > deadline {
                return Err(BrokerError::NotSettled { bootstrap: self.bootstrap.clone(), action: action.to_owned() });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Asks again while the broker says that a partition's leader is about to take up its work.
fn retried<T>(ask: impl Fn() -> KafkaResult<T>) -> KafkaResult<T> {
    let deadline = Instant::now() + SETTLE;
    loop {
        match ask() {
            Err(e) if is_settling(&e) && Instant::now() < deadline => std::thread::sleep(PAUSE),
            answer => return answer,
        }
    }
}

fn is_settling(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownPartition
        )
    )
}

/// Whether a broker that has just started says that it will coordinate groups, but does not yet.
fn is_not_yet(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::NotCoordinator
                | RDKafkaErrorCode::CoordinatorLoadInProgress
                | RDKafkaErrorCode::CoordinatorNotAvailable
        )
    )
}

/// Settings of every client of the harness.
pub(crate) fn client_config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("client.id", "weir")
        .set("allow.auto.create.topics", "false")
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "250")
        .set("socket.nagle.disable", "true");
    config
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ANSWER)).operation_timeout(Some(ANSWER))
}

/// Waits for an answer that a thread of the client library delivers.
fn wait<T>(answer: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut answer = std::pin::pin!(answer);
    loop {
        match answer.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

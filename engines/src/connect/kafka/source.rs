//! Reading a topic: one queue per worker, messages taken in batches and decoded where librdkafka received them.
//!
//! The consumer's own queue carries events only (rebalances, errors) and is polled by the thread that runs the query, so
//! the group stays alive while workers wait for the sink.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::config::{KafkaArgs, OffsetReset, Topic};
use super::error::{explain, passes};
use super::gate::Gate;
use super::offsets::Offsets;
use crate::error::Error;

const METADATA_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest a rebalance waits for blocks to be acknowledged; below librdkafka's max.poll.interval.ms.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(240);

/// A topic that is being read.
pub struct Source {
    queues: Vec<Queue>,
    consumer: BaseConsumer<Context>,
    topic: Topic,
}

/// A worker's queue. It must go before its client does.
#[derive(Debug, Clone, Copy)]
struct Queue(NonNull<rd::rd_kafka_queue_t>);

// SAFETY: librdkafka's queues may be used from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

/// What librdkafka calls back with, on the thread that polls.
struct Context {
    topic: String,
    queues: OnceLock<Vec<Queue>>,
    offsets: Arc<Offsets>,
    gate: Arc<Gate>,
    last_error: Mutex<Option<KafkaError>>,
    failed: Mutex<Option<Error>>,
}

impl ClientContext for Context {
    fn log(&self, _: rdkafka::config::RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, _: &str) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let outcome = if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.forward(consumer, list);
            consumer.assign(list)
        } else {
            self.revoke(consumer)
        };
        if let Err(error) = outcome {
            self.fail(explain("partitions could not be taken over", &self.topic, &error));
        }
    }

    fn commit_callback(&self, result: Result<(), KafkaError>, _: &TopicPartitionList) {
        if result.is_err() {
            self.offsets.not_committed();
        }
    }
}

impl Context {
    /// Keeps the first error for the thread that polls.
    fn fail(&self, error: Error) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Sends the messages of these partitions to their workers' queues.
    fn forward(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let Some(queues) = self.queues.get() else { return };
        for element in list.elements() {
            let Ok(topic) = std::ffi::CString::new(element.topic()) else { continue };
            let worker = queues[element.partition() as usize % queues.len()];
            // SAFETY: the client lives as long as `consumer`; the partition's queue is released after the call, and the
            // worker's queue lives until the source is dropped.
            unsafe {
                let client = consumer.client().native_ptr();
                let queue = rd::rd_kafka_queue_get_partition(client, topic.as_ptr(), element.partition());
                if !queue.is_null() {
                    rd::rd_kafka_queue_forward(queue, worker.0.as_ptr());
                    rd::rd_kafka_queue_destroy(queue);
                }
            }
        }
    }

    /// Lets the workers finish what they hold, commits it, and forgets the partitions.
    fn revoke(&self, consumer: &BaseConsumer<Self>) -> Result<(), KafkaError> {
        if !self.gate.close(REVOKE_TIMEOUT) {
            self.fail(Error::sink(
                "the sink did not acknowledge in time for a rebalance of the consumer group",
                "start again: offsets behind unacknowledged blocks are not committed",
            ));
            return consumer.unassign();
        }
        if !consumer.assignment_lost() {
            let offsets = self.offsets.acknowledged();
            // Without this commit the next owner reads these messages once more, which at-least-once allows.
            drop(commit(consumer, &self.topic, &offsets, CommitMode::Sync));
        }
        let outcome = consumer.unassign();
        self.offsets.forget();
        self.gate.open();
        outcome
    }
}

fn commit(
    consumer: &BaseConsumer<Context>,
    topic: &str,
    offsets: &[(i32, i64)],
    mode: CommitMode,
) -> Result<(), KafkaError> {
    if offsets.is_empty() {
        return Ok(());
    }
    let mut list = TopicPartitionList::new();
    for &(partition, offset) in offsets {
        list.add_partition_offset(topic, partition, Offset::Offset(offset))?;
    }
    consumer.commit(&list, mode)
}

impl Source {
    /// Connects and checks that the topic is there. Nothing is read before [`Source::start`].
    ///
    /// # Errors
    /// A setting is wrong, no broker can be reached, or the topic does not exist or may not be read.
    pub fn open(
        topic: Topic,
        args: &KafkaArgs,
        workers: usize,
        offsets: Arc<Offsets>,
        gate: Arc<Gate>,
    ) -> Result<Self, Error> {
        let context = Context {
            topic: topic.name.clone(),
            queues: OnceLock::new(),
            offsets,
            gate,
            last_error: Mutex::new(None),
            failed: Mutex::new(None),
        };
        let consumer: BaseConsumer<Context> = topic
            .consumer(args)
            .create_with_context(context)
            .map_err(|error| explain("the Kafka client cannot be made", &topic.brokers, &error))?;
        let mut queues = Vec::new();
        for _ in 0..workers {
            // SAFETY: the client is alive; a queue is never null.
            let queue = unsafe { rd::rd_kafka_queue_new(consumer.client().native_ptr()) };
            queues.extend(NonNull::new(queue).map(Queue));
        }
        drop(consumer.context().queues.set(queues.clone()));
        let source = Self { queues, consumer, topic };
        source.partitions()?;
        Ok(source)
    }

    /// Ids of the topic's partitions.
    ///
    /// # Errors
    /// No broker can be reached, or the topic does not exist or may not be read.
    pub fn partitions(&self) -> Result<Vec<i32>, Error> {
        let what = format!("topic {} cannot be read", self.topic.name);
        let explained = |error: &KafkaError| explain(&what, &self.topic.brokers, error);
        let metadata = self.consumer.fetch_metadata(Some(&self.topic.name), METADATA_TIMEOUT).map_err(|error| {
            // The reason why no broker answers, such as a refused password, is only told aside.
            let context = self.consumer.context();
            let aside = context.last_error.lock().unwrap_or_else(PoisonError::into_inner).take();
            let telling = |error: &KafkaError| {
                let code = error.rdkafka_error_code();
                matches!(
                    code,
                    Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL | RDKafkaErrorCode::Resolve)
                )
            };
            explained(&aside.filter(telling).unwrap_or(error))
        })?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == self.topic.name);
        let partitions = match topic {
            Some(topic) => match topic.error() {
                Some(error) => return Err(explained(&KafkaError::MetadataFetch(error.into()))),
                None => topic.partitions().iter().map(|partition| partition.id()).collect::<Vec<_>>(),
            },
            None => vec![],
        };
        if partitions.is_empty() {
            return Err(explained(&KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition)));
        }
        Ok(partitions)
    }

    /// Begins to read: as a member of the group, or every partition up to its present end.
    ///
    /// # Errors
    /// The broker refuses.
    pub fn start(&self, args: &KafkaArgs) -> Result<Ends, Error> {
        let explained = |error: KafkaError| {
            explain(&format!("topic {} cannot be read", self.topic.name), &self.topic.brokers, &error)
        };
        if args.follow {
            self.consumer.subscribe(&[&self.topic.name]).map_err(explained)?;
            return Ok(Ends::None);
        }
        let start = match (&args.group_id, args.offset_reset) {
            (Some(_), _) => Offset::Stored,
            (None, OffsetReset::Earliest) => Offset::Beginning,
            (None, OffsetReset::Latest) => Offset::End,
        };
        let (mut ends, mut list) = (HashMap::new(), TopicPartitionList::new());
        for partition in self.partitions()? {
            let (low, high) =
                self.consumer.fetch_watermarks(&self.topic.name, partition, METADATA_TIMEOUT).map_err(explained)?;
            if low < high {
                ends.insert(partition, high);
                list.add_partition_offset(&self.topic.name, partition, start).map_err(explained)?;
            }
        }
        self.consumer.context().forward(&self.consumer, &list);
        if list.count() > 0 {
            self.consumer.assign(&list).map_err(explained)?;
        }
        Ok(Ends::At(ends))
    }

    /// Handles events for up to `wait`.
    ///
    /// # Errors
    /// Reading cannot go on.
    pub fn poll(&self, wait: Duration) -> Result<(), Error> {
        let event = self.consumer.poll(wait);
        if let Some(error) = self.consumer.context().failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        match event {
            None => Ok(()),
            Some(Err(error)) if error.rdkafka_error_code().is_some_and(passes) => Ok(()),
            Some(Err(error)) => Err(self.explain(&error)),
            Some(Ok(_)) => Err(Error::source("a message came past the workers' queues", "report this as a bug")),
        }
    }

    /// An error of reading this topic.
    #[must_use]
    pub fn explain(&self, error: &KafkaError) -> Error {
        explain(&format!("reading topic {} failed", self.topic.name), &self.topic.brokers, error)
    }

    /// Commits what the sink has acknowledged; waits for the broker when `wait` says so.
    ///
    /// # Errors
    /// The broker refuses; offsets committed before stay.
    pub fn commit(&self, wait: bool) -> Result<(), Error> {
        let known = &self.consumer.context().offsets;
        let (offsets, mode) =
            if wait { (known.acknowledged(), CommitMode::Sync) } else { (known.committable(), CommitMode::Async) };
        commit(&self.consumer, &self.topic.name, &offsets, mode)
            .map_err(|error| explain("offsets cannot be committed", &self.topic.brokers, &error))?;
        known.committed(&offsets);
        Ok(())
    }

    /// The reader of one worker.
    #[must_use]
    pub fn reader(self: &Arc<Self>, worker: usize) -> Reader {
        Reader { queue: self.queues[worker], pointers: vec![std::ptr::null_mut(); BATCH], _source: Arc::clone(self) }
    }

    /// Begins to read these partitions at these offsets, without a group's help.
    ///
    /// # Errors
    /// The broker refuses.
    pub fn assign(&self, starts: &[(i32, i64)]) -> Result<(), Error> {
        let mut list = TopicPartitionList::new();
        let outcome = starts.iter().try_for_each(|&(partition, offset)| {
            list.add_partition_offset(&self.topic.name, partition, Offset::Offset(offset))
        });
        outcome.map_err(|error| self.explain(&error))?;
        self.consumer.context().forward(&self.consumer, &list);
        self.consumer.assign(&list).map_err(|error| self.explain(&error))
    }

    /// First and next offset of a partition.
    ///
    /// # Errors
    /// The broker does not answer.
    pub fn watermarks(&self, partition: i32) -> Result<(i64, i64), Error> {
        let found = self.consumer.fetch_watermarks(&self.topic.name, partition, METADATA_TIMEOUT);
        found.map_err(|error| self.explain(&error))
    }

    /// The first offset of every partition whose message is not older than `time`, in milliseconds; `None` where there is
    /// no such message yet.
    ///
    /// # Errors
    /// The broker does not answer.
    pub fn offsets_at(&self, time: i64) -> Result<Vec<(i32, Option<i64>)>, Error> {
        let found = self.consumer.offsets_for_timestamp(time, METADATA_TIMEOUT);
        let found = found.map_err(|error| self.explain(&error))?;
        let offset = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| match element.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        Ok(found.elements().iter().map(|element| (element.partition(), offset(element))).collect())
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        for queue in &self.queues {
            // SAFETY: readers hold the source, so none is left; the client is still alive.
            unsafe { rd::rd_kafka_queue_destroy(queue.0.as_ptr()) };
        }
    }
}

/// Where a bounded read ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ends {
    /// Nowhere.
    None,
    /// At these offsets, by partition; partitions that are not here are empty.
    At(HashMap<i32, i64>),
}

impl Ends {
    /// Those of one worker's partitions.
    #[must_use]
    pub fn of_worker(&self, number: usize, workers: usize) -> Option<HashMap<i32, i64>> {
        let Self::At(ends) = self else { return None };
        let own = ends.iter().filter(|(partition, _)| **partition as usize % workers == number);
        Some(own.map(|(&partition, &end)| (partition, end)).collect())
    }
}

/// Messages taken at once.
pub const BATCH: usize = 256;

/// Takes messages from one worker's queue.
pub struct Reader {
    queue: Queue,
    pointers: Vec<*mut rd::rd_kafka_message_t>,
    /// The queue lives as long.
    _source: Arc<Source>,
}

// SAFETY: the pointers are only set during `read`, which has the reader for itself.
unsafe impl Send for Reader {}

/// One message, or an event of its partition.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Partition.
    pub partition: i32,
    /// Offset of the message; at the end of a partition, the offset of the next one.
    pub offset: i64,
    /// What it is.
    pub kind: Payload<'a>,
}

/// What a message is.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// A value; empty for a tombstone.
    Value(&'a [u8]),
    /// The partition has been read to its end.
    End,
    /// The partition cannot be read.
    Error(RDKafkaErrorCode),
}

impl Reader {
    /// Calls `each` with the messages that are there, waiting up to `wait` for the first; says how many there were.
    /// After an error the rest are dropped unread.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn read<E>(&mut self, wait: Duration, mut each: impl FnMut(Message) -> Result<(), E>) -> Result<usize, E> {
        let mut count = self.take(0, BATCH);
        if count == 0 {
            count = self.take(wait.as_millis() as i32, 1);
        }
        let mut outcome = Ok(());
        for pointer in &self.pointers[..count] {
            // SAFETY: librdkafka handed out `count` messages; each is looked at and then destroyed, once.
            unsafe {
                if outcome.is_ok() {
                    outcome = each(message(&**pointer));
                }
                rd::rd_kafka_message_destroy(*pointer);
            }
        }
        outcome.map(|()| count)
    }

    fn take(&mut self, wait: i32, most: usize) -> usize {
        // SAFETY: the queue lives as long as the source that is held; there is room for `most` pointers.
        let count =
            unsafe { rd::rd_kafka_consume_batch_queue(self.queue.0.as_ptr(), wait, self.pointers.as_mut_ptr(), most) };
        usize::try_from(count).unwrap_or(0)
    }
}

fn message(raw: &rd::rd_kafka_message_t) -> Message<'_> {
    let kind = match raw.err {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR if raw.payload.is_null() => Payload::Value(&[]),
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => {
            // SAFETY: a message's payload has `len` bytes and lives as long as the message.
            Payload::Value(unsafe { std::slice::from_raw_parts(raw.payload.cast(), raw.len) })
        }
        RDKafkaRespErr::RD_KAFKA_RESP_ERR__PARTITION_EOF => Payload::End,
        error => Payload::Error(error.into()),
    };
    Message { partition: raw.partition, offset: raw.offset, kind }
}

//! Filling the topic with the corpus, and proving that it holds exactly the corpus.
//!
//! Partition `p` of `P` holds the batches `p, p + P, p + 2P, …` in this order, without keys. `send_ts` is the intended
//! time: that of batch 0 plus one µs a batch.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use weir_model::error::Coded;

use super::encode::Encoder;
use super::verify::{Verified, Verifier};
use crate::infra::broker::{Admin, BrokerError, client_config};

/// How long acknowledged progress may take to come before the filling is given up.
pub(super) const STALL: Duration = Duration::from_secs(60);

/// Between two reports of progress.
const REPORT: Duration = Duration::from_millis(100);

/// A corpus in a topic: which, where, and by how many threads.
#[derive(Debug, Clone)]
pub struct Fill<'a> {
    /// Encodes the corpus.
    pub encoder: &'a Encoder,
    /// The topic.
    pub topic: &'a str,
    /// Codec of the record batches, as the workload names it.
    pub compression: &'a str,
    /// Id of the registered schema.
    pub schema_id: u32,
    /// Batches, from 0.
    pub batches: u64,
    /// Partitions of the topic.
    pub partitions: u32,
    /// Threads that produce, or read back.
    pub threads: u32,
}

/// A topic that holds exactly the corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// Intended times of sending, in µs since the epoch.
    pub send_ts_us: Range<i64>,
    /// Batches that were there before.
    pub reused: u64,
    /// Batches that were produced now.
    pub produced: u64,
}

/// What is being done, and how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub step: Step,
    /// Batches done.
    pub done: u64,
    /// Batches to do.
    pub of: u64,
}

/// A step of filling a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Batches are produced; those the broker has acknowledged count.
    Produce,
    /// The topic is read back and compared.
    Verify,
}

/// Why the topic does not hold the corpus.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// The broker refused something.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The client library refused something.
    #[error("cannot {action} topic {topic}: {source}")]
    Client {
        /// What was tried.
        action: &'static str,
        /// The topic.
        topic: String,
        /// The library's reason.
        source: Box<KafkaError>,
    },
    /// A message was not taken.
    #[error("batch {batch_id} was not taken by topic {topic}: {source}")]
    NotDelivered {
        /// The batch.
        batch_id: u64,
        /// The topic.
        topic: String,
        /// The broker's reason.
        source: Box<KafkaError>,
    },
    /// Nothing moves.
    #[error("cannot {action} topic {topic}: nothing has moved for {} s", STALL.as_secs())]
    Stalled {
        /// What was tried.
        action: &'static str,
        /// The topic.
        topic: String,
    },
    /// What was produced is not what is read back.
    #[error("topic {topic} does not hold the corpus after it was filled: {found}")]
    NotExact {
        /// The topic.
        topic: String,
        /// What it holds.
        found: Verified,
    },
    /// Somebody asked for it to stop.
    #[error("interrupted while filling topic {topic}")]
    Interrupted {
        /// The topic.
        topic: String,
    },
}

impl Coded for FillError {
    fn code(&self) -> &'static str {
        match self {
            Self::Broker(error) => error.code(),
            Self::Client { .. } => "topic_client",
            Self::NotDelivered { .. } => "batch_not_delivered",
            Self::Stalled { .. } => "topic_stalled",
            Self::NotExact { .. } => "topic_not_exact",
            Self::Interrupted { .. } => "interrupted",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Broker(error) => error.hint(),
            Self::Interrupted { .. } => Some("what is there is kept; the same command goes on from it".to_owned()),
            _ => Some("read the broker's log".to_owned()),
        }
    }
}

impl Fill<'_> {
    /// Makes the topic hold exactly this corpus. A topic that does is kept; one that holds the beginning of it is
    /// extended; any other is deleted and filled anew. What was produced is read back.
    ///
    /// `progress` is called on the calling thread a few times a second, and ends the filling by returning `false`.
    ///
    /// # Errors
    /// [`FillError`], with the topic left as far as it was filled.
    pub fn prefill(&self, admin: &Admin, progress: &mut dyn FnMut(Progress) -> bool) -> Result<Filled, FillError> {
        let found = self.verify(admin, progress)?;
        let (counts, start_us) = match found {
            Verified::Exact { send_ts_us } => {
                return Ok(Filled { send_ts_us, reused: self.batches, produced: 0 });
            }
            Verified::Prefix { counts, start_us } => (counts, start_us),
            Verified::Empty | Verified::Missing | Verified::Different { .. } => {
                if !matches!(found, Verified::Empty) {
                    if !matches!(found, Verified::Missing) {
                        admin.delete_topic(self.topic)?;
                    }
                    admin.create_topic(self.topic, self.partitions, &[("compression.type", "producer")])?;
                }
                (vec![0; self.partitions as usize], now_us())
            }
        };
        let reused = counts.iter().sum();
        self.produce(admin.bootstrap(), &counts, start_us, progress)?;
        match self.verify(admin, progress)? {
            Verified::Exact { send_ts_us } => Ok(Filled { send_ts_us, reused, produced: self.batches - reused }),
            found => Err(FillError::NotExact { topic: self.topic.to_owned(), found }),
        }
    }

    /// Reads the whole topic and compares every byte but those of `send_ts` with the corpus.
    ///
    /// # Errors
    /// [`FillError`] when the topic cannot be read; a topic that holds something else is an answer, not an error.
    pub fn verify(&self, admin: &Admin, progress: &mut dyn FnMut(Progress) -> bool) -> Result<Verified, FillError> {
        Verifier::new(self, admin).run(progress)
    }

    /// How many of the corpus's batches belong to a partition.
    pub(super) fn batches_of(&self, partition: u32) -> u64 {
        let (partition, partitions) = (u64::from(partition), u64::from(self.partitions));
        (self.batches + partitions - 1 - partition) / partitions
    }

    /// Appends to every partition the batches that follow its first `counts[partition]`.
    fn produce(
        &self,
        bootstrap: &str,
        counts: &[u64],
        start_us: i64,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<(), FillError> {
        let of = self.batches - counts.iter().sum::<u64>();
        let task = Task::default();
        let outcomes = std::thread::scope(|scope| {
            let workers: Vec<_> = self
                .shares(counts)
                .map(|share| scope.spawn(|| task.guard(self.produce_share(bootstrap, share, start_us, &task))))
                .collect();
            task.watch(
                || workers.iter().all(|w| w.is_finished()),
                |done| progress(Progress { step: Step::Produce, done, of }),
            );
            workers.into_iter().map(join).collect::<Vec<_>>()
        });
        first_error(outcomes)?;
        if task.is_stopped() { Err(FillError::Interrupted { topic: self.topic.to_owned() }) } else { Ok(()) }
    }

    /// The partitions, with the count each starts from, dealt to the threads.
    pub(super) fn shares(&self, counts: &[u64]) -> impl Iterator<Item = Vec<(u32, u64)>> {
        let threads = self.threads.clamp(1, self.partitions);
        (0..threads).map(move |thread| {
            let mine = (thread..self.partitions).step_by(threads as usize);
            mine.map(|partition| (partition, counts[partition as usize])).collect()
        })
    }

    fn produce_share(
        &self,
        bootstrap: &str,
        share: Vec<(u32, u64)>,
        start_us: i64,
        task: &Task,
    ) -> Result<(), FillError> {
        let failed =
            |source| FillError::Client { action: "produce to", topic: self.topic.to_owned(), source: Box::new(source) };
        let deliveries = Deliveries { done: Arc::clone(&task.done), failure: Arc::default() };
        let failure = Arc::clone(&deliveries.failure);
        let producer: BaseProducer<Deliveries> = client_config(bootstrap)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("compression.type", self.compression)
            .set("linger.ms", "20")
            .set("batch.size", "1000000")
            .set("batch.num.messages", "10000")
            .set("queue.buffering.max.messages", "100000")
            .set("queue.buffering.max.kbytes", "65536")
            .set("message.timeout.ms", STALL.as_millis().to_string())
            .create_with_context(deliveries)
            .map_err(failed)?;
        let undelivered = || match failure.lock().ok().and_then(|mut f| f.take()) {
            Some((batch_id, source)) => Err(FillError::NotDelivered { batch_id, topic: self.topic.to_owned(), source }),
            None => Ok(()),
        };
        let mut message = Vec::new();
        for (partition, batch_id) in self.in_order(share) {
            message.clear();
            self.encoder.encode(batch_id, start_us + batch_id as i64, self.schema_id, &mut message);
            let mut record = BaseRecord::<(), [u8], Box<u64>>::with_opaque_to(self.topic, Box::new(batch_id))
                .partition(partition.cast_signed())
                .payload(message.as_slice());
            // A full queue empties by polling, at the speed of the broker.
            while let Err((error, back)) = producer.send(record) {
                if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                    return Err(failed(error));
                }
                producer.poll(REPORT);
                undelivered()?;
                record = back;
            }
            if batch_id.is_multiple_of(64) {
                producer.poll(Duration::ZERO);
                undelivered()?;
                if task.is_stopped() {
                    break;
                }
            }
        }
        while producer.in_flight_count() > 0 {
            producer.poll(REPORT);
            undelivered()?;
        }
        undelivered()
    }

    /// The batches that are missing from some partitions, those of all partitions in step.
    fn in_order(&self, share: Vec<(u32, u64)>) -> impl Iterator<Item = (u32, u64)> {
        let from = share.iter().map(|(_, count)| *count).min().unwrap_or(0);
        let to = share.iter().map(|(partition, _)| self.batches_of(*partition)).max().unwrap_or(0);
        (from..to).flat_map(move |row| {
            let missing = share.clone().into_iter().filter(move |(_, count)| *count <= row);
            missing
                .map(move |(partition, _)| (partition, row * u64::from(self.partitions) + u64::from(partition)))
                .filter(|(_, batch_id)| *batch_id < self.batches)
        })
    }
}

/// Counts what the broker has acknowledged, and keeps the first failure.
struct Deliveries {
    done: Arc<AtomicU64>,
    failure: Arc<Mutex<Option<NotTaken>>>,
}

/// A batch that the broker did not take, and why.
type NotTaken = (u64, Box<KafkaError>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<u64>;

    fn delivery(&self, result: &DeliveryResult<'_>, batch_id: Box<u64>) {
        match result {
            Ok(_) => {
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            Err((error, _)) => {
                if let Ok(mut failure) = self.failure.lock() {
                    failure.get_or_insert((*batch_id, Box::new(error.clone())));
                }
            }
        }
    }
}

/// What the threads of one task share.
#[derive(Debug, Default)]
pub(super) struct Task {
    /// Batches done.
    pub(super) done: Arc<AtomicU64>,
    stopped: AtomicBool,
}

impl Task {
    /// Whether the threads are asked to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Ends the other threads when one has failed.
    pub(super) fn guard<T>(&self, outcome: Result<T, FillError>) -> Result<T, FillError> {
        if outcome.is_err() {
            self.stop();
        }
        outcome
    }

    /// Reports until the threads have finished, and stops them when the report says so.
    pub(super) fn watch(&self, finished: impl Fn() -> bool, mut report: impl FnMut(u64) -> bool) {
        while !finished() {
            if !report(self.done.load(Ordering::Relaxed)) {
                self.stop();
            }
            std::thread::park_timeout(REPORT);
        }
        report(self.done.load(Ordering::Relaxed));
    }
}

/// The value of a thread, or its panic.
pub(super) fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The first error that is not merely the consequence of another.
pub(super) fn first_error<T>(outcomes: Vec<Result<T, FillError>>) -> Result<Vec<T>, FillError> {
    outcomes.into_iter().collect()
}

fn now_us() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
}

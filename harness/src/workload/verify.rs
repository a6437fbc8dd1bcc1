//! Reading a topic back and comparing every byte of it with the corpus.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::encode::head;
use super::producer::{Fill, FillError, Progress, STALL, Step, Task, first_error, join};
use crate::infra::broker::{Admin, client_config};

/// How long one poll may wait.
const POLL: Duration = Duration::from_millis(100);

/// What a topic holds, beside a corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verified {
    /// Exactly the corpus.
    Exact {
        /// Intended times of sending, in µs since the epoch.
        send_ts_us: Range<i64>,
    },
    /// The beginning of every partition, and nothing else.
    Prefix {
        /// Messages in each partition.
        counts: Vec<u64>,
        /// `send_ts` of batch 0, in µs since the epoch.
        start_us: i64,
    },
    /// Nothing.
    Empty,
    /// There is no such topic.
    Missing,
    /// Something else.
    Different {
        /// Where.
        partition: u32,
        /// At which offset.
        offset: u64,
        /// In what.
        why: String,
    },
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact { .. } => f.write_str("exactly the corpus"),
            Self::Prefix { counts, .. } => write!(f, "only the first {} batches", counts.iter().sum::<u64>()),
            Self::Empty => f.write_str("nothing"),
            Self::Missing => f.write_str("it does not exist"),
            Self::Different { partition, offset, why } => write!(f, "partition {partition} offset {offset}: {why}"),
        }
    }
}

/// A message that is not the one of the corpus at its place.
struct Wrong {
    partition: u32,
    offset: u64,
    why: String,
}

/// What a thread found: the `send_ts` of batch 0, if it read anything.
type Share = Result<Option<i64>, Wrong>;

/// Compares one topic with one corpus.
pub(super) struct Verifier<'a> {
    fill: &'a Fill<'a>,
    admin: &'a Admin,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(fill: &'a Fill<'a>, admin: &'a Admin) -> Self {
        Self { fill, admin }
    }

    /// Reads the topic, partitions shared among threads.
    pub(super) fn run(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Result<Verified, FillError> {
        let fill = self.fill;
        match self.admin.partitions(fill.topic)? {
            None => return Ok(Verified::Missing),
            Some(there) if there != fill.partitions => {
                let why = format!("the topic has {there} partitions, not {}", fill.partitions);
                return Ok(Verified::Different { partition: 0, offset: 0, why });
            }
            Some(_) => {}
        }
        let mut counts = Vec::new();
        for (partition, marks) in (0..).zip(self.admin.watermarks(fill.topic)?) {
            let wanted = fill.batches_of(partition);
            let why = match marks.low {
                0 if marks.high <= wanted => None,
                0 => Some(format!("it has {} messages, the corpus {wanted}", marks.high)),
                low => Some(format!("it begins at offset {low}")),
            };
            if let Some(why) = why {
                return Ok(Verified::Different { partition, offset: wanted, why });
            }
            counts.push(marks.high);
        }
        if counts.iter().all(|count| *count == 0) {
            return Ok(Verified::Empty);
        }
        self.compare(counts, progress)
    }

    fn compare(&self, counts: Vec<u64>, progress: &mut dyn FnMut(Progress) -> bool) -> Result<Verified, FillError> {
        let fill = self.fill;
        let of: u64 = counts.iter().sum();
        let task = Task::default();
        let outcomes = std::thread::scope(|scope| {
            let workers: Vec<_> =
                fill.shares(&counts).map(|share| scope.spawn(|| task.guard(self.read_share(share, &task)))).collect();
            task.watch(
                || workers.iter().all(|worker| worker.is_finished()),
                |done| progress(Progress { step: Step::Verify, done, of }),
            );
            workers.into_iter().map(join).collect::<Vec<_>>()
        });
        let mut start_us = None;
        let mut wrong: Option<Wrong> = None;
        for share in first_error(outcomes)? {
            match share {
                Err(found) => wrong = wrong.or(Some(found)),
                Ok(start) if start_us.is_none() => start_us = start,
                Ok(start) if start.is_some() && start != start_us => {
                    let why = "its send_ts do not go on from those of other partitions".to_owned();
                    wrong = wrong.or(Some(Wrong { partition: 0, offset: 0, why }));
                }
                Ok(_) => {}
            }
        }
        if let Some(Wrong { partition, offset, why }) = wrong {
            return Ok(Verified::Different { partition, offset, why });
        }
        if task.is_stopped() {
            return Err(FillError::Interrupted { topic: fill.topic.to_owned() });
        }
        let start_us = start_us.unwrap_or_default();
        if of == fill.batches {
            return Ok(Verified::Exact { send_ts_us: start_us..start_us + fill.batches as i64 });
        }
        Ok(Verified::Prefix { counts, start_us })
    }

    /// Reads some partitions from their beginning to their counts.
    fn read_share(&self, share: Vec<(u32, u64)>, task: &Task) -> Result<Share, FillError> {
        let failed = |source: KafkaError| FillError::Client {
            action: "read",
            topic: self.fill.topic.to_owned(),
            source: Box::new(source),
        };
        let consumer: BaseConsumer = client_config(self.admin.bootstrap())
            .set("group.id", "weir-verify")
            .set("enable.auto.commit", "false")
            .set("fetch.message.max.bytes", "4194304")
            .set("queued.max.messages.kbytes", "65536")
            .create()
            .map_err(failed)?;
        let mut list = TopicPartitionList::new();
        for (partition, _) in share.iter().filter(|(_, count)| *count > 0) {
            list.add_partition_offset(self.fill.topic, partition.cast_signed(), Offset::Beginning).map_err(failed)?;
        }
        consumer.assign(&list).map_err(failed)?;
        let mut missing: u64 = share.iter().map(|(_, count)| *count).sum();
        let mut compare = Compare { fill: self.fill, start_us: None, bytes: Vec::new() };
        let mut moved = Instant::now();
        while missing > 0 && !task.is_stopped() {
            let Some(message) = consumer.poll(POLL) else {
                if moved.elapsed() > STALL {
                    return Err(FillError::Stalled { action: "read", topic: self.fill.topic.to_owned() });
                }
                continue;
            };
            let message = message.map_err(failed)?;
            moved = Instant::now();
            let partition = message.partition().cast_unsigned();
            let offset = message.offset().cast_unsigned();
            if share.iter().any(|(mine, count)| *mine == partition && offset >= *count) {
                continue;
            }
            if let Err(why) = compare.message(partition, offset, &message) {
                task.stop();
                return Ok(Err(Wrong { partition, offset, why }));
            }
            missing -= 1;
            task.done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(Ok(compare.start_us))
    }
}

/// Compares messages with the corpus, one by one.
struct Compare<'a> {
    fill: &'a Fill<'a>,
    start_us: Option<i64>,
    bytes: Vec<u8>,
}

impl Compare<'_> {
    fn message(&mut self, partition: u32, offset: u64, message: &impl Message) -> Result<(), String> {
        if message.key().is_some() {
            return Err("it has a key".to_owned());
        }
        let payload = message.payload().ok_or("it is empty")?;
        let batch_id = offset * u64::from(self.fill.partitions) + u64::from(partition);
        self.payload(batch_id, payload)
    }

    fn payload(&mut self, batch_id: u64, payload: &[u8]) -> Result<(), String> {
        let head = head(payload).ok_or("it is no message of the workload")?;
        let start_us = head.send_ts_us - batch_id as i64;
        if *self.start_us.get_or_insert(start_us) != start_us {
            return Err(format!("its send_ts {} does not go on from those before", head.send_ts_us));
        }
        self.bytes.clear();
        self.fill.encoder.encode(batch_id, head.send_ts_us, self.fill.schema_id, &mut self.bytes);
        if self.bytes != payload {
            return Err(format!("its bytes are not those of batch {batch_id}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Corpus;
    use crate::workload::encode::Encoder;
    use crate::workload::spec::tests::repository_spec;

    #[test]
    fn every_byte_is_compared() {
        let encoder = Encoder::new(&Corpus::new(&repository_spec()));
        let fill = Fill {
            encoder: &encoder,
            topic: "t",
            compression: "none",
            schema_id: 7,
            batches: 100,
            partitions: 8,
            threads: 1,
        };
        let message = |id: u64, send_ts_us| {
            let mut bytes = Vec::new();
            encoder.encode(id, send_ts_us, 7, &mut bytes);
            bytes
        };
        let compare = || Compare { fill: &fill, start_us: None, bytes: Vec::new() };
        let right = message(9, 1_009);
        let mut good = compare();
        assert_eq!(good.payload(9, &right), Ok(()));
        assert_eq!(good.start_us, Some(1_000));
        assert_eq!(good.payload(17, &message(17, 1_017)), Ok(()));
        assert!(good.payload(25, &message(25, 1_026)).is_err_and(|why| why.contains("send_ts")));
        assert!(compare().payload(1, &right).is_err_and(|why| why.contains("batch 1")));
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            let mut compare = compare();
            let alone = compare.payload(9, &wrong);
            let moved = compare.start_us != Some(1_000);
            assert!(alone.is_err() || moved, "byte {at} is not compared");
        }
    }
}

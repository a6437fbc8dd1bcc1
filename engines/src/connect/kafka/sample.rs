//! Looking at a topic's messages before a query is planned.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Message, Offset, TopicPartitionList};

use super::config::{KafkaArgs, OffsetReset, Topic};
use super::error::{explain, passes};
use crate::error::Error;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Calls `each` with up to `most` messages from where reading will start; fewer when the topic holds fewer.
///
/// # Errors
/// The topic cannot be read.
pub fn sample(topic: &Topic, args: &KafkaArgs, most: usize, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
    let what = format!("topic {} cannot be read", topic.name);
    let explained = |error| explain(&what, &topic.brokers, &error);
    let bounded = KafkaArgs { follow: false, group_id: None, ..args.clone() };
    let consumer: BaseConsumer = topic.consumer(&bounded).create().map_err(explained)?;
    let metadata = consumer.fetch_metadata(Some(&topic.name), TIMEOUT).map_err(explained)?;
    let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions()).map(|partition| partition.id());
    let (mut list, mut open) = (TopicPartitionList::new(), 0);
    let start = match args.offset_reset {
        OffsetReset::Earliest => Offset::Beginning,
        OffsetReset::Latest => Offset::OffsetTail(most as i64 / 4 + 1),
    };
    for partition in partitions {
        list.add_partition_offset(&topic.name, partition, start).map_err(explained)?;
        open += 1;
    }
    consumer.assign(&list).map_err(explained)?;
    let (mut left, deadline) = (most, Instant::now() + TIMEOUT);
    while left > 0 && open > 0 && Instant::now() < deadline {
        match consumer.poll(TIMEOUT) {
            Some(Ok(message)) => {
                each(message.payload().unwrap_or_default());
                left -= 1;
            }
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(error)) => match error.rdkafka_error_code() {
                Some(code) if passes(code) => {}
                _ => return Err(explained(error)),
            },
            None => {}
        }
    }
    Ok(())
}

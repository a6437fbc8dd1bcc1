//! All partitions of a topic, read by the workers of a flow: positions are the run's own, no group hands them out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use rdkafka::error::KafkaError;
use serde_json::Value;

use super::config::{KafkaArgs, OffsetReset, Slice, Topic};
use super::error::passes;
use super::format::Format;
use super::gate::Gate;
use super::offsets::Offsets;
use super::source::{BATCH, Message, Payload, Reader, Source};
use crate::cli::Cli;
use crate::connect::source::{self, Decoded, Read, Refused, Stretch};
use crate::error::Error;
use crate::read::{Decoder, Position, ReadPlan};
use crate::sql::SourceSchema;

/// Records after which a stretch ends.
const STRETCH: usize = 16 << 10;

/// A topic as a source of the flow.
pub struct Partitions {
    topic: Topic,
    format: Format,
    source: Arc<Source>,
    follow: bool,
    /// Where reading begins.
    starts: Vec<i64>,
    shared: Arc<Shared>,
}

/// What the readers and the run share, by partition.
#[derive(Debug)]
struct Shared {
    name: Arc<str>,
    /// Offset behind the last record handed out.
    next: Vec<AtomicI64>,
    /// Where a bounded read ends.
    ends: Option<Vec<i64>>,
    /// The broker has said that there is nothing more to read.
    at_end: Vec<AtomicBool>,
    order: AtomicU64,
}

impl Partitions {
    /// Connects, infers types, and finds where reading begins and ends.
    ///
    /// # Errors
    /// The topic cannot be read, or a slice names what it does not have.
    pub fn open(cli: &Cli, topic: Topic, workers: usize) -> Result<Self, Error> {
        let args = &cli.kafka;
        let format = Format::of(cli, &topic)?;
        let reading = KafkaArgs { group_id: None, ..args.clone() };
        let source =
            Source::open(topic.clone(), &reading, workers, Arc::new(Offsets::default()), Arc::new(Gate::default()))?;
        let partitions = source.partitions()?.len();
        let mut marks = Vec::with_capacity(partitions);
        for partition in 0..partitions {
            marks.push(source.watermarks(partition as i32)?);
        }
        let starts = match &args.start {
            Some(slice) => resolve(&source, slice, &marks, Bound::Start)?,
            None if args.offset_reset == OffsetReset::Latest => marks.iter().map(|(_, high)| *high).collect(),
            None => marks.iter().map(|(low, _)| *low).collect(),
        };
        let ends: Option<Vec<i64>> = match &args.end {
            Some(slice) => Some(resolve(&source, slice, &marks, Bound::End)?),
            None if args.follow => None,
            None => Some(marks.iter().map(|(_, high)| *high).collect()),
        };
        let shared = Shared {
            name: topic.name.as_str().into(),
            next: starts.iter().map(|start| AtomicI64::new(*start)).collect(),
            at_end: starts.iter().map(|_| AtomicBool::new(false)).collect(),
            ends,
            order: AtomicU64::new(0),
        };
        Ok(Self { topic, format, source: Arc::new(source), follow: args.follow, starts, shared: Arc::new(shared) })
    }
}

enum Bound {
    Start,
    End,
}

/// Offsets of a slice: by time, or as they are written; partitions that are not named are whole.
fn resolve(source: &Source, slice: &Slice, marks: &[(i64, i64)], bound: Bound) -> Result<Vec<i64>, Error> {
    let whole = |(low, high): &(i64, i64)| match bound {
        Bound::Start => *low,
        Bound::End => *high,
    };
    let mut offsets: Vec<i64> = marks.iter().map(whole).collect();
    match slice {
        Slice::Time(micros) => {
            for (partition, offset) in
                source.offsets_at(micros.div_euclid(1_000) + i64::from(micros.rem_euclid(1_000) > 0))?
            {
                if let Some(own) = offsets.get_mut(partition as usize) {
                    // No message at or after the time: reading begins, or ends, at the head.
                    *own = offset.unwrap_or(marks[partition as usize].1);
                }
            }
        }
        Slice::Offsets(list) => {
            for &(partition, offset) in list {
                let Some(own) = usize::try_from(partition).ok().and_then(|p| offsets.get_mut(p)) else {
                    return Err(Error::usage(
                        format!("there is no partition {partition}"),
                        format!("the topic has partitions 0 to {}", marks.len() - 1),
                    ));
                };
                *own = offset;
            }
        }
    }
    for (offset, (low, high)) in offsets.iter_mut().zip(marks) {
        *offset = (*offset).clamp(*low, *high);
    }
    Ok(offsets)
}

impl source::Source for Partitions {
    fn schema(&self) -> &SourceSchema {
        self.format.schema()
    }

    fn identity(&self) -> String {
        format!("kafka://{}/{}", self.topic.brokers, self.topic.name)
    }

    fn partitions(&self) -> u32 {
        u32::try_from(self.starts.len()).unwrap_or(u32::MAX)
    }

    fn bounded(&self) -> bool {
        !self.follow
    }

    fn seek(&mut self, position: &Value) -> Result<(), Error> {
        for (partition, offset) in offsets_of(position) {
            let Some(start) = self.starts.get_mut(partition) else { continue };
            let (low, high) = self.source.watermarks(partition as i32)?;
            if offset < low || offset > high {
                return Err(Error::checkpoint(
                    format!(
                        "topic {} partition {partition} no longer has offset {offset}: it holds {low} to {high}",
                        self.topic.name
                    ),
                    "the topic's retention must reach back to the last checkpoint; begin anew with another --checkpoint",
                ));
            }
            *start = offset;
            self.shared.next[partition].store(offset, Ordering::SeqCst);
        }
        Ok(())
    }

    fn readers(&mut self, plan: &ReadPlan, workers: usize) -> Result<Vec<Box<dyn source::Reader>>, Error> {
        let starts: Vec<(i32, i64)> = (0..).zip(self.starts.iter().copied()).collect();
        self.source.assign(&starts)?;
        let mut readers: Vec<Box<dyn source::Reader>> = Vec::with_capacity(workers);
        for worker in 0..workers {
            let own = (0..self.starts.len()).filter(|partition| partition % workers == worker);
            let open = own.filter(|p| self.shared.ends.as_ref().is_none_or(|ends| self.starts[*p] < ends[*p]));
            readers.push(Box::new(Lane {
                reader: self.source.reader(worker),
                polls: (worker == 0).then(|| Arc::clone(&self.source)),
                building: Building {
                    source: Arc::clone(&self.source),
                    shared: Arc::clone(&self.shared),
                    decoder: self.format.decoder(plan)?,
                    schema: plan.flat_schema(),
                    unnest: plan.unnest.is_some(),
                    open: open.map(|p| p as i32).collect(),
                    partition: None,
                    stretch: Part::default(),
                    done: VecDeque::new(),
                },
                follow: self.follow,
            }));
        }
        Ok(readers)
    }

    fn position(&self) -> Value {
        let next = self.shared.next.iter().map(|next| next.load(Ordering::SeqCst));
        (0..).zip(next).map(|(partition, next): (u32, i64)| (partition.to_string(), Value::from(next))).collect()
    }

    fn reached(&self, position: &Value) -> bool {
        offsets_of(position).into_iter().all(|(partition, offset)| {
            self.shared.next.get(partition).is_none_or(|next| next.load(Ordering::SeqCst) >= offset)
        })
    }

    fn locate(&self, place: u64) -> Position {
        let partitions = self.starts.len().max(1) as u64;
        Position::Offset {
            topic: Arc::clone(&self.shared.name),
            partition: (place % partitions) as i32,
            offset: (place / partitions) as i64,
        }
    }

    fn idle(&self) -> Vec<u32> {
        let at_end = self.shared.at_end.iter().enumerate().filter(|(_, at_end)| at_end.load(Ordering::SeqCst));
        at_end.map(|(partition, _)| partition as u32).collect()
    }
}

/// Partition and offset of a position.
pub(super) fn offsets_of(position: &Value) -> BTreeMap<usize, i64> {
    let entries = position.as_object().into_iter().flatten();
    entries.filter_map(|(partition, offset)| Some((partition.parse().ok()?, offset.as_i64()?))).collect()
}

/// Reads the partitions of one worker.
struct Lane {
    reader: Reader,
    /// One lane handles the client's events.
    polls: Option<Arc<Source>>,
    building: Building,
    follow: bool,
}

/// Messages on their way into stretches.
struct Building {
    source: Arc<Source>,
    shared: Arc<Shared>,
    decoder: Box<dyn Decoder>,
    schema: SchemaRef,
    unnest: bool,
    /// Partitions that have not been read to their end.
    open: Vec<i32>,
    /// The partition of the present stretch.
    partition: Option<i32>,
    stretch: Part,
    done: VecDeque<(Stretch, i64)>,
}

#[derive(Default)]
struct Part {
    places: Vec<u64>,
    ends: Vec<u32>,
    refused: Vec<Refused>,
    records: u64,
    next: i64,
}

impl source::Reader for Lane {
    fn read(&mut self, patience: Duration) -> Result<Read, Error> {
        if let Some(source) = &self.polls {
            source.poll(Duration::ZERO)?;
        }
        if self.building.done.is_empty() {
            if self.building.open.is_empty() && !self.follow {
                return Ok(Read::End);
            }
            let building = &mut self.building;
            let mut wait = patience;
            loop {
                let count = self.reader.read(wait, |message| building.take(message))?;
                // The reader waits for one message first; more are there then.
                if count == 0 || (count > 1 && count < BATCH) || building.stretch.records as usize >= STRETCH {
                    break;
                }
                wait = Duration::ZERO;
            }
            building.end(false);
        }
        let Some((mut stretch, next)) = self.building.done.pop_front() else { return Ok(Read::Nothing) };
        let shared = &self.building.shared;
        stretch.order = shared.order.fetch_add(1, Ordering::SeqCst);
        shared.next[stretch.partition as usize].store(next, Ordering::SeqCst);
        Ok(Read::Stretch(stretch))
    }
}

impl Building {
    fn take(&mut self, message: Message<'_>) -> Result<(), Error> {
        let Message { partition, offset, kind } = message;
        if self.partition != Some(partition) {
            self.end(false);
            self.partition = Some(partition);
            self.stretch.next = offset;
        }
        let payload = match kind {
            Payload::Value(payload) => payload,
            Payload::End => {
                self.shared.at_end[partition as usize].store(true, Ordering::SeqCst);
                self.stretch.next = self.stretch.next.max(offset);
                self.reached(partition, offset);
                return Ok(());
            }
            Payload::Error(code) if passes(code) => return Ok(()),
            Payload::Error(code) => return Err(self.source.explain(&KafkaError::MessageConsumption(code))),
        };
        if !self.open.contains(&partition) {
            return Ok(());
        }
        self.shared.at_end[partition as usize].store(false, Ordering::SeqCst);
        let partitions = self.shared.next.len() as u64;
        let place = (offset as u64).saturating_mul(partitions) + partition as u64;
        match self.decoder.decode(payload) {
            Ok(_) => {
                self.stretch.places.push(place);
                if self.unnest {
                    self.stretch.ends.push(u32::try_from(self.decoder.rows()).unwrap_or(u32::MAX));
                }
            }
            Err(error) => self.stretch.refused.push(Refused { place, error, payload: payload.to_vec() }),
        }
        self.stretch.records += 1;
        self.stretch.next = offset + 1;
        self.reached(partition, offset + 1);
        Ok(())
    }

    /// A partition has been read up to `next`.
    fn reached(&mut self, partition: i32, next: i64) {
        let end = self.shared.ends.as_ref().map(|ends| ends[partition as usize]);
        if end.is_some_and(|end| next >= end) && self.open.contains(&partition) {
            self.open.retain(|open| *open != partition);
            self.end(true);
        }
    }

    /// Ends the present stretch, which may be the partition's last.
    fn end(&mut self, last: bool) {
        let Some(partition) = self.partition else { return };
        let part = std::mem::take(&mut self.stretch);
        if part.records == 0 && !last {
            self.stretch.next = part.next;
            return;
        }
        self.stretch.next = part.next;
        let ends = self.unnest.then_some(part.ends);
        let batch = self.decoder.take();
        let batches =
            if part.places.is_empty() { vec![] } else { vec![Decoded::new(batch, part.places, ends, &self.schema)] };
        let stretch = Stretch {
            order: 0,
            partition: partition as u32,
            last,
            records: part.records,
            batches,
            refused: part.refused,
        };
        self.done.push_back((stretch, part.next));
    }
}

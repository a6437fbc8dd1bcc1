//! One worker of a Kafka run: its messages, its decoder, its transform, its block.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;

use crate::connect::clickhouse::sink::Writer;
use crate::connect::kafka::error::passes;
use crate::connect::kafka::gate::Gate;
use crate::connect::kafka::offsets::{Offsets, Ticket};
use crate::connect::kafka::source::{BATCH, Message, Payload, Reader, Source};
use crate::connect::sink::{Encoder, Sink};
use crate::error::Error;
use crate::read::{BadRecord, Decoder, Position, RecordError};
use crate::run::Totals;
use crate::sql::Transform;

/// The most rows that are decoded before they are transformed: few enough that a batch's columns stay in the cache.
pub(super) const BATCH_ROWS: usize = 8_192;
/// The longest a worker waits for a message before it looks at the clock and at what it is asked to do.
const WAIT: Duration = Duration::from_millis(50);

/// What the workers and the run share.
pub(super) struct Shared {
    pub(super) topic: Arc<str>,
    pub(super) offsets: Arc<Offsets>,
    pub(super) gate: Arc<Gate>,
    /// Bad records are left out and counted.
    pub(super) skips: bool,
    /// Rows that are decoded before they are transformed.
    pub(super) batch_rows: usize,
    /// The longest a row waits before its block is handed over.
    pub(super) delay: Duration,
    /// Rows the query still wants, when it wants a limited number.
    pub(super) remaining: Option<AtomicU64>,
    pub(super) stop: AtomicBool,
}

impl Shared {
    /// Asks the workers to hand over what they have and to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.gate.open();
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// How many of `rows` the query still wants.
    fn wanted(&self, rows: usize) -> usize {
        let Some(remaining) = &self.remaining else { return rows };
        let take = |left: u64| Some(left.saturating_sub(rows as u64));
        let left = remaining.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).unwrap_or(0);
        rows.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    pub(super) fn satisfied(&self) -> bool {
        self.remaining.as_ref().is_some_and(|remaining| remaining.load(Ordering::SeqCst) == 0)
    }
}

/// Where a worker's rows go.
pub(super) enum Output<'a> {
    /// Blocks that are acknowledged later.
    ClickHouse(Writer<Vec<Ticket>>),
    /// A sink that has the rows once it has been flushed.
    Plain(&'a Mutex<Box<dyn Sink>>, Box<dyn Encoder>),
}

/// One worker.
pub(super) struct Worker<'a> {
    shared: &'a Shared,
    reader: Reader,
    held: Held<'a>,
}

/// What a worker holds between a message and its block.
struct Held<'a> {
    shared: &'a Shared,
    source: &'a Source,
    decoder: Box<dyn Decoder>,
    transform: Transform,
    output: Output<'a>,
    /// Offset behind the last message of each partition, for messages whose rows are in the block.
    positions: Vec<(i32, i64)>,
    /// The same for messages that have been decoded only.
    decoded: Vec<(i32, i64)>,
    /// A batch has failed on its way into the block: neither may go on.
    broken: bool,
    /// For every message of the batch: its partition, its offset, and the batch's rows up to its end.
    messages: Vec<(i32, i64, usize)>,
    /// Where the worker's partitions end, while they have not been read to there; `None`: nowhere.
    ends: Option<HashMap<i32, i64>>,
    totals: Totals,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        (shared, source, number): (&'a Shared, &'a Arc<Source>, usize),
        decoder: Box<dyn Decoder>,
        transform: Transform,
        output: Output<'a>,
        ends: Option<HashMap<i32, i64>>,
    ) -> Self {
        let held = Held {
            shared,
            source,
            decoder,
            transform,
            output,
            positions: Vec::new(),
            decoded: Vec::new(),
            broken: false,
            messages: Vec::new(),
            ends,
            totals: Totals::default(),
        };
        Self { shared, reader: source.reader(number), held }
    }

    /// Works until the run stops or the worker's partitions end.
    ///
    /// # Errors
    /// A record is refused and bad records end the run, a row does not fit the sink, or the sink or a partition failed.
    pub(super) fn run(mut self) -> Result<Totals, Error> {
        loop {
            let inside = self.shared.gate.enter();
            self.work().and_then(|()| self.held.flush()).or_else(|error| self.held.rescue().and(Err(error)))?;
            if self.shared.gate.closed() && !self.shared.stopped() {
                self.held.settle()?;
                drop(inside);
                continue;
            }
            return Ok(self.held.totals);
        }
    }

    fn work(&mut self) -> Result<(), Error> {
        let mut due: Option<Instant> = None;
        loop {
            if self.shared.gate.closed() || self.shared.stopped() || self.shared.satisfied() || self.held.ended() {
                return self.held.apply();
            }
            let wait = due.map_or(WAIT, |due| due.saturating_duration_since(Instant::now()).min(WAIT));
            let held = &mut self.held;
            let count = self.reader.read(wait, |message| held.take(message));
            if count? < BATCH {
                held.apply()?;
            }
            let now = Instant::now();
            if held.full() || due.is_some_and(|due| due <= now) {
                held.flush()?;
                due = None;
            }
            if due.is_none() && !held.positions.is_empty() {
                due = Some(now + self.shared.delay);
            }
        }
    }
}

impl Held<'_> {
    fn take(&mut self, message: Message) -> Result<(), Error> {
        let Message { partition, offset, kind } = message;
        let payload = match kind {
            Payload::Value(payload) => payload,
            Payload::End => {
                self.reached(partition, offset);
                return Ok(());
            }
            Payload::Error(code) if passes(code) => return Ok(()),
            Payload::Error(code) => return Err(self.source.explain(&KafkaError::MessageConsumption(code))),
        };
        if self.ends.as_ref().is_some_and(|ends| ends.get(&partition).is_none_or(|end| offset >= *end)) {
            return Ok(());
        }
        match self.decoder.decode(payload) {
            Ok(_) => self.messages.push((partition, offset, self.decoder.rows())),
            Err(error) => self.refuse(partition, offset, error)?,
        }
        self.totals.records += 1;
        advance(&mut self.decoded, partition, offset + 1);
        self.reached(partition, offset + 1);
        if self.decoder.rows() >= self.shared.batch_rows { self.apply() } else { Ok(()) }
    }

    fn refuse(&mut self, partition: i32, offset: i64, error: RecordError) -> Result<(), Error> {
        if self.shared.skips {
            self.totals.skipped += 1;
            return Ok(());
        }
        let at = Position::Offset { topic: Arc::clone(&self.shared.topic), partition, offset };
        Err(BadRecord { at, error }.into())
    }

    /// The next offset of the partition is this one.
    fn reached(&mut self, partition: i32, next: i64) {
        if let Some(ends) = &mut self.ends
            && ends.get(&partition).is_some_and(|end| next >= *end)
        {
            ends.remove(&partition);
        }
    }

    fn ended(&self) -> bool {
        self.ends.as_ref().is_some_and(HashMap::is_empty)
    }

    fn full(&self) -> bool {
        matches!(&self.output, Output::ClickHouse(writer) if writer.full())
    }

    /// Transforms the decoded rows and appends them to the block.
    fn apply(&mut self) -> Result<(), Error> {
        self.broken = true;
        if self.decoder.rows() > 0 {
            self.transform()?;
        }
        self.messages.clear();
        for (partition, next) in self.decoded.drain(..) {
            advance(&mut self.positions, partition, next);
        }
        self.broken = false;
        if self.full() { self.flush() } else { Ok(()) }
    }

    fn transform(&mut self) -> Result<(), Error> {
        let batch = self.decoder.take();
        let mut applied = self.transform.apply(&batch);
        drop(batch);
        for failed in applied.errors.drain(..) {
            let index = self.messages.partition_point(|(_, _, rows)| *rows <= failed.row);
            if let Some(&(partition, offset, _)) = self.messages.get(index) {
                self.refuse(partition, offset, failed.error)?;
            }
        }
        let rows = self.shared.wanted(applied.batch.num_rows());
        if rows < applied.batch.num_rows() {
            applied.batch = applied.batch.slice(0, rows);
        }
        self.totals.rows += rows as u64;
        match &mut self.output {
            Output::ClickHouse(writer) => writer.append(&applied.batch),
            Output::Plain(sink, encoder) => {
                let encoded = encoder.encode(&applied.batch)?;
                sink.lock().unwrap_or_else(PoisonError::into_inner).write(encoded)
            }
        }
    }

    /// Hands the block over. Messages without rows are behind it too.
    fn flush(&mut self) -> Result<(), Error> {
        let tickets = self.positions.drain(..).map(|(partition, end)| self.shared.offsets.begin(partition, end));
        let tickets: Vec<Ticket> = tickets.collect();
        match &mut self.output {
            Output::ClickHouse(writer) if writer.rows() > 0 => return writer.flush(tickets),
            Output::ClickHouse(_) => {}
            Output::Plain(sink, _) => sink.lock().unwrap_or_else(PoisonError::into_inner).flush()?,
        }
        tickets.into_iter().for_each(|ticket| self.shared.offsets.acknowledge(ticket));
        Ok(())
    }

    /// After an error: what was read before the record at fault still goes out.
    fn rescue(&mut self) -> Result<(), Error> {
        if !self.broken {
            self.apply()?;
        }
        if self.broken { Ok(()) } else { self.flush() }
    }

    /// Waits until the sink has everything handed over.
    fn settle(&self) -> Result<(), Error> {
        match &self.output {
            Output::ClickHouse(writer) => writer.settle(),
            Output::Plain(..) => Ok(()),
        }
    }
}

/// Sets the next offset of a partition.
fn advance(positions: &mut Vec<(i32, i64)>, partition: i32, next: i64) {
    match positions.iter_mut().find(|(known, _)| *known == partition) {
        Some((_, position)) => *position = next,
        None => positions.push((partition, next)),
    }
}

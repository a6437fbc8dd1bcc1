//! Running a query over a Kafka topic.
//!
//! One thread handles Kafka's events, commits and watches for the end; each worker takes messages from its own queue,
//! decodes, transforms and encodes them, and hands blocks to the sink's threads. An offset is committed only when the
//! sink has acknowledged every row of every message before it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::kafka_worker::{BATCH_ROWS, Output, Shared, Worker};
use crate::cli::{BadRecords, Cli};
use crate::connect::clickhouse::sink::{ClickHouse, Inserts};
use crate::connect::kafka::config::{KafkaArgs, Topic};
use crate::connect::kafka::format::Format;
use crate::connect::kafka::gate::Gate;
use crate::connect::kafka::offsets::{Offsets, Ticket};
use crate::connect::kafka::source::Source;
use crate::connect::sink::Sink;
use crate::connect::{Uri, stdout};
use crate::error::Error;
use crate::run::Totals;
use crate::run::stop::Stop;
use crate::sql::Query;

/// How long events are waited for before the clock and the workers are looked at.
const TICK: Duration = Duration::from_millis(50);

/// Runs the command over the topic of `from`; `None` when its query keeps state, which is the flow's work.
///
/// # Errors
/// Whatever ends the run early. What the sink has acknowledged by then is committed.
pub fn run(cli: &Cli, from: &Uri, to: &Uri, stop: &Stop) -> Result<Option<Totals>, Error> {
    let args = &cli.kafka;
    let topic = Topic::new(from, args)?;
    let format = Format::of(cli, &topic)?;
    let query = Query::compile(&cli.sql, format.schema())?;
    let Some(transform) = query.worker() else { return Ok(None) };
    if cli.explain {
        print!("{}", query.explain());
        return Ok(Some(Totals::default()));
    }
    if args.follow && args.group_id.is_none() {
        return Err(Error::usage("--follow needs --group-id", "a restart goes on from the group's offsets"));
    }
    let sink = Target::open(cli, to, &query)?;
    let workers = super::workers(cli);
    let (offsets, gate) = (Arc::new(Offsets::default()), Arc::new(Gate::default()));
    let source = Source::open(topic.clone(), args, workers, Arc::clone(&offsets), Arc::clone(&gate))?;
    let source = Arc::new(source);
    let ends = source.start(args)?;
    let shared = Shared {
        topic: topic.name.as_str().into(),
        offsets,
        gate,
        skips: cli.bad_records == BadRecords::Skip,
        batch_rows: BATCH_ROWS.min(cli.clickhouse.max_rows as usize),
        delay: cli.clickhouse.delay(),
        remaining: query.limit().map(|limit| limit.into()),
        stop: AtomicBool::new(false),
    };
    let inserts = sink.start(&shared.offsets);
    let mut made = Vec::new();
    for number in 0..workers {
        let output = sink.output(inserts.as_ref())?;
        let ends = ends.of_worker(number, workers);
        made.push(Worker::new(
            (&shared, &source, number),
            format.decoder(query.reads())?,
            transform.clone(),
            output,
            ends,
        ));
    }
    let outcome = thread::scope(|scope| {
        let stop_all = || shared.stop();
        let mut workers: Vec<Handle> = Vec::new();
        for worker in made {
            workers.push(scope.spawn(move || worker.run().inspect_err(|_| stop_all())));
        }
        let watched = watch(&source, args, stop, inserts.as_deref(), &workers);
        shared.stop();
        let drained = drain(&source, &workers);
        let joined: Vec<_> = workers.into_iter().map(join).collect();
        let worked: Result<Totals, Error> = joined.into_iter().try_fold(Totals::default(), |all, one| Ok(all + one?));
        let settled = settle(&source, inserts.as_deref());
        let totals = worked?;
        watched.and(drained).and(settled).map(|()| totals)
    });
    let committed = if args.group_id.is_some() { source.commit(true) } else { Ok(()) };
    let inserted = inserts.map_or(Ok(()), |inserts| inserts.close());
    inserted?;
    let totals = outcome?;
    committed.map(|()| Some(totals))
}

fn join(worker: Handle) -> Result<Totals, Error> {
    worker.join().unwrap_or_else(|_| Err(Error::source("a worker has panicked", "report this as a bug")))
}

/// Where the rows go.
enum Target {
    ClickHouse(ClickHouse),
    Plain(Mutex<Box<dyn Sink>>),
}

impl Target {
    fn open(cli: &Cli, to: &Uri, query: &Query) -> Result<Self, Error> {
        match to.scheme.as_str() {
            "clickhouse" => Ok(Self::ClickHouse(ClickHouse::open(to, &cli.clickhouse, query.output_schema())?)),
            "stdout" | "null" => {
                Ok(Self::Plain(Mutex::new(stdout::sink::open(to, cli.format, &query.output_schema()))))
            }
            other => Err(Error::usage(
                format!("no sink writes {other}://"),
                "write to clickhouse://host:port/database/table, standard output or null",
            )),
        }
    }

    /// Starts the sink's own threads, where it has some.
    fn start(&self, offsets: &Arc<Offsets>) -> Option<Arc<Inserts<Vec<Ticket>>>> {
        let Self::ClickHouse(table) = self else { return None };
        let offsets = Arc::clone(offsets);
        Some(
            table.start(move |tickets: Vec<Ticket>| tickets.into_iter().for_each(|ticket| offsets.acknowledge(ticket))),
        )
    }

    fn output(&self, inserts: Option<&Arc<Inserts<Vec<Ticket>>>>) -> Result<Output<'_>, Error> {
        match (self, inserts) {
            (Self::ClickHouse(table), Some(inserts)) => table.writer(inserts).map(Output::ClickHouse),
            (Self::Plain(sink), _) => {
                let encoder = sink.lock().unwrap_or_else(PoisonError::into_inner).encoder();
                Ok(Output::Plain(sink, encoder))
            }
            (Self::ClickHouse(_), None) => Err(Error::sink("the sink has not been started", "report this as a bug")),
        }
    }
}

/// Handles events until every worker has ended, the run is asked to stop, or something has failed.
fn watch(
    source: &Source,
    args: &KafkaArgs,
    stop: &Stop,
    inserts: Option<&Inserts<Vec<Ticket>>>,
    workers: &[Handle],
) -> Result<(), Error> {
    let interval = Duration::from_secs(args.commit_interval);
    let mut committed = Instant::now();
    while !stop.requested() && !workers.iter().all(Handle::is_finished) {
        // A worker that ends while others go on has either nothing left to read or an error to report.
        if args.follow && workers.iter().any(Handle::is_finished) {
            return Ok(());
        }
        source.poll(TICK)?;
        if let Some(inserts) = inserts {
            inserts.settle(Duration::ZERO)?;
        }
        if args.group_id.is_some() && committed.elapsed() >= interval {
            source.commit(false)?;
            committed = Instant::now();
        }
    }
    Ok(())
}

/// Goes on handling events while the workers finish, so that the group keeps its member.
fn drain(source: &Source, workers: &[Handle]) -> Result<(), Error> {
    while !workers.iter().all(Handle::is_finished) {
        source.poll(TICK)?;
    }
    Ok(())
}

/// The same while the sink acknowledges what it has been given.
fn settle(source: &Source, inserts: Option<&Inserts<Vec<Ticket>>>) -> Result<(), Error> {
    let Some(inserts) = inserts else { return Ok(()) };
    while !inserts.settle(Duration::ZERO)? {
        source.poll(TICK)?;
    }
    Ok(())
}

/// A worker that runs.
type Handle<'scope> = thread::ScopedJoinHandle<'scope, Result<Totals, Error>>;

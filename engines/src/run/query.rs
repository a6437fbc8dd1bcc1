//! Running a query through the flow: inputs opened, the query compiled, the output opened, a checkpoint resumed.

use std::path::PathBuf;
use std::time::Duration;

use super::args::micros;
use super::stop::Stop;
use super::watch::Watch;
use crate::cli::{BadRecords, Cli};
use crate::connect::clickhouse::flow::Rows;
use crate::connect::kafka::config::Topic;
use crate::connect::kafka::partitions::Partitions;
use crate::connect::kafka::sink::{Changelog, Emit, Purpose};
use crate::connect::sink::Sink;
use crate::connect::source::{Read, Source};
use crate::connect::{Uri, file, stdout};
use crate::error::Error;
use crate::flow::{CheckpointOptions, Flow, Identity, Options};
use crate::plan::{Plan, Role};
use crate::read::{BadRecord, ReadPlan};
use crate::run::Totals;
use crate::sql::{Query, SourceSchema, SqlError};

/// An input by the name the query gives it.
struct Named {
    name: String,
    role: Role,
    source: Box<dyn Source>,
    /// The topic, when it is one.
    topic: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// Whatever ends the run early.
pub(super) fn run(cli: &Cli, stop: &Stop) -> Result<Totals, Error> {
    let workers = super::workers(cli);
    let inputs = open_inputs(cli, workers)?;
    let schemas: Vec<(SourceSchema, Role)> =
        inputs.iter().map(|i| (SourceSchema { name: i.name.clone(), ..i.source.schema().clone() }, i.role)).collect();
    let query = match Query::compile_all(&cli.sql, &schemas) {
        Ok(query) => query,
        // Without a record there are no names and no types to check.
        Err(error @ (SqlError::Unknown { .. } | SqlError::Type { .. } | SqlError::Ambiguous { .. }))
            if inputs.iter().all(|input| !input.source.shown()) =>
        {
            return nothing_shown(cli, error, inputs);
        }
        Err(error) => return Err(of_empty(error, &inputs).into()),
    };
    if cli.explain {
        print!("{}", query.explain());
        return Ok(Totals::default());
    }
    let plan = query.plan();
    let live = inputs.iter().any(|i| i.role == Role::Stream && !i.source.bounded());
    let used: Vec<&Named> = plan.inputs.iter().filter_map(|i| inputs.iter().find(|n| n.name == i.name)).collect();
    let topics: Option<Vec<String>> = used.iter().filter(|i| i.role == Role::Stream).map(|i| i.topic.clone()).collect();
    let named = used.iter().map(|i| (i.name.clone(), i.source.identity())).collect();
    let identity = Identity { query: cli.sql.trim().to_owned(), inputs: named, output: cli.to.clone() };
    let sink = open_sink(cli, plan, topics)?;
    check_live(cli, plan, live, sink.as_ref())?;
    let spill = Spill::new(cli)?;
    let options = Options {
        workers,
        delay: cli.flow.watermark_delay.map(micros),
        max_ahead: cli.flow.max_ahead.map(micros),
        idle: cli.flow.idle_partition_timeout,
        skip: cli.bad_records != BadRecords::Fail,
        emit_every: cli.flow.emit_every,
        memory: cli.flow.state_memory,
        spill: spill.0.clone(),
    };
    let mut watch = Watch::open(cli)?;
    let sources = take_inputs(plan, inputs, cli, workers)?;
    let mut flow = Flow::new(plan, sources, sink, options, &mut watch)?;
    let checkpoint = cli.flow.checkpoint.clone().map(|directory| CheckpointOptions {
        directory,
        interval: cli.flow.checkpoint_interval,
        identity,
    });
    if flow.resume(checkpoint)? {
        eprintln!("the query had come to its end; remove the checkpoint directory to run it again");
        return Ok(Totals::default());
    }
    let progress = flow.run(plan, stop)?;
    drop(flow);
    watch.finish(&progress);
    Ok(progress.totals)
}

/// The error, which says of a name that is not there which inputs show no names.
fn of_empty(mut error: SqlError, inputs: &[Named]) -> SqlError {
    let empty: Vec<&str> = inputs.iter().filter(|i| !i.source.shown()).map(|i| i.name.as_str()).collect();
    if let (SqlError::Unknown { hint, .. }, false) = (&mut error, empty.is_empty()) {
        *hint = format!("{} shows no record yet: say its columns with --columns; {hint}", empty.join(", "));
    }
    error
}

/// What a query gives of a source without a single record: nothing, unless what is there is no record; then reading it says
/// where and why.
fn nothing_shown(cli: &Cli, error: SqlError, mut inputs: Vec<Named>) -> Result<Totals, Error> {
    let plan = ReadPlan { columns: vec![], unnest: None, position: false };
    let source = &mut inputs[0].source;
    for mut reader in source.readers(&plan, 1)? {
        loop {
            match reader.read(Duration::from_millis(100))? {
                Read::Nothing => {}
                Read::End => break,
                Read::Stretch(stretch) => {
                    let Some(refused) = stretch.refused.into_iter().next() else { continue };
                    if cli.bad_records != BadRecords::Fail {
                        return Err(error.into());
                    }
                    return Err(BadRecord { at: source.locate(refused.place), error: refused.error }.into());
                }
            }
        }
    }
    Ok(Totals::default())
}

fn open_inputs(cli: &Cli, workers: usize) -> Result<Vec<Named>, Error> {
    let mut inputs = Vec::new();
    let main = open_input(cli, &cli.from, workers)?;
    let name = main.0.schema().name.clone();
    inputs.push(Named { name, role: Role::Stream, source: main.0, topic: main.1 });
    let streams = cli.flow.streams.iter().map(|named| (named, Role::Stream));
    let tables = cli.flow.tables.iter().map(|named| (named, Role::Table));
    for ((name, uri), role) in streams.chain(tables) {
        if inputs.iter().any(|i| i.name == *name) {
            return Err(Error::usage(format!("two inputs are called {name}"), "give one of them another name"));
        }
        let (source, topic) = open_input(cli, uri, workers)?;
        if role == Role::Table && !source.bounded() {
            return Err(Error::usage(
                format!("the table {name} has no end: {uri}"),
                "a table is read whole before the first row; read it from files",
            ));
        }
        inputs.push(Named { name: name.clone(), role, source, topic });
    }
    Ok(inputs)
}

type Opened = (Box<dyn Source>, Option<String>);

fn open_input(cli: &Cli, text: &str, workers: usize) -> Result<Opened, Error> {
    let uri = Uri::parse_source(text)?;
    match uri.scheme.as_str() {
        "file" | "stdin" => Ok((file::open(&uri, cli)?, None)),
        "kafka" => {
            let topic = Topic::new(&uri, &cli.kafka)?;
            let name = topic.name.clone();
            Ok((Box::new(Partitions::open(cli, topic, workers)?), Some(name)))
        }
        other => Err(Error::usage(format!("no source reads {other}://"), "read from file://, - or kafka://")),
    }
}

/// The inputs in the order of the plan; one that is read twice is opened again.
fn take_inputs(plan: &Plan, inputs: Vec<Named>, cli: &Cli, workers: usize) -> Result<Vec<Box<dyn Source>>, Error> {
    let mut left: Vec<Option<Named>> = inputs.into_iter().map(Some).collect();
    let mut sources = Vec::with_capacity(plan.inputs.len());
    for input in &plan.inputs {
        let found = left.iter_mut().find(|named| named.as_ref().is_some_and(|n| n.name == input.name));
        let source = match found.and_then(Option::take) {
            Some(named) => named.source,
            None => {
                let others = cli.flow.streams.iter().chain(&cli.flow.tables);
                let uri = others.clone().find(|(name, _)| *name == input.name).map_or(&cli.from, |(_, uri)| uri);
                if uri == "-" {
                    return Err(Error::usage(
                        "standard input can be read once only, and the query reads it twice",
                        "write it to a file first",
                    ));
                }
                open_input(cli, uri, workers)?.0
            }
        };
        sources.push(source);
    }
    Ok(sources)
}

fn open_sink(cli: &Cli, plan: &Plan, topics: Option<Vec<String>>) -> Result<Box<dyn Sink>, Error> {
    let uri = Uri::parse_sink(&cli.to)?;
    match uri.scheme.as_str() {
        "stdout" | "null" => Ok(stdout::sink::open(&uri, cli.format, &plan.output)),
        "file" => file::sink::open(&uri, cli, &plan.output),
        "clickhouse" => Ok(Box::new(Rows::open(&uri, &cli.clickhouse, plan.output.clone())?)),
        "kafka" => {
            let topic = Topic::new(&uri, &cli.kafka)?;
            let key = key_of(cli, plan)?;
            let purpose = Purpose { schema: plan.output.clone(), key, inputs: topics };
            Ok(Box::new(Changelog::open(topic, &cli.kafka, &cli.kafka_sink, purpose)?))
        }
        other => Err(Error::usage(
            format!("no sink writes {other}://"),
            "write to standard output, file://, kafka://, clickhouse:// or null",
        )),
    }
}

/// Columns of the messages' key: as asked for, or those of the GROUP BY.
fn key_of(cli: &Cli, plan: &Plan) -> Result<Vec<usize>, Error> {
    let column = |name: &String| {
        plan.output.index_of(name).map_err(|_| {
            let names: Vec<&str> = plan.output.fields().iter().map(|f| f.name().as_str()).collect();
            Error::usage(format!("--key: the output has no column {name}"), format!("it has {}", names.join(", ")))
        })
    };
    let asked: Vec<usize> = cli.flow.key.iter().map(column).collect::<Result<_, _>>()?;
    let key = if asked.is_empty() { plan.upsert_key.clone() } else { asked };
    if key.is_empty() && cli.kafka_sink.emit == Emit::Idempotent {
        return Err(Error::usage(
            "--emit idempotent needs a key, and the query's rows have none",
            "name the columns that tell rows apart with --key, select the columns of the GROUP BY, or use --emit transactional",
        ));
    }
    Ok(key)
}

/// What a run without an end needs to keep its promises.
fn check_live(cli: &Cli, plan: &Plan, live: bool, sink: &dyn Sink) -> Result<(), Error> {
    if live && sink.transactional() && plan.keeps_state() && cli.flow.checkpoint.is_none() {
        return Err(Error::usage(
            "--emit transactional of a query that keeps state needs --checkpoint: a restart goes on from it",
            "add --checkpoint DIR",
        ));
    }
    Ok(())
}

/// A directory for spilled state that goes away with the run.
struct Spill(PathBuf);

impl Spill {
    fn new(cli: &Cli) -> Result<Self, Error> {
        let base = cli.flow.spill_dir.clone().unwrap_or_else(std::env::temp_dir);
        let path = base.join(format!("freshet-{}", std::process::id()));
        let make = || {
            if path.exists() {
                std::fs::remove_dir_all(&path)?;
            }
            if cli.flow.state_memory.is_some() { std::fs::create_dir_all(&path) } else { Ok(()) }
        };
        make().map_err(|e| {
            Error::usage(
                format!("the spill directory {} cannot be made: {e}", path.display()),
                "name one with --spill-dir",
            )
        })?;
        Ok(Self(path))
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        // What is left is of no use to anyone.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

//! The ingest arm of Spate: its Kafka source, its Confluent Avro decoder and its ClickHouse sink
//! around the pipeline logic of the workload.
//!
//! `spate-arm --tier a|b --config pipeline.yaml` runs until SIGTERM and then drains: chains are
//! flushed, inserts acknowledged, offsets committed. Settings are in the YAML file, whose `${VAR}`
//! references Spate resolves from the environment; the two knobs Spate keeps out of its YAML
//! (`--queue-capacity`, `--max-records`) are options. `spate-arm --version` prints the version of
//! the Spate that is linked in.

mod args;
mod strings;
mod tiers;

use args::{Command, Job, Tier};
use serde::Serialize;
use spate::avro::AvroDeserializerBuilder;
use spate::clickhouse::{ClickHouseEncoder, ClickHouseSink, ClickHouseSinkConfig, Format, NativeEncoder};
use spate::kafka::KafkaSource;
use spate::ops::Emitter;
use spate::prelude::*;
use spate::sink::RowEncoder;
use std::error::Error;
use std::process::ExitCode;
use tiers::{SensorBatch, SensorBatches, TierA, TierB};

/// The flattening and the logic of a tier: one decoded message in, its rows out.
type Explode<F> = for<'buf> fn(SensorBatch<'buf>, &mut Emitter<'_, F>);

fn main() -> ExitCode {
    let outcome = match args::parse(std::env::args().skip(1)) {
        Ok(Command::Version) => {
            println!("spate {}", RuntimeOptions::default().version);
            return ExitCode::SUCCESS;
        }
        Ok(Command::Run(job)) => match job.tier {
            Tier::A => run::<TierA>(&job, tiers::COLUMNS_A, tiers::explode_a),
            Tier::B => run::<TierB>(&job, tiers::COLUMNS_B, tiers::explode_b),
        },
        Err(usage) => Err(usage.into()),
    };
    match outcome {
        Ok(report) => {
            report.log();
            ExitCode::from(u8::try_from(report.exit_code()).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("spate-arm: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Assembles the pipeline of row family `F` and runs it until it is told to stop.
fn run<F>(job: &Job, columns: &[&str], explode: Explode<F>) -> Result<ExitReport, Box<dyn Error>>
where
    F: RecFamily,
    for<'buf> F::Rec<'buf>: Serialize,
{
    let pipeline = Pipeline::from_path(&job.config)?;
    let sink = {
        let section = pipeline.config().sink_config("default")?;
        let mut config: ClickHouseSinkConfig = section.deserialize_into()?;
        config.columns = columns.iter().map(ToString::to_string).collect();
        spate::clickhouse::config::build(config)?
    };
    match sink.format() {
        Format::Native => {
            let schema = pipeline.block_on(sink.native_schema())?;
            assemble(pipeline, job, sink, NativeEncoder::<F>::new(schema), explode)
        }
        _ => {
            let encoder = match pipeline.block_on(sink.validate_schema())? {
                Some(schema) => ClickHouseEncoder::<F>::with_schema(schema),
                None => ClickHouseEncoder::<F>::new(),
            };
            assemble(pipeline, job, sink, encoder, explode)
        }
    }
}

/// Wires source, decoder, logic and sink around `encoder` and runs the pipeline.
fn assemble<F, E>(
    pipeline: Pipeline,
    job: &Job,
    sink: ClickHouseSink,
    encoder: E,
    explode: Explode<F>,
) -> Result<ExitReport, Box<dyn Error>>
where
    F: RecFamily,
    E: RowEncoder<F> + Clone + Send + 'static,
{
    let source = KafkaSource::from_component_config(&pipeline.config().source)?;
    let section = pipeline.config().deserializer.as_ref();
    let section = section.ok_or("the configuration has no `deserializer` section")?;
    let decoder =
        AvroDeserializerBuilder::from_component(section, &pipeline.io_handle())?.build_datum::<SensorBatches>()?;
    let options = RuntimeOptions { max_records: job.max_records, ..RuntimeOptions::default() };
    let handoff = SinkOptions::default().with_queue_capacity(job.queue_capacity);
    let report = pipeline
        .sink_with(sink, handoff)?
        .runtime_options(options)
        .chains(move |ctx| {
            let chunk = ctx.chunk();
            chain::<SensorBatches, _>(decoder.clone())
                .with_metrics(ctx.pipeline, "ingest")
                .deser_error_policy(ErrorPolicy::Fail)
                .flat_map::<F, _>(explode)
                .sink(encoder.clone(), KeyHashRouter, chunk, ctx.queues, ctx.budget)
                .build()
        })
        .run(source)?;
    Ok(report)
}

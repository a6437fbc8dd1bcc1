//! Running a query over JSON lines of files or of standard input.

use std::collections::VecDeque;

use crate::cli::{BadRecords, Cli};
use crate::connect::file::config::Inputs;
use crate::connect::file::source::{Lines, is_blank};
use crate::connect::{Sink, Uri, stdout};
use crate::error::Error;
use crate::format::json::{JsonDecoder, JsonSchema};
use crate::read::{BadRecord, Decoder, Position};
use crate::run::Totals;
use crate::run::stop::Stop;
use crate::sql::{Query, SourceSchema, SqlError, Transform, column_types};

/// Rows decoded before they are transformed and written.
const BATCH: usize = 16 * 1024;
/// Bytes of the input that types are inferred from.
const SAMPLE: usize = 4 << 20;
/// The same for standard input, which may come slowly.
const SAMPLE_STDIN: usize = 64 << 10;

/// Runs the command over the files of `from`, in order.
///
/// # Errors
/// Whatever ends the run early.
pub fn run(cli: &Cli, from: &Uri, to: &Uri, stop: &Stop) -> Result<Totals, Error> {
    let inputs = Inputs::find(from)?;
    let stream = inputs.stream();
    let mut inputs: VecDeque<Lines> = match inputs {
        Inputs::Stdin => VecDeque::from([Lines::stdin()]),
        Inputs::Files(files) => files.iter().map(|f| Lines::open(f)).collect::<Result<_, _>>()?,
    };
    let schema = infer(&mut inputs, cli, stop)?;
    let source = SourceSchema { name: stream, schema: schema.schema() };
    let query = match Query::compile(&cli.sql, &source) {
        Ok(query) => query,
        // Without a record there are no names and no types to check, and there is nothing to write.
        Err(error @ (SqlError::Unknown { .. } | SqlError::Type { .. } | SqlError::Ambiguous { .. }))
            if schema.records() == 0 =>
        {
            let empty = inputs.iter().all(|lines| lines.buffered().split(|b| *b == b'\n').all(is_blank));
            if empty || cli.bad_records == BadRecords::Skip {
                return if empty { Ok(Totals::default()) } else { Err(error.into()) };
            }
            // The first line is no record: reading it says where and why.
            Query::compile(&format!("SELECT 1 FROM \"{}\"", source.name.replace('"', "\"\"")), &source)?
        }
        Err(error) => return Err(error.into()),
    };
    if cli.explain {
        print!("{}", query.explain());
        return Ok(Totals::default());
    }
    let decoder = JsonDecoder::new(query.reads(), &schema)
        .map_err(|e| Error::source(e.to_string(), "leave the field out of the query, or CAST what is supported"))?;
    let sink = open_sink(cli, to, &query)?;
    let mut job = Job {
        decoder,
        transform: query.worker().ok_or_else(|| Error::source("not stateless", ""))?,
        sink,
        skip: cli.bad_records == BadRecords::Skip,
        left: query.limit().unwrap_or(u64::MAX),
        records: Vec::new(),
        totals: Totals::default(),
        first_bad: None,
    };
    for lines in inputs {
        if job.left == 0 || (stop.requested() && lines.buffered().is_empty()) {
            break;
        }
        job.input(lines, stop)?;
    }
    job.finish()
}

fn open_sink(cli: &Cli, to: &Uri, query: &Query) -> Result<Box<dyn Sink>, Error> {
    match to.scheme.as_str() {
        "stdout" | "null" => Ok(stdout::sink::open(to, cli.format, &query.output_schema())),
        other => Err(Error::usage(
            format!("a file cannot be written to {other}:// yet"),
            "write to standard output or null; clickhouse:// takes what comes from Kafka",
        )),
    }
}

/// Infers types from the beginning of the inputs, which stay as they are to be read.
fn infer(inputs: &mut VecDeque<Lines>, cli: &Cli, stop: &Stop) -> Result<JsonSchema, Error> {
    let mut schema = JsonSchema::default();
    for (name, data_type) in column_types(cli.columns.as_deref().unwrap_or(""))? {
        schema.declare(&name, data_type);
    }
    let size = if cli.from == "-" { SAMPLE_STDIN } else { SAMPLE };
    let mut left = size;
    for lines in inputs {
        while lines.buffered().len() < left && !lines.ended() && !stop.requested() {
            lines.fill()?;
        }
        let sample = lines.buffered();
        let mut whole = &sample[..sample.len().min(left)];
        if whole.len() < sample.len() || !lines.ended() {
            // A line that is cut off shows nothing, unless there is only that one.
            whole = &whole[..memchr::memrchr(b'\n', whole).map_or(whole.len(), |at| at + 1)];
        }
        whole.split(|b| *b == b'\n').for_each(|line| schema.observe(line));
        left = left.saturating_sub(sample.len());
        if left == 0 {
            break;
        }
    }
    Ok(schema)
}

/// A query at work on the lines of one input after the other.
struct Job {
    decoder: JsonDecoder,
    transform: Transform,
    sink: Box<dyn Sink>,
    skip: bool,
    /// Rows still wanted.
    left: u64,
    /// For every record in the decoder: the row behind its last, and its line.
    records: Vec<(usize, u64)>,
    totals: Totals,
    first_bad: Option<BadRecord>,
}

impl Job {
    fn input(&mut self, mut lines: Lines, stop: &Stop) -> Result<(), Error> {
        loop {
            while let Some((number, line)) = lines.next_line() {
                if is_blank(line) {
                    continue;
                }
                self.totals.records += 1;
                match self.decoder.decode(line) {
                    Ok(rows) if rows > 0 => self.records.push((self.decoder.rows(), number)),
                    Ok(_) => {}
                    Err(error) => {
                        let at = Position::Line { file: lines.name().clone(), line: number };
                        self.bad(BadRecord { at, error }, &lines)?;
                    }
                }
                if self.decoder.rows() >= BATCH {
                    self.hand_on(&lines)?;
                    if self.left == 0 {
                        return Ok(());
                    }
                }
            }
            // What has arrived is written before more is waited for, or the run is stopped.
            self.hand_on(&lines)?;
            if self.left == 0 || stop.requested() || (!lines.fill()? && lines.ended() && lines.buffered().is_empty()) {
                return Ok(());
            }
        }
    }

    /// Counts a bad record, or ends the run with it once the rows before it are written.
    fn bad(&mut self, bad: BadRecord, lines: &Lines) -> Result<(), Error> {
        if !self.skip {
            self.hand_on(lines)?;
            return Err(bad.into());
        }
        self.totals.skipped += 1;
        self.first_bad.get_or_insert(bad);
        Ok(())
    }

    /// Transforms and writes the decoded rows.
    fn hand_on(&mut self, lines: &Lines) -> Result<(), Error> {
        if self.decoder.rows() == 0 {
            return Ok(());
        }
        let batch = self.decoder.take();
        let records = std::mem::take(&mut self.records);
        let mut applied = self.transform.apply(&batch);
        let mut failed = Vec::new();
        for error in applied.errors {
            let record = records.partition_point(|(end, _)| *end <= error.row);
            let line = records.get(record).map_or(0, |(_, line)| *line);
            failed.push(BadRecord { at: Position::Line { file: lines.name().clone(), line }, error: error.error });
        }
        if let Some(first) = failed.first()
            && !self.skip
        {
            return Err(first.clone().into());
        }
        self.totals.skipped += failed.len() as u64;
        if let Some(first) = failed.into_iter().next() {
            self.first_bad.get_or_insert(first);
        }
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(applied.batch.num_rows());
        if wanted < applied.batch.num_rows() {
            applied.batch = applied.batch.slice(0, wanted);
        }
        self.left -= wanted as u64;
        self.totals.rows += wanted as u64;
        self.sink.write(&applied.batch)?;
        self.sink.flush()
    }

    fn finish(mut self) -> Result<Totals, Error> {
        self.sink.flush()?;
        if let Some(first) = &self.first_bad {
            eprintln!("skipped {} of {} records; the first: {first}", self.totals.skipped, self.totals.records);
        }
        Ok(self.totals)
    }
}

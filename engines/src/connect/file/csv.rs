//! CSV of files and of standard input as a source of the flow.
//!
//! A quoted field may hold line breaks, so records are told apart from the beginning of a file on: one worker at a time takes
//! a stretch of whole records, and decodes it while others take theirs.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use serde_json::{Value, json};

use super::absolute;
use super::config::Inputs;
use super::source::{Lines, is_blank};
use super::stretches::{ROWS, SAMPLE, SAMPLE_STDIN, STRETCH, WITHIN, skip};
use crate::cli::Cli;
use crate::connect::Uri;
use crate::connect::source::{Decoded, Read, Reader, Refused, Source, Stretch};
use crate::error::Error;
use crate::format::csv::{CsvDecoder, CsvSchema, ends_inside};
use crate::read::{Decoder, Position, ReadPlan};
use crate::sql::{SourceSchema, column_types};

/// Files of CSV that are read one behind the other. Each begins with a line of names, all with the same.
pub struct CsvFiles {
    schema: SourceSchema,
    csv: CsvSchema,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: Vec<(PathBuf, Arc<str>)>,
    csv: CsvSchema,
    cursor: Mutex<Cursor>,
}

/// Where reading stands.
#[derive(Debug, Default)]
struct Cursor {
    file: usize,
    /// Lines of the file that were handed out, that of names among them.
    at: u64,
    order: u64,
    /// The present file.
    lines: Option<Lines>,
    /// The first file, whose beginning has been looked at.
    begun: Option<Lines>,
    /// Lines read and not handed out, and whether they end inside quotes.
    pending: Vec<u8>,
    count: u64,
    inside: bool,
    /// The line of names has been passed.
    named: bool,
}

/// Whole records.
struct Taken {
    file: usize,
    bytes: Vec<u8>,
    /// Number of the first line.
    first: u64,
    order: u64,
    last: bool,
}

impl CsvFiles {
    /// Opens the files of an address; names and types are those of the beginning of the first.
    ///
    /// # Errors
    /// A file cannot be opened, its line of names or `--columns` cannot be read.
    pub fn open(uri: &Uri, cli: &Cli) -> Result<Self, Error> {
        let inputs = Inputs::find(uri)?;
        let name = inputs.stream();
        let (files, mut lines, most) = match inputs {
            Inputs::Stdin => {
                let lines = Lines::stdin();
                (vec![(PathBuf::from("-"), Arc::clone(lines.name()))], lines, SAMPLE_STDIN)
            }
            Inputs::Files(paths) => {
                let named = |path: PathBuf| {
                    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                    (path, name.into())
                };
                let lines = Lines::open(&paths[0])?;
                (paths.into_iter().map(named).collect(), lines, SAMPLE)
            }
        };
        let csv = sample(&mut lines, most, cli)?;
        let schema = SourceSchema { name, schema: csv.schema() };
        let cursor = Mutex::new(Cursor { begun: Some(lines), ..Cursor::default() });
        Ok(Self { schema, csv: csv.clone(), shared: Arc::new(Shared { files, csv, cursor }) })
    }
}

/// Names and types of the beginning of an input, which stays to be read.
fn sample(lines: &mut Lines, most: usize, cli: &Cli) -> Result<CsvSchema, Error> {
    let begun = Instant::now();
    let patience = |lines: &Lines| lines.buffered().contains(&b'\n') && begun.elapsed() > Duration::from_millis(500);
    while lines.buffered().len() < most && !lines.ended() && !patience(lines) {
        lines.fill()?;
    }
    let all = lines.buffered();
    let whole = if lines.ended() { all } else { &all[..memchr::memrchr(b'\n', all).map_or(0, |at| at + 1)] };
    let declared = column_types(cli.columns.as_deref().unwrap_or(""))?;
    let mut csv: Option<CsvSchema> = None;
    let mut unread = None;
    records(whole, |record, _| {
        match &mut csv {
            Some(csv) => csv.observe(record),
            None => match CsvSchema::new(record, declared.clone()) {
                Ok(schema) => csv = Some(schema),
                Err(reason) => {
                    unread = Some(reason);
                    return ControlFlow::Break(());
                }
            },
        }
        ControlFlow::Continue(())
    });
    csv.ok_or_else(|| {
        let reason = unread.unwrap_or_else(|| "it is empty".to_owned());
        Error::source(
            format!("the first line of {} cannot be read as names of columns: {reason}", lines.name()),
            "CSV must begin with a line of names",
        )
    })
}

/// Goes through the records of whole lines, and says in which line, from 0, each begins. Blank lines are passed.
fn records(bytes: &[u8], mut each: impl FnMut(&[u8], u64) -> ControlFlow<()>) {
    let (mut at, mut line) = (0, 0);
    while at < bytes.len() {
        let (from, first, mut inside) = (at, line, false);
        let mut to = at;
        while at < bytes.len() {
            to = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length);
            inside = ends_inside(&bytes[at..to], inside);
            (at, line) = (to + 1, line + 1);
            if !inside {
                break;
            }
        }
        if !is_blank(&bytes[from..to]) && each(&bytes[from..to], first).is_break() {
            return;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next whole records; `None` at the end, and an empty stretch that is not the last for nothing yet.
    fn take(&self, patience: Duration) -> Result<Option<Taken>, Error> {
        let mut guard = self.lock();
        let cursor = &mut *guard;
        let Some((path, _)) = self.files.get(cursor.file) else { return Ok(None) };
        let mut lines = match cursor.lines.take() {
            Some(lines) => lines,
            None => {
                let begun = cursor.begun.take().filter(|_| cursor.file == 0);
                let mut lines = begun.map_or_else(|| Lines::open(path), Ok)?;
                skip(&mut lines, cursor.at)?;
                cursor.named = cursor.at > 0;
                lines
            }
        };
        let begun = Instant::now();
        loop {
            while (cursor.pending.len() < STRETCH as usize || cursor.inside)
                && let Some((_, line)) = lines.next_line()
            {
                cursor.inside = ends_inside(line, cursor.inside);
                cursor.pending.extend_from_slice(line);
                cursor.pending.push(b'\n');
                cursor.count += 1;
                if !cursor.named && !cursor.inside && !is_blank(line) {
                    self.pass_names(cursor, &lines)?;
                }
            }
            let full = cursor.pending.len() >= STRETCH as usize && !cursor.inside;
            if full || (lines.ended() && lines.buffered().is_empty()) {
                break;
            }
            if !lines.fill()? && !lines.ended() && begun.elapsed() >= patience {
                break;
            }
        }
        let last = lines.ended() && lines.buffered().is_empty();
        cursor.lines = Some(lines);
        let (file, order, first) = (cursor.file, cursor.order, cursor.at + 1);
        if (cursor.pending.is_empty() || cursor.inside) && !last {
            return Ok(Some(Taken { file, bytes: vec![], first, order, last }));
        }
        cursor.at += std::mem::take(&mut cursor.count);
        cursor.order += 1;
        let bytes = std::mem::take(&mut cursor.pending);
        if last {
            (cursor.file, cursor.at, cursor.lines) = (file + 1, 0, None);
            (cursor.inside, cursor.named) = (false, false);
        }
        Ok(Some(Taken { file, bytes, first, order, last }))
    }

    /// The pending lines are those of names.
    fn pass_names(&self, cursor: &mut Cursor, lines: &Lines) -> Result<(), Error> {
        let header = cursor.pending.strip_suffix(b"\n").unwrap_or(&cursor.pending);
        if !self.csv.same_names(header) {
            return Err(Error::source(
                format!("{} does not begin with the names of columns that {} has", lines.name(), self.files[0].1),
                "read files of unlike columns apart, and join them with UNION ALL",
            ));
        }
        cursor.pending.clear();
        cursor.at += std::mem::take(&mut cursor.count);
        cursor.named = true;
        Ok(())
    }
}

impl Source for CsvFiles {
    fn schema(&self) -> &SourceSchema {
        &self.schema
    }

    fn identity(&self) -> String {
        self.shared.files.iter().map(|(path, _)| absolute(path)).collect::<Vec<_>>().join(", ")
    }

    fn partitions(&self) -> u32 {
        u32::try_from(self.shared.files.len()).unwrap_or(u32::MAX)
    }

    fn bounded(&self) -> bool {
        true
    }

    fn seek(&mut self, position: &Value) -> Result<(), Error> {
        let number = |key: &str| position.get(key).and_then(Value::as_u64).unwrap_or(0);
        let (file, at) = (number("file") as usize, number("at"));
        let stdin = self.shared.files[0].0.as_os_str() == "-";
        if stdin && at > 0 {
            return Err(Error::checkpoint(
                "standard input cannot be read again from where the checkpoint stands",
                "read from a file or a topic, or remove the checkpoint to begin anew",
            ));
        }
        let mut cursor = self.shared.lock();
        let begun = cursor.begun.take();
        *cursor = Cursor { file, at, begun, ..Cursor::default() };
        Ok(())
    }

    fn readers(&mut self, plan: &ReadPlan, workers: usize) -> Result<Vec<Box<dyn Reader>>, Error> {
        let one = || -> Result<Box<dyn Reader>, Error> {
            let decoder = CsvDecoder::new(plan, &self.csv)
                .map_err(|reason| Error::source(reason, "leave the column out of the query, or read it as VARCHAR"))?;
            Ok(Box::new(CsvReader { shared: Arc::clone(&self.shared), decoder, schema: plan.flat_schema() }))
        };
        (0..workers).map(|_| one()).collect()
    }

    fn position(&self) -> Value {
        let cursor = self.shared.lock();
        json!({ "file": cursor.file, "at": cursor.at })
    }

    fn locate(&self, place: u64) -> Position {
        let (file, line) = ((place >> WITHIN) as usize, place & ((1 << WITHIN) - 1));
        Position::Line { file: self.shared.files.get(file).map_or("".into(), |(_, name)| Arc::clone(name)), line }
    }
}

struct CsvReader {
    shared: Arc<Shared>,
    decoder: CsvDecoder,
    schema: SchemaRef,
}

impl Reader for CsvReader {
    fn read(&mut self, patience: Duration) -> Result<Read, Error> {
        let Some(taken) = self.shared.take(patience)? else { return Ok(Read::End) };
        if taken.bytes.is_empty() && !taken.last {
            return Ok(Read::Nothing);
        }
        let partition = u32::try_from(taken.file).unwrap_or(u32::MAX);
        let (order, last) = (taken.order, taken.last);
        let mut stretch = Stretch { order, partition, last, records: 0, batches: vec![], refused: vec![] };
        let mut places = Vec::new();
        let (decoder, schema) = (&mut self.decoder, &self.schema);
        let hand_on = |decoder: &mut CsvDecoder, places: &mut Vec<u64>| {
            Decoded::new(decoder.take(), std::mem::take(places), None, schema)
        };
        records(&taken.bytes, |record, line| {
            let place = (taken.file as u64) << WITHIN | (taken.first + line);
            stretch.records += 1;
            match decoder.decode(record) {
                Ok(_) => places.push(place),
                Err(error) => stretch.refused.push(Refused { place, error, payload: record.to_vec() }),
            }
            if decoder.rows() >= ROWS {
                stretch.batches.push(hand_on(decoder, &mut places));
            }
            ControlFlow::Continue(())
        });
        if !places.is_empty() {
            stretch.batches.push(hand_on(decoder, &mut places));
        }
        Ok(Read::Stretch(stretch))
    }
}

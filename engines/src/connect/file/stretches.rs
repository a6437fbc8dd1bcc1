//! JSON lines of files and of standard input as a source of the flow.
//!
//! Plain files are cut into stretches by their bytes alone, and any worker reads any stretch; compressed files and standard
//! input are read by one worker at a time. What is in a stretch does not depend on the number of workers.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use serde_json::{Value, json};

use super::config::Inputs;
use super::source::{Lines, is_blank};
use crate::cli::Cli;
use crate::connect::Uri;
use crate::connect::source::{Decoded, Read, Reader, Refused, Source, Stretch};
use crate::error::Error;
use crate::format::json::{JsonDecoder, JsonSchema};
use crate::read::{Decoder, Position, ReadPlan};
use crate::sql::{SourceSchema, column_types};

/// Bytes of a stretch.
pub(super) const STRETCH: u64 = 1 << 20;
/// Rows of a batch.
pub(super) const ROWS: usize = 64 << 10;
/// Bytes of the input that types are inferred from.
pub(super) const SAMPLE: usize = 1 << 20;
/// The same for standard input, which may come slowly.
pub(super) const SAMPLE_STDIN: usize = 64 << 10;
/// Longest line.
const LONGEST: u64 = 256 << 20;
/// Bits of a place that are the offset or the line within a file.
pub(super) const WITHIN: u32 = 44;
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Files that are read one behind the other.
pub struct Files {
    schema: SourceSchema,
    json: JsonSchema,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: Vec<Part>,
    cursor: Mutex<Cursor>,
}

/// One file.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    name: Arc<str>,
    /// Open and of this size, when it is read by its bytes.
    plain: Option<(File, u64)>,
}

/// Where reading stands.
#[derive(Debug)]
struct Cursor {
    file: usize,
    /// Byte offset in a plain file, lines handed out of another.
    at: u64,
    order: u64,
    /// The present file, when it is read as a stream.
    lines: Option<Lines>,
    /// Streams whose beginning has been looked at.
    begun: Vec<Option<Lines>>,
}

/// What a worker has taken.
enum Taken {
    /// Lines that begin in this range of a plain file.
    Range {
        file: usize,
        from: u64,
        to: u64,
        order: u64,
        last: bool,
    },
    /// Whole lines, with the number of the first.
    Lines {
        file: usize,
        bytes: Vec<u8>,
        first: u64,
        order: u64,
        last: bool,
    },
    Nothing,
    End,
}

impl Files {
    /// Opens the files of an address and infers types from their beginning.
    ///
    /// # Errors
    /// A file cannot be opened, or `--columns` cannot be read.
    pub fn open(uri: &Uri, cli: &Cli) -> Result<Self, Error> {
        let inputs = Inputs::find(uri)?;
        let name = inputs.stream();
        let mut json = JsonSchema::default();
        for (name, data_type) in column_types(cli.columns.as_deref().unwrap_or(""))? {
            json.declare(&name, data_type);
        }
        let (mut files, mut begun) = (Vec::new(), Vec::new());
        match inputs {
            Inputs::Stdin => {
                let mut lines = Lines::stdin();
                sample(&mut lines, &mut json, SAMPLE_STDIN)?;
                files.push(Part { path: PathBuf::from("-"), name: Arc::clone(lines.name()), plain: None });
                begun.push(Some(lines));
            }
            Inputs::Files(paths) => {
                let mut left = SAMPLE;
                for path in paths {
                    let mut lines = Lines::open(&path)?;
                    let name = Arc::clone(lines.name());
                    if left > 0 {
                        left = left.saturating_sub(sample(&mut lines, &mut json, left)?);
                    }
                    let packed = path.extension().is_some_and(|e| e == "gz" || e == "zst");
                    let plain = if packed { None } else { plain_file(&path)? };
                    begun.push(plain.is_none().then_some(lines));
                    files.push(Part { path, name, plain });
                }
            }
        }
        let schema = SourceSchema { name, schema: json.schema() };
        let cursor = Cursor { file: 0, at: 0, order: 0, lines: None, begun };
        Ok(Self { schema, json, shared: Arc::new(Shared { files, cursor: Mutex::new(cursor) }) })
    }
}

/// A file that can be read at any offset.
fn plain_file(path: &std::path::Path) -> Result<Option<(File, u64)>, Error> {
    let fail = |e: std::io::Error| {
        Error::source(format!("{} cannot be opened: {e}", path.display()), "check the path and its permissions")
    };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    Ok(metadata.is_file().then_some((file, metadata.len())))
}

/// Infers types from the beginning of an input, which stays to be read; says how many bytes were looked at.
fn sample(lines: &mut Lines, json: &mut JsonSchema, most: usize) -> Result<usize, Error> {
    let begun = Instant::now();
    // A slow input shows what it has after a while.
    let patience = |lines: &Lines| lines.buffered().contains(&b'\n') && begun.elapsed() > Duration::from_millis(500);
    while lines.buffered().len() < most && !lines.ended() && !patience(lines) {
        lines.fill()?;
    }
    let sample = lines.buffered();
    let mut whole = &sample[..sample.len().min(most)];
    if whole.len() < sample.len() || !lines.ended() {
        // A line that is cut off shows nothing, unless there is only that one.
        whole = &whole[..memchr::memrchr(b'\n', whole).map_or(whole.len(), |at| at + 1)];
    }
    whole.split(|b| *b == b'\n').for_each(|line| json.observe(line));
    Ok(whole.len())
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, patience: Duration) -> Result<Taken, Error> {
        let mut cursor = self.lock();
        let Some(part) = self.files.get(cursor.file) else { return Ok(Taken::End) };
        let file = cursor.file;
        if let Some((_, size)) = part.plain {
            let (from, to) = (cursor.at, (cursor.at + STRETCH).min(size));
            let last = to == size;
            let order = cursor.next(to, last);
            return Ok(Taken::Range { file, from, to, order, last });
        }
        self.take_lines(&mut cursor, part, patience)
    }

    /// Takes lines of a stream, under the lock.
    fn take_lines(&self, cursor: &mut Cursor, part: &Part, patience: Duration) -> Result<Taken, Error> {
        let file = cursor.file;
        let mut lines = match cursor.lines.take() {
            Some(lines) => lines,
            None => {
                let mut lines = match cursor.begun[file].take() {
                    Some(lines) => lines,
                    None => Lines::open(&part.path)?,
                };
                skip(&mut lines, cursor.at)?;
                lines
            }
        };
        let begun = Instant::now();
        while lines.buffered().len() < STRETCH as usize && !lines.ended() {
            let more = lines.fill()?;
            let waited = !more && !lines.ended() && begun.elapsed() >= patience;
            if waited {
                break;
            }
        }
        let (mut bytes, first, mut count) = (Vec::new(), cursor.at + 1, 0);
        while bytes.len() < STRETCH as usize
            && let Some((_, line)) = lines.next_line()
        {
            bytes.extend_from_slice(line);
            bytes.push(b'\n');
            count += 1;
        }
        let last = lines.ended() && lines.buffered().is_empty();
        cursor.lines = Some(lines);
        if count == 0 && !last {
            return Ok(Taken::Nothing);
        }
        let order = cursor.next(first - 1 + count, last);
        Ok(Taken::Lines { file, bytes, first, order, last })
    }

    /// Reads the lines that begin in a range of a plain file; says the offset of the buffer's first byte, and where in the
    /// buffer the lines are.
    fn read_range(
        &self,
        file: usize,
        (from, to): (u64, u64),
        buffer: &mut Vec<u8>,
    ) -> Result<(u64, Range<usize>), Error> {
        let part = &self.files[file];
        let Some((open, size)) = &part.plain else { return Ok((from, 0..0)) };
        let fail = |e: std::io::Error| Error::source(format!("{} cannot be read: {e}", part.name), "check the file");
        // The byte before tells whether a line begins at `from`.
        let begin = from.saturating_sub(1);
        let mut length = usize::try_from(to - begin).unwrap_or(usize::MAX);
        make_room(buffer, length);
        open.read_exact_at(&mut buffer[..length], begin).map_err(fail)?;
        let skipped = if from == 0 {
            if buffer[..length].starts_with(UTF8_MARK) { UTF8_MARK.len() } else { 0 }
        } else {
            memchr::memchr(b'\n', &buffer[..length]).map_or(length, |at| at + 1)
        };
        // A line that begins before the range, and goes on behind it, is another worker's.
        if skipped >= length {
            return Ok((begin, 0..0));
        }
        while begin + (length as u64) < *size && buffer[length - 1] != b'\n' {
            let more = usize::try_from(*size - begin).unwrap_or(usize::MAX).saturating_sub(length).min(64 << 10);
            make_room(buffer, length + more);
            open.read_exact_at(&mut buffer[length..length + more], begin + length as u64).map_err(fail)?;
            if let Some(newline) = memchr::memchr(b'\n', &buffer[length..length + more]) {
                length += newline + 1;
                break;
            }
            length += more;
            if length as u64 > LONGEST {
                let message = format!("a line of {} is longer than {} MiB", part.name, LONGEST >> 20);
                return Err(Error::source(message, "the input must be lines of JSON"));
            }
        }
        Ok((begin, skipped..length))
    }

    /// Number of the line that begins at an offset of a plain file.
    fn line_at(&self, file: usize, offset: u64) -> u64 {
        let Some(mut open) = File::open(&self.files[file].path).ok() else { return 0 };
        let (mut left, mut count, mut buffer) = (offset, 1, vec![0; 1 << 20]);
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match open.read(&mut buffer[..most]) {
                Ok(0) | Err(_) => break,
                Ok(read) => {
                    count += memchr::memchr_iter(b'\n', &buffer[..read]).count() as u64;
                    left -= read as u64;
                }
            }
        }
        count
    }
}

/// Makes a buffer at least so long, with a margin behind.
fn make_room(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length + JsonDecoder::MARGIN {
        buffer.resize(length + JsonDecoder::MARGIN, 0);
    }
}

/// Passes lines that were read before a restart.
pub(super) fn skip(lines: &mut Lines, count: u64) -> Result<(), Error> {
    let mut left = count;
    while left > 0 {
        if lines.next_line().is_some() {
            left -= 1;
        } else if !lines.fill()? && lines.ended() && lines.buffered().is_empty() {
            return Err(Error::checkpoint(
                format!("{} has fewer lines than had been read of it", lines.name()),
                "the input of a checkpoint must stay as it was",
            ));
        }
    }
    Ok(())
}

impl Cursor {
    /// Goes on behind a stretch, and says its number.
    fn next(&mut self, at: u64, last: bool) -> u64 {
        (self.file, self.at) = if last { (self.file + 1, 0) } else { (self.file, at) };
        if last {
            self.lines = None;
        }
        self.order += 1;
        self.order - 1
    }
}

impl Source for Files {
    fn schema(&self) -> &SourceSchema {
        &self.schema
    }

    fn shown(&self) -> bool {
        self.json.records() > 0
    }

    fn identity(&self) -> String {
        let path =
            |part: &Part| std::path::absolute(&part.path).unwrap_or_else(|_| part.path.clone()).display().to_string();
        self.shared.files.iter().map(path).collect::<Vec<_>>().join(", ")
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
        let stdin = self.shared.files.first().is_some_and(|part| part.path.as_os_str() == "-");
        if stdin && at > 0 {
            return Err(Error::checkpoint(
                "standard input cannot be read again from where the checkpoint stands",
                "read from a file or a topic, or remove the checkpoint to begin anew",
            ));
        }
        if let Some(part) = self.shared.files.get(file)
            && let Some((_, size)) = part.plain
            && at > size
        {
            return Err(Error::checkpoint(
                format!("{} is shorter than what had been read of it: {size} bytes, {at} read", part.path.display()),
                "the input of a checkpoint must stay as it was",
            ));
        }
        let mut cursor = self.shared.lock();
        (cursor.file, cursor.at, cursor.order) = (file, at, 0);
        Ok(())
    }

    fn readers(&mut self, plan: &ReadPlan, workers: usize) -> Result<Vec<Box<dyn Reader>>, Error> {
        let one = || -> Result<Box<dyn Reader>, Error> {
            let decoder = JsonDecoder::new(plan, &self.json).map_err(|e| {
                Error::source(e.to_string(), "leave the field out of the query, or CAST what is supported")
            })?;
            Ok(Box::new(FileReader {
                shared: Arc::clone(&self.shared),
                decoder,
                schema: plan.flat_schema(),
                unnest: plan.unnest.is_some(),
                buffer: Vec::new(),
            }))
        };
        (0..workers).map(|_| one()).collect()
    }

    fn position(&self) -> Value {
        let cursor = self.shared.lock();
        json!({ "file": cursor.file, "at": cursor.at })
    }

    fn locate(&self, place: u64) -> Position {
        let (file, within) = ((place >> WITHIN) as usize, place & ((1 << WITHIN) - 1));
        let Some(part) = self.shared.files.get(file) else {
            return Position::Line { file: "".into(), line: 0 };
        };
        let line = if part.plain.is_some() { self.shared.line_at(file, within) } else { within };
        Position::Line { file: Arc::clone(&part.name), line }
    }
}

struct FileReader {
    shared: Arc<Shared>,
    decoder: JsonDecoder,
    schema: SchemaRef,
    unnest: bool,
    buffer: Vec<u8>,
}

impl Reader for FileReader {
    fn read(&mut self, patience: Duration) -> Result<Read, Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let stretch = match self.shared.take(patience)? {
            Taken::End => return Ok(Read::End),
            Taken::Nothing => return Ok(Read::Nothing),
            Taken::Range { file, from, to, order, last } => {
                let (begin, lines) = self.shared.read_range(file, (from, to), &mut buffer)?;
                self.decode(&mut buffer, lines, (file, order, last), |offset, _| begin + offset as u64)
            }
            Taken::Lines { file, bytes, first, order, last } => {
                buffer = bytes;
                let lines = 0..buffer.len();
                self.decode(&mut buffer, lines, (file, order, last), |_, line| first + line)
            }
        };
        self.buffer = buffer;
        Ok(Read::Stretch(stretch))
    }
}

impl FileReader {
    /// Decodes the lines in a range of `buffer`; `place` makes a line's place within its file of its offset in the buffer and
    /// its number among them.
    fn decode(
        &mut self,
        buffer: &mut Vec<u8>,
        lines: Range<usize>,
        (file, order, last): (usize, u64, bool),
        place: impl Fn(usize, u64) -> u64,
    ) -> Stretch {
        let partition = u32::try_from(file).unwrap_or(u32::MAX);
        let mut stretch = Stretch { order, partition, last, records: 0, batches: vec![], refused: vec![] };
        let (mut places, mut ends) = (Vec::new(), Vec::new());
        make_room(buffer, lines.end);
        // No line goes on behind a zero.
        buffer[lines.end..lines.end + JsonDecoder::MARGIN].fill(0);
        let (mut at, mut line) = (lines.start, 0);
        while at < lines.end {
            let place = (file as u64) << WITHIN | place(at, line);
            if let Some(next) = self.decoder.follow(buffer, at) {
                (at, line) = (next, line + 1);
                stretch.records += 1;
                places.push(place);
            } else {
                let record = &buffer[at..lines.end];
                let record = &record[..memchr::memchr(b'\n', record).unwrap_or(record.len())];
                (at, line) = (at + record.len() + 1, line + 1);
                if is_blank(record) {
                    continue;
                }
                stretch.records += 1;
                match self.decoder.decode_anew(record) {
                    Ok(_) => {
                        places.push(place);
                        if self.unnest {
                            ends.push(u32::try_from(self.decoder.rows()).unwrap_or(u32::MAX));
                        }
                    }
                    Err(error) => stretch.refused.push(Refused { place, error, payload: record.to_vec() }),
                }
            }
            if self.decoder.rows() >= ROWS {
                stretch.batches.push(self.take(&mut places, &mut ends));
            }
        }
        if !places.is_empty() {
            stretch.batches.push(self.take(&mut places, &mut ends));
        }
        stretch
    }

    fn take(&mut self, places: &mut Vec<u64>, ends: &mut Vec<u32>) -> Decoded {
        let ends = self.unnest.then(|| std::mem::take(ends));
        Decoded::new(self.decoder.take(), std::mem::take(places), ends, &self.schema)
    }
}

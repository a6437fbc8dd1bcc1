//! Reads an archive and finds what is wrong with it: file, line and first bad byte.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::id::{RunId, SittingId};
use crate::record::{Record, RecordError, Verdict};

use super::{Archive, ArchiveError, genesis, io_error};

/// Every record of an archive and what is wrong with it.
#[derive(Debug, Default)]
pub struct Contents {
    /// The records, by file and line.
    pub records: Vec<Located>,
    /// What the check found.
    pub report: Report,
}

/// A record and where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// The file, relative to the archive.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The record.
    pub record: Record,
}

/// What the check of an archive found.
#[derive(Debug, Default)]
pub struct Report {
    /// Every file, in order of path.
    pub files: Vec<FileReport>,
    /// What is wrong.
    pub damage: Vec<Damage>,
    /// Unfinished last lines: a crash left them, they hold no record, and the next append seals them.
    pub torn: Vec<Torn>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
    }
}

/// One file of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// The file, relative to the archive.
    pub file: PathBuf,
    /// Whole lines.
    pub lines: usize,
    /// The digest of its last line. Kept elsewhere, it proves that nothing was taken off the end.
    pub head: Digest,
}

/// An unfinished line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The file, relative to the archive.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// Where it begins in the file.
    pub byte: usize,
    /// Whether a seal closes it.
    pub sealed: bool,
}

/// Something wrong in an archive.
#[derive(Debug, thiserror::Error)]
#[error("{}:{line}: byte {byte}: {what}", file.display())]
pub struct Damage {
    /// The file, relative to the archive.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The byte of the file where reading stopped, or where the line begins.
    pub byte: usize,
    /// What is wrong.
    #[source]
    pub what: DamageKind,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DamageKind {
    /// It is not a record.
    #[error(transparent)]
    NotARecord(#[from] RecordError),
    /// The next line, or the beginning of the file, says that other bytes stood here.
    #[error("this line is {found}, but line {by} was written after {expected}")]
    Chain {
        /// The digest of the line.
        found: Digest,
        /// The digest that the following line carries.
        expected: Digest,
        /// The following line.
        by: usize,
    },
    /// The first line follows another.
    #[error("this is the first line, but it was written after {expected}: lines before it are gone")]
    Beginning {
        /// The digest that it carries.
        expected: Digest,
    },
    /// The run is measured twice.
    #[error("run {run_id} is also in {} on line {line}", file.display())]
    DuplicateRun {
        /// The run.
        run_id: RunId,
        /// Where it was seen first.
        file: PathBuf,
        /// On which line.
        line: usize,
    },
    /// The record belongs in another file.
    #[error("this record belongs in {}", .0.display())]
    Misplaced(PathBuf),
    /// The retracted run is not in the archive, or what takes its place is not.
    #[error("it names run {0}, which is not in the archive")]
    UnknownRun(RunId),
    /// A verdict says that other bytes stood here.
    #[error("this line is {found}, but the verdict of sitting {sitting} was written when it was {expected}")]
    Head {
        /// The digest of the line.
        found: Digest,
        /// The digest that the verdict carries.
        expected: Digest,
        /// The sitting.
        sitting: SittingId,
    },
    /// A verdict says that the file was longer.
    #[error("the file has {found} lines, but the verdict of sitting {sitting} was written when it had {expected}")]
    Shortened {
        /// Lines of the file.
        found: usize,
        /// Lines that the verdict carries.
        expected: u64,
        /// The sitting.
        sitting: SittingId,
    },
    /// The raw samples of the run are not those that were kept.
    #[error("its series {series} is {found}, not {expected}")]
    Series {
        /// The file.
        series: String,
        /// Its digest, or why there is none.
        found: String,
        /// The digest that the record carries.
        expected: Digest,
    },
}

impl DamageKind {
    /// The digest of what stood in the line, where it is known and something else stands there.
    pub(super) const fn expected(&self) -> Option<&Digest> {
        match self {
            Self::Chain { expected, .. } | Self::Head { expected, .. } => Some(expected),
            _ => None,
        }
    }
}

/// The last line of a file's bytes, finished or not.
pub(super) fn last_line(bytes: &[u8]) -> Option<&[u8]> {
    lines(bytes).last().map(|line| line.bytes)
}

struct Line<'b> {
    start: usize,
    bytes: &'b [u8],
    finished: bool,
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    bytes.split_inclusive(|byte| *byte == b'\n').map(move |whole| {
        let bytes = whole.strip_suffix(b"\n").unwrap_or(whole);
        let line = Line { start, bytes, finished: bytes.len() < whole.len() };
        start += whole.len();
        line
    })
}

/// Where line `number` of a file begins, and the line.
pub(super) fn line_at(bytes: &[u8], number: usize) -> Option<(usize, &[u8])> {
    lines(bytes).nth(number.checked_sub(1)?).map(|line| (line.start, line.bytes))
}

/// Where `wanted` was measured, among the files of `folder`.
pub(super) fn find_run(root: &Path, folder: &Path, wanted: RunId) -> Result<Option<(PathBuf, usize)>, ArchiveError> {
    let text = wanted.to_string();
    for path in month_files(folder)? {
        let bytes = fs::read(&path).map_err(io_error("read", &path))?;
        let file = path.strip_prefix(root).unwrap_or(&path);
        if !bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            continue;
        }
        let mut contents = Contents::default();
        scan_file(file, &bytes, &mut contents);
        let is_wanted = |record: &Record| matches!(record, Record::Measurement(it) if it.run_id == wanted);
        if let Some(found) = contents.records.into_iter().find(|found| is_wanted(&found.record)) {
            return Ok(Some((found.file, found.line)));
        }
    }
    Ok(None)
}

/// Files named `<YYYY-MM>.jsonl` in a folder, in order.
fn month_files(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    let is_month = |path: &Path| {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let shape = stem.len() == 7
            && stem.bytes().enumerate().all(|(at, byte)| match at {
                4 => byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        shape && path.extension().is_some_and(|extension| extension == "jsonl")
    };
    Ok(entries(folder)?.into_iter().filter(|path| is_month(path)).collect())
}

/// Everything in a folder, in order; nothing if the folder is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(io_error("list", folder)(source)),
    };
    let mut paths = Vec::new();
    for entry in listing {
        paths.push(entry.map_err(io_error("list", folder))?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Reads and checks the archive in `root`.
pub(super) fn scan(root: &Path) -> Result<Contents, ArchiveError> {
    let mut contents = Contents::default();
    let mut digests: HashMap<PathBuf, Vec<LineDigest>> = HashMap::new();
    for env in entries(root)?.into_iter().filter(|path| path.is_dir()) {
        for folder in entries(&env)?.into_iter().filter(|path| path.is_dir()) {
            for path in month_files(&folder)? {
                let bytes = fs::read(&path).map_err(io_error("read", &path))?;
                let file = path.strip_prefix(root).unwrap_or(&path);
                digests.insert(file.to_owned(), scan_file(file, &bytes, &mut contents));
            }
        }
    }
    check_runs(&mut contents);
    check_heads(&mut contents, &digests);
    Ok(contents)
}

/// A line's beginning and digest.
struct LineDigest {
    start: usize,
    digest: Digest,
}

/// Reads one file and walks its chain; gives the digest of each line.
fn scan_file(file: &Path, bytes: &[u8], contents: &mut Contents) -> Vec<LineDigest> {
    let all: Vec<Line<'_>> = lines(bytes).collect();
    let mut parsed: Vec<Result<(Record, Digest), RecordError>> =
        all.iter().map(|line| Record::from_line(line.bytes)).collect();
    parsed.reverse();
    let damage = |line: usize, byte: usize, what: DamageKind| Damage { file: file.to_owned(), line, byte, what };
    let mut before: Option<Digest> = None;
    let mut digests = Vec::with_capacity(all.len());
    for (at, line) in all.iter().enumerate() {
        let (number, this) = (at + 1, parsed.pop());
        let sealed = matches!(parsed.last(), Some(Ok((Record::Seal(seal), _)))
            if seal.torn_bytes == line.bytes.len() as u64);
        match this {
            _ if !line.finished || sealed => {
                contents.report.torn.push(Torn { file: file.to_owned(), line: number, byte: line.start, sealed });
            }
            Some(Ok((record, prev))) => {
                let what = match before {
                    None if prev != genesis() => Some((number, DamageKind::Beginning { expected: prev })),
                    Some(found) if found != prev => {
                        Some((number - 1, DamageKind::Chain { found, expected: prev, by: number }))
                    }
                    _ => None,
                };
                contents.report.damage.extend(what.map(|(line, what)| damage(line, all[line - 1].start, what)));
                check_record(file, number, line.start, &record, contents);
                contents.records.push(Located { file: file.to_owned(), line: number, record });
            }
            Some(Err(error)) => {
                let within = match &error {
                    RecordError::Json(error) if error.line() == 1 => error.column().saturating_sub(1),
                    _ => 0,
                };
                contents.report.damage.push(damage(number, line.start + within, error.into()));
            }
            None => {}
        }
        let digest = Digest::of(line.bytes);
        digests.push(LineDigest { start: line.start, digest });
        before = Some(digest);
    }
    let lines = all.iter().filter(|line| line.finished).count();
    contents.report.files.push(FileReport { file: file.to_owned(), lines, head: before.unwrap_or_else(genesis) });
    digests
}

/// A record stands in its file and does not contradict itself.
fn check_record(file: &Path, line: usize, byte: usize, record: &Record, contents: &mut Contents) {
    let mut wrong = |what| contents.report.damage.push(Damage { file: file.to_owned(), line, byte, what });
    if let Ok(place) = Archive::place(record)
        && place != file
    {
        wrong(DamageKind::Misplaced(place));
    }
    if let Record::Measurement(measurement) = record
        && let Err(error) = measurement.check()
    {
        wrong(error.into());
    }
}

/// Every run is measured once, and what is retracted was measured.
fn check_runs(contents: &mut Contents) {
    let mut seen: HashMap<RunId, (&Path, usize)> = HashMap::new();
    let mut damage = Vec::new();
    for Located { file, line, record } in &contents.records {
        if let Record::Measurement(it) = record
            && let Some((first, first_line)) = seen.insert(it.run_id, (file, *line))
        {
            let what = DamageKind::DuplicateRun { run_id: it.run_id, file: first.to_owned(), line: first_line };
            damage.push(Damage { file: file.clone(), line: *line, byte: 0, what });
        }
    }
    for Located { file, line, record } in &contents.records {
        if let Record::Retraction(it) = record {
            for run in [Some(it.run_id), it.superseded_by].into_iter().flatten().filter(|run| !seen.contains_key(run)) {
                damage.push(Damage { file: file.clone(), line: *line, byte: 0, what: DamageKind::UnknownRun(run) });
            }
        }
    }
    contents.report.damage.extend(damage);
}

/// Every file still has the line at which each verdict saw it end.
fn check_heads(contents: &mut Contents, digests: &HashMap<PathBuf, Vec<LineDigest>>) {
    let mut damage = Vec::new();
    for Located { record, .. } in &contents.records {
        let Record::Verdict(Verdict { sitting, heads, .. }) = record else { continue };
        for (file, head) in heads {
            let lines = digests.get(Path::new(file)).map(Vec::as_slice).unwrap_or_default();
            let at = usize::try_from(head.lines).unwrap_or(usize::MAX);
            match at.checked_sub(1).and_then(|at| lines.get(at)) {
                Some(line) if line.digest == head.digest => {}
                Some(line) => {
                    let what = DamageKind::Head { found: line.digest, expected: head.digest, sitting: *sitting };
                    damage.push(Damage { file: file.into(), line: at, byte: line.start, what });
                }
                None => {
                    let what = DamageKind::Shortened { found: lines.len(), expected: head.lines, sitting: *sitting };
                    damage.push(Damage { file: file.into(), line: lines.len(), byte: 0, what });
                }
            }
        }
    }
    contents.report.damage.extend(damage);
}

/// The raw samples that a record names are there, as they were kept.
pub(super) fn check_series(root: &Path, contents: &mut Contents) -> Result<(), ArchiveError> {
    let mut damage = Vec::new();
    for Located { file, line, record } in &contents.records {
        let Record::Measurement(it) = record else { continue };
        let (Some(series), Some(expected)) = (&it.series, it.series_digest) else { continue };
        let path = root.join(series);
        let found = match fs::File::open(&path).and_then(Digest::of_reader) {
            Ok(digest) if digest == expected => continue,
            Ok(digest) => digest.to_string(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "not there".to_owned(),
            Err(source) => return Err(io_error("read", &path)(source)),
        };
        let what = DamageKind::Series { series: series.clone(), found, expected };
        damage.push(Damage { file: file.clone(), line: *line, byte: 0, what });
    }
    contents.report.damage.extend(damage);
    Ok(())
}

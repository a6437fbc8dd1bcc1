//! The archive: `results/`, which can only grow.
//!
//! One file a month for each entrant in each environment, one record a line, each line carrying the digest of the line
//! before it. The only writes are an append of whole lines and the creation of a series file that does not exist yet;
//! nothing here can shorten, replace or delete.

mod change;
mod scan;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::error::Coded;
use crate::id::{EntrantId, EnvId, RunId};
use crate::record::{Record, RecordError, Seal};

pub use change::Change;
pub use scan::{Contents, Damage, DamageKind, FileReport, Located, Report, Torn};

/// The folder of an environment that holds verdicts; no entrant can have its name.
const SITTINGS: &str = "_sittings";

/// The digest that the first line of a file carries.
#[must_use]
pub fn genesis() -> Digest {
    Digest::of("")
}

/// An append-only archive of records.
#[derive(Debug, Clone)]
pub struct Archive {
    root: PathBuf,
}

/// Where a record was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The digest of the line: the new head of the file's chain.
    pub head: Digest,
    /// The line itself.
    pub text: String,
}

/// Raw samples that were kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSeries {
    /// Their file, relative to the archive.
    pub path: String,
    /// Its digest.
    pub digest: Digest,
}

/// Why the archive could not be read or grown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The file system refused.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The record is not fit to be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The run is in the archive already.
    #[error("run {run_id} is already in {} on line {line}", file.display())]
    DuplicateRun {
        /// The run.
        run_id: RunId,
        /// Where it is.
        file: PathBuf,
        /// On which line.
        line: usize,
    },
    /// A retraction of a run that its entrant has not.
    #[error("no run {run_id} of {entrant} in {env}")]
    NoSuchRun {
        /// The run.
        run_id: RunId,
        /// The entrant.
        entrant: EntrantId,
        /// The environment.
        env: EnvId,
    },
    /// The disk took only part of the line. The next append seals what is there.
    #[error("only {written} of {bytes} bytes were written to {}", path.display())]
    ShortWrite {
        /// The file.
        path: PathBuf,
        /// Bytes written.
        written: usize,
        /// Bytes of the line.
        bytes: usize,
    },
    /// A seal is written by the archive itself.
    #[error("a seal is written by the archive itself, when it finds an unfinished line")]
    SealByHand,
}

impl Coded for ArchiveError {
    fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "archive_io",
            Self::Record(error) => error.code(),
            Self::DuplicateRun { .. } => "duplicate_run",
            Self::NoSuchRun { .. } => "no_such_run",
            Self::ShortWrite { .. } => "archive_short_write",
            Self::SealByHand => "archive_seal",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::ShortWrite { .. } => Some("free some space and run again; the unfinished line is sealed then".into()),
            Self::NoSuchRun { .. } => Some("`bench verify` lists the files and their runs".into()),
            Self::Record(error) => error.hint(),
            _ => None,
        }
    }

    fn refused(&self) -> bool {
        matches!(self, Self::NoSuchRun { .. } | Self::DuplicateRun { .. })
    }
}

fn io_error<'p>(doing: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> ArchiveError + 'p {
    move |source| ArchiveError::Io { doing, path: path.to_owned(), source }
}

impl Archive {
    /// The archive in `root`, which is made if it is not there.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, ArchiveError> {
        let root = root.into();
        fs::create_dir_all(&root).map_err(io_error("make the folder", &root))?;
        Ok(Self { root })
    }

    /// Its folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Appends a record as one line in one write, and returns when it is on disk.
    ///
    /// An unfinished last line, which a crash leaves, stays as it is: a line end and a seal are appended after it
    /// first, and the record follows.
    ///
    /// # Errors
    /// When the record contradicts itself, its run is already there, or the disk refuses.
    pub fn append(&self, record: &Record) -> Result<Appended, ArchiveError> {
        let path = self.root.join(Self::place(record)?);
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder).map_err(io_error("make the folder", folder))?;
        self.check_against(record, folder)?;

        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(io_error("open", &path))?;
        file.lock().map_err(io_error("lock", &path))?;
        let mut before = Vec::new();
        file.read_to_end(&mut before).map_err(io_error("read", &path))?;

        let mut lines = before.iter().filter(|byte| **byte == b'\n').count();
        let mut prev = scan::last_line(&before).map_or_else(genesis, Digest::of);
        if !before.is_empty() && !before.ends_with(b"\n") {
            let torn_bytes = before.len() - before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let seal = Record::Seal(Seal { torn_bytes: torn_bytes as u64 }).to_line(&prev)?;
            write_once(&mut file, &path, format!("\n{seal}\n").as_bytes())?;
            prev = Digest::of(seal);
            lines += 2;
        }
        let line = record.to_line(&prev)?;
        write_once(&mut file, &path, format!("{line}\n").as_bytes())?;
        file.sync_all().map_err(io_error("flush", &path))?;
        self.sync_folders(folder)?;
        Ok(Appended { file: path, line: lines + 1, head: Digest::of(&line), text: line })
    }

    /// Keeps the raw samples of a run; gives what its record carries: the path, relative to the archive, and the digest.
    ///
    /// # Errors
    /// When the run has a series already, or the disk refuses.
    pub fn keep_series(&self, env: &EnvId, run: RunId, compressed: &[u8]) -> Result<KeptSeries, ArchiveError> {
        let relative = format!("{env}/series/{run}.jsonl.zst");
        let path = self.root.join(&relative);
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder).map_err(io_error("make the folder", folder))?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(io_error("make", &path))?;
        file.write_all(compressed).map_err(io_error("write", &path))?;
        file.sync_all().map_err(io_error("flush", &path))?;
        self.sync_folders(folder)?;
        Ok(KeptSeries { path: relative, digest: Digest::of(compressed) })
    }

    /// Reads every record and checks the whole archive on the way. Lines that are not whole are reported, not hidden.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(&self) -> Result<Contents, ArchiveError> {
        scan::scan(&self.root)
    }

    /// Checks the whole archive: every line a record, every chain unbroken, every run once, every series as it was kept.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn verify(&self) -> Result<Report, ArchiveError> {
        let mut contents = self.read()?;
        scan::check_series(&self.root, &mut contents)?;
        Ok(contents.report)
    }

    /// The byte at which a damaged line was changed, if changing, taking out or putting in one byte explains it.
    ///
    /// Only the digest of what stood there is known, so the search tries every byte; a second or so for a line.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn first_change(&self, damage: &Damage) -> Result<Option<Change>, ArchiveError> {
        let Some(expected) = damage.what.expected() else { return Ok(None) };
        let path = self.root.join(&damage.file);
        let bytes = fs::read(&path).map_err(io_error("read", &path))?;
        Ok(scan::line_at(&bytes, damage.line).and_then(|(start, line)| change::find(line, expected, start)))
    }

    /// The file of a record, relative to the archive.
    fn place(record: &Record) -> Result<PathBuf, ArchiveError> {
        let (env, folder, ts) = match record {
            Record::Measurement(it) => (&it.env.id, it.entrant.id.as_str(), it.ts),
            Record::Retraction(it) => (&it.env, it.entrant.as_str(), it.ts),
            Record::Verdict(it) => (&it.env, SITTINGS, it.ts),
            Record::Seal(_) => return Err(ArchiveError::SealByHand),
        };
        Ok(Path::new(env.as_str()).join(folder).join(format!("{}.jsonl", ts.strftime("%Y-%m"))))
    }

    /// A run is measured once, and what is retracted was measured.
    fn check_against(&self, record: &Record, folder: &Path) -> Result<(), ArchiveError> {
        let (wanted, must_exist) = match record {
            Record::Measurement(it) => (it.run_id, false),
            Record::Retraction(it) => (it.run_id, true),
            Record::Verdict(_) | Record::Seal(_) => return Ok(()),
        };
        let found = scan::find_run(&self.root, folder, wanted)?;
        match (record, found) {
            (_, Some((file, line))) if !must_exist => Err(ArchiveError::DuplicateRun { run_id: wanted, file, line }),
            (Record::Retraction(it), None) => {
                Err(ArchiveError::NoSuchRun { run_id: wanted, entrant: it.entrant.clone(), env: it.env.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Makes new folder entries last.
    fn sync_folders(&self, folder: &Path) -> Result<(), ArchiveError> {
        for folder in folder.ancestors() {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error("flush", folder))?;
            if folder == self.root {
                break;
            }
        }
        Ok(())
    }
}

/// One write call of all of `bytes`.
fn write_once(file: &mut File, path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
    let written = file.write(bytes).map_err(io_error("write to", path))?;
    if written == bytes.len() {
        Ok(())
    } else {
        Err(ArchiveError::ShortWrite { path: path.to_owned(), written, bytes: bytes.len() })
    }
}

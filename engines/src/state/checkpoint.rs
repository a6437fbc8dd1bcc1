//! Checkpoints on disk: a manifest that names runs, written so that a crash at any moment leaves a whole one.
//!
//! A directory holds `manifest-<number>.json` (the last two), the runs they name, and a lock. A manifest's first line is the
//! checksum of what follows. Runs are brought to the disk before the manifest that names them; the manifest is written to a
//! temporary name, brought to the disk, renamed, and the directory brought to the disk.

use std::fs::{self, File};
use std::hash::Hasher as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twox_hash::XxHash64;

use super::run::{RunFile, StateError};
use crate::flow::Clocks;

/// Version of the manifest's form; it also changes with the forms of entries in runs.
const VERSION: u32 = 1;
const PREFIX: &str = "manifest-";
/// Manifests that are kept.
const KEPT: usize = 2;

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this form.
    pub version: u32,
    /// Ascends with every checkpoint of the directory.
    pub number: u64,
    /// Whose state it is.
    pub identity: Identity,
    /// Position and event time of every leaf.
    pub leaves: Vec<LeafManifest>,
    /// State of every stage.
    pub stages: Vec<StageManifest>,
    /// Where the output ended.
    pub sink: Value,
    /// Records read and rows written by then.
    pub records: u64,
    /// As above.
    pub rows: u64,
    /// Rows still wanted of a limited query.
    pub left: Option<u64>,
    /// The query has run to its end.
    pub finished: bool,
}

/// What a checkpoint belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The query, as it was compiled.
    pub query: String,
    /// The inputs by name, each with what it is.
    pub inputs: Vec<(String, String)>,
    /// The output.
    pub output: String,
}

/// A leaf in a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeafManifest {
    /// As its source gave it.
    pub position: Value,
    /// Event time of its partitions.
    pub clocks: Clocks,
    /// It had been read to its end.
    pub ended: bool,
}

/// A stage in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageManifest {
    /// The watermark it had been advanced to.
    pub closed: i64,
    /// Its runs, in order.
    pub runs: Vec<RunEntry>,
}

/// A run in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEntry {
    /// File name.
    pub file: String,
    /// Bytes.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
}

/// A checkpoint directory that this process has for itself.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Opens or makes a directory and locks it.
    ///
    /// # Errors
    /// It cannot be made, or another process has it: [`io::ErrorKind::WouldBlock`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        fs::create_dir_all(path).map_err(io_error("written", path))?;
        let name = path.join("lock");
        let lock = File::create(&name).map_err(io_error("written", &name))?;
        lock.try_lock().map_err(|error| {
            let source = match error {
                fs::TryLockError::WouldBlock => io::Error::new(io::ErrorKind::WouldBlock, "another process uses it"),
                fs::TryLockError::Error(error) => error,
            };
            StateError::Io { what: "locked", path: name.clone(), source }
        })?;
        Ok(Self { path: path.into(), _lock: lock })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Numbers of the manifests that are there, the newest first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn numbers(&self) -> Result<Vec<u64>, StateError> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(io_error("read", &self.path))? {
            let name = entry.map_err(io_error("read", &self.path))?.file_name();
            let number: Option<u64> =
                name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(".json")?.parse().ok());
            numbers.extend(number);
        }
        numbers.sort_unstable_by(|a: &u64, b| b.cmp(a));
        Ok(numbers)
    }

    /// Reads a manifest and opens the runs it names.
    ///
    /// # Errors
    /// The manifest or a run is not there or damaged.
    pub fn load(&self, number: u64) -> Result<(Manifest, Vec<Vec<RunFile>>), StateError> {
        let path = self.manifest(number);
        let bytes = fs::read(&path).map_err(io_error("read", &path))?;
        let damaged = |reason: String| StateError::Damaged { path: path.clone(), reason };
        let manifest = parse(&bytes).map_err(damaged)?;
        let open = |run: &RunEntry| {
            let path = self.path.join(&run.file);
            let file = RunFile::open(&path)?;
            let size = fs::metadata(&path).map_err(io_error("read", &path))?.len();
            if size != run.bytes || file.entries() != run.entries {
                return Err(StateError::Damaged { path, reason: "it is not the run the manifest names".into() });
            }
            Ok(file)
        };
        let runs = manifest.stages.iter().map(|stage| stage.runs.iter().map(open).collect());
        let runs = runs.collect::<Result<Vec<Vec<RunFile>>, StateError>>()?;
        Ok((manifest, runs))
    }

    /// Writes a manifest whose runs are on the disk already, and removes what no kept manifest names.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store(&self, manifest: &Manifest) -> Result<(), StateError> {
        let path = self.manifest(manifest.number);
        let temporary = path.with_extension("tmp");
        let json = serde_json::to_vec(manifest).map_err(|e| io_error("written", &path)(e.into()))?;
        let mut bytes = format!("{:016x}\n", checksum(&json)).into_bytes();
        bytes.extend_from_slice(&json);
        let write = |file: &mut File| file.write_all(&bytes).and_then(|()| file.sync_all());
        let mut file = File::create(&temporary).map_err(io_error("written", &temporary))?;
        write(&mut file).map_err(io_error("written", &temporary))?;
        fs::rename(&temporary, &path).map_err(io_error("written", &path))?;
        self.sync()?;
        self.sweep()
    }

    /// Brings the directory itself to the disk.
    fn sync(&self) -> Result<(), StateError> {
        File::open(&self.path).and_then(|dir| dir.sync_all()).map_err(io_error("written", &self.path))
    }

    /// Removes manifests but the last ones, and runs that these do not name.
    fn sweep(&self) -> Result<(), StateError> {
        let numbers = self.numbers()?;
        let mut named = Vec::new();
        for number in numbers.iter().take(KEPT) {
            let path = self.manifest(*number);
            let manifest = fs::read(&path).ok().and_then(|bytes| parse(&bytes).ok());
            named.extend(manifest.into_iter().flat_map(|m| m.stages).flat_map(|s| s.runs).map(|run| run.file));
        }
        for number in numbers.iter().skip(KEPT) {
            let path = self.manifest(*number);
            fs::remove_file(&path).map_err(io_error("removed", &path))?;
        }
        for entry in fs::read_dir(&self.path).map_err(io_error("read", &self.path))? {
            let entry = entry.map_err(io_error("read", &self.path))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".run") && !named.contains(&name) {
                fs::remove_file(entry.path()).map_err(io_error("removed", &entry.path()))?;
            }
        }
        Ok(())
    }

    fn manifest(&self, number: u64) -> PathBuf {
        self.path.join(format!("{PREFIX}{number:08}.json"))
    }

    /// Where a run of a checkpoint is written.
    #[must_use]
    pub fn run(&self, number: u64, stage: usize) -> PathBuf {
        self.path.join(format!("stage-{stage}-{number:08}.run"))
    }
}

impl Manifest {
    /// A manifest of the present version.
    #[must_use]
    pub fn new(number: u64, identity: Identity) -> Self {
        Self {
            version: VERSION,
            number,
            identity,
            leaves: vec![],
            stages: vec![],
            sink: Value::Null,
            records: 0,
            rows: 0,
            left: None,
            finished: false,
        }
    }
}

/// Reads a manifest's bytes.
///
/// # Errors
/// What is wrong with them.
pub fn parse(bytes: &[u8]) -> Result<Manifest, String> {
    let (sum, json) = bytes.split_at_checked(17).ok_or("it is too short")?;
    let said = std::str::from_utf8(&sum[..16]).ok().and_then(|sum| u64::from_str_radix(sum, 16).ok());
    if sum[16] != b'\n' || said != Some(checksum(json)) {
        return Err("its checksum differs".into());
    }
    let value: Value = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    match value.get("version").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => return Err(format!("it has version {version}; this program reads version {VERSION}")),
        None => return Err("it has no version".into()),
    }
    serde_json::from_value(value).map_err(|e| e.to_string())
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    hasher.write(bytes);
    hasher.finish()
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_path_buf();
    move |source| StateError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::run::RunWriter;
    use proptest::prelude::*;

    fn identity() -> Identity {
        Identity { query: "SELECT 1".into(), inputs: vec![("s".into(), "file:a".into())], output: "stdout".into() }
    }

    fn with_run(directory: &Directory, number: u64, earlier: &[RunEntry]) -> Manifest {
        let path = directory.run(number, 0);
        let mut out = RunWriter::create(&path).unwrap();
        out.entry(b"k", &number.to_le_bytes()).unwrap();
        let bytes = out.finish(true).unwrap();
        let mut manifest = Manifest::new(number, identity());
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut runs = earlier.to_vec();
        runs.push(RunEntry { file, bytes, entries: 1 });
        manifest.stages.push(StageManifest { closed: 7, runs });
        manifest
    }

    #[test]
    fn the_last_two_are_kept_with_their_runs() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let first = with_run(&directory, 1, &[]);
        directory.store(&first).unwrap();
        let second = with_run(&directory, 2, &first.stages[0].runs);
        directory.store(&second).unwrap();
        directory.store(&with_run(&directory, 3, &[])).unwrap();
        assert_eq!(directory.numbers().unwrap(), [3, 2]);
        let (loaded, runs) = directory.load(2).unwrap();
        assert_eq!((loaded, runs[0].len()), (second, 2));
        directory.store(&with_run(&directory, 4, &[])).unwrap();
        assert!(directory.load(2).is_err() && !directory.run(1, 0).exists() && directory.load(3).is_ok());
    }

    #[test]
    fn a_second_process_is_kept_out() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::open(dir.path()).unwrap();
        assert!(matches!(Directory::open(dir.path()), Err(StateError::Io { what: "locked", .. })));
        drop(first);
        assert!(Directory::open(dir.path()).is_ok());
    }

    #[test]
    fn a_run_that_was_swapped_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let manifest = with_run(&directory, 1, &[]);
        directory.store(&manifest).unwrap();
        let mut out = RunWriter::create(&directory.run(1, 0)).unwrap();
        out.entry(b"k", b"other").unwrap();
        out.finish(true).unwrap();
        assert!(matches!(directory.load(1), Err(StateError::Damaged { .. })));
        fs::remove_file(directory.run(1, 0)).unwrap();
        assert!(matches!(directory.load(1), Err(StateError::Io { .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(parse(&bytes).is_err());
        }

        #[test]
        fn a_changed_byte_is_noticed(at in 0_usize..1000, bit in 0_u8..8) {
            let json = serde_json::to_vec(&Manifest::new(1, identity())).unwrap();
            let mut bytes = format!("{:016x}\n", checksum(&json)).into_bytes();
            bytes.extend_from_slice(&json);
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            // Letters of the checksum may change their case.
            prop_assert!(parse(&bytes).is_err() || (at < 16 && bit == 5));
        }
    }
}

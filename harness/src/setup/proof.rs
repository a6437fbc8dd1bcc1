//! That a fetched piece is the pinned one: checksums, and a stamp that saves computing them again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::SetupError;
use super::lock::Piece;

/// Name of the stamp inside a piece's directory.
const STAMP: &str = ".verified.json";

/// What is known about a piece's directory without reading its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// Every file is as it was when its checksum was last found right.
    Proven,
    /// Every file is there, but not as the stamp has it.
    Unproven,
    /// A file is missing.
    Absent,
}

/// A file as it was when its checksum was found right.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    sha256: String,
    size: u64,
    mtime_ns: i64,
}

type Stamp = BTreeMap<String, Seen>;

/// Looks at the files of `piece` in `dir` and at its stamp.
pub(super) fn presence(dir: &Path, piece: &Piece) -> Presence {
    let stamp = fs::read(dir.join(STAMP)).ok().and_then(|text| serde_json::from_slice::<Stamp>(&text).ok());
    let mut proven = true;
    for file in &piece.files {
        let Some(seen) = look(&dir.join(&file.path), &file.sha256) else { return Presence::Absent };
        proven &= stamp.as_ref().and_then(|stamp| stamp.get(&file.path)) == Some(&seen);
    }
    if proven { Presence::Proven } else { Presence::Unproven }
}

/// Hashes every file of `piece` in `dir`, makes it durable, and writes the stamp.
///
/// # Errors
/// The first file that is missing or has another checksum than the lock.
pub(super) fn prove(dir: &Path, piece: &Piece, cached: bool, bar: &ProgressBar) -> Result<(), SetupError> {
    let mut stamp = Stamp::new();
    for file in &piece.files {
        let path = dir.join(&file.path);
        let got = sha256(&path, bar)?;
        if got != file.sha256 {
            let cached = cached.then(|| dir.to_path_buf());
            return Err(SetupError::Checksum { file: path, expected: file.sha256.clone(), got, cached });
        }
        if let Some(seen) = look(&path, &got) {
            stamp.insert(file.path.clone(), seen);
        }
    }
    let path = dir.join(STAMP);
    let text = serde_json::to_vec(&stamp).map_err(io::Error::from).map_err(SetupError::io("write", &path))?;
    let partial = dir.join(".verified.part");
    fs::write(&partial, text)
        .and_then(|()| File::open(&partial)?.sync_all())
        .and_then(|()| fs::rename(&partial, &path))
        .map_err(SetupError::io("write", &path))
}

/// SHA-256 of a file in lower-case hex. What was written to it is on the disk when this returns.
///
/// # Errors
/// When it cannot be read.
pub(super) fn sha256(path: &Path, bar: &ProgressBar) -> Result<String, SetupError> {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            hash.update(&buffer[..read]);
            bar.inc(read as u64);
        }
        file.sync_all()?;
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    };
    read().map_err(SetupError::io("read", path))
}

fn look(path: &Path, sha256: &str) -> Option<Seen> {
    let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mtime_ns = meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec());
    Some(Seen { sha256: sha256.to_owned(), size: meta.len(), mtime_ns })
}

//! Runs: sorted entries of state in one file, written once.
//!
//! A checkpoint writes the runs that are new, spilling writes runs and reads them back in the order of their keys. What
//! keys and values mean is the operator's matter. A file is a magic, blocks of entries with a checksum each, an index of
//! the blocks' first keys, and a footer; every length is little-endian.

use std::fs::File;
use std::hash::Hasher as _;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use twox_hash::XxHash64;

const MAGIC: &[u8; 8] = b"FRRUN\0\0\x01";
/// Bytes of entries after which a block ends.
const BLOCK: usize = 64 << 10;
/// Bytes of the footer: index offset, entries, checksum of the index.
const FOOTER: u64 = 24;
/// Largest block that is believed: a broken length must not ask for all memory.
const LARGEST: usize = 1 << 30;

/// State that has been frozen and waits to be written.
pub trait Run: Send {
    /// Writes its entries, ascending by key.
    ///
    /// # Errors
    /// The file cannot be written.
    fn write(self: Box<Self>, out: &mut RunWriter) -> Result<(), StateError>;
}

/// State on disk cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refuses.
    #[error("{} cannot be {what}: {source}", path.display())]
    Io {
        /// `written`, `read`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not what was written.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Writes a run.
#[derive(Debug)]
pub struct RunWriter {
    out: BufWriter<File>,
    path: PathBuf,
    block: Vec<u8>,
    index: Vec<u8>,
    offset: u64,
    entries: u64,
}

impl RunWriter {
    /// Creates the file.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(path: &Path) -> Result<Self, StateError> {
        let fail = |source| StateError::Io { what: "written", path: path.into(), source };
        let mut out = BufWriter::with_capacity(BLOCK * 4, File::create(path).map_err(fail)?);
        out.write_all(MAGIC).map_err(fail)?;
        Ok(Self {
            out,
            path: path.into(),
            block: Vec::with_capacity(BLOCK * 2),
            index: Vec::new(),
            offset: MAGIC.len() as u64,
            entries: 0,
        })
    }

    /// Appends an entry; keys ascend, equal ones may follow each other.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), StateError> {
        if self.block.is_empty() {
            self.index.extend_from_slice(&self.offset.to_le_bytes());
            length(key.len(), &mut self.index);
            self.index.extend_from_slice(key);
        }
        length(key.len(), &mut self.block);
        length(value.len(), &mut self.block);
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value);
        self.entries += 1;
        if self.block.len() >= BLOCK { self.end_block() } else { Ok(()) }
    }

    /// What is to be written cannot be made into entries.
    pub(crate) fn failed(&self, source: io::Error) -> StateError {
        StateError::Io { what: "written", path: self.path.clone(), source }
    }

    /// Entries appended so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    fn end_block(&mut self) -> Result<(), StateError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut head = Vec::with_capacity(12);
        length(self.block.len(), &mut head);
        head.extend_from_slice(&checksum(&self.block).to_le_bytes());
        let written = self.out.write_all(&head).and_then(|()| self.out.write_all(&self.block));
        written.map_err(|source| StateError::Io { what: "written", path: self.path.clone(), source })?;
        self.offset += (head.len() + self.block.len()) as u64;
        self.block.clear();
        Ok(())
    }

    /// Ends the file and brings it to the disk when `durable`. Says how many bytes it has.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, durable: bool) -> Result<u64, StateError> {
        self.end_block()?;
        let mut footer = self.offset.to_le_bytes().to_vec();
        footer.extend_from_slice(&self.entries.to_le_bytes());
        footer.extend_from_slice(&checksum(&self.index).to_le_bytes());
        let written = self.out.write_all(&self.index).and_then(|()| self.out.write_all(&footer));
        let ended = written.and_then(|()| self.out.flush());
        let synced = ended.and_then(|()| if durable { self.out.get_ref().sync_all() } else { Ok(()) });
        synced.map_err(|source| StateError::Io { what: "written", path: self.path.clone(), source })?;
        Ok(self.offset + self.index.len() as u64 + FOOTER)
    }
}

/// A run on disk.
#[derive(Debug, Clone)]
pub struct RunFile {
    path: PathBuf,
    /// First key and offset of every block.
    blocks: Vec<(Vec<u8>, u64)>,
    entries: u64,
}

impl RunFile {
    /// Opens a run and checks its index.
    ///
    /// # Errors
    /// The file cannot be read or is damaged.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let fail = |source| StateError::Io { what: "read", path: path.into(), source };
        let damaged = |reason: &str| StateError::Damaged { path: path.into(), reason: reason.into() };
        let mut file = File::open(path).map_err(fail)?;
        let size = file.metadata().map_err(fail)?.len();
        if size < MAGIC.len() as u64 + FOOTER {
            return Err(damaged("it is too short"));
        }
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic).map_err(fail)?;
        if magic != *MAGIC {
            return Err(damaged("it does not begin like a run"));
        }
        file.seek(SeekFrom::Start(size - FOOTER)).map_err(fail)?;
        let mut footer = [0; FOOTER as usize];
        file.read_exact(&mut footer).map_err(fail)?;
        let [offset, entries, sum] = [0, 8, 16].map(|at| u64_at(&footer, at));
        if offset < MAGIC.len() as u64 || offset > size - FOOTER {
            return Err(damaged("its footer names no index"));
        }
        let mut index = vec![0; usize::try_from(size - FOOTER - offset).unwrap_or(usize::MAX)];
        file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut index)).map_err(fail)?;
        if checksum(&index) != sum {
            return Err(damaged("the checksum of its index differs"));
        }
        let mut blocks = Vec::new();
        let mut rest = index.as_slice();
        while !rest.is_empty() {
            let (at, key) = take_index(&mut rest).ok_or_else(|| damaged("its index is cut off"))?;
            blocks.push((key.to_vec(), at));
        }
        Ok(Self { path: path.into(), blocks, entries })
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// First keys of the blocks, as far as they begin with `prefix`: where the run may be cut into parts, ascending.
    pub fn cuts<'r>(&'r self, prefix: &'r [u8]) -> impl Iterator<Item = &'r [u8]> {
        let first = self.blocks.partition_point(|(key, _)| key.as_slice() < prefix);
        self.blocks[first..].iter().map(|(key, _)| key.as_slice()).take_while(move |key| key.starts_with(prefix))
    }

    /// Reads the entries whose key is at least `from`, ascending.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn read_from(&self, from: &[u8]) -> Result<RunReader, StateError> {
        let fail = |source| StateError::Io { what: "read", path: self.path.clone(), source };
        let block = self.blocks.partition_point(|(key, _)| key.as_slice() < from).saturating_sub(1);
        let offsets: Vec<u64> = self.blocks[block..].iter().rev().map(|(_, at)| *at).collect();
        let file = File::open(&self.path).map_err(fail)?;
        let mut reader = RunReader { file, path: self.path.clone(), offsets, block: vec![], at: 0, entry: None };
        reader.step()?;
        while reader.key().is_some_and(|key| key < from) {
            reader.step()?;
        }
        Ok(reader)
    }
}

/// Reads entries in order.
#[derive(Debug)]
pub struct RunReader {
    file: File,
    path: PathBuf,
    /// Blocks to come, the next one last.
    offsets: Vec<u64>,
    block: Vec<u8>,
    at: usize,
    entry: Option<(std::ops::Range<usize>, std::ops::Range<usize>)>,
}

impl RunReader {
    /// Key of the present entry; `None` at the end.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.entry.as_ref().map(|(key, _)| &self.block[key.clone()])
    }

    /// Value of the present entry; empty at the end.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.entry.as_ref().map_or(&[], |(_, value)| &self.block[value.clone()])
    }

    /// Goes on to the next entry.
    ///
    /// # Errors
    /// The file cannot be read or is damaged.
    pub fn step(&mut self) -> Result<(), StateError> {
        if self.at == self.block.len() && !self.load()? {
            self.entry = None;
            return Ok(());
        }
        let Some((key, value)) = take_entry(&self.block, &mut self.at) else {
            return Err(self.damaged("an entry is cut off"));
        };
        self.entry = Some((key, value));
        Ok(())
    }

    fn load(&mut self) -> Result<bool, StateError> {
        let Some(offset) = self.offsets.pop() else { return Ok(false) };
        let fail = |path: &Path| {
            let path = path.to_path_buf();
            move |source| StateError::Io { what: "read", path, source }
        };
        let mut head = [0; 12];
        let read = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_exact(&mut head));
        read.map_err(fail(&self.path))?;
        let size = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if size == 0 || size > LARGEST {
            return Err(self.damaged("a block has an impossible length"));
        }
        self.block.resize(size, 0);
        self.at = 0;
        self.file.read_exact(&mut self.block).map_err(fail(&self.path))?;
        if checksum(&self.block) != u64_at(&head, 4) {
            return Err(self.damaged("the checksum of a block differs"));
        }
        Ok(true)
    }

    fn damaged(&self, reason: &str) -> StateError {
        StateError::Damaged { path: self.path.clone(), reason: reason.into() }
    }
}

fn length(value: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes());
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    hasher.write(bytes);
    hasher.finish()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

fn take_index<'a>(rest: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let (head, behind) = rest.split_at_checked(12)?;
    let length = u32::from_le_bytes(head[8..12].try_into().ok()?) as usize;
    let (key, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    Some((u64_at(head, 0), key))
}

type Ranges = (std::ops::Range<usize>, std::ops::Range<usize>);

fn take_entry(block: &[u8], at: &mut usize) -> Option<Ranges> {
    let head = block.get(*at..*at + 8)?;
    let key = u32::from_le_bytes(head[..4].try_into().ok()?) as usize;
    let value = u32::from_le_bytes(head[4..].try_into().ok()?) as usize;
    let from = *at + 8;
    let (middle, end) = (from.checked_add(key)?, from.checked_add(key)?.checked_add(value)?);
    if end > block.len() {
        return None;
    }
    *at = end;
    Some((from..middle, middle..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(entries: &[(Vec<u8>, Vec<u8>)]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let mut out = RunWriter::create(&path).unwrap();
        entries.iter().for_each(|(key, value)| out.entry(key, value).unwrap());
        let size = out.finish(true).unwrap();
        assert_eq!(size, path.metadata().unwrap().len());
        (dir, path)
    }

    fn entries() -> Vec<(Vec<u8>, Vec<u8>)> {
        (0_u32..20_000).map(|k| (k.to_be_bytes().to_vec(), vec![7; (k % 13) as usize])).collect()
    }

    #[test]
    fn entries_come_back_in_order_from_any_key() {
        let all = entries();
        let (_dir, path) = written(&all);
        let run = RunFile::open(&path).unwrap();
        assert_eq!(run.entries(), 20_000);
        for from in [0_u32, 1, 9_999, 19_999, 20_000] {
            let mut reader = run.read_from(&from.to_be_bytes()).unwrap();
            for (key, value) in &all[from as usize..] {
                assert_eq!((reader.key(), reader.value()), (Some(key.as_slice()), value.as_slice()));
                reader.step().unwrap();
            }
            assert_eq!(reader.key(), None);
        }
        let (_dir, path) = written(&[]);
        assert_eq!(RunFile::open(&path).unwrap().read_from(b"").unwrap().key(), None);
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let all: Vec<_> = entries().into_iter().take(40).collect();
        let (_dir, path) = written(&all);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            let read = RunFile::open(&path).and_then(|run| {
                let mut reader = run.read_from(b"")?;
                let mut seen = 0;
                while reader.key().is_some() {
                    reader.step()?;
                    seen += 1;
                }
                Ok((run.entries(), seen))
            });
            // The number of entries is the caller's to compare.
            assert!(read.is_err() || read.is_ok_and(|(said, seen)| said != seen), "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(RunFile::open(&path).is_err(), "cut at {at}");
        }
    }
}

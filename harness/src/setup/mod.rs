//! What the embedded environment needs, fetched once into a cache directory; and what this host is.
//!
//! [`ensure`] is all that a run calls: it costs a few `stat`s and one `java -version` when everything is there.

mod error;
mod fetch;
pub mod home;
pub mod host;
pub mod lock;
mod progress;
mod proof;
#[cfg(test)]
mod testing;
pub mod tools;

use std::env::consts::ARCH;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::DecimalBytes;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};

pub use error::SetupError;
use fetch::{Fetch, create_dir};
pub use home::Home;
use lock::{Lock, Piece};
pub use proof::Presence;
pub use tools::{Java, Tool, Tools};

/// What setup found or did.
#[derive(Debug)]
pub struct Report {
    /// The Java that runs the broker.
    pub java: Java,
    /// Every piece, in the lock's order.
    pub pieces: Vec<PieceReport>,
}

/// A piece that is in the cache.
#[derive(Debug)]
pub struct PieceReport {
    /// Name and version.
    pub piece: String,
    /// Its directory.
    pub dir: PathBuf,
    /// Bytes of its files.
    pub size: u64,
    /// How it came to be there.
    pub outcome: Outcome,
}

/// How a piece came to be in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was there already.
    Present,
    /// It was there already and its checksums were computed again.
    Verified,
    /// It was fetched now.
    Fetched,
}

/// Fetches what is missing from the cache directory; does nothing, and needs no network, when all is there.
///
/// Safe to call from several processes at once. Progress goes to stderr.
///
/// # Errors
/// See [`SetupError`]: a missing tool, a failed client, a wrong checksum, a full disk.
pub fn ensure(home: &Home) -> Result<Report, SetupError> {
    Setup { home, lock: Lock::pinned(), arch: ARCH, tools: Tools::from_env(), verify: false }.run()
}

/// As [`ensure`], computing the checksum of every file that is there already.
///
/// # Errors
/// As [`ensure`].
pub fn verify(home: &Home) -> Result<Report, SetupError> {
    Setup { home, lock: Lock::pinned(), arch: ARCH, tools: Tools::from_env(), verify: true }.run()
}

/// What setup would find, without changing anything.
#[derive(Debug)]
pub struct Inspection {
    /// Every piece that exists for this host, with its name and version.
    pub pieces: Vec<(String, Presence)>,
    /// Bytes free where the cache directory is or would be.
    pub free: u64,
    /// Everything that keeps [`ensure`], or a run after it, from succeeding.
    pub obstacles: Vec<SetupError>,
}

/// Looks at the cache directory and at what filling it needs.
#[must_use]
pub fn inspect(home: &Home) -> Inspection {
    Setup { home, lock: Lock::pinned(), arch: ARCH, tools: Tools::from_env(), verify: false }.inspect()
}

struct Setup<'a> {
    home: &'a Home,
    lock: &'a Lock,
    arch: &'a str,
    tools: Tools,
    verify: bool,
}

impl Setup<'_> {
    fn run(&self) -> Result<Report, SetupError> {
        let pieces = self.lock.pieces(self.arch)?;
        let settled = |piece: &&Piece| proof::presence(&self.dir(piece), piece) == Presence::Proven;
        if pieces.iter().all(settled) && !self.verify {
            let java = self.tools.java()?;
            let pieces = pieces.into_iter().map(|piece| self.report(piece, Outcome::Present)).collect();
            return Ok(Report { java, pieces });
        }
        let programs = self.programs(&pieces)?;
        let java = self.tools.java()?;
        create_dir(&self.home.fetch())?;
        let _held = self.hold()?;
        self.check_space(&pieces)?;
        let pieces = pieces
            .into_iter()
            .zip(programs)
            .map(|(piece, program)| self.settle(piece, program))
            .collect::<Result<_, _>>()?;
        Ok(Report { java, pieces })
    }

    fn inspect(&self) -> Inspection {
        let mut obstacles = Vec::new();
        let pieces = self.lock.pieces(self.arch).unwrap_or_else(|error| {
            obstacles.push(error);
            Vec::new()
        });
        let programs = self.programs(&pieces).and_then(|_| self.tools.java());
        obstacles.extend(programs.err());
        obstacles.extend(self.check_space(&pieces).err());
        let dir = existing(self.home.root());
        let writable = access(dir, AccessFlags::W_OK).map_err(Into::into);
        obstacles.extend(writable.map_err(SetupError::io("write to", dir)).err());
        Inspection {
            pieces: pieces.iter().map(|piece| (piece.to_string(), proof::presence(&self.dir(piece), piece))).collect(),
            free: free(dir).unwrap_or(0),
            obstacles,
        }
    }

    fn dir(&self, piece: &Piece) -> PathBuf {
        self.home.root().join(piece.dir_name())
    }

    fn absent(&self, piece: &Piece) -> bool {
        proof::presence(&self.dir(piece), piece) == Presence::Absent
    }

    /// The client of every piece that is absent; all missing tools are one error.
    fn programs(&self, pieces: &[&Piece]) -> Result<Vec<Option<PathBuf>>, SetupError> {
        let mut needed = vec![Tool::Java];
        needed.extend(pieces.iter().filter(|piece| self.absent(piece)).map(|piece| piece.name.tool()));
        let found = self.tools.require(&needed)?;
        let of = |tool| needed.iter().position(|needed| *needed == tool).map(|at| found[at].clone());
        Ok(pieces.iter().map(|piece| of(piece.name.tool())).collect())
    }

    /// Waits for the only setup that may write to this cache; it ends with the returned file, or with the process.
    fn hold(&self) -> Result<File, SetupError> {
        let path = self.home.fetch().join("lock");
        let file = File::create(&path).map_err(SetupError::io("create", &path))?;
        if file.try_lock().is_err() {
            progress::say("waiting for another `bench setup` on this cache directory");
            file.lock().map_err(SetupError::io("lock", &path))?;
        }
        Ok(file)
    }

    /// Room for the client's copy, the download and the unpacked files of every absent piece.
    fn check_space(&self, pieces: &[&Piece]) -> Result<(), SetupError> {
        let absent: Vec<_> = pieces.iter().filter(|piece| self.absent(piece)).collect();
        let needed = absent.iter().map(|piece| piece.size() + 2 * piece.download.size).sum();
        let dir = existing(self.home.root());
        let free = free(dir)?;
        if free >= needed {
            return Ok(());
        }
        let pieces = absent.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Err(SetupError::Space { dir: dir.to_path_buf(), pieces, needed, free })
    }

    /// Makes one piece proven. `program` is its client; without one the piece was there before the lock was held.
    fn settle(&self, piece: &Piece, program: Option<PathBuf>) -> Result<PieceReport, SetupError> {
        let dir = self.dir(piece);
        match (proof::presence(&dir, piece), program) {
            (Presence::Proven, _) if !self.verify => Ok(self.report(piece, Outcome::Present)),
            (Presence::Absent, Some(program)) => self.fetch(piece, &program, &dir),
            (Presence::Absent, None) => {
                Err(SetupError::io("read", dir)(std::io::Error::other("its files vanished while setup ran")))
            }
            _ => {
                let bar = progress::bytes(piece.size(), &format!("{piece} verify"));
                let proven = proof::prove(&dir, piece, true, &bar);
                bar.finish_and_clear();
                proven.map(|()| self.report(piece, Outcome::Verified))
            }
        }
    }

    fn fetch(&self, piece: &Piece, program: &Path, dir: &Path) -> Result<PieceReport, SetupError> {
        let started = Instant::now();
        let tool = piece.name.tool();
        progress::say(&format!("{piece}: fetching about {} with {tool}", DecimalBytes(piece.download.size)));
        let fetch = Fetch {
            piece,
            program,
            staging: self.home.fetch().join(piece.dir_name()),
            log: self.home.fetch().join(format!("{}.log", piece.name)),
        };
        fetch.run(dir)?;
        progress::say(&format!("{piece}: ready after {:.1} s", started.elapsed().as_secs_f64()));
        Ok(self.report(piece, Outcome::Fetched))
    }

    fn report(&self, piece: &Piece, outcome: Outcome) -> PieceReport {
        PieceReport { piece: piece.to_string(), dir: self.dir(piece), size: piece.size(), outcome }
    }
}

/// The directory itself, or the nearest one above it that is there.
fn existing(dir: &Path) -> &Path {
    dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"))
}

/// Bytes that may be written below `dir`.
fn free(dir: &Path) -> Result<u64, SetupError> {
    let stat = statvfs(dir).map_err(Into::into).map_err(SetupError::io("read", dir))?;
    Ok(stat.blocks_available() * stat.fragment_size())
}

#[cfg(test)]
mod tests;

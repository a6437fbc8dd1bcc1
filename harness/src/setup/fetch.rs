//! One piece from its registry into the cache directory, through the registry's own client.
//!
//! Everything happens in a staging directory that survives an interruption and is deleted when the piece is in place.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use flate2::bufread::GzDecoder;
use indicatif::ProgressBar;

use super::lock::{Name, Piece};
use super::proof::{self, Presence};
use super::tools::Tool;
use super::{SetupError, progress};

/// The project whose dependencies are the broker's jars.
const POM: &str = include_str!("../../../environments/embedded/pom.xml");

/// Lines of a failed client's log that are shown.
const TAIL: usize = 20;

/// One piece on its way into the cache.
pub(super) struct Fetch<'a> {
    pub piece: &'a Piece,
    /// The client's program.
    pub program: &'a Path,
    /// Kept across interruptions.
    pub staging: PathBuf,
    /// Receives what the client prints.
    pub log: PathBuf,
}

impl Fetch<'_> {
    /// Puts the piece at `target`, replacing an incomplete one.
    pub(super) fn run(&self, target: &Path) -> Result<(), SetupError> {
        let whole = self.staging.join("whole");
        create_dir(&whole)?;
        if proof::presence(&whole, self.piece) != Presence::Proven {
            let delivered = match self.piece.name {
                Name::Kafka => self.maven()?,
                Name::Chdb => self.npm()?,
                Name::Duckdb => self.pip()?,
            };
            self.assemble(&delivered, &whole)?;
        }
        if target.exists() {
            remove_dir(target)?;
        }
        fs::rename(&whole, target).map_err(SetupError::io("create", target))?;
        remove_dir(&self.staging)
    }

    /// Moves the files of the lock, and no other, from where the client left them, and checks them.
    fn assemble(&self, delivered: &Path, whole: &Path) -> Result<(), SetupError> {
        for file in &self.piece.files {
            let to = whole.join(&file.path);
            if let Some(parent) = to.parent() {
                create_dir(parent)?;
            }
            fs::rename(delivered.join(&file.path), &to).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => SetupError::Undelivered {
                    tool: self.piece.name.tool(),
                    piece: self.piece.to_string(),
                    file: file.path.clone(),
                },
                _ => SetupError::io("create", &to)(error),
            })?;
        }
        let bar = progress::bytes(self.piece.size(), &format!("{} verify", self.piece));
        let proven = proof::prove(whole, self.piece, false, &bar);
        bar.finish_and_clear();
        if let Err(SetupError::Checksum { .. }) = &proven {
            remove_dir(&self.staging)?;
        }
        proven
    }

    /// The broker's jars, copied out of a local repository of our own.
    fn maven(&self) -> Result<PathBuf, SetupError> {
        let delivered = self.staging.join("jars");
        let pom = self.staging.join("pom.xml");
        fs::write(&pom, POM).map_err(SetupError::io("write", &pom))?;
        self.client(
            Command::new(self.program)
                .args(["-B", "-ntp", "-f"])
                .arg(&pom)
                .arg("dependency:copy-dependencies")
                .arg(setting("-Dmaven.repo.local=", &self.staging.join("repository")))
                .arg(setting("-DoutputDirectory=", &delivered.join("libs"))),
        )?;
        Ok(delivered)
    }

    /// The package's archive, checked, then its files unpacked.
    fn npm(&self) -> Result<PathBuf, SetupError> {
        let archive = self.staging.join("archive.tgz");
        if !archive.exists() {
            let packed = self.staging.join("packed");
            fresh_dir(&packed)?;
            self.client(
                Command::new(self.program)
                    .arg("pack")
                    .arg(format!("{}@{}", self.piece.package, self.piece.version))
                    .args(["--ignore-scripts", "--no-progress"])
                    .arg(setting("--cache=", &self.staging.join("cache")))
                    .arg(setting("--pack-destination=", &packed)),
            )?;
            let tgz = fs::read_dir(&packed)
                .map_err(SetupError::io("read", &packed))?
                .filter_map(|entry| Some(entry.ok()?.path()))
                .find(|path| path.extension().is_some_and(|extension| extension == "tgz"))
                .ok_or_else(|| SetupError::Undelivered {
                    tool: Tool::Npm,
                    piece: self.piece.to_string(),
                    file: "*.tgz".to_owned(),
                })?;
            fs::rename(&tgz, &archive).map_err(SetupError::io("create", &archive))?;
        }
        self.check_archive(&archive)?;
        let delivered = self.staging.join("unpacked");
        fresh_dir(&delivered)?;
        let bar = progress::bytes(self.piece.download.size, &format!("{} unpack", self.piece));
        let unpacked = self.unpack(&archive, &delivered, &bar).map_err(SetupError::io("unpack", &archive));
        bar.finish_and_clear();
        unpacked.map(|()| delivered)
    }

    /// Compares the archive with the lock; a wrong one is deleted, so that the next attempt fetches it again.
    fn check_archive(&self, archive: &Path) -> Result<(), SetupError> {
        let Some(expected) = &self.piece.download.sha256 else { return Ok(()) };
        let got = proof::sha256(archive, &ProgressBar::hidden())?;
        if got == *expected {
            return Ok(());
        }
        remove_dir(&self.staging)?;
        Err(SetupError::Checksum { file: archive.to_path_buf(), expected: expected.clone(), got, cached: None })
    }

    /// Extracts the lock's files; the registry's archives have all of theirs below `package/`.
    fn unpack(&self, archive: &Path, into: &Path, bar: &ProgressBar) -> io::Result<()> {
        let compressed = BufReader::with_capacity(1 << 20, bar.wrap_read(File::open(archive)?));
        for entry in tar::Archive::new(GzDecoder::new(compressed)).entries()? {
            let mut entry = entry?;
            let path = entry.path()?.into_owned();
            let Ok(inside) = path.strip_prefix("package") else { continue };
            let Some(file) = self.piece.files.iter().find(|file| Path::new(&file.path) == inside) else { continue };
            let to = into.join(&file.path);
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            io::copy(&mut entry, &mut File::create(&to)?)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// The package installed into a directory of its own, which unpacks a wheel and runs nothing.
    fn pip(&self) -> Result<PathBuf, SetupError> {
        let delivered = self.staging.join("site");
        fresh_dir(&delivered)?;
        self.client(
            Command::new(self.program)
                .args(["-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"])
                .args(["--disable-pip-version-check", "--progress-bar=off", "--target"])
                .arg(&delivered)
                .arg(format!("{}=={}", self.piece.package, self.piece.version)),
        )?;
        Ok(delivered.join(self.piece.package.replace('-', "_")))
    }

    /// Runs a client to its end; it dies with us, and everything it writes is below the staging directory.
    fn client(&self, command: &mut Command) -> Result<(), SetupError> {
        let tool = self.piece.name.tool();
        let temporary = self.staging.join("tmp");
        fresh_dir(&temporary)?;
        let log = File::create(&self.log).map_err(SetupError::io("write", &self.log))?;
        let both = log.try_clone().map_err(SetupError::io("write", &self.log))?;
        command.current_dir(&self.staging).env("TMPDIR", &temporary).stdin(Stdio::null()).stdout(log).stderr(both);
        // SAFETY: prctl is async-signal-safe and touches no memory of ours between fork and exec.
        unsafe { command.pre_exec(|| nix::sys::prctl::set_pdeathsig(nix::sys::signal::SIGKILL).map_err(Into::into)) };
        let bar = progress::bytes(self.piece.download.size, &format!("{} fetch with {tool}", self.piece));
        let status = command
            .spawn()
            .and_then(|mut child| wait(&mut child, &self.staging, &bar))
            .map_err(SetupError::io("run", self.program));
        bar.finish_and_clear();
        let status = status?;
        if status.success() {
            return Ok(());
        }
        Err(SetupError::Client {
            tool,
            piece: self.piece.to_string(),
            status,
            tail: tail(&self.log),
            log: self.log.clone(),
        })
    }
}

/// Waits for `child`; on a terminal the bar follows how much lies in `dir`.
fn wait(child: &mut Child, dir: &Path, bar: &ProgressBar) -> io::Result<ExitStatus> {
    if bar.is_hidden() {
        return child.wait();
    }
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        bar.set_position(size_of(dir).min(bar.length().unwrap_or_default()));
        thread::sleep(Duration::from_millis(100));
    }
}

/// Bytes in all files below `dir`; what cannot be read counts nothing.
fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_of(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// The last lines of a log, indented.
fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(TAIL);
    lines[from..].iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n")
}

fn setting(name: &str, value: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(name);
    argument.push(value);
    argument
}

pub(super) fn create_dir(dir: &Path) -> Result<(), SetupError> {
    fs::create_dir_all(dir).map_err(SetupError::io("create", dir))
}

/// An empty directory in place of whatever is there.
fn fresh_dir(dir: &Path) -> Result<(), SetupError> {
    if dir.exists() {
        remove_dir(dir)?;
    }
    create_dir(dir)
}

fn remove_dir(dir: &Path) -> Result<(), SetupError> {
    fs::remove_dir_all(dir).map_err(SetupError::io("remove", dir))
}

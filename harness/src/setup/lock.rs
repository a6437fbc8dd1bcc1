//! `environments/embedded/setup.lock`: what is fetched, in which version, and the checksum of every file.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Component, Path};
use std::sync::LazyLock;

use serde::Deserialize;

use super::{SetupError, Tool};

/// The lock file this program was built with.
const TEXT: &str = include_str!("../../../environments/embedded/setup.lock");

/// The format's version this program reads.
const SCHEMA: u32 = 1;

static PINNED: LazyLock<Lock> =
    LazyLock::new(|| Lock::parse(TEXT).expect("the built-in lock file is parsed by a test"));

/// Every piece on every platform.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    schema: u32,
    piece: Vec<Piece>,
}

/// Something that is fetched as a whole, for some platforms.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// What it is, which also decides the client that fetches it.
    pub name: Name,
    /// Exact version.
    pub version: String,
    /// Name in the client's registry.
    pub package: String,
    /// CPU architectures it is for, as `std::env::consts::ARCH` spells them.
    pub platforms: Vec<String>,
    /// What crosses the network.
    pub download: Download,
    /// The files that are used, and no other.
    #[serde(rename = "file")]
    pub files: Vec<File>,
}

/// What a client downloads for a piece.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Download {
    /// Bytes; approximate when there is no checksum.
    pub size: u64,
    /// SHA-256 in lower-case hex when the download is one archive.
    pub sha256: Option<String>,
}

/// A file of a piece.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Path inside the piece's directory.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 in lower-case hex.
    pub sha256: String,
}

/// The pieces there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// The broker's jars, by Maven.
    Kafka,
    /// The ClickHouse engine, by npm.
    Chdb,
    /// The DuckDB command, by pip.
    Duckdb,
}

impl Name {
    /// Every piece.
    pub const ALL: [Self; 3] = [Self::Kafka, Self::Chdb, Self::Duckdb];

    /// Spelled as in the lock file and in directory names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Chdb => "chdb",
            Self::Duckdb => "duckdb",
        }
    }

    /// The client that fetches it.
    #[must_use]
    pub fn tool(self) -> Tool {
        match self {
            Self::Kafka => Tool::Maven,
            Self::Chdb => Tool::Npm,
            Self::Duckdb => Tool::Pip,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Lock {
    /// The lock this program was built with.
    #[must_use]
    pub fn pinned() -> &'static Self {
        &PINNED
    }

    /// Reads a lock file's text.
    ///
    /// # Errors
    /// [`SetupError::Lock`] for text that is no lock, unknown keys, another schema, a checksum that is not SHA-256 in
    /// hex, a path that leaves the piece's directory, a file named twice, two pieces of one name for one platform, a
    /// name with two versions, or a name missing altogether.
    pub fn parse(text: &str) -> Result<Self, SetupError> {
        let lock: Self = toml::from_str(text).map_err(|error| SetupError::Lock { what: error.to_string() })?;
        match lock.problem() {
            Some(what) => Err(SetupError::Lock { what }),
            None => Ok(lock),
        }
    }

    fn problem(&self) -> Option<String> {
        if self.schema != SCHEMA {
            return Some(format!("schema is {}, this program reads {SCHEMA}", self.schema));
        }
        for name in Name::ALL {
            let versions: BTreeSet<_> =
                self.piece.iter().filter(|piece| piece.name == name).map(|piece| &piece.version).collect();
            if versions.len() != 1 {
                return Some(format!("{name} has {} versions, it must have one", versions.len()));
            }
        }
        let mut seen = BTreeSet::new();
        for piece in &self.piece {
            for platform in &piece.platforms {
                if !seen.insert((piece.name, platform)) {
                    return Some(format!("{} for {platform} is there twice", piece.name));
                }
            }
            if let Some(problem) = piece.problem() {
                return Some(format!("{}: {problem}", piece.name));
            }
        }
        None
    }

    /// The one version of a piece.
    #[must_use]
    pub fn version(&self, name: Name) -> &str {
        self.piece
            .iter()
            .find(|piece| piece.name == name)
            .map(|piece| piece.version.as_str())
            .expect("parse() refuses a lock without this name")
    }

    /// The pieces for a CPU architecture, in fetching order.
    ///
    /// # Errors
    /// [`SetupError::Platform`] naming the pieces that do not exist for it.
    pub fn pieces(&self, arch: &str) -> Result<Vec<&Piece>, SetupError> {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for name in Name::ALL {
            match self.piece.iter().find(|piece| piece.name == name && piece.platforms.iter().any(|p| p == arch)) {
                Some(piece) => found.push(piece),
                None => missing.push(format!("{name} {}", self.version(name))),
            }
        }
        if missing.is_empty() {
            Ok(found)
        } else {
            Err(SetupError::Platform { arch: arch.to_owned(), missing: missing.join(", ") })
        }
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

impl Piece {
    /// Its directory in the cache: `<name>-<version>`.
    #[must_use]
    pub fn dir_name(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// Bytes of its files.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    fn problem(&self) -> Option<String> {
        if self.files.is_empty() {
            return Some("it has no file".to_owned());
        }
        let mut seen = BTreeSet::new();
        for file in &self.files {
            let path = &file.path;
            if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
                return Some(format!("path {path:?} leaves its directory"));
            }
            if !seen.insert(path) {
                return Some(format!("file {path:?} is there twice"));
            }
        }
        let sums = self.files.iter().map(|file| &file.sha256).chain(&self.download.sha256);
        sums.filter(|sum| !is_sha256(sum)).map(|sum| format!("{sum:?} is no SHA-256 in lower-case hex")).next()
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Lock::parse(text).expect_err("a broken lock").to_string()
    }

    /// The pinned lock with one edit that must hit.
    fn edited(from: &str, to: &str) -> String {
        let text = TEXT.replacen(from, to, 1);
        assert_ne!(text, TEXT, "{from} is not in the lock");
        text
    }

    #[test]
    fn the_pinned_lock_has_every_piece() {
        let lock = Lock::parse(TEXT).unwrap();
        let pieces = lock.pieces("x86_64").unwrap();
        assert_eq!(pieces.iter().map(|piece| piece.name).collect::<Vec<_>>(), Name::ALL);
        assert!(pieces[0].files.iter().any(|file| file.path == "libs/kafka_2.13-4.4.0.jar"));
    }

    #[test]
    fn the_project_and_the_lock_agree_on_the_broker() {
        let pom = include_str!("../../../environments/embedded/pom.xml");
        let version = Lock::pinned().version(Name::Kafka);
        assert!(pom.contains(&format!("<artifactId>kafka_2.13</artifactId>\n      <version>{version}</version>")));
    }

    #[test]
    fn a_platform_names_what_it_lacks() {
        let error = Lock::pinned().pieces("aarch64").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the embedded environment does not exist for aarch64: nobody publishes chdb 26.7.3-stable.1 for it"
        );
    }

    #[test]
    fn unknown_and_missing_keys_are_refused() {
        assert!(refusal(&edited("schema = 1", "schema = 1\nnew = 2")).contains("unknown field `new`"));
        assert!(refusal(&edited("package =", "pakage =")).contains("unknown field `pakage`"));
        assert!(refusal(&edited("version = \"4.4.0\"\n", "")).contains("missing field `version`"));
        assert!(refusal(&edited("name = \"kafka\"", "name = \"nats\"")).contains("unknown variant `nats`"));
    }

    #[test]
    fn a_newer_schema_is_refused() {
        assert_eq!(refusal(&edited("schema = 1", "schema = 2")), "setup.lock: schema is 2, this program reads 1");
    }

    #[test]
    fn checksums_paths_and_names_are_checked() {
        let sum = &Lock::pinned().piece[0].files[0].sha256;
        assert!(refusal(&edited(sum, &sum.to_uppercase())).contains("is no SHA-256"));
        assert!(refusal(&edited(sum, &sum[1..])).contains("is no SHA-256"));
        for path in ["../x.jar", "/x.jar", "libs/../../x.jar"] {
            let text = edited("libs/argparse4j-0.7.0.jar", path);
            assert!(refusal(&text).contains("leaves its directory"), "{path}");
        }
        let twice = edited("libs/argparse4j-0.7.0.jar", "libs/HdrHistogram-2.2.2.jar");
        assert!(refusal(&twice).contains("is there twice"));
        let clash = edited("platforms = [\"aarch64\"]", "platforms = [\"x86_64\"]");
        assert_eq!(refusal(&clash), "setup.lock: duckdb for x86_64 is there twice");
        let versions = TEXT.replace(
            "version = \"1.5.6\"\npackage = \"duckdb-cli\"\nplatforms = [\"aarch64\"]",
            "version = \"1.5.5\"\npackage = \"duckdb-cli\"\nplatforms = [\"aarch64\"]",
        );
        assert_eq!(refusal(&versions), "setup.lock: duckdb has 2 versions, it must have one");
    }
}

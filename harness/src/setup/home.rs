//! The cache directory and every path inside it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::SetupError;
use super::lock::{Lock, Name};

/// Where `bench` keeps what it fetched and what its runs leave behind.
///
/// Nothing is created by asking for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// `WEIR_HOME`, else `$XDG_CACHE_HOME/weir`, else `~/.cache/weir`, made absolute.
    ///
    /// # Errors
    /// [`SetupError::NoHome`] when none of these variables is set, or the working directory is gone.
    pub fn find() -> Result<Self, SetupError> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, SetupError> {
        let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = set("WEIR_HOME")
            .or_else(|| set("XDG_CACHE_HOME").filter(|dir| dir.is_absolute()).map(|dir| dir.join("weir")))
            .or_else(|| set("HOME").map(|dir| dir.join(".cache/weir")))
            .ok_or(SetupError::NoHome)?;
        std::path::absolute(root).map(Self::at).map_err(|_| SetupError::NoHome)
    }

    /// The cache directory at `root`, an absolute path.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Directory of the broker's jars: its class path is `<kafka_libs>/*`.
    #[must_use]
    pub fn kafka_libs(&self) -> PathBuf {
        self.piece(Name::Kafka).join("libs")
    }

    /// The ClickHouse engine as a shared library.
    #[must_use]
    pub fn libchdb(&self) -> PathBuf {
        self.piece(Name::Chdb).join("libchdb.so")
    }

    /// The DuckDB command, the oracle.
    #[must_use]
    pub fn duckdb(&self) -> PathBuf {
        self.piece(Name::Duckdb).join("duckdb")
    }

    /// Data that outlives a sitting, such as a filled topic, of the environment `env`.
    #[must_use]
    pub fn state(&self, env: &str) -> PathBuf {
        self.root.join("state").join(env)
    }

    /// Scratch of one sitting: logs, sockets, rendered configuration.
    #[must_use]
    pub fn run(&self, sitting: &str) -> PathBuf {
        self.root.join("run").join(sitting)
    }

    /// Directory of a fetched piece: `<name>-<version>`.
    pub(super) fn piece(&self, name: Name) -> PathBuf {
        self.root.join(format!("{name}-{}", Lock::pinned().version(name)))
    }

    /// Where pieces are put together before they are moved into place.
    pub(super) fn fetch(&self) -> PathBuf {
        self.root.join("fetch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<PathBuf, SetupError> {
        Home::from_variables(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
            .map(|home| home.root)
    }

    #[test]
    fn the_nearest_variable_decides() {
        let all = [("WEIR_HOME", "/w"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(found(&all).unwrap(), Path::new("/w"));
        assert_eq!(found(&all[1..]).unwrap(), Path::new("/x/weir"));
        assert_eq!(found(&all[2..]).unwrap(), Path::new("/h/.cache/weir"));
        assert_eq!(found(&[("WEIR_HOME", ""), ("HOME", "/h")]).unwrap(), Path::new("/h/.cache/weir"));
        assert_eq!(found(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")]).unwrap(), Path::new("/h/.cache/weir"));
        assert!(matches!(found(&[]), Err(SetupError::NoHome)));
    }

    #[test]
    fn a_relative_home_is_made_absolute() {
        let home = found(&[("WEIR_HOME", "cache")]).unwrap();
        assert!(home.is_absolute() && home.ends_with("cache"), "{}", home.display());
    }

    #[test]
    fn pieces_carry_their_version() {
        let home = Home::at("/w");
        assert_eq!(home.kafka_libs(), Path::new("/w/kafka-4.4.0/libs"));
        assert_eq!(home.libchdb(), Path::new("/w/chdb-26.7.3-stable.1/libchdb.so"));
        assert_eq!(home.state("embedded"), Path::new("/w/state/embedded"));
    }
}

//! What a file address means: which files, in which order, and what the stream is called.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::connect::Uri;
use crate::error::Error;

/// What files hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// One JSON object a line.
    Ndjson,
    /// A line of names, then comma-separated values.
    Csv,
    /// Parquet.
    Parquet,
}

impl InputFormat {
    /// What the end of a path says; `.gz` and `.zst` behind it say nothing.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let path = path.strip_suffix(".gz").or_else(|| path.strip_suffix(".zst")).unwrap_or(path);
        match Path::new(path).extension().map(|e| e.to_ascii_lowercase()) {
            Some(e) if e == "csv" => Self::Csv,
            Some(e) if e == "parquet" => Self::Parquet,
            _ => Self::Ndjson,
        }
    }
}

/// The inputs of a file source, read one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inputs {
    /// Standard input.
    Stdin,
    /// Files, in the order of their names.
    Files(Vec<PathBuf>),
}

impl Inputs {
    /// Finds the files of an address. `*` and `?` in the last part of the path stand for any characters and one character.
    ///
    /// # Errors
    /// No file is there, or the directory cannot be read.
    pub fn find(uri: &Uri) -> Result<Self, Error> {
        if uri.scheme == "stdin" {
            return Ok(Self::Stdin);
        }
        let path = Path::new(&uri.path);
        if path.exists() || !uri.path.contains(['*', '?']) {
            return Ok(Self::Files(vec![path.to_path_buf()]));
        }
        let pattern = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let entries = std::fs::read_dir(directory).map_err(|e| {
            Error::source(
                format!("{} cannot be listed: {e}", directory.display()),
                "only the last part of a path may hold * or ?",
            )
        })?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .filter(|entry| matches(pattern.as_bytes(), entry.file_name().to_string_lossy().as_bytes()))
            .map(|entry| entry.path())
            .filter(|found| found.is_file())
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(Error::source(format!("no file matches {}", uri.path), "check the path and the pattern"));
        }
        Ok(Self::Files(files))
    }

    /// The stream's name: the stem of the first file, or `stdin`.
    #[must_use]
    pub fn stream(&self) -> String {
        match self {
            Self::Stdin => "stdin".into(),
            Self::Files(files) => files
                .first()
                .and_then(|f| f.file_name())
                .map(|n| n.to_string_lossy().split('.').next().unwrap_or_default().to_owned())
                .unwrap_or_default(),
        }
    }
}

/// Whether a name matches a pattern of `*`, `?` and plain bytes.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            n = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("*.ndjson", "a.ndjson", true),
            ("*.ndjson", "a.ndjson.gz", false),
            ("part-?-*", "part-1-x", true),
            ("part-?-*", "part-12-x", false),
            ("*a*b", "xxaxbxb", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_end_of_a_path_says_the_format() {
        for (path, format) in [
            ("a/b.csv.gz", InputFormat::Csv),
            ("b.PARQUET", InputFormat::Parquet),
            ("*.csv", InputFormat::Csv),
            ("b.ndjson.zst", InputFormat::Ndjson),
            ("csv", InputFormat::Ndjson),
        ] {
            assert_eq!(InputFormat::of(path), format, "{path}");
        }
    }

    #[test]
    fn files_come_in_order_and_name_the_stream() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.ndjson", "a.ndjson.gz", "c.txt"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let find = |pattern: &str| {
            Inputs::find(&Uri::parse_source(&format!("file://{}/{pattern}", directory.path().display())).unwrap())
        };
        let inputs = find("*.ndjson*").unwrap();
        let Inputs::Files(files) = &inputs else { panic!() };
        assert_eq!((files.len(), inputs.stream().as_str()), (2, "a"));
        assert_eq!(find("*.csv").unwrap_err().code(), "SOURCE_ERROR");
    }
}

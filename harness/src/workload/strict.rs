//! Reading a TOML document strictly: every key is asked for by name and type, whatever is left over is a
//! problem, and every problem is kept with its line.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One thing wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// Collects problems of one file.
pub(super) struct Problems<'a> {
    file: &'a Path,
    text: &'a str,
    found: Vec<Problem>,
}

impl<'a> Problems<'a> {
    pub(super) fn new(file: &'a Path, text: &'a str) -> Self {
        Self { file, text, found: Vec::new() }
    }

    pub(super) fn add(&mut self, at: usize, what: impl Into<String>) {
        let end = at.min(self.text.len());
        let line = 1 + self.text.as_bytes()[..end].iter().filter(|&&b| b == b'\n').count();
        self.found.push(Problem { file: self.file.to_owned(), line, what: what.into() });
    }

    /// The problems in the order of their lines.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|p| p.line);
        self.found
    }
}

/// A table whose keys are taken out one by one.
pub(super) struct Section<'i> {
    name: String,
    at: usize,
    table: DeTable<'i>,
}

impl<'i> Section<'i> {
    /// The document itself.
    pub(super) fn root(text: &'i str, problems: &mut Problems<'_>) -> Self {
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            problems.add(error.span().map_or(0, |s| s.start), error.message());
        }
        Self { name: String::new(), at: 0, table: table.into_inner() }
    }

    fn key(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn take(&mut self, key: &str, problems: &mut Problems<'_>) -> Option<Spanned<DeValue<'i>>> {
        let found = self.table.remove(key);
        if found.is_none() {
            problems.add(self.at, format!("`{}` is missing", self.key(key)));
        }
        found
    }

    fn typed<T>(
        &mut self,
        key: &str,
        expected: &str,
        problems: &mut Problems<'_>,
        read: impl FnOnce(&DeValue<'i>) -> Option<T>,
    ) -> Option<(T, usize)> {
        let value = self.take(key, problems)?;
        let at = value.span().start;
        let found = read(value.get_ref());
        if found.is_none() {
            let kind = value.get_ref().type_str();
            problems.add(at, format!("`{}` must be {expected}, not this {kind}", self.key(key)));
        }
        found.map(|v| (v, at))
    }

    /// A sub-table.
    pub(super) fn section(&mut self, key: &str, problems: &mut Problems<'_>) -> Option<Section<'i>> {
        let value = self.take(key, problems)?;
        let at = value.span().start;
        match value.into_inner() {
            DeValue::Table(table) => Some(Section { name: self.key(key), at, table }),
            other => {
                problems.add(at, format!("`{}` must be a table, not this {}", self.key(key), other.type_str()));
                None
            }
        }
    }

    /// An integer between `low` and `high`.
    pub(super) fn integer(&mut self, key: &str, low: i64, high: i64, problems: &mut Problems<'_>) -> Option<i64> {
        let expected = format!("an integer from {low} to {high}");
        let (value, at) = self.typed(key, &expected, problems, |v| {
            let integer = v.as_integer()?;
            i64::from_str_radix(integer.as_str(), integer.radix()).ok()
        })?;
        if (low..=high).contains(&value) {
            return Some(value);
        }
        problems.add(at, format!("`{}` must be {expected}, not {value}", self.key(key)));
        None
    }

    /// A finite number.
    pub(super) fn number(&mut self, key: &str, problems: &mut Problems<'_>) -> Option<f64> {
        self.typed(key, "a number", problems, |v| {
            let text = v.as_float().map(|f| f.as_str()).or_else(|| v.as_integer().map(|i| i.as_str()))?;
            text.parse::<f64>().ok().filter(|n| n.is_finite())
        })
        .map(|(n, _)| n)
    }

    /// A string that is not empty.
    pub(super) fn string(&mut self, key: &str, problems: &mut Problems<'_>) -> Option<(String, usize)> {
        self.typed(key, "a string that is not empty", problems, |v| {
            v.as_str().filter(|s| !s.is_empty()).map(str::to_owned)
        })
    }

    /// A list of at least one string.
    pub(super) fn strings(&mut self, key: &str, problems: &mut Problems<'_>) -> Option<Vec<String>> {
        self.typed(key, "a list of at least one string", problems, |v| {
            let list: Option<Vec<String>> =
                v.as_array()?.iter().map(|s| s.get_ref().as_str().map(str::to_owned)).collect();
            list.filter(|l| !l.is_empty())
        })
        .map(|(list, _)| list)
    }

    /// Reports every key that nobody asked for.
    pub(super) fn finish(self, problems: &mut Problems<'_>) {
        for key in self.table.keys() {
            problems.add(key.span().start, format!("unknown key `{}`", self.key(key.get_ref())));
        }
    }
}

//! Reading and writing the small text files that are the kernel's interface.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::CgroupError;

/// The whole text of `dir/name`.
pub(super) fn text(dir: &Path, name: &str) -> Result<String, CgroupError> {
    let path = dir.join(name);
    std::fs::read_to_string(&path).map_err(|source| io("read", &path, source))
}

/// The text of `dir/name`, or `None` when this kernel has no such file.
pub(super) fn optional_text(dir: &Path, name: &str) -> Result<Option<String>, CgroupError> {
    match text(dir, name) {
        Ok(text) => Ok(Some(text)),
        Err(CgroupError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The one number in `dir/name`; `max` reads as `u64::MAX`, a negative number (version 1's "no bound") too.
pub(super) fn number(dir: &Path, name: &str) -> Result<u64, CgroupError> {
    let text = text(dir, name)?;
    parse(text.trim()).ok_or_else(|| malformed(dir, name, "a number"))
}

/// The number in `dir/name`, or `None` when this kernel has no such file.
pub(super) fn optional_number(dir: &Path, name: &str) -> Result<Option<u64>, CgroupError> {
    optional_text(dir, name)?.map(|text| parse(text.trim()).ok_or_else(|| malformed(dir, name, "a number"))).transpose()
}

/// The value of `key` in a text of `key value` lines.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| parse(value.trim())).flatten()
    })
}

/// Writes `value` to the existing file `dir/name` in one call, as the kernel wants it.
pub(super) fn write(dir: &Path, name: &str, value: &str) -> Result<(), CgroupError> {
    let path = dir.join(name);
    OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|source| io(&format!("write `{value}` to"), &path, source))
}

/// An I/O error that names what was tried and on what.
pub(super) fn io(action: &str, path: &Path, source: std::io::Error) -> CgroupError {
    CgroupError::Io { action: action.into(), path: PathBuf::from(path), source }
}

/// An error for a file that lacks what it must hold.
pub(super) fn malformed(dir: &Path, name: &str, what: &str) -> CgroupError {
    CgroupError::Malformed { path: dir.join(name), what: format!("no {what} in it") }
}

fn parse(text: &str) -> Option<u64> {
    if text == "max" || text.starts_with('-') {
        return Some(u64::MAX);
    }
    text.parse().ok()
}

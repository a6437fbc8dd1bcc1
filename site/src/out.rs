//! Writing pages. What writes here does not know where results are.

use std::fs;
use std::path::{Path, PathBuf};

use crate::PublishError;

/// Puts a page into the folder `out`, which is made if it is not there; a reader sees the old page or the new one.
pub(crate) fn write(out: &Path, name: &str, text: &str) -> Result<PathBuf, PublishError> {
    let path = out.join(name);
    let unfinished = out.join(format!(".{name}.new"));
    let written = fs::create_dir_all(out)
        .and_then(|()| fs::write(&unfinished, text))
        .and_then(|()| fs::rename(&unfinished, &path));
    written.map_err(|source| PublishError::Write { path: path.clone(), source })?;
    Ok(path)
}

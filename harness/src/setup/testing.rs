//! Scripted clients for the tests of this module.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// An executable shell script `name` in `dir`. Renamed into place, so that a running one is never written to.
pub(super) fn script(dir: &Path, name: &str, body: &str) {
    let partial = dir.join(format!(".{name}"));
    fs::write(&partial, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&partial, dir.join(name)).unwrap();
}

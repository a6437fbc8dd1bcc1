//! Scripted clients for the tests of this module.

use std::path::Path;
use std::process::Command;

/// An executable shell script `name` in `dir`. A child writes it: a test of another thread that forks at this moment
/// would otherwise inherit it open for writing, and the kernel runs no such file.
pub(super) fn script(dir: &Path, name: &str, body: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#;
    let status = Command::new("/bin/sh").args(["-c", write]).arg(dir.join(name)).arg(body).status().unwrap();
    assert!(status.success());
}

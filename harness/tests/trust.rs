//! What keeps results as they were: nothing of the suite that can shorten or replace a file knows where they are.

use std::fs;
use std::path::{Path, PathBuf};

/// Calls that change or remove what is there.
const DESTRUCTIVE: [&str; 15] = [
    "File::create(",
    "fs::write(",
    "fs::rename(",
    "fs::copy(",
    "fs::remove_",
    "fs::hard_link(",
    ".truncate(true)",
    ".set_len(",
    ".write(true)",
    "tempfile_in",
    ".persist(",
    "ftruncate",
    "unlink",
    "sendfile",
    "mmap",
];

/// Ways to know where results are.
const RESULTS: [&str; 4] = ["\"results", "weir_model::archive", "archive.root()", "pub struct Archive"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace").to_path_buf()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of source") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The code of a source file, without its tests and comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("utf-8 source");
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn nothing_that_can_rewrite_a_file_knows_where_results_are() {
    let mut files = Vec::new();
    for part in ["harness/src", "model/src", "site/src"] {
        sources(&root().join(part), &mut files);
    }
    let (mut able, mut knowing) = (0, 0);
    for path in &files {
        let code = code(path);
        let can: Vec<_> = DESTRUCTIVE.iter().filter(|call| code.contains(**call)).collect();
        let knows: Vec<_> = RESULTS.iter().filter(|word| code.contains(**word)).collect();
        able += usize::from(!can.is_empty());
        knowing += usize::from(!knows.is_empty());
        let is_archive = path.ends_with("model/src/archive/mod.rs");
        // the archive's own test holds each of its two openings to append and create-new
        let allowed = is_archive && can.iter().all(|call| **call == ".write(true)");
        assert!(can.is_empty() || knows.is_empty() || allowed, "{}: {can:?} and {knows:?}", path.display());
    }
    assert!(able > 8 && knowing > 8, "the source was not read: {able} files can rewrite, {knowing} know results");
}

#[test]
fn the_archive_opens_files_to_append_or_anew() {
    let code = code(&root().join("model/src/archive/mod.rs"));
    let opens: Vec<&str> =
        code.split("OpenOptions::new()").skip(1).filter_map(|rest| rest.split(".open(").next()).collect();
    assert_eq!(opens.len(), 2, "every opening is looked at here");
    for open in opens {
        let appends = open.contains(".append(true)") && !open.contains(".write(true)");
        assert!(appends || open.contains(".create_new(true)"), "{open}");
    }
}

//! What an image is built from: a Dockerfile, the files it copies, and the images it begins with.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use tempfile::NamedTempFile;
use weir_model::digest::Digest;

use super::Shelf;
use super::debian::Root;
use crate::runtime::docker::DockerError;

/// Folder, in the context, of what comes from elsewhere than the Dockerfile's own folder.
const SHELF: &str = "weir/";

/// Everything that goes into an image.
#[derive(Debug)]
pub(super) struct Context {
    dockerfile: String,
    items: BTreeMap<String, Item>,
    /// Build arguments: those of the suite's images that the Dockerfile mentions.
    pub(super) args: BTreeMap<String, String>,
}

#[derive(Debug)]
enum Item {
    File(PathBuf),
    Root(Root),
}

impl Context {
    /// Reads the Dockerfile at `path` of the image called `image`, and finds what it copies.
    pub(super) fn read(
        path: &Path,
        image: &str,
        shelf: &Shelf,
        args: &BTreeMap<String, String>,
    ) -> Result<Self, DockerError> {
        let dockerfile = fs::read_to_string(path).map_err(DockerError::io(format!("read {}", path.display())))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mut items = BTreeMap::new();
        for name in copied(&dockerfile) {
            let refused = |what: &str| DockerError::Build { image: image.to_owned(), what: format!("{name}: {what}") };
            if Path::new(&name).components().any(|part| !matches!(part, Component::Normal(_))) {
                return Err(refused("a path is relative to the Dockerfile and stays below it"));
            }
            match name.strip_prefix(SHELF) {
                None => add(&mut items, &name, &folder.join(&name))?,
                Some("debian.tar") => {
                    let root = Root::read(&path.with_extension("packages"))?;
                    items.insert(name.clone(), Item::Root(root));
                }
                Some("lib/libchdb.so") => add(&mut items, &name, &shelf.libchdb)?,
                Some("kafka") => add(&mut items, &name, &shelf.kafka_libs)?,
                Some(other) => match other.strip_prefix("bin/") {
                    Some(bin) => add(&mut items, &name, &shelf.bins.join(bin))?,
                    None => return Err(refused("the suite has no such thing")),
                },
            }
        }
        let mentioned = |(name, _): &(&String, &String)| dockerfile.contains(name.as_str());
        let args = args.iter().filter(mentioned).map(|(name, id)| (name.clone(), id.clone())).collect();
        Ok(Self { dockerfile, items, args })
    }

    /// The digest of all of it.
    pub(super) fn digest(&self) -> Result<Digest, DockerError> {
        let mut parts = BTreeMap::new();
        for (name, item) in &self.items {
            let digest = match item {
                Item::File(path) => File::open(path)
                    .and_then(Digest::of_reader)
                    .map_err(DockerError::io(format!("read {}", path.display())))?,
                Item::Root(root) => root.digest(),
            };
            parts.insert(name, digest);
        }
        Ok(Digest::of_json(&serde_json::json!({
            "dockerfile": self.dockerfile, "parts": parts, "args": self.args,
        })))
    }

    /// All of it as an archive in a temporary file below `scratch`.
    pub(super) fn pack(&self, scratch: &Path) -> Result<NamedTempFile, DockerError> {
        let packed = || "pack what the image is built from";
        let file = NamedTempFile::new_in(scratch).map_err(DockerError::io(packed()))?;
        let mut tar = tar::Builder::new(io::BufWriter::with_capacity(1 << 20, file.as_file()));
        let mut head = header(self.dockerfile.len() as u64, 0o644);
        tar.append_data(&mut head, "Dockerfile", self.dockerfile.as_bytes()).map_err(DockerError::io(packed()))?;
        for (name, item) in &self.items {
            match item {
                Item::File(path) => append(&mut tar, name, path)?,
                Item::Root(root) => append(&mut tar, name, root.make(scratch)?.path())?,
            }
        }
        let writer = tar.into_inner().map_err(DockerError::io(packed()))?;
        writer.into_inner().map_err(|error| DockerError::io(packed())(error.into_error()))?;
        Ok(file)
    }
}

/// Adds a file, or every file below a folder, under `name`.
fn add(items: &mut BTreeMap<String, Item>, name: &str, path: &Path) -> Result<(), DockerError> {
    let unread = || DockerError::io(format!("read {}", path.display()));
    if !fs::metadata(path).map_err(unread())?.is_dir() {
        items.insert(name.to_owned(), Item::File(path.to_path_buf()));
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(unread())? {
        let entry = entry.map_err(unread())?;
        add(items, &format!("{name}/{}", entry.file_name().to_string_lossy()), &entry.path())?;
    }
    Ok(())
}

fn append<W: io::Write>(tar: &mut tar::Builder<W>, name: &str, path: &Path) -> Result<(), DockerError> {
    use std::os::unix::fs::PermissionsExt;
    let mut put = || -> io::Result<()> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let mode = if metadata.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
        tar.append_data(&mut header(metadata.len(), mode), name, file)
    };
    put().map_err(DockerError::io(format!("pack {}", path.display())))
}

/// The same for everyone who builds: no owner, no time.
fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header
}

/// What the `COPY` and `ADD` lines of a Dockerfile take from its context.
fn copied(dockerfile: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in dockerfile.replace("\\\n", " ").lines() {
        let mut words = line.split_whitespace();
        let Some(instruction) = words.next() else { continue };
        let words: Vec<&str> = words.collect();
        let takes = instruction.eq_ignore_ascii_case("copy") || instruction.eq_ignore_ascii_case("add");
        if !takes || words.iter().any(|word| word.starts_with("--from=")) {
            continue;
        }
        let plain: Vec<&str> = words.into_iter().filter(|word| !word.starts_with("--")).collect();
        let sources = plain.split_last().map_or(&[][..], |(_, sources)| sources);
        names.extend(sources.iter().map(|name| name.trim_end_matches('/').to_owned()));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(dir: &Path) -> Shelf {
        Shelf {
            bins: dir.join("bins"),
            libchdb: dir.join("libchdb.so"),
            kafka_libs: dir.join("jars"),
            scratch: dir.to_path_buf(),
        }
    }

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("below the scratch directory")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    #[test]
    fn what_a_dockerfile_copies_is_found() {
        let text =
            "FROM x AS y\nCOPY a b/ /to/\n# COPY no no\nADD --chown=0:0 \\\n  c /c\nCOPY --from=y d /d\nRUN COPY";
        assert_eq!(copied(text), ["a", "b", "c"]);
    }

    #[test]
    fn the_digest_follows_everything_that_goes_in() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let dockerfile = dir.path().join("arm/Dockerfile");
        put(&dockerfile, "ARG WEIR_BASE\nFROM ${WEIR_BASE}\nCOPY weir/bin/arm weir/kafka conf /\n");
        put(&dir.path().join("bins/arm"), "binary");
        put(&dir.path().join("jars/a.jar"), "jar");
        put(&dir.path().join("arm/conf"), "conf");
        let args = |id: &str| BTreeMap::from([("WEIR_BASE".into(), id.into()), ("WEIR_TOOLS".into(), "other".into())]);
        let read = |id: &str| Context::read(&dockerfile, "arm", &shelf(dir.path()), &args(id)).expect("readable");
        let digest = |id: &str| read(id).digest().expect("readable");
        let first = digest("base");
        assert_eq!(first, digest("base"));
        assert_ne!(first, digest("another base"));
        assert_eq!(read("base").args.len(), 1, "only what is mentioned");
        put(&dir.path().join("jars/a.jar"), "another jar");
        assert_ne!(first, digest("base"));
        let mut tar =
            tar::Archive::new(File::open(read("base").pack(dir.path()).expect("packed").path()).expect("open"));
        let names =
            tar.entries().expect("an archive").map(|entry| entry.expect("whole").path().expect("named").into_owned());
        let names: Vec<String> = names.map(|path| path.display().to_string()).collect();
        assert_eq!(names, ["Dockerfile", "conf", "weir/bin/arm", "weir/kafka/a.jar"]);
    }

    #[test]
    fn a_path_that_leaves_the_folder_and_a_shelf_that_is_empty_are_refused() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let dockerfile = dir.path().join("Dockerfile");
        for (line, code) in
            [("COPY ../secret /", "image_build"), ("COPY weir/gold /", "image_build"), ("COPY no /", "image_io")]
        {
            put(&dockerfile, line);
            let error = Context::read(&dockerfile, "arm", &shelf(dir.path()), &BTreeMap::new()).expect_err(line);
            assert_eq!(weir_model::error::Coded::code(&error), code, "{error}");
        }
    }
}

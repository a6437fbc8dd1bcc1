//! Setup with small pieces and scripted clients; `tests/setup.rs` runs the command on the pinned ones.

use std::fs;
use std::io::Write as _;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use weir_model::error::Coded as _;

use super::testing::script;
use super::*;

/// Writes the jar that maven was asked for, and one that the lock does not know.
const MVN: &str = r#"echo mvn >> "$0.calls"
for a; do case $a in -DoutputDirectory=*) out=${a#*=};; esac; done
/bin/mkdir -p "$out"; printf jar > "$out/broker.jar"; printf more > "$out/unlisted.jar""#;

/// Copies the archive beside it.
const NPM: &str = r#"echo npm >> "$0.calls"
for a; do case $a in --pack-destination=*) out=${a#*=};; esac; done
/bin/cp "$0.tgz" "$out/lib.tgz""#;

const PYTHON: &str = r#"[ "$3" = --version ] && exit 0
echo pip >> "$0.calls"
while [ "$1" != --target ]; do shift; done
/bin/mkdir -p "$2/duckdb_cli"; printf duck > "$2/duckdb_cli/duckdb"; /bin/chmod 755 "$2/duckdb_cli/duckdb""#;

struct World {
    dir: TempDir,
    home: Home,
    lock: Lock,
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An archive as the registry packs it, with `lib` as the library.
fn tgz(lib: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, bytes) in [("package/index.js", &b"//"[..]), ("package/libchdb.so", lib)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        builder.append_data(&mut header, path, bytes).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        script(&bin, "java", "echo 'openjdk version \"17.0.1\"' >&2");
        script(&bin, "mvn", MVN);
        script(&bin, "npm", NPM);
        script(&bin, "python3", PYTHON);
        let archive = tgz(b"lib");
        fs::write(bin.join("npm.tgz"), &archive).unwrap();
        let piece = |name: &str, package: &str, extra: &str, path: &str, bytes: &[u8]| {
            format!(
                "[[piece]]\nname = \"{name}\"\nversion = \"1\"\npackage = \"{package}\"\nplatforms = [\"x\"]\n\
                 download = {{ size = 9{extra} }}\nfile = [{{ path = \"{path}\", size = {}, sha256 = \"{}\" }}]\n",
                bytes.len(),
                hex(bytes)
            )
        };
        let text = format!(
            "schema = 1\n{}{}{}",
            piece("kafka", "g:a", "", "libs/broker.jar", b"jar"),
            piece("chdb", "lib", &format!(", sha256 = \"{}\"", hex(&archive)), "libchdb.so", b"lib"),
            piece("duckdb", "duckdb-cli", "", "duckdb", b"duck"),
        );
        let home = Home::at(dir.path().join("home"));
        Self { home, lock: Lock::parse(&text).unwrap(), dir }
    }

    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn setup(&self, verify: bool) -> Result<Report, SetupError> {
        Setup { home: &self.home, lock: &self.lock, arch: "x", tools: Tools::in_dir(&self.bin()), verify }.run()
    }

    fn outcomes(&self, verify: bool) -> Vec<Outcome> {
        self.setup(verify).unwrap().pieces.into_iter().map(|piece| piece.outcome).collect()
    }

    fn calls(&self, program: &str) -> usize {
        fs::read_to_string(self.bin().join(format!("{program}.calls"))).map_or(0, |text| text.lines().count())
    }

    fn file(&self, path: &str) -> PathBuf {
        self.home.root().join(path)
    }
}

#[test]
fn everything_is_fetched_once_and_nothing_else_is_kept() {
    let world = World::new();
    assert_eq!(world.outcomes(false), [Outcome::Fetched; 3]);
    assert_eq!(fs::read(world.file("kafka-1/libs/broker.jar")).unwrap(), b"jar");
    assert!(!world.file("kafka-1/libs/unlisted.jar").exists(), "only what the lock names may be on the class path");
    assert_eq!(fs::read(world.file("chdb-1/libchdb.so")).unwrap(), b"lib");
    assert_eq!(fs::read(world.file("duckdb-1/duckdb")).unwrap(), b"duck");
    let mut left: Vec<_> = fs::read_dir(world.file("fetch")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["chdb.log", "duckdb.log", "kafka.log", "lock"]);
}

#[test]
fn a_filled_cache_needs_no_client() {
    let world = World::new();
    world.setup(false).unwrap();
    for client in ["mvn", "npm", "python3"] {
        fs::remove_file(world.bin().join(client)).unwrap();
    }
    assert_eq!(world.outcomes(false), [Outcome::Present; 3]);
    assert_eq!(world.outcomes(true), [Outcome::Verified; 3]);
}

#[test]
fn only_the_clients_of_absent_pieces_are_required() {
    let world = World::new();
    world.setup(false).unwrap();
    fs::remove_file(world.file("duckdb-1/duckdb")).unwrap();
    fs::remove_file(world.file("chdb-1/libchdb.so")).unwrap();
    for program in ["java", "mvn", "npm", "python3"] {
        fs::remove_file(world.bin().join(program)).unwrap();
    }
    let error = world.setup(false).unwrap_err();
    assert_eq!(error.to_string(), "not installed: java, npm, pip");
}

#[test]
fn a_touched_file_is_hashed_again_and_a_changed_one_is_an_error() {
    let world = World::new();
    world.setup(false).unwrap();
    let jar = world.file("kafka-1/libs/broker.jar");
    fs::remove_file(&jar).unwrap();
    fs::write(&jar, "jar").unwrap();
    assert_eq!(world.outcomes(false), [Outcome::Verified, Outcome::Present, Outcome::Present]);
    assert_eq!(world.outcomes(false), [Outcome::Present; 3], "the stamp was renewed");

    fs::write(&jar, "rat").unwrap();
    let error = world.setup(false).unwrap_err();
    let text = format!("wrong SHA-256: {}\n  expected {}\n  got      {}", jar.display(), hex(b"jar"), hex(b"rat"));
    assert_eq!(error.to_string(), text);
    let hint = error.hint().unwrap();
    assert!(hint.contains(&format!("rm -r {}", world.file("kafka-1").display())), "{hint}");
    assert_eq!(world.calls("mvn"), 1);
}

#[test]
fn verify_sees_what_the_stamp_hides() {
    let world = World::new();
    world.setup(false).unwrap();
    let duck = world.file("duckdb-1/duckdb");
    let before = fs::metadata(&duck).unwrap().modified().unwrap();
    let mut file = fs::File::options().write(true).open(&duck).unwrap();
    file.write_all(b"d").and_then(|()| file.write_all(b"o")).unwrap();
    file.set_modified(before).unwrap();
    drop(file);
    assert_eq!(world.outcomes(false), [Outcome::Present; 3]);
    assert_eq!(world.setup(true).unwrap_err().code(), "wrong_checksum");
}

#[test]
fn a_wrong_download_is_named_and_fetched_again() {
    let world = World::new();
    fs::write(world.bin().join("npm.tgz"), tgz(b"evil")).unwrap();
    let error = world.setup(false).unwrap_err();
    assert!(matches!(&error, SetupError::Checksum { cached: None, got, .. } if *got == hex(&tgz(b"evil"))), "{error}");
    assert!(!world.file("chdb-1").exists());
    fs::write(world.bin().join("npm.tgz"), tgz(b"lib")).unwrap();
    assert_eq!(world.outcomes(false), [Outcome::Present, Outcome::Fetched, Outcome::Fetched]);
    assert_eq!((world.calls("mvn"), world.calls("npm")), (1, 2));
}

#[test]
fn a_failed_client_shows_the_end_of_its_log() {
    let world = World::new();
    script(
        &world.bin(),
        "npm",
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; do echo line $i; done; exit 7",
    );
    let error = world.setup(false).unwrap_err();
    assert_eq!(error.code(), "fetch_failed");
    let text = error.to_string();
    assert!(text.starts_with("npm could not fetch chdb 1 (exit status: 7)"), "{text}");
    assert!(text.contains("\n  | line 2\n") && text.ends_with("\n  | line 21") && !text.contains("line 1\n"), "{text}");
    let log = fs::read_to_string(world.file("fetch/chdb.log")).unwrap();
    assert!(log.starts_with("line 1\n"), "{log}");
}

#[test]
fn a_client_that_delivers_too_little_is_an_error() {
    let world = World::new();
    script(&world.bin(), "mvn", "exit 0");
    let error = world.setup(false).unwrap_err();
    assert_eq!(error.to_string(), "mvn fetched kafka 1 without libs/broker.jar");
}

#[test]
fn a_fetched_archive_survives_an_interruption() {
    let world = World::new();
    let staging = world.file("fetch/chdb-1");
    fs::create_dir_all(staging.join("unpacked")).unwrap();
    fs::write(staging.join("archive.tgz"), tgz(b"lib")).unwrap();
    fs::write(staging.join("unpacked/libchdb.so"), "li").unwrap();
    assert_eq!(world.outcomes(false), [Outcome::Fetched; 3]);
    assert_eq!(world.calls("npm"), 0);
    assert_eq!(fs::read(world.file("chdb-1/libchdb.so")).unwrap(), b"lib");
}

#[test]
fn a_proven_piece_that_was_not_yet_moved_is_moved() {
    let world = World::new();
    world.setup(false).unwrap();
    let staging = world.file("fetch/duckdb-1");
    fs::create_dir(&staging).unwrap();
    fs::rename(world.file("duckdb-1"), staging.join("whole")).unwrap();
    assert_eq!(world.outcomes(false)[2], Outcome::Fetched);
    assert_eq!(world.calls("python3"), 1);
    assert!(!staging.exists());
}

#[test]
fn concurrent_setups_fetch_once() {
    let world = World::new();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| world.outcomes(false))).collect();
        let fetched = all.into_iter().map(|thread| thread.join().unwrap());
        assert_eq!(fetched.flatten().filter(|outcome| *outcome == Outcome::Fetched).count(), 3);
    });
    assert_eq!((world.calls("mvn"), world.calls("npm"), world.calls("python3")), (1, 1, 1));
}

#[test]
fn a_platform_without_a_piece_is_refused_before_anything_is_fetched() {
    let world = World::new();
    let tools = Tools::in_dir(&world.bin());
    let setup = Setup { home: &world.home, lock: &world.lock, arch: "riscv64", tools, verify: false };
    let error = setup.run().unwrap_err();
    assert!(
        error.to_string().contains("riscv64") && error.to_string().contains("kafka 1, chdb 1, duckdb 1"),
        "{error}"
    );
    assert!(!world.home.root().exists());
}

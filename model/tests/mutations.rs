//! Descriptors and profiles that are a little or very wrong: each is read or refused with its problems, never a panic.
//!
//! `WEIR_CASES` sets how many are tried of each; they follow from a seed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;

use weir_model::descriptor::Entrant;
use weir_model::diagnostic::Problems;
use weir_model::environment::Environment;
use weir_model::stats::Random;

/// Mutants of each file, where `WEIR_CASES` does not say otherwise.
const CASES: u64 = 2_000;

/// Values that no key expects, or only one.
const VALUES: [&str; 34] = [
    "0",
    "-1",
    "1",
    "4",
    "1e308",
    "-0.0",
    "nan",
    "inf",
    "9223372036854775807",
    "9223372036854775808",
    "0x7f",
    "0b1",
    "true",
    "\"\"",
    "\"\\u0000\"",
    "\" \"",
    "\"é€𝄞\"",
    "\"../../x\"",
    "\"{{knob:threads}}\"",
    "\"{{\"",
    "\"{{{{}}}}\"",
    "\"{{file:rill.yaml}}\"",
    "\"{{file:../x}}\"",
    "\"16GiB\"",
    "\"99999999999TiB\"",
    "\"100%\"",
    "\"auto\"",
    "2026-12-01",
    "2026-12-01T00:00:00Z",
    "[]",
    "[1, \"a\"]",
    "{}",
    "{ a = 1 }",
    "'''\n'''",
];

/// Keys that stand somewhere else, or nowhere.
const KEYS: [&str; 10] = ["schema", "id", "cpus", "memory", "role", "default", "knobs", "kind", "\"\"", "x.y.z"];

struct Mutator(Random);

impl Mutator {
    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.0.below(from.len())]
    }

    /// `text` with one to four things wrong.
    fn mutant(&mut self, text: &str) -> String {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..=self.0.below(4) {
            self.once(&mut lines);
        }
        let mut text = lines.join("\n");
        if self.0.below(8) == 0 {
            let mut at = self.0.below(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            text.truncate(at);
        }
        text
    }

    fn once(&mut self, lines: &mut Vec<String>) {
        if lines.is_empty() {
            return;
        }
        let at = self.0.below(lines.len());
        let other = self.0.below(lines.len());
        match self.0.below(9) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(other, lines[at].clone()),
            2 => lines.swap(at, other),
            3 | 4 => {
                if let Some((key, _)) = lines[at].split_once('=') {
                    lines[at] = format!("{key}= {}", self.pick(&VALUES));
                }
            }
            5 => {
                if let Some((_, value)) = lines[at].split_once('=') {
                    lines[at] = format!("{} ={value}", self.pick(&KEYS));
                }
            }
            6 => {
                let mut characters: Vec<char> = lines[at].chars().collect();
                let place = self.0.below(characters.len() + 1);
                characters
                    .insert(place, *self.pick(&['"', '[', ']', '{', '}', '=', '.', '#', '\\', '\u{0}', 'é', ' ']));
                lines[at] = characters.into_iter().collect();
            }
            7 => {
                let mut characters: Vec<char> = lines[at].chars().collect();
                if !characters.is_empty() {
                    characters.remove(self.0.below(characters.len()));
                }
                lines[at] = characters.into_iter().collect();
            }
            _ => {
                let end = (at + 1 + self.0.below(8)).min(lines.len());
                drop(lines.drain(at..end));
            }
        }
    }
}

fn cases() -> u64 {
    std::env::var("WEIR_CASES").map_or(CASES, |text| text.parse().expect("WEIR_CASES is a number"))
}

fn accepted(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accepted").join(name)).unwrap()
}

/// Every problem is about a line that is there, has words, and prints.
fn are_told(problems: &Problems, text: &str) {
    assert!(!problems.0.is_empty(), "refused without a problem:\n{text}");
    let lines = text.split('\n').count();
    for problem in &problems.0 {
        assert!(!problem.message.is_empty() && !problem.code.is_empty());
        if let Some(place) = &problem.place {
            assert!((1..=lines).contains(&place.line) && place.column >= 1 && place.width >= 1, "{problem}\n{text}");
        }
    }
    assert!(problems.to_string().ends_with(if problems.0.len() == 1 { "1 problem" } else { "problems" }));
}

#[test]
fn mutants_of_a_descriptor_are_read_or_refused() {
    let text = accepted("rill/entrant.toml");
    let files =
        |name: &str| ["rill.yaml", "query-a.sql", "query-b.sql", "Dockerfile"].contains(&name).then(String::new);
    let mut mutator = Mutator(Random::seeded(0x5eed));
    let (mut read, mut refused) = (0_u64, 0_u64);
    for _ in 0..cases() {
        let mutant = mutator.mutant(&text);
        match Entrant::parse("rill/entrant.toml", &mutant, "rill", &files) {
            Ok(entrant) => {
                read += 1;
                assert_eq!(entrant.variants.iter().filter(|variant| variant.default).count(), 1, "{mutant}");
                assert!(entrant.data_plane().is_some() && entrant.id().as_str() == "rill", "{mutant}");
            }
            Err(problems) => {
                refused += 1;
                are_told(&problems, &mutant);
            }
        }
    }
    println!("{read} descriptors read, {refused} refused");
    assert!(read > 0 && refused > read, "{read} read, {refused} refused: the mutations are too tame or too wild");
}

#[test]
fn mutants_of_a_profile_are_read_or_refused() {
    let text = accepted("example.toml");
    let mut mutator = Mutator(Random::seeded(0x5eed));
    let (mut read, mut refused) = (0_u64, 0_u64);
    for _ in 0..cases() {
        let mutant = mutator.mutant(&text);
        match Environment::parse("example.toml", &mutant, "example") {
            Ok(profile) => {
                read += 1;
                assert!(profile.aa_spread > 0.0 && profile.infra.partitions > 0, "{mutant}");
            }
            Err(problems) => {
                refused += 1;
                are_told(&problems, &mutant);
            }
        }
    }
    println!("{read} profiles read, {refused} refused");
    assert!(read > 0 && refused > read, "{read} read, {refused} refused: the mutations are too tame or too wild");
}

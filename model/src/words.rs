//! Closed vocabularies: an enum whose values are spelled the same in TOML, JSON, arguments and pages.

use std::fmt;

/// A word that is not one of a closed vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct UnknownWord {
    /// What the vocabulary is of, such as `workload`.
    pub what: &'static str,
    /// The word that was given.
    pub word: String,
    /// The words that exist.
    pub known: Vec<&'static str>,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not {}; known: {}", self.word, with_article(self.what), self.known.join(", "))
    }
}

impl crate::error::Coded for UnknownWord {
    fn code(&self) -> &'static str {
        "unknown_word"
    }

    fn hint(&self) -> Option<String> {
        closest(&self.word, self.known.iter().copied()).map(|word| format!("did you mean `{word}`?"))
    }

    fn refused(&self) -> bool {
        true
    }
}

/// A closed vocabulary.
pub(crate) trait Word: Sized + Copy + 'static {
    /// What its values are called in a message.
    const WHAT: &'static str;
    /// Every value, in the order of declaration.
    const WORDS: &'static [Self];
    /// The spelling of a value.
    fn word(self) -> &'static str;
}

/// Declares a closed vocabulary with its spelling.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident is $what:literal { $($(#[$about:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$about])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The spelling in files, arguments and pages.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownWord;

            fn from_str(text: &str) -> Result<Self, $crate::UnknownWord> {
                $crate::words::parse(text)
            }
        }

        impl $crate::words::Word for $name {
            const WHAT: &'static str = $what;
            const WORDS: &'static [Self] = Self::ALL;
            fn word(self) -> &'static str { self.as_str() }
        }
    };
}

/// Finds the value spelled `text`.
pub(crate) fn parse<W: Word>(text: &str) -> Result<W, UnknownWord> {
    W::WORDS.iter().copied().find(|value| value.word() == text).ok_or_else(|| UnknownWord {
        what: W::WHAT,
        word: text.to_owned(),
        known: W::WORDS.iter().map(|value| value.word()).collect(),
    })
}

/// A noun with its indefinite article.
pub(crate) fn with_article(noun: &str) -> String {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}

/// The known word nearest to `given`, if one is near enough to be meant.
pub(crate) fn closest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (given.chars().count() / 3).max(1);
    known.map(|word| (edits(given, word), word)).filter(|(edits, _)| *edits <= limit).min().map(|(_, word)| word)
}

/// Insertions, deletions, substitutions and swaps of neighbours between two words.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let substitution = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substitution.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_offered_and_a_far_one_is_not() {
        let known = ["cpus", "memory", "workloads"];
        assert_eq!(closest("cpu", known.into_iter()), Some("cpus"));
        assert_eq!(closest("memroy", known.into_iter()), Some("memory"));
        assert_eq!(closest("disk", known.into_iter()), None);
    }
}

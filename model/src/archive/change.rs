//! Finding the byte of a line that was changed, from the digest of what stood there.

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;

/// The characters that a line of JSON is made of.
const CHARACTERS: std::ops::RangeInclusive<u8> = b' '..=b'~';

/// One changed byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The byte of the file, from 0.
    pub byte: usize,
    /// What stood there; none if something was put in.
    pub was: Option<u8>,
    /// What stands there; none if something was taken out.
    pub is: Option<u8>,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown =
            |byte: Option<u8>| byte.map_or_else(|| "nothing".to_owned(), |it| format!("`{}`", it.escape_ascii()));
        write!(f, "byte {} was {} and is {}", self.byte, shown(self.was), shown(self.is))
    }
}

/// The one byte whose change turns what has the digest `expected` into `line`, which begins at `start` of its file.
pub(super) fn find(line: &[u8], expected: &Digest, start: usize) -> Option<Change> {
    let wanted = |hasher: Sha256| Digest::from(hasher) == *expected;
    let mut before = Sha256::new();
    for at in 0..=line.len() {
        let (byte, is) = (start + at, line.get(at).copied());
        let rest = line.get(at + 1..).unwrap_or_default();
        let with = |was: Option<u8>, rest: &[u8]| {
            let mut hasher = before.clone();
            was.iter().for_each(|was| hasher.update([*was]));
            hasher.update(rest);
            wanted(hasher)
        };
        if is.is_some() && with(None, rest) {
            return Some(Change { byte, was: None, is });
        }
        for was in CHARACTERS {
            if is.is_some() && with(Some(was), rest) {
                return Some(Change { byte, was: Some(was), is });
            }
            if with(Some(was), line.get(at..).unwrap_or_default()) {
                return Some(Change { byte, was: Some(was), is: None });
            }
        }
        is.iter().for_each(|is| before.update([*is]));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_byte_is_named_and_two_are_not() {
        let line = br#"{"rows":1310000,"by":"rill"}"#;
        let expected = Digest::of(line);
        for at in 0..line.len() {
            let mut changed = line.to_vec();
            changed[at] = b'~';
            let found = find(&changed, &expected, 100).unwrap();
            assert_eq!(found, Change { byte: 100 + at, was: Some(line[at]), is: Some(b'~') });
            let mut shorter = line.to_vec();
            shorter.remove(at);
            let found = find(&shorter, &expected, 0).unwrap();
            assert_eq!((found.was, found.is), (Some(line[at]), None));
            let mut longer = line.to_vec();
            longer.insert(at, b'0');
            assert_eq!(find(&longer, &expected, 0).unwrap().is, Some(b'0'));
        }
        assert_eq!(find(br#"{"rows":9910000,"by":"rill"}"#, &expected, 0), None);
        let change = find(br#"{"rows":9310000,"by":"rill"}"#, &expected, 0).unwrap();
        assert_eq!(change.to_string(), "byte 8 was `1` and is `9`");
    }
}

//! An array of strings as a field of a record.

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How many strings are held without a heap allocation.
const INLINE: usize = 4;

/// Strings that borrow the message; the first [`INLINE`] take no allocation.
pub(crate) struct Strings<'a> {
    inline: [&'a str; INLINE],
    len: usize,
    more: Vec<&'a str>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Strings<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Strings<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of strings")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Strings<'de>, A::Error> {
                let mut strings = Strings { inline: [""; INLINE], len: 0, more: Vec::new() };
                while let Some(string) = array.next_element()? {
                    match strings.inline.get_mut(strings.len) {
                        Some(slot) => *slot = string,
                        None => strings.more.push(string),
                    }
                    strings.len += 1;
                }
                Ok(strings)
            }
        }

        deserializer.deserialize_seq(Reader)
    }
}

impl Serialize for Strings<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_seq(Some(self.len))?;
        for string in self.inline.iter().take(self.len).chain(&self.more) {
            array.serialize_element(string)?;
        }
        array.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IntoDeserializer;
    use serde::de::value::{BorrowedStrDeserializer, Error, SeqDeserializer};

    /// What `strings` serialises as, one string after another.
    fn read(strings: &[&'static str]) -> Vec<String> {
        struct Element(&'static str);
        impl<'de> IntoDeserializer<'de, Error> for Element {
            type Deserializer = BorrowedStrDeserializer<'de, Error>;
            fn into_deserializer(self) -> Self::Deserializer {
                BorrowedStrDeserializer::new(self.0)
            }
        }
        let elements = SeqDeserializer::<_, Error>::new(strings.iter().map(|string| Element(string)));
        let read = Strings::deserialize(elements).expect("they are strings");
        assert_eq!(read.len, strings.len());
        read.inline.iter().take(read.len).chain(&read.more).map(ToString::to_string).collect()
    }

    #[test]
    fn every_string_is_kept_in_order_inline_or_not() {
        let all = ["a", "", "c", "d", "e", "f"];
        for len in 0..=all.len() {
            assert_eq!(read(&all[..len]), all[..len]);
        }
    }
}

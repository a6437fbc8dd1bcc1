//! SHA-256 as records write it: `sha256:` and 64 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest: `sha256:` and 64 hexadecimal digits")]
pub struct NotADigest(String);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes.as_ref()).into())
    }

    /// The digest of everything `reader` gives.
    ///
    /// # Errors
    /// When reading fails.
    pub fn of_reader(mut reader: impl std::io::Read) -> std::io::Result<Self> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok(Self(hasher.finalize().into())),
                read => hasher.update(&buffer[..read]),
            }
        }
    }

    /// The digest of `value` as JSON with sorted keys.
    #[must_use]
    pub fn of_json(value: &impl Serialize) -> Self {
        let sorted = serde_json::to_value(value).unwrap_or_default();
        Self::of(sorted.to_string())
    }

    /// The first eight hexadecimal digits.
    #[must_use]
    pub fn short(&self) -> String {
        self.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl From<Sha256> for Digest {
    fn from(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let not = || NotADigest(text.to_owned());
        let digits = text.strip_prefix("sha256:").ok_or_else(not)?;
        if digits.len() != 64 || !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(not());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| not())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = NotADigest;

    fn try_from(text: String) -> Result<Self, NotADigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nothing_is_the_known_value() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of("").to_string(), text);
        assert_eq!(text.parse(), Ok(Digest::of("")));
        assert_eq!(Digest::of_reader(&b""[..]).unwrap(), Digest::of(""));
        assert!(text.to_uppercase().parse::<Digest>().is_err());
        assert!("sha256:00".parse::<Digest>().is_err());
    }

    #[test]
    fn keys_are_sorted_before_hashing() {
        #[derive(Serialize)]
        struct Backwards {
            b: u8,
            a: u8,
        }
        assert_eq!(Digest::of_json(&Backwards { b: 1, a: 2 }), Digest::of(r#"{"a":2,"b":1}"#));
    }
}

//! Names and identities as types, so that two of them cannot be swapped.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::digest::Digest;
use crate::error::Coded;

/// Why a text is not a name or an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// Names are lower-case ASCII letters, digits and inner hyphens, at most 64.
    #[error("`{text}` is not a valid {what}: use a–z, 0–9 and inner hyphens, at most 64 characters")]
    Name {
        /// What it should have named.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// Run and sitting identities are UUIDs of version 7.
    #[error("`{text}` is not a {what}: it is a UUID of version 7")]
    Uuid {
        /// What it should have identified.
        what: &'static str,
        /// The text.
        text: String,
    },
}

impl Coded for IdError {
    fn code(&self) -> &'static str {
        match self {
            Self::Name { .. } => "bad_name",
            Self::Uuid { .. } => "bad_uuid",
        }
    }

    fn refused(&self) -> bool {
        true
    }
}

/// Whether a text can be a name: safe as a folder and as a host name.
pub(crate) fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=64).contains(&text.len()) && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

macro_rules! names {
    ($($(#[$meta:meta])* $name:ident is $what:literal;)+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                if is_name(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(IdError::Name { what: $what, text: text.to_owned() })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )+};
}

names! {
    /// An entrant: its folder under `entrants/` and the join key of its records.
    EntrantId is "entrant id";
    /// One configuration of an entrant.
    VariantId is "variant id";
    /// An environment profile: `environments/<id>.toml`.
    ProfileId is "environment profile id";
    /// A profile on a host: `<profile>-<8 hex digits of its digest>`.
    EnvId is "environment id";
}

impl ProfileId {
    /// The environment that this profile is on a host, by the digest of both.
    #[must_use]
    pub fn on(&self, digest: &Digest) -> EnvId {
        EnvId(format!("{self}-{}", digest.short()))
    }
}

macro_rules! uuids {
    ($($(#[$meta:meta])* $name:ident is $what:literal;)+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "Uuid", into = "Uuid")]
        pub struct $name(Uuid);

        impl $name {
            /// The identity as a UUID.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl TryFrom<Uuid> for $name {
            type Error = IdError;

            fn try_from(uuid: Uuid) -> Result<Self, IdError> {
                if uuid.get_version_num() == 7 {
                    Ok(Self(uuid))
                } else {
                    Err(IdError::Uuid { what: $what, text: uuid.to_string() })
                }
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let uuid = Uuid::try_parse(text)
                    .map_err(|_| IdError::Uuid { what: $what, text: text.to_owned() })?;
                Self::try_from(uuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}

uuids! {
    /// One measurement. Built from a UUID of version 7, which its maker takes from clock and chance.
    RunId is "run id";
    /// One `bench run`: every measurement of it shares this.
    SittingId is "sitting id";
}

words! {
    /// A pipeline with its bytes and its expected answer.
    WorkloadId is "workload" {
        /// Decode, flatten, insert.
        IngestA = "ingest-a",
        /// The same, filtered and with derived columns.
        IngestB = "ingest-b",
    }
}

words! {
    /// How much work the ingest pipeline does on a row.
    Tier is "tier" {
        /// Transport.
        A = "a",
        /// Transform.
        B = "b",
    }
}

impl WorkloadId {
    /// The tier of the ingest pipeline that this workload is.
    #[must_use]
    pub const fn tier(self) -> Tier {
        match self {
            Self::IngestA => Tier::A,
            Self::IngestB => Tier::B,
        }
    }
}

impl From<Tier> for WorkloadId {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::A => Self::IngestA,
            Tier::B => Self::IngestB,
        }
    }
}

words! {
    /// How load is offered.
    Mode is "mode" {
        /// The topic is filled first; nothing produces during the measurement.
        Drain = "drain",
        /// A producer offers a fixed rate throughout.
        Sustained = "sustained",
    }
}

words! {
    /// What a variant may claim.
    Approach is "approach" {
        /// What a competent user deploys. Eligible for the headline.
        Realistic = "realistic",
        /// The system's own interfaces in a configuration few would deploy. Shown apart.
        Tuned = "tuned",
        /// Code the project does not ship, or a guarantee dropped. Shown apart.
        Stripped = "stripped",
    }
}

words! {
    /// The ClickHouse format in which an arm inserts.
    WireFormat is "wire format" {
        /// `Native`.
        Native = "native",
        /// `RowBinary`.
        RowBinary = "rowbinary",
        /// `RowBinaryWithNamesAndTypes`.
        RowBinaryNamesTypes = "rowbinary_names_types",
        /// `JSONEachRow`.
        JsonEachRow = "json_each_row",
        /// `ArrowStream`.
        ArrowStream = "arrow_stream",
        /// Nothing crosses the wire.
        None = "none",
    }
}

words! {
    /// What an arm guarantees about each row.
    Delivery is "delivery guarantee" {
        /// No row is lost; a row may land twice.
        AtLeastOnce = "at-least-once",
        /// Every row lands once; run that way and labelled.
        ExactlyOnce = "exactly-once",
    }
}

words! {
    /// How far an environment's numbers reach.
    Class is "environment class" {
        /// Fit to be quoted.
        Authoritative = "authoritative",
        /// Real, on a host that distorts.
        Indicative = "indicative",
        /// Proves that the suite works. Not a result.
        Fixture = "fixture",
    }
}

words! {
    /// Whose work a container does.
    Role is "container role" {
        /// The rows pass through it; the envelope bounds it.
        DataPlane = "data-plane",
        /// It coordinates; on top of the envelope, published apart.
        ControlPlane = "control-plane",
    }
}

words! {
    /// Why a sitting was started.
    Trigger is "trigger" {
        /// By a person.
        Manual = "manual",
        /// By a schedule.
        Nightly = "nightly",
        /// For a release.
        Release = "release",
        /// For a change under review; never published.
        PullRequest = "pr",
        /// With knobs other than the descriptor's; never published.
        Tuning = "tuning",
    }
}

/// Which variants of an entrant a selector means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariantChoice {
    /// The default one.
    Default,
    /// Every one.
    All,
    /// This one.
    One(VariantId),
}

/// Which arms are meant: `*` (the default variant of every active entrant), `<entrant>`, `<entrant>:<variant>` or
/// `<entrant>:*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// The default variant of every active entrant.
    Every,
    /// Variants of one entrant.
    Entrant(EntrantId, VariantChoice),
}

impl FromStr for Selector {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if text == "*" {
            return Ok(Self::Every);
        }
        Ok(match text.split_once(':') {
            None => Self::Entrant(text.parse()?, VariantChoice::Default),
            Some((entrant, "*")) => Self::Entrant(entrant.parse()?, VariantChoice::All),
            Some((entrant, variant)) => Self::Entrant(entrant.parse()?, VariantChoice::One(variant.parse()?)),
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => f.write_str("*"),
            Self::Entrant(entrant, VariantChoice::Default) => write!(f, "{entrant}"),
            Self::Entrant(entrant, VariantChoice::All) => write!(f, "{entrant}:*"),
            Self::Entrant(entrant, VariantChoice::One(variant)) => write!(f, "{entrant}:{variant}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_small_and_safe_as_folders() {
        for good in ["a", "three-short-words", "v2"] {
            assert_eq!(good.parse::<EntrantId>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "A", "a_b", "../x", "a/b", &"x".repeat(65)] {
            assert!(bad.parse::<EntrantId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn selectors_print_as_they_parse() {
        for text in ["*", "one", "one:native", "one:*"] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        for bad in ["", ":", "one:", ":native", "*:native", "one:two:three"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad}");
        }
    }

    #[test]
    fn identities_are_of_version_seven() {
        assert!("01970000-0000-7000-8000-000000000001".parse::<RunId>().is_ok());
        assert!("01970000-0000-4000-8000-000000000001".parse::<RunId>().is_err());
        assert!("x".parse::<RunId>().is_err());
    }

    #[test]
    fn an_unknown_word_names_the_known_ones() {
        let error = "drian".parse::<Mode>().unwrap_err();
        assert_eq!(error.to_string(), "`drian` is not a mode; known: drain, sustained");
        assert_eq!(error.hint().as_deref(), Some("did you mean `drain`?"));
    }
}

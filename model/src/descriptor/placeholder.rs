//! `{{…}}` in commands, environment variables and files of an entrant.

use std::fmt;

use crate::error::Coded;
use crate::id::Tier;

/// What stands between double braces. Values come from the run; see each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placeholder {
    /// `broker`: `host:port` of the Kafka broker.
    Broker,
    /// `registry`: `host:port` of the schema registry.
    Registry,
    /// `clickhouse`: `host:port` of ClickHouse's HTTP interface.
    Clickhouse,
    /// `topic`: the topic to drain.
    Topic,
    /// `table`: the target table.
    Table,
    /// `database`: the database of the target table.
    Database,
    /// `group_id`: the consumer group, new for each run.
    GroupId,
    /// `offset_reset`: where a new group starts, such as `earliest`.
    OffsetReset,
    /// `tier`: `a` or `b`.
    Tier,
    /// `entrant_dir`: absolute path of the entrant's folder.
    EntrantDir,
    /// `run_dir`: absolute path of the run's own empty folder.
    RunDir,
    /// `envelope:cpus`: CPUs of the data plane in force, such as `4` or `0.5`.
    EnvelopeCpus,
    /// `envelope:memory`: bytes of the data plane in force.
    EnvelopeMemory,
    /// `knob:NAME`: a knob of the variant.
    Knob(String),
    /// `container:NAME`: the host name of another container of the arm.
    Container(String),
    /// `file:NAME`: absolute path of a file of the entrant's folder, rendered into the run's folder. `{tier}` in NAME
    /// is the run's tier; see [`Placeholder::file_of`].
    File(String),
    /// `library:NAME`: absolute path of a library of the cache, such as `chdb`.
    Library(String),
    /// `bin:NAME`: absolute path of a binary of this workspace, such as `bench`.
    Bin(String),
}

/// The placeholders without an argument.
const PLAIN: [(&str, Placeholder); 13] = [
    ("broker", Placeholder::Broker),
    ("registry", Placeholder::Registry),
    ("clickhouse", Placeholder::Clickhouse),
    ("topic", Placeholder::Topic),
    ("table", Placeholder::Table),
    ("database", Placeholder::Database),
    ("group_id", Placeholder::GroupId),
    ("offset_reset", Placeholder::OffsetReset),
    ("tier", Placeholder::Tier),
    ("entrant_dir", Placeholder::EntrantDir),
    ("run_dir", Placeholder::RunDir),
    ("envelope:cpus", Placeholder::EnvelopeCpus),
    ("envelope:memory", Placeholder::EnvelopeMemory),
];

type Make = fn(String) -> Placeholder;

/// The placeholders that take a name.
const NAMED: [(&str, Make); 5] = [
    ("knob", Placeholder::Knob),
    ("container", Placeholder::Container),
    ("file", Placeholder::File),
    ("library", Placeholder::Library),
    ("bin", Placeholder::Bin),
];

impl Placeholder {
    /// The placeholder that `inner`, the text between the braces, means.
    #[must_use]
    pub fn parse(inner: &str) -> Option<Self> {
        if let Some((_, plain)) = PLAIN.iter().find(|(word, _)| *word == inner) {
            return Some(plain.clone());
        }
        let (kind, name) = inner.split_once(':')?;
        let make = NAMED.iter().find(|(word, _)| *word == kind)?.1;
        let bare = if kind == "file" { name.replace("{tier}", "a") } else { name.to_owned() };
        let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        let stays_inside = !bare.split('/').any(|part| part.is_empty() || part == "..");
        (bare.chars().all(is_safe) && stays_inside).then(|| make(name.to_owned()))
    }

    /// The file that `file:NAME` means on a tier.
    #[must_use]
    pub fn file_of(name: &str, tier: Tier) -> String {
        name.replace("{tier}", tier.as_str())
    }

    /// How every placeholder is written, for a message.
    pub(super) fn known() -> impl Iterator<Item = String> {
        let named = NAMED.iter().map(|(word, _)| format!("{word}:NAME"));
        PLAIN.iter().map(|(word, _)| (*word).to_owned()).chain(named)
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((word, _)) = PLAIN.iter().find(|(_, plain)| plain == self) {
            return write!(f, "{{{{{word}}}}}");
        }
        let (kind, name) = match self {
            Self::Knob(name) => ("knob", name),
            Self::Container(name) => ("container", name),
            Self::File(name) => ("file", name),
            Self::Library(name) => ("library", name),
            Self::Bin(name) => ("bin", name),
            _ => return Ok(()),
        };
        write!(f, "{{{{{kind}:{name}}}}}")
    }
}

/// A piece of a text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<'t> {
    /// As it stands.
    Text(&'t str),
    /// A placeholder.
    Placeholder(Placeholder),
    /// Braces whose inside is no placeholder.
    Unknown(&'t str),
}

/// Splits a text at its placeholders.
#[must_use]
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("{{") {
        let Some(length) = rest[open + 2..].find("}}") else { break };
        let inner = rest[open + 2..open + 2 + length].trim();
        if open > 0 {
            pieces.push(Piece::Text(&rest[..open]));
        }
        pieces.push(Placeholder::parse(inner).map_or(Piece::Unknown(inner), Piece::Placeholder));
        rest = &rest[open + length + 4..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

/// Why a text could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// Braces whose inside is no placeholder.
    #[error("`{{{{{0}}}}}` is not a placeholder")]
    Unknown(String),
    /// The run has no value for a placeholder.
    #[error("nothing here gives `{0}` a value")]
    NoValue(Placeholder),
}

impl Coded for RenderError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown_placeholder",
            Self::NoValue(_) => "placeholder_without_value",
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::Unknown(_))
            .then(|| format!("known: {}", Placeholder::known().collect::<Vec<_>>().join(", ")))
    }
}

/// `text` with every placeholder replaced by the value that `lookup` gives it.
///
/// # Errors
/// When there is an unknown placeholder, or one that `lookup` gives no value.
pub fn render(text: &str, lookup: &dyn Fn(&Placeholder) -> Option<String>) -> Result<String, RenderError> {
    pieces(text)
        .into_iter()
        .map(|piece| match piece {
            Piece::Text(text) => Ok(text.to_owned()),
            Piece::Placeholder(placeholder) => lookup(&placeholder).ok_or(RenderError::NoValue(placeholder)),
            Piece::Unknown(inner) => Err(RenderError::Unknown(inner.to_owned())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_prints_as_it_parses() {
        let names = NAMED.iter().map(|(word, _)| format!("{word}:some-name_1.x"));
        for inner in PLAIN.iter().map(|(word, _)| (*word).to_owned()).chain(names) {
            assert_eq!(Placeholder::parse(&inner).unwrap().to_string(), format!("{{{{{inner}}}}}"));
        }
        for inner in [
            "",
            "brokers",
            "knob",
            "knob:",
            "file:../x",
            "file:/etc/passwd",
            "file:a//b",
            "knob:a b",
            "knob:{tier}",
            "env:X",
        ] {
            assert_eq!(Placeholder::parse(inner), None, "{inner}");
        }
    }

    #[test]
    fn text_around_placeholders_stays() {
        let lookup = |placeholder: &Placeholder| match placeholder {
            Placeholder::Broker => Some("127.0.0.1:9092".to_owned()),
            Placeholder::Knob(name) => Some(format!("<{name}>")),
            _ => None,
        };
        assert_eq!(render("a {{broker}}/{{ knob:n }} }} {{", &lookup).unwrap(), "a 127.0.0.1:9092/<n> }} {{");
        assert_eq!(render("{{topic}}", &lookup), Err(RenderError::NoValue(Placeholder::Topic)));
        let file = Placeholder::File("{tier}/q-{tier}.sql".into());
        assert_eq!(pieces("{{file:{tier}/q-{tier}.sql}}"), [Piece::Placeholder(file)]);
        assert_eq!(Placeholder::file_of("{tier}/q-{tier}.sql", Tier::B), "b/q-b.sql");
        let unknown = render("{{borker}}", &lookup).unwrap_err();
        assert_eq!(unknown.to_string(), "`{{borker}}` is not a placeholder");
    }
}

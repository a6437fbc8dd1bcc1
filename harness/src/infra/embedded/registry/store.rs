//! Subjects, versions and schemas, and every decision about them. Pure.

use std::collections::BTreeMap;

use apache_avro::Schema;
use apache_avro::schema_compatibility::SchemaCompatibility;
use serde::{Deserialize, Serialize};

/// Everything the registry knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Schemas by id; the id of `schemas[n]` is `n + 1`.
    schemas: Vec<String>,
    subjects: BTreeMap<String, Vec<Version>>,
    /// The level of every subject without one of its own.
    level: Level,
    levels: BTreeMap<String, Level>,
}

/// One version of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// From 1, never reused.
    pub version: u32,
    /// Its schema.
    pub id: u32,
    /// Whether it was deleted softly: found only when asked for.
    pub deleted: bool,
}

/// Which earlier versions a new one must get along with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Level {
    /// Any schema may follow any other.
    None,
    /// The new one reads what the latest wrote.
    #[default]
    Backward,
    /// The new one reads what any earlier wrote.
    BackwardTransitive,
    /// The latest reads what the new one writes.
    Forward,
    /// Any earlier reads what the new one writes.
    ForwardTransitive,
    /// Both, with the latest.
    Full,
    /// Both, with any earlier.
    FullTransitive,
}

/// Which version of a subject is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// The newest.
    Latest,
    /// This one.
    Number(u32),
}

/// A version with its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Its subject.
    pub subject: String,
    /// Its number.
    pub version: u32,
    /// Its schema's id.
    pub id: u32,
    /// Its schema.
    pub schema: String,
}

/// Why something was refused; each has the number that clients know it by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No such subject.
    #[error("Subject '{0}' not found.")]
    NoSubject(String),
    /// No such version of the subject.
    #[error("Version {0} not found.")]
    NoVersion(u32),
    /// No such schema.
    #[error("Schema {0}not found")]
    NoSchema(String),
    /// Permanent deletion must follow soft deletion.
    #[error("Subject '{0}' was not deleted first before being permanently deleted")]
    NotSoftDeleted(String),
    /// The schema is not Avro.
    #[error("Invalid schema: {0}")]
    BadSchema(String),
    /// The version is no number.
    #[error(
        "The specified version '{0}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string \"latest\""
    )]
    BadVersion(String),
    /// The level is unknown.
    #[error("Invalid compatibility level '{0}'")]
    BadLevel(String),
    /// The schema does not get along with earlier ones.
    #[error("Schema being registered is incompatible with an earlier schema for subject \"{subject}\": {why}")]
    Incompatible {
        /// The subject.
        subject: String,
        /// In what.
        why: String,
    },
    /// The subject has no level of its own.
    #[error("Subject '{0}' does not have subject-level compatibility configured")]
    NoLevel(String),
}

impl Refusal {
    /// The registry's numeric error code.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::NoSubject(_) => 40_401,
            Self::NoVersion(_) => 40_402,
            Self::NoSchema(_) => 40_403,
            Self::NotSoftDeleted(_) => 40_405,
            Self::NoLevel(_) => 40_408,
            Self::Incompatible { .. } => 409,
            Self::BadSchema(_) => 42_201,
            Self::BadVersion(_) => 42_202,
            Self::BadLevel(_) => 42_203,
        }
    }
}

/// Parses an Avro schema.
fn parse(schema: &str) -> Result<Schema, Refusal> {
    Schema::parse_str(schema).map_err(|error| Refusal::BadSchema(error.to_string()))
}

/// What makes two schema texts the same schema: the JSON without its white space.
fn normal(schema: &str) -> Result<String, Refusal> {
    let value: serde_json::Value =
        serde_json::from_str(schema).map_err(|error| Refusal::BadSchema(error.to_string()))?;
    Ok(value.to_string())
}

impl Store {
    /// Registers a schema under a subject; the same schema again gives the same id and no new version.
    ///
    /// # Errors
    /// When it is not Avro or does not get along with earlier versions at the subject's level.
    pub fn register(&mut self, subject: &str, schema: &str) -> Result<u32, Refusal> {
        parse(schema)?;
        let text = normal(schema)?;
        if let Some(found) = self.live(subject).find(|version| self.text(version.id) == Some(text.as_str())) {
            return Ok(found.id);
        }
        let against: Vec<&Version> = self.live(subject).collect();
        if let Err(why) = self.check(&text, &against, self.level_of(subject))? {
            return Err(Refusal::Incompatible { subject: subject.to_owned(), why });
        }
        let known = self.schemas.iter().position(|known| *known == text);
        let at = known.unwrap_or_else(|| {
            self.schemas.push(text);
            self.schemas.len() - 1
        });
        let id = at as u32 + 1;
        let versions = self.subjects.entry(subject.to_owned()).or_default();
        let version = versions.last().map_or(1, |last| last.version + 1);
        versions.push(Version { version, id, deleted: false });
        Ok(id)
    }

    /// Finds the version of a subject that has this schema.
    ///
    /// # Errors
    /// When the subject or the schema under it is unknown.
    pub fn lookup(&self, subject: &str, schema: &str) -> Result<Found, Refusal> {
        let text = normal(schema)?;
        self.known(subject)?;
        let version = self.live(subject).find(|version| self.text(version.id) == Some(text.as_str()));
        version.map(|version| self.found(subject, version)).ok_or_else(|| Refusal::NoSchema(String::new()))
    }

    /// The schema of an id.
    ///
    /// # Errors
    /// When there is none.
    pub fn schema(&self, id: u32) -> Result<&str, Refusal> {
        self.text(id).ok_or_else(|| Refusal::NoSchema(format!("{id} ")))
    }

    /// Subject and version of every use of an id.
    pub fn uses(&self, id: u32) -> impl Iterator<Item = (&str, u32)> {
        self.subjects.iter().flat_map(move |(subject, versions)| {
            let live = versions.iter().filter(move |version| version.id == id && !version.deleted);
            live.map(move |version| (subject.as_str(), version.version))
        })
    }

    /// Every subject with a version; softly deleted ones only when asked for.
    #[must_use]
    pub fn subjects(&self, deleted: bool) -> Vec<&str> {
        let has = |versions: &[Version]| versions.iter().any(|version| deleted || !version.deleted);
        self.subjects.iter().filter(|(_, versions)| has(versions)).map(|(subject, _)| subject.as_str()).collect()
    }

    /// The numbers of a subject's versions.
    ///
    /// # Errors
    /// When there is no such subject.
    pub fn versions(&self, subject: &str) -> Result<Vec<u32>, Refusal> {
        self.known(subject)?;
        Ok(self.live(subject).map(|version| version.version).collect())
    }

    /// One version of a subject.
    ///
    /// # Errors
    /// When the subject or the version is unknown.
    pub fn version(&self, subject: &str, pick: Pick) -> Result<Found, Refusal> {
        self.known(subject)?;
        let version = match pick {
            Pick::Latest => self.live(subject).last().ok_or_else(|| Refusal::NoSubject(subject.to_owned()))?,
            Pick::Number(number) => {
                self.live(subject).find(|version| version.version == number).ok_or(Refusal::NoVersion(number))?
            }
        };
        Ok(self.found(subject, version))
    }

    /// Deletes a subject: softly, or, once that is done, for good. Gives the numbers of the versions deleted.
    ///
    /// # Errors
    /// When there is no such subject, or a permanent deletion does not follow a soft one.
    pub fn delete(&mut self, subject: &str, permanent: bool) -> Result<Vec<u32>, Refusal> {
        let missing = || Refusal::NoSubject(subject.to_owned());
        let versions = self.subjects.get_mut(subject).ok_or_else(missing)?;
        if permanent {
            if versions.iter().any(|version| !version.deleted) {
                return Err(Refusal::NotSoftDeleted(subject.to_owned()));
            }
            let gone = versions.iter().map(|version| version.version).collect();
            self.subjects.remove(subject);
            return Ok(gone);
        }
        let live: Vec<&mut Version> = versions.iter_mut().filter(|version| !version.deleted).collect();
        if live.is_empty() {
            return Err(missing());
        }
        Ok(live
            .into_iter()
            .map(|version| {
                version.deleted = true;
                version.version
            })
            .collect())
    }

    /// Deletes one version of a subject softly and gives its number.
    ///
    /// # Errors
    /// When the subject or the version is unknown.
    pub fn delete_version(&mut self, subject: &str, pick: Pick) -> Result<u32, Refusal> {
        let number = self.version(subject, pick)?.version;
        for version in self.subjects.get_mut(subject).into_iter().flatten() {
            version.deleted |= version.version == number;
        }
        Ok(number)
    }

    /// Whether a schema may follow the picked version (or, without one, whatever the subject's level asks); if not, why.
    ///
    /// # Errors
    /// When the schema is not Avro, or the version is unknown. A subject without versions accepts every schema.
    pub fn compatible(&self, subject: &str, pick: Option<Pick>, schema: &str) -> Result<Result<(), String>, Refusal> {
        parse(schema)?;
        let level = self.level_of(subject);
        let against = match pick {
            None => self.live(subject).collect(),
            Some(pick) => {
                let number = self.version(subject, pick)?.version;
                self.live(subject).filter(|version| version.version == number).collect::<Vec<_>>()
            }
        };
        self.check(&normal(schema)?, &against, level)
    }

    /// The level of a subject, or the global one.
    #[must_use]
    pub fn level_of(&self, subject: &str) -> Level {
        self.levels.get(subject).copied().unwrap_or(self.level)
    }

    /// The global level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// A subject's own level.
    ///
    /// # Errors
    /// When it has none.
    pub fn own_level(&self, subject: &str) -> Result<Level, Refusal> {
        self.levels.get(subject).copied().ok_or_else(|| Refusal::NoLevel(subject.to_owned()))
    }

    /// Sets a subject's level, or the global one.
    pub fn set_level(&mut self, subject: Option<&str>, level: Level) {
        match subject {
            Some(subject) => {
                self.levels.insert(subject.to_owned(), level);
            }
            None => self.level = level,
        }
    }

    fn live(&self, subject: &str) -> impl Iterator<Item = &Version> {
        self.subjects.get(subject).into_iter().flatten().filter(|version| !version.deleted)
    }

    fn known(&self, subject: &str) -> Result<(), Refusal> {
        let any = self.live(subject).next().is_some();
        any.then_some(()).ok_or_else(|| Refusal::NoSubject(subject.to_owned()))
    }

    fn text(&self, id: u32) -> Option<&str> {
        self.schemas.get((id as usize).checked_sub(1)?).map(String::as_str)
    }

    fn found(&self, subject: &str, version: &Version) -> Found {
        Found {
            subject: subject.to_owned(),
            version: version.version,
            id: version.id,
            schema: self.text(version.id).unwrap_or_default().to_owned(),
        }
    }

    /// Compares a schema with earlier versions at a level.
    fn check(&self, schema: &str, against: &[&Version], level: Level) -> Result<Result<(), String>, Refusal> {
        use Level::{Backward, BackwardTransitive, Forward, ForwardTransitive, Full, FullTransitive, None};
        let new = parse(schema)?;
        let transitive = matches!(level, BackwardTransitive | ForwardTransitive | FullTransitive);
        let (reads, is_read) = match level {
            None => return Ok(Ok(())),
            Backward | BackwardTransitive => (true, false),
            Forward | ForwardTransitive => (false, true),
            Full | FullTransitive => (true, true),
        };
        let skip = if transitive { 0 } else { against.len().saturating_sub(1) };
        for version in &against[skip..] {
            let old = parse(self.text(version.id).unwrap_or_default())?;
            let said = |error: apache_avro::error::CompatibilityError| {
                format!("with version {} at level {level:?}: {error}", version.version)
            };
            if reads && let Err(error) = SchemaCompatibility::can_read(&old, &new) {
                return Ok(Err(said(error)));
            }
            if is_read && let Err(error) = SchemaCompatibility::can_read(&new, &old) {
                return Ok(Err(said(error)));
            }
        }
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}"#;
    const WITH_DEFAULT: &str =
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":"int","default":0}]}"#;
    const WITHOUT_DEFAULT: &str =
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"c","type":"int"}]}"#;

    #[test]
    fn the_same_schema_has_one_id_whatever_its_white_space() {
        let mut store = Store::default();
        assert_eq!(store.register("s", ONE), Ok(1));
        assert_eq!(store.register("s", &ONE.replace(',', " ,\n ")), Ok(1));
        assert_eq!(store.versions("s"), Ok(vec![1]));
        assert_eq!(store.register("other", ONE), Ok(1));
        assert_eq!(store.uses(1).collect::<Vec<_>>(), [("other", 1), ("s", 1)]);
        assert_eq!(store.lookup("s", ONE).map(|found| (found.id, found.version)), Ok((1, 1)));
    }

    #[test]
    fn backward_is_the_default_and_is_enforced() {
        let mut store = Store::default();
        store.register("s", ONE).unwrap();
        assert_eq!(store.register("s", WITH_DEFAULT), Ok(2));
        let refused = store.register("s", WITHOUT_DEFAULT).unwrap_err();
        assert_eq!(refused.number(), 409);
        store.set_level(Some("s"), Level::None);
        assert_eq!(store.register("s", WITHOUT_DEFAULT), Ok(3));
        assert_eq!(store.version("s", Pick::Latest).map(|found| found.version), Ok(3));
    }

    #[test]
    fn forward_looks_the_other_way() {
        let mut store = Store::default();
        store.register("s", WITHOUT_DEFAULT).unwrap();
        store.set_level(None, Level::Forward);
        assert!(store.compatible("s", None, ONE).unwrap().is_err());
        store.set_level(None, Level::Backward);
        assert!(store.compatible("s", None, ONE).unwrap().is_ok());
        assert!(store.compatible("unheard", None, ONE).unwrap().is_ok());
    }

    #[test]
    fn what_is_missing_is_named_by_its_number() {
        let mut store = Store::default();
        assert_eq!(store.versions("s").unwrap_err().number(), 40_401);
        store.register("s", ONE).unwrap();
        assert_eq!(store.version("s", Pick::Number(9)).unwrap_err().number(), 40_402);
        assert_eq!(store.schema(9).unwrap_err().number(), 40_403);
        assert_eq!(store.lookup("s", WITH_DEFAULT).unwrap_err().number(), 40_403);
        assert_eq!(store.register("s", "{").unwrap_err().number(), 42_201);
        assert_eq!(store.register("s", r#"{"type":"reckord"}"#).unwrap_err().number(), 42_201);
    }

    #[test]
    fn deletion_is_soft_then_permanent() {
        let mut store = Store::default();
        store.register("s", ONE).unwrap();
        assert_eq!(store.delete("s", true).unwrap_err().number(), 40_405);
        assert_eq!(store.delete("s", false), Ok(vec![1]));
        assert_eq!((store.subjects(false).len(), store.subjects(true).len()), (0, 1));
        assert_eq!(store.register("s", ONE), Ok(1));
        assert_eq!(store.versions("s"), Ok(vec![2]), "a version number is not reused");
        store.delete("s", false).unwrap();
        assert_eq!(store.delete("s", true), Ok(vec![1, 2]));
        assert_eq!(store.schema(1), Ok(normal(ONE).unwrap().as_str()), "an id outlives its subjects");
    }
}

//! A record as a line of JSON and back.
//!
//! A line is an object with `schema`, `kind`, the fields of the kind and `prev`. Unknown keys and a newer schema are
//! refused.

use serde::Serialize;

use crate::digest::Digest;
use crate::error::Coded;
use crate::id::RunId;

use super::{Record, SCHEMA};

/// The keys of [`Reading`](super::Reading) at the top of a line.
const READING_KEYS: [&str; 4] = ["mode", "metrics", "offered_rows_per_s", "latency"];

/// Why a line is not a record, or a record not fit to be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The line is not a JSON object.
    #[error("not a JSON object: {0}")]
    Json(serde_json::Error),
    /// A key that every record has is missing or of another type.
    #[error("`{0}` is missing or not of its type")]
    Missing(&'static str),
    /// Written by a newer version.
    #[error("schema {0} is newer than {SCHEMA}, the newest this version reads")]
    NewerSchema(u64),
    /// A kind this version does not know.
    #[error("`{0}` is not a kind of record")]
    UnknownKind(String),
    /// The fields are not those of the kind.
    #[error("not a {kind}: {source}")]
    Fields {
        /// The kind.
        kind: String,
        /// What is wrong with them.
        source: serde_json::Error,
    },
    /// The record contradicts itself.
    #[error("run {run_id} contradicts itself: {rule}")]
    Contradiction {
        /// The run.
        run_id: RunId,
        /// The sentence that is not true of it.
        rule: &'static str,
    },
}

impl Coded for RecordError {
    fn code(&self) -> &'static str {
        match self {
            Self::Json(_) => "record_not_json",
            Self::Missing(_) => "record_incomplete",
            Self::NewerSchema(_) => "record_newer_schema",
            Self::UnknownKind(_) => "record_unknown_kind",
            Self::Fields { .. } => "record_fields",
            Self::Contradiction { .. } => "record_contradiction",
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::NewerSchema(_))
            .then(|| "use the version of the suite that wrote it, or a newer one".into())
    }
}

#[derive(Serialize)]
struct LineOut<'a, T> {
    schema: u64,
    kind: &'static str,
    #[serde(flatten)]
    body: T,
    prev: &'a Digest,
}

impl Record {
    /// The name of its kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Measurement(_) => "measurement",
            Self::Retraction(_) => "retraction",
            Self::Verdict(_) => "verdict",
            Self::Seal(_) => "seal",
        }
    }

    /// The line that says it, without a line end.
    ///
    /// # Errors
    /// When it contradicts itself or holds a number that JSON cannot.
    pub fn to_line(&self, prev: &Digest) -> Result<String, RecordError> {
        fn line(kind: &'static str, body: impl Serialize, prev: &Digest) -> Result<String, RecordError> {
            serde_json::to_string(&LineOut { schema: SCHEMA, kind, body, prev }).map_err(RecordError::Json)
        }
        let kind = self.kind();
        match self {
            Self::Measurement(measurement) => {
                measurement.check()?;
                let mut body = serde_json::to_value(measurement).map_err(RecordError::Json)?;
                if let Some(fields) = body.as_object_mut()
                    && let Some(serde_json::Value::Object(reading)) = fields.remove("reading")
                {
                    fields.extend(reading);
                }
                line(kind, body, prev)
            }
            Self::Retraction(retraction) => line(kind, retraction, prev),
            Self::Verdict(verdict) => line(kind, verdict, prev),
            Self::Seal(seal) => line(kind, seal, prev),
        }
    }

    /// Reads a line: the record and the digest of the line before it.
    ///
    /// # Errors
    /// When it is not a record of a schema this version knows, with exactly its keys.
    pub fn from_line(line: &[u8]) -> Result<(Self, Digest), RecordError> {
        let mut fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(line).map_err(RecordError::Json)?;
        let mut take = |key: &'static str| fields.remove(key).ok_or(RecordError::Missing(key));
        let schema = take("schema")?.as_u64().ok_or(RecordError::Missing("schema"))?;
        if schema > SCHEMA {
            return Err(RecordError::NewerSchema(schema));
        }
        let kind = take("kind")?.as_str().ok_or(RecordError::Missing("kind"))?.to_owned();
        let prev = serde_json::from_value(take("prev")?).map_err(|_| RecordError::Missing("prev"))?;
        let wrong = |source| RecordError::Fields { kind: kind.clone(), source };
        let record = match kind.as_str() {
            "measurement" => {
                let reading: serde_json::Map<_, _> =
                    READING_KEYS.iter().filter_map(|key| fields.remove_entry(*key)).collect();
                fields.insert("reading".to_owned(), reading.into());
                Self::Measurement(serde_json::from_value(fields.into()).map_err(wrong)?)
            }
            "retraction" => Self::Retraction(serde_json::from_value(fields.into()).map_err(wrong)?),
            "verdict" => Self::Verdict(serde_json::from_value(fields.into()).map_err(wrong)?),
            "seal" => Self::Seal(serde_json::from_value(fields.into()).map_err(wrong)?),
            _ => return Err(RecordError::UnknownKind(kind)),
        };
        Ok((record, prev))
    }
}

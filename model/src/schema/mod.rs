//! JSON Schemas (draft 2020-12) of the files that people and programs write: descriptor, environment, record.
//!
//! The schemas say shapes, types and vocabularies; what ties two places together is the reader's to check, with a better
//! message. Tests hold them to the readers and to the real files.

mod entrant;
mod environment;
mod record;

use serde_json::{Map, Value, json};

use crate::words::Word;

words! {
    /// A kind of file that has a schema.
    SchemaOf is "kind of schema" {
        /// `entrants/<id>/entrant.toml`.
        Entrant = "entrant",
        /// `environments/<id>.toml`.
        Environment = "environment",
        /// One line of `results/<env_id>/<entrant>/<YYYY-MM>.jsonl`.
        Record = "record",
    }
}

impl SchemaOf {
    /// The schema.
    #[must_use]
    pub fn schema(self) -> Value {
        let (title, body) = match self {
            Self::Entrant => ("Descriptor of an entrant", entrant::schema()),
            Self::Environment => ("Environment profile", environment::schema()),
            Self::Record => ("A line of the archive", record::schema()),
        };
        let mut schema = Map::new();
        schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        schema.insert("title".into(), title.into());
        if let Value::Object(body) = body {
            schema.extend(body);
        }
        schema.into()
    }
}

/// A key of an object: its name, its schema, and whether it must be there.
struct Key(&'static str, Value, bool);

/// A key that must be there.
fn must(name: &'static str, schema: Value) -> Key {
    Key(name, schema, true)
}

/// A key that may be left out.
fn may(name: &'static str, schema: Value) -> Key {
    Key(name, schema, false)
}

/// An object with exactly these keys.
fn object(keys: impl IntoIterator<Item = Key>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for Key(name, schema, needed) in keys {
        properties.insert(name.to_owned(), schema);
        if needed {
            required.push(name);
        }
    }
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// An object with free keys, whose values have a schema.
fn free(values: Value) -> Value {
    json!({ "type": "object", "additionalProperties": values })
}

/// A list; with `least` items at least.
fn list(items: Value, least: usize) -> Value {
    json!({ "type": "array", "items": items, "minItems": least })
}

/// Text that says something.
fn text(about: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "description": about })
}

/// Text that may be empty.
fn any_text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

/// A word of a closed vocabulary.
fn word<W: Word>() -> Value {
    let words: Vec<&str> = W::WORDS.iter().map(|value| value.word()).collect();
    json!({ "enum": words, "description": W::WHAT })
}

/// A name: an entrant, a variant, a profile.
fn name(about: &str) -> Value {
    json!({ "type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$", "description": about })
}

/// A positive number.
fn positive(about: &str) -> Value {
    json!({ "type": "number", "exclusiveMinimum": 0, "description": about })
}

/// A whole number from `least` on.
fn whole(least: u64, about: &str) -> Value {
    json!({ "type": "integer", "minimum": least, "description": about })
}

/// `true` or `false`.
fn truth(about: &str) -> Value {
    json!({ "type": "boolean", "description": about })
}

/// A size such as `16GiB`.
fn size() -> Value {
    json!({ "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?([KMGT]iB|B)?$", "description": "such as 16GiB" })
}

/// A link that begins with `https://`.
fn link(about: &str) -> Value {
    json!({ "type": "string", "pattern": "^https://", "description": about })
}

/// A SHA-256.
fn digest() -> Value {
    json!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" })
}

/// A UUID of version 7.
fn uuid(about: &str) -> Value {
    let pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$";
    json!({ "type": "string", "pattern": pattern, "description": about })
}

/// A time in UTC.
fn time(about: &str) -> Value {
    json!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$", "description": about })
}

/// A knob's value.
fn knob() -> Value {
    json!({ "type": ["boolean", "integer", "number", "string"] })
}

/// A schema or null.
fn or_null(mut schema: Value) -> Value {
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind.clone(), "null"]);
    }
    schema
}

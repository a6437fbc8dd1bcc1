//! The JSON Schemas agree with the readers and with the real files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use weir_model::digest::Digest;
use weir_model::metric::{Latency, LatencyOf, Metric};
use weir_model::record::{Reading, Record, Seal};
use weir_model::schema::SchemaOf;

use support::{full_measurement, full_verdict, measurement, retraction};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The first thing in which `value` departs from `schema`; every keyword that the schemas use is known here.
fn departs(schema: &Value, value: &Value, path: &str) -> Option<String> {
    let all = schema.as_object().unwrap();
    for (keyword, wanted) in all {
        let wrong = match keyword.as_str() {
            "$schema" | "title" | "description" | "additionalProperties" | "minItems" | "maxItems" => None,
            "type" => (!has_type(wanted, value)).then(|| format!("{path}: not of type {wanted}: {value}")),
            "const" => (value != wanted).then(|| format!("{path}: {value} is not {wanted}")),
            "enum" => (!wanted.as_array().unwrap().contains(value)).then(|| format!("{path}: {value} not in {wanted}")),
            "minimum" => bound(value, wanted, |it, least| it >= least, path),
            "maximum" => bound(value, wanted, |it, most| it <= most, path),
            "exclusiveMinimum" => bound(value, wanted, |it, least| it > least, path),
            "exclusiveMaximum" => bound(value, wanted, |it, most| it < most, path),
            "minLength" => value.as_str().filter(|text| text.is_empty()).map(|_| format!("{path}: empty")),
            // the shapes of names and digests are the readers' to check; here each pattern is only one
            "pattern" => wanted.as_str().is_none().then(|| format!("{path}: the pattern is no text")),
            "required" => wanted.as_array().unwrap().iter().find_map(|key| {
                let there = value.as_object().is_none_or(|it| it.contains_key(key.as_str().unwrap()));
                (!there).then(|| format!("{path}: no {key}"))
            }),
            "dependentRequired" => wanted.as_object().unwrap().iter().find_map(|(key, needed)| {
                let there = |key: &str| value.as_object().is_some_and(|it| it.contains_key(key));
                let lacking = needed.as_array().unwrap().iter().find(|it| !there(it.as_str().unwrap()))?;
                there(key).then(|| format!("{path}: `{key}` without {lacking}"))
            }),
            "properties" => value.as_object().and_then(|it| keys(wanted.as_object().unwrap(), all, it, path)),
            "items" => value.as_array().and_then(|items| {
                items.iter().enumerate().find_map(|(at, item)| departs(wanted, item, &format!("{path}[{at}]")))
            }),
            "anyOf" | "oneOf" => {
                let fits = wanted.as_array().unwrap().iter().filter(|it| departs(it, value, path).is_none()).count();
                let enough = if keyword == "oneOf" { fits == 1 } else { fits > 0 };
                let why =
                    || wanted.as_array().unwrap().iter().filter_map(|it| departs(it, value, path)).collect::<Vec<_>>();
                (!enough).then(|| format!("{path}: {fits} alternatives fit: {:?}", why()))
            }
            other => Some(format!("the schema uses `{other}`, which this test does not know")),
        };
        if wrong.is_some() {
            return wrong;
        }
    }
    if !all.contains_key("properties")
        && let (Some(values), Some(value)) = (all.get("additionalProperties"), value.as_object())
    {
        return value.iter().find_map(|(key, value)| departs(values, value, &format!("{path}.{key}")));
    }
    let length = value.as_array().map(Vec::len);
    let count = |keyword: &str| all.get(keyword).and_then(Value::as_u64).and_then(|it| usize::try_from(it).ok());
    let too_short = length.zip(count("minItems")).is_some_and(|(length, least)| length < least);
    let too_long = length.zip(count("maxItems")).is_some_and(|(length, most)| length > most);
    (too_short || too_long).then(|| format!("{path}: a list of {length:?}"))
}

fn keys(
    known: &Map<String, Value>,
    schema: &Map<String, Value>,
    it: &Map<String, Value>,
    path: &str,
) -> Option<String> {
    it.iter().find_map(|(key, value)| {
        let path = format!("{path}.{key}");
        match (known.get(key), schema.get("additionalProperties")) {
            (Some(schema), _) => departs(schema, value, &path),
            (None, Some(Value::Bool(false))) => Some(format!("{path}: unknown key")),
            (None, Some(schema)) if schema.is_object() => departs(schema, value, &path),
            (None, _) => None,
        }
    })
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("no type `{other}`"),
    };
    match wanted {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        other => panic!("a type is a name or a list of names, not {other}"),
    }
}

fn bound(value: &Value, limit: &Value, holds: fn(f64, f64) -> bool, path: &str) -> Option<String> {
    let (value, limit) = (value.as_f64()?, limit.as_f64().unwrap());
    (!holds(value, limit)).then(|| format!("{path}: {value} is beyond {limit}"))
}

/// A TOML file as JSON; dates are texts.
fn toml_as_json(text: &str) -> Value {
    fn json(value: toml::Value) -> Value {
        match value {
            toml::Value::String(text) => text.into(),
            toml::Value::Integer(number) => number.into(),
            toml::Value::Float(number) => number.into(),
            toml::Value::Boolean(truth) => truth.into(),
            toml::Value::Datetime(date) => date.to_string().into(),
            toml::Value::Array(items) => items.into_iter().map(json).collect(),
            toml::Value::Table(table) => {
                Value::Object(table.into_iter().map(|(key, value)| (key, json(value))).collect())
            }
        }
    }
    json(toml::Value::Table(toml::from_str(text).unwrap()))
}

fn toml_files(folder: &Path, name: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found = found.into_iter().map(|it| if it.is_dir() { it.join("entrant.toml") } else { it }).collect();
    found.retain(|path| path.is_file() && name(path));
    found
}

#[test]
fn the_real_descriptors_and_profiles_fit_their_schemas() {
    let is_entrant = |path: &Path| path.ends_with("entrant.toml");
    let accepted = root().join("model/tests/accepted");
    let mut entrants = toml_files(&root().join("entrants"), is_entrant);
    entrants.extend(toml_files(&accepted, is_entrant));
    assert!(entrants.len() > 3, "{entrants:?}");
    for path in entrants {
        let value = toml_as_json(&fs::read_to_string(&path).unwrap());
        assert_eq!(departs(&SchemaOf::Entrant.schema(), &value, ""), None, "{}", path.display());
    }
    let is_profile = |path: &Path| path.extension().is_some_and(|it| it == "toml") && !is_entrant(path);
    let mut profiles = toml_files(&root().join("environments"), is_profile);
    profiles.extend(toml_files(&accepted, is_profile));
    assert!(profiles.len() > 1, "{profiles:?}");
    for path in profiles {
        let value = toml_as_json(&fs::read_to_string(&path).unwrap());
        assert_eq!(departs(&SchemaOf::Environment.schema(), &value, ""), None, "{}", path.display());
    }
}

/// Edits of the accepted files that a schema can see are refused by it too.
#[test]
fn what_the_reader_refuses_by_shape_the_schema_refuses() {
    let shapes =
        [("entrant", "rill/entrant.toml", SchemaOf::Entrant), ("environment", "example.toml", SchemaOf::Environment)];
    let by_shape = ["unknown_key", "missing_key", "wrong_type", "unknown_word", "newer_schema", "no_variant"];
    let mut refused = 0;
    for (kind, accepted, schema) in shapes {
        let tests = root().join("model/tests");
        let text = fs::read_to_string(tests.join("accepted").join(accepted)).unwrap();
        for entry in fs::read_dir(tests.join("rejected").join(kind)).unwrap() {
            let path = entry.unwrap().path();
            let example = fs::read_to_string(&path).unwrap();
            let (edits, message) = example.split_once("\n====\n").unwrap();
            if !by_shape.iter().any(|code| message.starts_with(&format!("error[{code}]"))) {
                continue;
            }
            let mut edited = text.clone();
            for block in edits.split("\n\n") {
                let side = |sign: char| block.lines().filter_map(|line| line.strip_prefix(sign)).collect::<Vec<_>>();
                edited = edited.replacen(&side('-').join("\n"), &side('+').join("\n"), 1);
            }
            assert!(departs(&schema.schema(), &toml_as_json(&edited), "").is_some(), "{}", path.display());
            refused += 1;
        }
    }
    assert!(refused > 10, "only {refused} examples were tried");
}

/// Every property name of a schema.
fn properties(schema: &Value, into: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(known)) = fields.get("properties") {
                into.extend(known.keys().cloned());
            }
            fields.values().for_each(|it| properties(it, into));
        }
        Value::Array(items) => items.iter().for_each(|it| properties(it, into)),
        _ => {}
    }
}

/// The keys that a reader asks for, from its source.
fn asked(file: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)).unwrap();
    let text = text.split("#[cfg(test)]").next().unwrap().to_owned();
    let asks = ["text", "texts", "some_texts", "table", "tables", "word", "parsed", "int", "number", "flag", "size"];
    let mut found = BTreeSet::new();
    for ask in asks.iter().chain(&["any", "maybe_text", "maybe_table", "maybe_flag", "maybe_int", "maybe_date"]) {
        // methods of a table, and the closures that readers make of them
        for call in [format!(".{ask}(\""), format!(".{ask}::<"), format!(" {ask}(\""), format!("({ask}(\"")] {
            for rest in text.split(&call).skip(1) {
                let rest = rest.split_once("(\"").filter(|_| call.ends_with("::<")).map_or(rest, |(_, rest)| rest);
                found.extend(rest.split('"').next().map(str::to_owned));
            }
        }
    }
    for call in ["share(&table, \"", "source(\""] {
        found.extend(text.split(call).skip(1).filter_map(|rest| Some(rest.split('"').next()?.to_owned())));
    }
    found
}

#[test]
fn readers_and_schemas_know_the_same_keys() {
    for (file, schema) in [("descriptor/read.rs", SchemaOf::Entrant), ("environment/read.rs", SchemaOf::Environment)] {
        let mut known = BTreeSet::new();
        properties(&schema.schema(), &mut known);
        let mut asked = asked(file);
        asked.insert("schema".to_owned());
        assert_eq!(asked, known, "what {file} asks for and what the schema has");
    }
}

/// Lines of every kind, with everything that can be in one.
fn lines() -> Vec<Value> {
    let mut sustained = full_measurement(2);
    sustained.reading = Reading::Sustained {
        offered_rows_per_s: 1e6,
        metrics: Metric::ALL.iter().map(|metric| (*metric, 0.5)).collect(),
        latency: Some(Latency {
            of: LatencyOf::Pipeline,
            p50_ms: 1.0,
            p90_ms: 2.0,
            p99_ms: 3.5,
            p999_ms: 4.0,
            max_ms: 5.25,
            hist: "HISTF".into(),
        }),
    };
    let records = [
        Record::Measurement(Box::new(measurement(1))),
        Record::Measurement(Box::new(full_measurement(1))),
        Record::Measurement(Box::new(sustained)),
        Record::Retraction(retraction(1)),
        Record::Verdict(full_verdict()),
        Record::Seal(Seal { torn_bytes: 3 }),
    ];
    records.iter().map(|it| serde_json::from_str(&it.to_line(&Digest::of("")).unwrap()).unwrap()).collect()
}

#[test]
fn records_fit_their_schema_and_others_do_not() {
    let schema = SchemaOf::Record.schema();
    for line in lines() {
        assert_eq!(departs(&schema, &line, ""), None);
        for key in line.as_object().unwrap().keys() {
            let mut more = line.clone();
            more[format!("{key}_")] = 1.into();
            assert!(departs(&schema, &more, "").is_some(), "a key beside `{key}`");
        }
    }
}

/// The schema of records has no key that no record has.
#[test]
fn the_schema_of_records_knows_no_other_keys() {
    fn keys_of(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                into.extend(fields.keys().cloned());
                fields.values().for_each(|it| keys_of(it, into));
            }
            Value::Array(items) => items.iter().for_each(|it| keys_of(it, into)),
            _ => {}
        }
    }
    let (mut known, mut used) = (BTreeSet::new(), BTreeSet::new());
    properties(&SchemaOf::Record.schema(), &mut known);
    lines().iter().for_each(|line| keys_of(line, &mut used));
    let unused: Vec<&String> = known.difference(&used).collect();
    assert!(unused.is_empty(), "no record has {unused:?}");
}

//! The ingest workload as its folder declares it: constants, Avro schema, target tables, and the
//! `dataset_version` derived from them.

use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};
use weir_model::error::Coded;

use super::Tier;
use super::strict::{Problem, Problems, Section};

/// The generator's own source: what lies between its marks is part of the dataset's identity.
const GENERATOR_SOURCE: &str = include_str!("corpus.rs");

/// The topic of the corpus.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Topic {
    /// Topic name.
    pub name: String,
    /// Subject under which its schema is registered.
    pub subject: String,
    /// Codec of the produced record batches: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
    pub compression: String,
}

/// The target tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tables {
    /// Tier A's table.
    pub a: String,
    /// Tier B's table.
    pub b: String,
}

/// The generator's constants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generator {
    /// Events, and so rows of tier A, per message.
    pub events_per_batch: u32,
    /// `batch_ts` of batch 0, in ms since the epoch.
    pub base_ts_ms: i64,
    /// Distinct sensors.
    pub sensors: u32,
    /// Distinct regions.
    pub regions: u32,
    /// Every how many batches the region is null.
    pub region_null_every: u32,
    /// Distinct metric names.
    pub names: u32,
    /// The units, drawn in this order.
    pub units: Vec<String>,
    /// Values lie below this.
    pub value_modulus: u64,
    /// Every how many events the quality is null.
    pub quality_null_every: u32,
    /// Distinct tags.
    pub tag_names: u32,
    /// An event has fewer tags than this.
    pub max_tags: u32,
}

/// The constants of tier B's transformation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierB {
    /// Rows of this unit are dropped.
    pub drop_unit: String,
    /// Rows with a quality below this are dropped; a null quality is kept.
    pub min_quality: f64,
    /// `value_scaled = value * scale / (event_seq + 1)`, truncated toward zero.
    pub scale: i64,
}

/// The ingest workload.
#[derive(Debug, Clone, PartialEq)]
pub struct IngestSpec {
    /// The topic.
    pub topic: Topic,
    /// The target tables.
    pub tables: Tables,
    /// The generator's constants.
    pub generator: Generator,
    /// Tier B's constants.
    pub tier_b: TierB,
    /// Text of the Avro schema, as in its file.
    pub schema: String,
    /// Text of the DDL, as in its file.
    pub ddl: String,
    creates: [String; 2],
}

/// Why the workload's folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The files say something that is not accepted.
    #[error("the ingest workload is not valid:\n{}", problems.iter().map(|p| format!("  {p}")).collect::<Vec<_>>().join("\n"))]
    Invalid {
        /// Every problem found.
        problems: Vec<Problem>,
    },
}

impl Coded for SpecError {
    fn code(&self) -> &'static str {
        match self {
            Self::Read { .. } => "workload_unreadable",
            Self::Invalid { .. } => "workload_invalid",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } => Some("run from the repository, or name its folder".to_owned()),
            Self::Invalid { .. } => None,
        }
    }

    fn refused(&self) -> bool {
        matches!(self, Self::Invalid { .. })
    }
}

impl IngestSpec {
    /// Reads `workload.toml`, `schema/sensor_batch.avsc` and `clickhouse/ddl.sql` of `dir` (`workload/ingest`).
    ///
    /// # Errors
    /// [`SpecError::Read`] for a file that cannot be read, [`SpecError::Invalid`] with every problem and its line.
    pub fn load(dir: &Path) -> Result<Self, SpecError> {
        let file = |name: &str| {
            let file = dir.join(name);
            match std::fs::read_to_string(&file) {
                Ok(text) => Ok((file, text)),
                Err(source) => Err(SpecError::Read { file, source }),
            }
        };
        let (toml_file, toml) = file("workload.toml")?;
        let (schema_file, schema) = file("schema/sensor_batch.avsc")?;
        let (ddl_file, ddl) = file("clickhouse/ddl.sql")?;

        let mut problems = Problems::new(&toml_file, &toml);
        let values = parse(&toml, &mut problems);
        let mut found = problems.into_sorted();

        let mut problems = Problems::new(&schema_file, &schema);
        if let Err(e) = apache_avro::Schema::parse_str(&schema) {
            problems.add(0, format!("not an Avro schema: {e}"));
        }
        found.extend(problems.into_sorted());

        let mut problems = Problems::new(&ddl_file, &ddl);
        let creates = values.as_ref().map(|v| {
            [&v.1.a, &v.1.b].map(|table| {
                create_statement(&ddl, table).unwrap_or_else(|| {
                    problems.add(0, format!("no `CREATE TABLE {table}`, which workload.toml names"));
                    String::new()
                })
            })
        });
        found.extend(problems.into_sorted());

        match (values, creates) {
            (Some((topic, tables, generator, tier_b)), Some(creates)) if found.is_empty() => {
                Ok(Self { topic, tables, generator, tier_b, schema, ddl, creates })
            }
            _ => Err(SpecError::Invalid { problems: found }),
        }
    }

    /// The tier's target table.
    #[must_use]
    pub fn table(&self, tier: Tier) -> &str {
        match tier {
            Tier::A => &self.tables.a,
            Tier::B => &self.tables.b,
        }
    }

    /// The statement that creates the tier's target table, without the semicolon.
    #[must_use]
    pub fn create_table(&self, tier: Tier) -> &str {
        &self.creates[match tier {
            Tier::A => 0,
            Tier::B => 1,
        }]
    }

    /// Identity of the dataset: `d1-` and 12 hex digits of a SHA-256 over the parsed constants, the schema's bytes,
    /// the DDL without comments and blanks, and the generator's marked source.
    #[must_use]
    pub fn dataset_version(&self) -> String {
        self.version_with(GENERATOR_SOURCE)
    }

    fn version_with(&self, source: &str) -> String {
        let values = serde_json::json!([self.topic, self.tables, self.generator, self.tier_b]).to_string();
        let ddl = normalised_sql(&self.ddl);
        let mut hash = Sha256::new();
        for part in [values.as_str(), &self.schema, &ddl, marked_region(source)] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let digest: String = hash.finalize().iter().take(6).map(|b| format!("{b:02x}")).collect();
        format!("d1-{digest}")
    }
}

type Values = (Topic, Tables, Generator, TierB);

fn parse(text: &str, problems: &mut Problems<'_>) -> Option<Values> {
    let mut root = Section::root(text, problems);
    root.integer("schema", 1, 1, problems);
    let topic = root.section("topic", problems).map(|s| topic(s, problems));
    let tables = root.section("tables", problems).map(|s| tables(s, problems));
    let generator = root.section("generator", problems).map(|s| generator(s, problems));
    let tier_b = root.section("tier_b", problems).map(|s| tier_b(s, problems));
    root.finish(problems);
    Some((topic??, tables??, generator??, tier_b??))
}

fn topic(mut s: Section<'_>, problems: &mut Problems<'_>) -> Option<Topic> {
    let name = s.string("name", problems).map(|(v, _)| v);
    let subject = s.string("subject", problems).map(|(v, _)| v);
    let compression = s.string("compression", problems).and_then(|(v, at)| {
        let known = ["none", "gzip", "snappy", "lz4", "zstd"];
        if known.contains(&v.as_str()) {
            return Some(v);
        }
        problems.add(at, format!("`topic.compression` must be one of {}, not {v:?}", known.join(", ")));
        None
    });
    s.finish(problems);
    Some(Topic { name: name?, subject: subject?, compression: compression? })
}

fn tables(mut s: Section<'_>, problems: &mut Problems<'_>) -> Option<Tables> {
    let mut table = |key: &str| {
        let (name, at) = s.string(key, problems)?;
        if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Some(name);
        }
        problems.add(at, format!("`tables.{key}` must be an identifier of letters, digits and `_`"));
        None
    };
    let (a, b) = (table("a"), table("b"));
    s.finish(problems);
    Some(Tables { a: a?, b: b? })
}

fn generator(mut s: Section<'_>, problems: &mut Problems<'_>) -> Option<Generator> {
    let mut count = |key: &str, high: i64| s.integer(key, 1, high, problems).and_then(|v| u32::try_from(v).ok());
    // `event_seq` is a UInt16; the bounds keep the tables of drawn texts small.
    let events_per_batch = count("events_per_batch", 65_536);
    let sensors = count("sensors", 1 << 20);
    let regions = count("regions", 1 << 20);
    let region_null_every = count("region_null_every", 1 << 20);
    let names = count("names", 1 << 16);
    let quality_null_every = count("quality_null_every", 1 << 10);
    let tag_names = count("tag_names", 1 << 10);
    let max_tags = count("max_tags", 64);
    let base_ts_ms = s.integer("base_ts_ms", 0, 1 << 42, problems);
    let value_modulus = s.integer("value_modulus", 1, 1 << 40, problems);
    let units = s.strings("units", problems);
    s.finish(problems);
    Some(Generator {
        events_per_batch: events_per_batch?,
        base_ts_ms: base_ts_ms?,
        sensors: sensors?,
        regions: regions?,
        region_null_every: region_null_every?,
        names: names?,
        units: units?,
        value_modulus: value_modulus?.unsigned_abs(),
        quality_null_every: quality_null_every?,
        tag_names: tag_names?,
        max_tags: max_tags?,
    })
}

fn tier_b(mut s: Section<'_>, problems: &mut Problems<'_>) -> Option<TierB> {
    let drop_unit = s.string("drop_unit", problems).map(|(v, _)| v);
    let min_quality = s.number("min_quality", problems);
    let scale = s.integer("scale", 1, 1 << 20, problems);
    s.finish(problems);
    Some(TierB { drop_unit: drop_unit?, min_quality: min_quality?, scale: scale? })
}

/// The text between the generator's marks; the whole text if a mark is missing.
fn marked_region(source: &str) -> &str {
    let begin = source.split_once("// generator:begin\n").map_or(source, |(_, after)| after);
    begin.split_once("// generator:end").map_or(begin, |(region, _)| region)
}

/// SQL with comments removed and blanks kept only, as one space, where they separate two words.
fn normalised_sql(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut blank = false;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("--") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            blank = true;
        } else if rest.starts_with("/*") {
            rest = rest.find("*/").map_or("", |end| &rest[end + 2..]);
            blank = true;
        } else if c.is_whitespace() {
            rest = &rest[c.len_utf8()..];
            blank = true;
        } else {
            let taken = match c {
                '\'' | '"' | '`' => quoted(rest, c),
                _ => c.len_utf8(),
            };
            if blank && word(c) && out.chars().next_back().is_some_and(word) {
                out.push(' ');
            }
            out.push_str(&rest[..taken]);
            rest = &rest[taken..];
            blank = false;
        }
    }
    out
}

/// Length in bytes of the quoted text that `sql` starts with.
fn quoted(sql: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in sql.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return i + c.len_utf8();
        }
    }
    sql.len()
}

fn create_statement(ddl: &str, table: &str) -> Option<String> {
    normalised_statements(ddl).find(|statement| {
        statement
            .strip_prefix("CREATE TABLE ")
            .and_then(|rest| rest.strip_prefix(table))
            .is_some_and(|rest| rest.starts_with('('))
    })
}

fn normalised_statements(ddl: &str) -> impl Iterator<Item = String> {
    let sql = normalised_sql(ddl);
    let mut statements = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(c) = sql[at..].chars().next() {
        match c {
            '\'' | '"' | '`' => at += quoted(&sql[at..], c),
            ';' => {
                statements.push(sql[start..at].to_owned());
                at += 1;
                start = at;
            }
            _ => at += c.len_utf8(),
        }
    }
    statements.push(sql[start..].to_owned());
    statements.into_iter().filter(|s| !s.is_empty())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../workload/ingest")
    }

    /// The workload as committed.
    pub(crate) fn repository_spec() -> IngestSpec {
        IngestSpec::load(&folder()).unwrap()
    }

    fn load_with(edit: impl Fn(&str, String) -> String) -> Result<IngestSpec, SpecError> {
        let dir = tempfile::tempdir().unwrap();
        for name in ["workload.toml", "schema/sensor_batch.avsc", "clickhouse/ddl.sql"] {
            let text = std::fs::read_to_string(folder().join(name)).unwrap();
            let to = dir.path().join(name);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::write(to, edit(name, text)).unwrap();
        }
        IngestSpec::load(dir.path())
    }

    fn version_with(edit: impl Fn(&str, String) -> String) -> String {
        load_with(edit).unwrap().dataset_version()
    }

    #[test]
    fn the_committed_workload_is_read_whole() {
        let spec = repository_spec();
        assert_eq!(spec.topic.name, "sensor-batches");
        assert_eq!(spec.generator.units.len(), 8);
        assert_eq!(spec.generator.value_modulus, 2_147_483_647);
        assert_eq!(spec.table(Tier::B), "sensor_events_t");
        assert!(spec.create_table(Tier::A).starts_with("CREATE TABLE sensor_events(batch_id UInt64,"));
        assert!(spec.create_table(Tier::B).contains("value_scaled Int64,quality Nullable(Float64),"));
        assert!(spec.create_table(Tier::B).ends_with("ORDER BY(sensor,batch_ts,batch_id,event_seq)"));
    }

    #[test]
    fn the_version_ignores_comments_and_blanks() {
        let version = repository_spec().dataset_version();
        assert!(version.starts_with("d1-") && version.len() == 15, "{version}");
        let commented = version_with(|name, text| match name {
            "workload.toml" => format!("# a remark\n{}", text.replace("sensors = 1024", "sensors   =  1_024 # many")),
            "clickhouse/ddl.sql" => format!("-- a remark; with 'a quote\n{}", text.replace(",\n", " /* , */ ,\n\n")),
            _ => text,
        });
        assert_eq!(commented, version);
    }

    #[test]
    fn the_version_follows_every_input() {
        let version = repository_spec().dataset_version();
        for (file, from, to) in [
            ("workload.toml", "sensors = 1024", "sensors = 1023"),
            ("workload.toml", "min_quality = 0.2", "min_quality = 0.25"),
            ("workload.toml", "\"lux\"", "\"lumen\""),
            ("schema/sensor_batch.avsc", "\"name\": \"batch_id\"", "\"name\":  \"batch_id\""),
            ("clickhouse/ddl.sql", "value      Int64", "value      Int128"),
        ] {
            let changed = version_with(|name, text| {
                if name != file {
                    return text;
                }
                assert!(text.contains(from), "{from}");
                text.replacen(from, to, 1)
            });
            assert_ne!(changed, version, "{file}: {from}");
        }
    }

    #[test]
    fn the_version_follows_the_generator_and_nothing_around_it() {
        let spec = repository_spec();
        let version = spec.dataset_version();
        assert_eq!(GENERATOR_SOURCE.matches("// generator:begin\n").count(), 1);
        assert_eq!(GENERATOR_SOURCE.matches("// generator:end\n").count(), 1);
        assert_eq!(spec.version_with(&format!("// a remark\n{GENERATOR_SOURCE}// another\n")), version);
        assert_ne!(spec.version_with(&GENERATOR_SOURCE.replace("id * 31", "id * 37")), version);
    }

    #[test]
    fn every_problem_is_named_with_its_line() {
        let error = load_with(|name, text| match name {
            "workload.toml" => text
                .replace("sensors = 1024", "sensors = 0\nsensorz = 3")
                .replace("compression = \"none\"", "compression = \"lzma\"")
                .replace("scale = 1000", "scale = \"big\""),
            "clickhouse/ddl.sql" => text.replace("TABLE sensor_events_t", "TABLE other"),
            _ => text.replace("\"long\"", "\"lang\""),
        })
        .unwrap_err();
        let SpecError::Invalid { problems } = &error else { panic!("{error}") };
        let found: Vec<(String, usize, &str)> = problems
            .iter()
            .map(|p| (p.file.file_name().unwrap().to_string_lossy().into_owned(), p.line, p.what.as_str()))
            .collect();
        let toml = "workload.toml".to_owned();
        assert_eq!(
            found[..4],
            [
                (toml.clone(), 8, "`topic.compression` must be one of none, gzip, snappy, lz4, zstd, not \"lzma\""),
                (toml.clone(), 17, "`generator.sensors` must be an integer from 1 to 1048576, not 0"),
                (toml.clone(), 18, "unknown key `generator.sensorz`"),
                (toml, 31, "`tier_b.scale` must be an integer from 1 to 1048576, not this string"),
            ]
        );
        assert!(found[4].2.starts_with("not an Avro schema"), "{:?}", found[4]);
        assert!(error.refused());
    }

    #[test]
    fn a_table_missing_from_the_ddl_is_a_problem() {
        let error = load_with(|name, text| match name {
            "clickhouse/ddl.sql" => text.replace("TABLE sensor_events_t", "TABLE other"),
            _ => text,
        })
        .unwrap_err();
        assert!(error.to_string().contains("no `CREATE TABLE sensor_events_t`"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = IngestSpec::load(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.code(), "workload_unreadable");
        assert!(error.to_string().contains("/nonexistent/workload.toml"), "{error}");
    }
}

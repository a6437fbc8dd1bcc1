//! The JSON decoder against `serde_json`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimestampMicrosecondType};
use freshet::format::json::{JsonDecoder, JsonSchema};
use freshet::read::{Decoder, RecordError};
use freshet::sql::{Query, SourceSchema};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A decoder for a query over records like `sample`.
fn decoder(sql: &str, sample: &[&str]) -> JsonDecoder {
    let mut schema = JsonSchema::default();
    sample.iter().for_each(|r| schema.observe(r.as_bytes()));
    let query = Query::compile(sql, &SourceSchema { name: "s".into(), schema: schema.schema() }).unwrap();
    JsonDecoder::new(query.reads(), &schema).unwrap()
}

fn strings(batch: &RecordBatch, column: usize) -> Vec<Option<String>> {
    let text = cast(batch.column(column), &DataType::Utf8).unwrap();
    text.as_string::<i32>().iter().map(|s| s.map(str::to_owned)).collect()
}

const SAMPLE: &str = r#"{"k":"a","n":1,"d":1.5,"b":true,"o":{"x":{"y":"z"}},"l":["p"],"t":"2026-01-01T00:00:00Z"}"#;
const ALL: &str = "SELECT k, n, d, b, o.x.y AS y, l, t FROM s";

#[test]
fn every_type_and_every_way_to_be_null() {
    let mut decoder = decoder(ALL, &[SAMPLE]);
    for record in [
        SAMPLE,
        r#" { "t" : null , "zzz":[{"k":"no"},1e5,"\"}"], "l":[], "o":null, "k":"é\ud83d\ude00\/\n" , "n":-9223372036854775808}"#,
        r#"{"o":{"x":null,"q":{"y":1}},"b":false,"d":-0.5e-3,"l":null}"#,
        r#"{"o":{"x":{"y":""}},"l":["a",null,"b"],"d":7}"#,
        "{}",
    ] {
        assert_eq!(decoder.decode(record.as_bytes()), Ok(1), "{record}");
    }
    let batch = decoder.take();
    assert_eq!(strings(&batch, 0)[..2], [Some("a".into()), Some("é😀/\n".into())]);
    assert_eq!(batch.column(1).as_primitive::<Int64Type>().value(1), i64::MIN);
    let d = batch.column(2).as_primitive::<Float64Type>();
    assert_eq!((d.value(2), d.value(3)), (-0.0005, 7.0));
    assert_eq!(strings(&batch, 4), [Some("z".into()), None, None, Some(String::new()), None]);
    let list = batch.column(5).as_list::<i32>();
    assert_eq!(
        (0..5).map(|i| list.is_valid(i).then(|| list.value_length(i))).collect::<Vec<_>>(),
        [Some(1), Some(0), None, Some(3), None]
    );
    assert_eq!(batch.column(6).as_primitive::<TimestampMicrosecondType>().value(0), 1_767_225_600_000_000);
    for column in batch.columns() {
        assert!(column.is_null(4));
    }
    assert_eq!(decoder.take().num_rows(), 0);
}

#[test]
fn the_first_member_of_a_name_counts() {
    let mut decoder = decoder("SELECT k, o.x.y AS y FROM s", &[SAMPLE]);
    for record in [
        r#"{"k":"a","k":"b"}"#,
        r#"{"k":null,"\u006b":"b"}"#,
        r#"{"o":{"x":{"y":"1","y":"2"},"x":{"y":"3"}},"o":{"x":{"y":"4"}}}"#,
        r#"{"o":{"x":{}},"o":{"x":{"y":"4"}}}"#,
    ] {
        decoder.decode(record.as_bytes()).unwrap();
    }
    let batch = decoder.take();
    assert_eq!(strings(&batch, 0), [Some("a".into()), None, None, None]);
    assert_eq!(strings(&batch, 1), [None, None, Some("1".into()), None]);
}

#[test]
fn unnested_elements_repeat_their_record() {
    let sample = r#"{"id":1,"who":"w","items":[{"s":"x","v":1,"in":{"z":true}}]}"#;
    let mut decoder = decoder("SELECT id, e.s, e.v, who, e.in.z AS z FROM s, UNNEST(items) AS e", &[sample]);
    let rows: Vec<_> = [
        r#"{"items":[{"s":"a","v":1},{"v":2,"in":{"z":false}},null],"id":7,"who":"me"}"#,
        r#"{"items":[],"id":8}"#,
        r#"{"items":null,"id":8}"#,
        r#"{"id":8}"#,
        r#"{"id":9,"items":[{}],"items":[{"v":1},{"v":2}]}"#,
    ]
    .iter()
    .map(|r| decoder.decode(r.as_bytes()).unwrap())
    .collect();
    assert_eq!(rows, [3, 0, 0, 0, 1]);
    assert!(decoder.decode(br#"{"id":1,"items":[{"v":1},{"v":"no"}]}"#).is_err());
    assert_eq!(decoder.decode(br#"{"id":10,"items":[{"s":"q"}]}"#), Ok(1));
    let batch = decoder.take();
    let id = batch.column(0).as_primitive::<Int64Type>();
    assert_eq!(id.values(), &[7, 7, 7, 9, 10]);
    assert_eq!(strings(&batch, 1), [Some("a".into()), None, None, None, Some("q".into())]);
    assert_eq!(strings(&batch, 3), [Some("me".into()), Some("me".into()), Some("me".into()), None, None]);
}

#[test]
fn a_list_of_plain_values_unnests_too() {
    let mut decoder = decoder("SELECT k, v FROM s, UNNEST(l) AS v", &[r#"{"k":"a","l":[1,2]}"#]);
    assert_eq!(decoder.decode(br#"{"l":[5,null,6],"k":"b"}"#), Ok(3));
    let batch = decoder.take();
    assert_eq!(batch.column(1).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(5), None, Some(6)]);
    assert_eq!(strings(&batch, 0), vec![Some("b".to_owned()); 3]);
}

#[test]
fn what_does_not_fit_is_refused_with_field_and_text() {
    let mut decoder = decoder(ALL, &[SAMPLE]);
    for (record, message) in [
        (r#"{"n":"1"}"#, r#"field n: "1" does not fit BIGINT"#),
        (r#"{"n":1.0}"#, "field n: 1.0 does not fit BIGINT"),
        (r#"{"n":9223372036854775808}"#, "field n: 9223372036854775808 does not fit BIGINT"),
        (r#"{"d":1e999}"#, "field d: 1e999 does not fit DOUBLE"),
        (r#"{"b":1}"#, "field b: 1 does not fit BOOLEAN"),
        (r#"{"k":{"a": [1]}}"#, r#"field k: {"a": [1]} does not fit VARCHAR"#),
        (r#"{"t":"soon"}"#, r#"field t: "soon" does not fit TIMESTAMP"#),
        (r#"{"l":["a",1]}"#, r#"field l: ["a",1] does not fit a list of VARCHAR"#),
        (r#"{"o":{"x":{"y":[]}}}"#, "field o.x.y: [] does not fit VARCHAR"),
    ] {
        let error = decoder.decode(record.as_bytes()).unwrap_err();
        assert!(matches!(error, RecordError::Misfit { .. }));
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(decoder.rows(), 0);
}

#[test]
fn what_is_no_record_is_refused() {
    let mut decoder = decoder("SELECT k, n FROM s", &[SAMPLE]);
    let bad: &[&[u8]] = &[
        br#"{"k":"a"}}"#,
        br#"{"k":"a"} {"k":"b"}"#,
        b"[1]",
        b"1",
        br#"{"k":"a""#,
        br#"{"k":"a",}"#,
        br#"{"k" "a"}"#,
        br#"{k:"a"}"#,
        b"{\"k\":\"a\xff\"}",
        b"{\"k\":\"a\"}\0",
        b"{\"k\":\"a\nb\"}",
        br#"{"k":"\ud800"}"#,
        br#"{"k":"\udc00\ud800"}"#,
        br#"{"k":"\x"}"#,
        br#"{"n":01}"#,
        br#"{"n":+1}"#,
        br#"{"n":1.}"#,
        br#"{"n":1e}"#,
        br#"{"n":-}"#,
        br#"{"n":nul}"#,
        br#"{"x":[1,]}"#,
        br#"{"x":[1 2]}"#,
        br#"{"x":{"a":tru}}"#,
        br#"{"x":"\u12g4"}"#,
        b"{\"x\":\"\t\"}",
    ];
    for record in bad {
        let error = decoder.decode(record);
        assert!(matches!(error, Err(RecordError::Malformed { .. })), "{}: {error:?}", String::from_utf8_lossy(record));
    }
    let deep = format!(r#"{{"x":{}1{}}}"#, "[".repeat(1000), "]".repeat(1000));
    assert!(decoder.decode(deep.as_bytes()).is_err());
    assert_eq!(decoder.decode(br#"{"k":"fine"}"#), Ok(1));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no such number", |f| f.is_finite()).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[knx\"\\\\é]{0,2}", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn values_are_those_serde_json_reads(k in proptest::option::of(".{0,20}"), n in any::<Option<i64>>(), d in any::<f64>(),
                                         other in any_json(), spaces in " {0,3}") {
        prop_assume!(d.is_finite());
        let mut members = Map::new();
        members.insert("other".into(), other);
        members.insert("k".into(), json!(k));
        members.insert("n".into(), json!(n));
        members.insert("o".into(), json!({"x": {"y": k}, "n": 5}));
        members.insert("d".into(), json!(d));
        let record = format!("{spaces}{}{spaces}", Value::Object(members));
        let mut decoder = decoder("SELECT k, n, o.x.y AS y, d FROM s", &[SAMPLE]);
        prop_assert_eq!(decoder.decode(record.as_bytes()), Ok(1));
        let batch = decoder.take();
        prop_assert_eq!(&strings(&batch, 0)[0], &k);
        prop_assert_eq!(&strings(&batch, 2)[0], &k);
        prop_assert_eq!(batch.column(1).as_primitive::<Int64Type>().iter().next().unwrap(), n);
        prop_assert_eq!(batch.column(3).as_primitive::<Float64Type>().value(0), d);
    }

    #[test]
    fn broken_records_are_those_serde_json_refuses(value in any_json(), cut in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut record = json!({"a": value, "b": "tail\u{1}\u{e9}"}).to_string().into_bytes();
        let at = cut.index(record.len());
        record[at] = byte;
        // Nothing of the record is read, so that nothing but its form is checked; an escape in the place of a surrogate is.
        let mut decoder = decoder("SELECT k FROM s", &[SAMPLE]);
        let ours = decoder.decode(&record).is_ok();
        let theirs = serde_json::from_slice::<Map<String, Value>>(&record);
        match theirs {
            Ok(_) => prop_assert!(ours),
            // A number too large for a double is a number all the same while nothing reads it.
            Err(e) if e.to_string().contains("number out of range") => {}
            Err(e) if e.to_string().contains("surrogate") => {}
            Err(_) => prop_assert!(!ours, "{}", String::from_utf8_lossy(&record)),
        }
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = decoder(ALL, &[SAMPLE]);
        let rows = decoder.decode(&bytes).unwrap_or(0);
        prop_assert_eq!(decoder.take().num_rows(), rows);
        let mut schema = JsonSchema::default();
        schema.observe(&bytes);
    }
}

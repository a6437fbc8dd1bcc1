//! Records read along the layout of others against the general parser.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, TimeUnit};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{JsonDecoder, JsonSchema};
use crate::read::{Decoder, ReadColumn, ReadPlan, RecordError, string_type};

fn plan() -> ReadPlan {
    let column = |path: &str, data_type: DataType| ReadColumn {
        name: path.to_owned(),
        path: path.split('.').map(str::to_owned).collect(),
        of_element: false,
        data_type,
        nullable: true,
    };
    let list = DataType::List(Arc::new(Field::new("item", string_type(), true)));
    let columns = vec![
        column("ts", DataType::Timestamp(TimeUnit::Microsecond, None)),
        column("key", string_type()),
        column("n", DataType::Int64),
        column("d", DataType::Float64),
        column("b", DataType::Boolean),
        column("o.x", string_type()),
        column("o.p.q", DataType::Int64),
        column("l", list),
    ];
    ReadPlan { columns, unnest: None, position: false }
}

fn decoders() -> (JsonDecoder, JsonDecoder) {
    let schema = JsonSchema::default();
    let quick = JsonDecoder::new(&plan(), &schema).unwrap();
    let mut general = JsonDecoder::new(&plan(), &schema).unwrap();
    general.layouts = None;
    (quick, general)
}

fn plain(batch: &RecordBatch) -> Vec<ArrayRef> {
    let text = |array: &ArrayRef| match array.data_type() {
        DataType::Dictionary(..) => cast(array, &DataType::Utf8).unwrap(),
        DataType::List(_) => cast(array, &DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)))).unwrap(),
        _ => Arc::clone(array),
    };
    batch.columns().iter().map(text).collect()
}

/// Decodes lines as a reader of files does; says what became of every line.
fn lines(decoder: &mut JsonDecoder, text: &[u8]) -> Vec<Result<usize, RecordError>> {
    let mut padded = text.to_vec();
    padded.resize(text.len() + JsonDecoder::MARGIN, 0);
    let (mut at, mut all) = (0, vec![]);
    while at < text.len() {
        if let Some(next) = decoder.follow(&padded, at) {
            all.push(Ok(1));
            at = next;
        } else {
            let line = &text[at..];
            let line = &line[..memchr::memchr(b'\n', line).unwrap_or(line.len())];
            all.push(decoder.decode_anew(line));
            at += line.len() + 1;
        }
    }
    all
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        select(vec![
            "true",
            "false",
            "0",
            "-0",
            "-0.0",
            "1e3",
            "01",
            "1.",
            "-",
            "[]",
            "{}",
            "[1,\"a\"]",
            "[\"a\",null]",
            "nul"
        ])
        .prop_map(str::to_owned),
        any::<i64>().prop_map(|n| n.to_string()),
        (-1000_i64..1000).prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("no number", |f| f.is_finite()).prop_map(|f| format!("{f:?}")),
        "-?[0-9]{1,20}(\\.[0-9]{1,20})?".prop_map(|text| text),
        "[a-zé\u{1}\\\\\"\n]{0,4}".prop_map(|text| format!("\"{text}\"")),
        "[a-z0-9 é😀]{0,40}".prop_map(|text| format!("\"{text}\"")),
        "20(2[0-9])-0[0-9]-[0-3][0-9][T ]1[0-9]:[0-5][0-9]:[0-6][0-9](\\.[0-9]{1,9})?(Z|\\+02:00|z)?"
            .prop_map(|text| format!("\"{text}\"")),
    ]
}

fn fitting() -> impl Strategy<Value = [String; 9]> {
    let number = prop_oneof![(-1000_i64..1000).prop_map(|n| n.to_string()), any::<i64>().prop_map(|n| n.to_string())];
    (
        "2026-01-0[1-9]T1[0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?Z?",
        "[a-zé]{0,20}",
        number,
        any::<i32>().prop_map(|n| (f64::from(n) / 100.0).to_string()),
        any::<bool>(),
        "(a|\\\\u00e9|\\\\n|b){0,3}",
        any::<i16>(),
        select(vec!["[]", "[\"a\"]", "[\"a\",null,\"b\"]", "null"]),
        select(vec!["1", "\"x\"", "\"é\"", "null", "[1,{\"a\":2}]", "1.5e5", "12345678901234567890.5"]),
    )
        .prop_map(|(ts, key, n, d, b, x, q, l, other)| {
            [
                format!("\"{ts}\""),
                format!("\"{key}\""),
                n,
                d,
                b.to_string(),
                format!("\"{x}\""),
                q.to_string(),
                l.to_owned(),
                other.to_owned(),
            ]
        })
}

/// A record in one of a few layouts.
fn record(values: &[String], layout: usize) -> String {
    let [ts, key, n, d, b, x, q, l, other] = values else { unreachable!("nine values") };
    match layout {
        0 => format!(
            "{{\"ts\":{ts},\"key\":{key},\"n\":{n},\"d\":{d},\"b\":{b},\"o\":{{\"x\":{x},\"p\":{{\"q\":{q}}}}},\"l\":{l},\"other\":{other}}}"
        ),
        1 => format!(
            "{{ \"other\" : {other} , \"n\" :{n}, \"key\":\t{key},\"n\":{q},\"o\":null,\"o\":{{\"x\":{x}}} }} \r"
        ),
        2 => format!("{{\"key\":{key},\"a much longer name of a field\":{other},\"ts\":{ts}}}"),
        _ => format!("{{\"n\":{n},\"d\":{d},\"\\u006bey\":{key},\"l\":{l},\"o\":{{\"p\":{{}},\"z\":{other}}}}}"),
    }
}

/// Records that share layouts, with values that mostly fit and bytes that were changed now and then.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let odd = (0..9_usize, value());
    let broken = (any::<Index>(), prop_oneof![any::<u8>(), select(b"{}[]\",:\\ \n0-.e\x80".to_vec())]);
    let line = (fitting(), 0..4_usize, proptest::option::weighted(0.3, odd), proptest::option::weighted(0.15, broken));
    let line = line.prop_map(|(mut values, layout, odd, broken)| {
        if let Some((at, value)) = odd {
            values[at] = value;
        }
        let mut line = record(&values, layout).into_bytes();
        if let Some((at, byte)) = broken {
            let at = at.index(line.len());
            line[at] = byte;
        }
        line
    });
    (proptest::collection::vec(line, 1..60), any::<bool>()).prop_map(|(lines, ended)| {
        let mut text = lines.join(&b'\n');
        if ended {
            text.push(b'\n');
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn lines_are_what_the_general_parser_reads(text in text()) {
        let (mut quick, mut general) = decoders();
        let expected: Vec<_> = {
            let body = text.strip_suffix(b"\n").unwrap_or(&text);
            body.split(|b| *b == b'\n').map(|line| general.decode(line)).collect()
        };
        prop_assert_eq!(lines(&mut quick, &text), expected);
        prop_assert_eq!(plain(&quick.take()), plain(&general.take()));
    }

    #[test]
    fn records_on_their_own_are_too(texts in proptest::collection::vec(text(), 1..4)) {
        let (mut quick, mut general) = decoders();
        for text in texts {
            for record in text.split(|b| *b == b'\n').chain([&text[..]]) {
                prop_assert_eq!(quick.decode(record), general.decode(record));
            }
        }
        prop_assert_eq!(plain(&quick.take()), plain(&general.take()));
    }
}

#[test]
fn a_known_layout_is_followed() {
    let (mut quick, _) = decoders();
    let first = br#"{"ts":"2026-01-01T00:00:00Z","key":"a","n":1,"d":1.5,"other":"x"}"#;
    let next =
        b"{\"ts\":\"2026-01-01T00:00:01.25Z\",\"key\":\"bb\",\"n\":1767225600000000,\"d\":-22,\"other\":\"yy\"}\n";
    quick.decode_anew(first).unwrap();
    let mut text = next.to_vec();
    text.resize(next.len() + JsonDecoder::MARGIN, 0);
    assert_eq!(quick.follow(&text, 0), Some(next.len()));
    assert_eq!(quick.rows(), 2);
    // A line that ends where the text does is not looked at.
    assert_eq!(quick.follow(next, 0), None);
    let batch = quick.take();
    assert_eq!((batch.num_rows(), batch.column(4).null_count()), (2, 2));
}

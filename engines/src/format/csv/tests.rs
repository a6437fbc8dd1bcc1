//! CSV records: what is written is read back, and any bytes are a record or an error.

use arrow::array::{Array as _, AsArray as _};
use arrow::compute::cast;
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType};
use proptest::prelude::*;

use super::*;
use crate::read::{ReadColumn, decoded_type};

fn plan(schema: &CsvSchema) -> ReadPlan {
    let schema = schema.schema();
    let columns = schema.fields().iter().map(|field| ReadColumn {
        name: field.name().clone(),
        path: vec![field.name().clone()],
        of_element: false,
        data_type: decoded_type(field.data_type()),
        nullable: true,
    });
    ReadPlan { columns: columns.collect(), unnest: None, position: false }
}

fn schema(lines: &[&str]) -> CsvSchema {
    let mut schema = CsvSchema::new(lines[0].as_bytes(), vec![]).unwrap();
    lines[1..].iter().for_each(|line| schema.observe(line.as_bytes()));
    schema
}

fn decoder(lines: &[&str]) -> CsvDecoder {
    let schema = schema(lines);
    CsvDecoder::new(&plan(&schema), &schema).unwrap()
}

fn texts(batch: &RecordBatch, column: usize) -> Vec<Option<String>> {
    let text = cast(batch.column(column), &DataType::Utf8).unwrap();
    text.as_string::<i32>().iter().map(|s| s.map(str::to_owned)).collect()
}

#[test]
fn types_are_those_of_all_values() {
    let lines = ["i,d,b,t,zip,none,mixed\r", "1,1,true,2026-01-01,01234,,1\r", "-2,.5,FALSE,2026-01-01 10:00:00Z,1,,x"];
    let types: Vec<DataType> = schema(&lines).schema().fields().iter().map(|f| f.data_type().clone()).collect();
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let text = DataType::Utf8;
    assert_eq!(types, [DataType::Int64, DataType::Float64, DataType::Boolean, time, text.clone(), text.clone(), text]);
}

#[test]
fn fields_quotes_and_nulls() {
    let mut decoder = decoder(&["k,n,d,t", "a,1,1.5,2026-01-01T00:00:00Z"]);
    for line in ["a,1,2.5,2026-01-01T00:00:01Z", "\"x,\n\"\"y\"\"\",\"2\",,\r", "\"\",,-1e3,", ",,,"] {
        assert_eq!(decoder.decode(line.as_bytes()), Ok(1), "{line}");
    }
    for (line, message) in [
        ("a,1", "not valid CSV: 2 fields where the header has 4"),
        ("a", "not valid CSV: 1 field where the header has 4"),
        ("\"a,1,1,", "not valid CSV: a quote is not closed"),
        ("\"a\"b,1,1,", "not valid CSV: text behind a closing quote"),
        ("a,1.5,1,", "field n: 1.5 does not fit BIGINT"),
        ("a,\"\",1,", "field n:  does not fit BIGINT"),
        ("a,1,nan,", "field d: nan does not fit DOUBLE"),
        ("a,1,1,soon", "field t: soon does not fit TIMESTAMP"),
    ] {
        assert_eq!(decoder.decode(line.as_bytes()).unwrap_err().to_string(), message);
    }
    assert!(decoder.decode(b"\xff,1,1,").unwrap_err().to_string().contains("not UTF-8, at byte 1"));
    let batch = decoder.take();
    assert_eq!(texts(&batch, 0), [Some("a".into()), Some("x,\n\"y\"".into()), Some(String::new()), None]);
    let n: Vec<_> = batch.column(1).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(n, [Some(1), Some(2), None, None]);
    let d: Vec<_> = batch.column(2).as_primitive::<Float64Type>().iter().collect();
    assert_eq!(d, [Some(2.5), None, Some(-1000.0), None]);
    assert_eq!(batch.column(3).as_primitive::<TimestampMicrosecondType>().null_count(), 3);
}

#[test]
fn a_header_must_name_columns_apart() {
    assert_eq!(CsvSchema::new(b"a,b,a", vec![]).unwrap_err(), "two columns are called a");
    let declared = vec![("z".to_owned(), DataType::Int64)];
    assert_eq!(CsvSchema::new(b"a, b", declared).unwrap_err(), "there is no column z: a, b");
    assert!(schema(&["a,,\"b\"\r"]).same_names(b"a,column2,b"));
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(rows in proptest::collection::vec((proptest::option::of("[a,\"\n\ré]{0,8}"), any::<i64>()), 1..20)) {
        let mut text = String::new();
        for (k, n) in &rows {
            if let Some(k) = k {
                text.push_str(&format!("\"{}\"", k.replace('"', "\"\"")));
            }
            text.push_str(&format!(",{n}\n"));
        }
        let mut decoder = decoder(&["k,n", "a,1"]);
        let (mut record, mut inside) = (Vec::new(), false);
        for line in text.as_bytes().split_inclusive(|b| *b == b'\n') {
            record.extend_from_slice(line);
            inside = ends_inside(&line[..line.len() - 1], inside);
            if !inside {
                prop_assert_eq!(decoder.decode(&record[..record.len() - 1]), Ok(1));
                record.clear();
            }
        }
        prop_assert!(record.is_empty());
        let batch = decoder.take();
        let expected: Vec<_> = rows.iter().map(|(k, _)| k.clone()).collect();
        prop_assert_eq!(texts(&batch, 0), expected);
        let expected: Vec<_> = rows.iter().map(|(_, n)| *n).collect();
        prop_assert_eq!(batch.column(1).as_primitive::<Int64Type>().values().to_vec(), expected);
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b','), Just(b'"'), Just(b'1')], 0..60)) {
        let mut decoder = decoder(&["k,n", "a,1"]);
        let rows = decoder.decode(&bytes).unwrap_or(0);
        prop_assert_eq!(decoder.take().num_rows(), rows);
        let mut spans = Vec::new();
        // What ends inside quotes is what is not closed.
        if !bytes.contains(&b'\n') {
            prop_assert_eq!(ends_inside(&bytes, false), split(&bytes, &mut spans) == Err("a quote is not closed") || open_behind(&bytes));
        }
        if let Ok(mut schema) = CsvSchema::new(&bytes, vec![]) {
            schema.observe(&bytes);
        }
    }
}

/// A record that is refused before its end may still leave a quote open behind that.
fn open_behind(bytes: &[u8]) -> bool {
    split(bytes, &mut Vec::new()) == Err("text behind a closing quote") && ends_inside(bytes, false)
}

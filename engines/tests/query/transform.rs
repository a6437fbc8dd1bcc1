//! The vectorised transform against rows computed one by one.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Int64Type, Schema};
use freshet::read::RecordError;
use freshet::sql::{Query, SourceSchema};

use super::corpus::{TIER_B, flat_rows, sensor_batches};

fn text(batch: &RecordBatch, name: &str) -> StringArray {
    let column = batch.column_by_name(name).expect("a column of this name");
    cast(column, &DataType::Utf8).expect("a column of text").as_string::<i32>().clone()
}

#[test]
fn tier_b_is_what_a_loop_over_the_rows_says() {
    let query = Query::compile(TIER_B, &sensor_batches()).unwrap();
    assert_eq!(query.reads().unnest.as_deref(), Some(&["events".to_owned()][..]));
    assert_eq!(query.reads().columns.len(), 11);
    let mut worker = query.worker().expect("a stateless query");
    for rows in [1, 7, 1000, 20_000] {
        let input = flat_rows(query.reads(), rows);
        let applied = worker.apply(&input);
        assert!(applied.errors.is_empty());
        let out = applied.batch;
        assert_eq!(out.schema(), query.output_schema());
        let (unit, name, region) = (text(&input, "e.unit"), text(&input, "e.name"), text(&input, "region"));
        let quality = input.column_by_name("e.quality").unwrap().as_primitive::<Float64Type>();
        let value = input.column_by_name("e.value").unwrap().as_primitive::<Int64Type>();
        let seq = input.column_by_name("e.seq").unwrap().as_primitive::<Int32Type>();
        let tags = input.column_by_name("e.tags").unwrap().as_list::<i32>();
        let (out_region, out_name) = (text(&out, "region"), text(&out, "name_upper"));
        let out_scaled = out.column_by_name("value_scaled").unwrap().as_primitive::<Int64Type>();
        let out_tags = out.column_by_name("tags").unwrap().as_list::<i32>();
        let mut at = 0;
        for row in 0..rows {
            if unit.value(row) == "drop" || (quality.is_valid(row) && quality.value(row) < 0.2) {
                continue;
            }
            assert!(out_region.is_valid(at) && out_name.is_valid(at));
            assert_eq!(out_region.value(at), if region.is_valid(row) { region.value(row) } else { "" });
            assert_eq!(out_name.value(at), name.value(row).to_ascii_uppercase());
            assert_eq!(out_scaled.value(at), value.value(row) * 1000 / (i64::from(seq.value(row)) + 1));
            let (expected, found) = (tags.value(row), out_tags.value(at));
            assert_eq!(
                cast(&expected, &DataType::Utf8).unwrap().as_ref(),
                cast(&found, &DataType::Utf8).unwrap().as_ref()
            );
            at += 1;
        }
        assert_eq!(out.num_rows(), at);
    }
}

fn small() -> SourceSchema {
    let schema = Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("v", DataType::Int64, false)]);
    SourceSchema { name: "s".into(), schema: Arc::new(schema) }
}

fn columns(k: Vec<Option<&str>>, v: Vec<i64>) -> [ArrayRef; 2] {
    let k: DictionaryArray<Int32Type> = k.into_iter().collect();
    [Arc::new(k), Arc::new(Int64Array::from(v))]
}

/// The columns a query reads, in its order.
fn batch(query: &Query, [k, v]: &[ArrayRef; 2]) -> RecordBatch {
    let arrays = query.reads().columns.iter().map(|c| if c.name == "k" { k.clone() } else { v.clone() });
    RecordBatch::try_new(query.reads().schema(), arrays.collect()).expect("columns of the plan's types")
}

#[test]
fn failing_rows_are_found_and_the_others_kept() {
    let source = small();
    let query = Query::compile("SELECT v * 1000 AS big, 10 / v AS part FROM s", &source).unwrap();
    let columns = columns(vec![None; 6], vec![1, i64::MAX, -7, 0, i64::MIN, 3]);
    let applied = query.worker().expect("a stateless query").apply(&batch(&query, &columns));
    let rows: Vec<_> = applied.errors.iter().map(|e| e.row).collect();
    assert_eq!(rows, [1, 3, 4]);
    let codes: Vec<_> = applied
        .errors
        .iter()
        .map(|e| match &e.error {
            RecordError::Eval { code, .. } => *code,
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(codes, ["OUT_OF_RANGE", "DIVISION_BY_ZERO", "OUT_OF_RANGE"]);
    assert_eq!(applied.errors[0].error.to_string(), "big: Overflow happened on: 9223372036854775807 * 1000");
    assert_eq!(applied.batch.column(1).as_primitive::<Int64Type>().values(), &[10, -1, 3]);
}

#[test]
fn the_edges_of_integers_are_errors() {
    let source = small();
    for sql in
        ["SELECT -v AS x FROM s", "SELECT v / -1 AS x FROM s", "SELECT v - 1 AS x FROM s", "SELECT abs(v) AS x FROM s"]
    {
        let query = Query::compile(sql, &source).unwrap();
        let applied = query
            .worker()
            .expect("a stateless query")
            .apply(&batch(&query, &columns(vec![None; 2], vec![i64::MIN, 5])));
        assert_eq!((applied.errors.len(), applied.batch.num_rows()), (1, 1), "{sql}");
    }
}

#[test]
fn what_a_condition_guards_is_no_error() {
    let source = small();
    let columns = columns(vec![Some("1"), Some("x"), Some("2"), None], vec![0, 1, 2, 3]);
    for (sql, expected) in [
        ("SELECT v FROM s WHERE v <> 0 AND 10 / v > 3", vec![1, 2]),
        ("SELECT CASE WHEN v = 0 THEN -1 ELSE 6 / v END AS v FROM s", vec![-1, 6, 3, 2]),
        ("SELECT CAST(k AS BIGINT) AS v FROM s WHERE k <> 'x'", vec![1, 2]),
        ("SELECT CASE WHEN v = 1 THEN 0 ELSE coalesce(CAST(k AS BIGINT), 9) END AS v FROM s", vec![1, 0, 2, 9]),
    ] {
        let query = Query::compile(sql, &source).unwrap();
        let applied = query.worker().expect("a stateless query").apply(&batch(&query, &columns));
        assert!(applied.errors.is_empty(), "{sql}: {:?}", applied.errors);
        assert_eq!(applied.batch.column(0).as_primitive::<Int64Type>().values(), &expected, "{sql}");
    }
}

#[test]
fn string_functions_follow_a_growing_dictionary() {
    let source = small();
    let sql = "SELECT upper(k) AS u, k || '!' AS b, coalesce(k, 'none') AS c, nullif(k, 'a') AS n, k = 'a' AS is_a, k IS NULL AS no, \
               character_length(k) AS len, concat(k, '-', CAST(v AS VARCHAR)) AS both FROM s";
    let query = Query::compile(sql, &source).unwrap();
    let mut worker = query.worker().expect("a stateless query");
    let mut values = vec!["a".to_owned(), "é".to_owned()];
    for round in 0..4_i64 {
        let dictionary: ArrayRef = Arc::new(StringArray::from(values.clone()));
        let last = i32::try_from(values.len()).unwrap() - 1;
        let keys = Int32Array::from(vec![Some(last), None, Some(0), Some(last)]);
        let k = Arc::new(DictionaryArray::<Int32Type>::new(keys, dictionary)) as ArrayRef;
        let v = Arc::new(Int64Array::from(vec![round; 4])) as ArrayRef;
        let out = worker.apply(&batch(&query, &[k, v])).batch;
        let end = values.last().unwrap().clone();
        let strings = |name: &str| text(&out, name).iter().map(|s| s.map(str::to_owned)).collect::<Vec<_>>();
        let some = |s: String| Some(s);
        assert_eq!(strings("u"), [some(end.to_uppercase()), None, some("A".into()), some(end.to_uppercase())]);
        assert_eq!(strings("b"), [some(format!("{end}!")), None, some("a!".into()), some(format!("{end}!"))]);
        assert_eq!(strings("c"), [some(end.clone()), some("none".into()), some("a".into()), some(end.clone())]);
        assert_eq!(strings("n"), [some(end.clone()), None, None, some(end.clone())]);
        assert_eq!(strings("both")[1..3], [some(format!("-{round}")), some(format!("a-{round}"))]);
        let is_a: &BooleanArray = out.column_by_name("is_a").unwrap().as_boolean();
        assert_eq!(is_a.iter().collect::<Vec<_>>(), [Some(false), None, Some(true), Some(false)]);
        let no: &BooleanArray = out.column_by_name("no").unwrap().as_boolean();
        assert_eq!(no.iter().collect::<Vec<_>>(), [Some(false), Some(true), Some(false), Some(false)]);
        let length = cast(out.column_by_name("len").unwrap(), &DataType::Int64).unwrap();
        assert_eq!(length.as_primitive::<Int64Type>().value(0), i64::try_from(end.chars().count()).unwrap());
        values.push(format!("value {round}"));
        if round == 2 {
            values = vec!["a".into(), "other".into()];
        }
    }
}

#[test]
fn names_resolve_and_leaves_are_read_once() {
    let source = sensor_batches();
    let query = Query::compile(
        "SELECT Sensor, S.batch_id + 1 AS next, upper(sensor) AS u FROM x AS s WHERE \"sensor\" LIKE 'a%'",
        &source,
    )
    .unwrap();
    let names: Vec<_> = query.reads().columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["sensor", "batch_id"]);
    let query = Query::compile("SELECT e.* FROM x CROSS JOIN UNNEST(x.events) AS e LIMIT 3", &source).unwrap();
    assert_eq!((query.output_schema().fields().len(), query.limit()), (6, Some(3)));
    let query = Query::compile("SELECT n FROM x, UNNEST(events) AS e(s, n)", &source).unwrap();
    assert_eq!(
        (query.reads().columns[0].name.as_str(), query.reads().columns[0].path.as_slice()),
        ("e.n", &["name".to_owned()][..])
    );
}

#[test]
fn explain_shows_reads_filter_and_outputs() {
    insta::assert_snapshot!(Query::compile(TIER_B, &sensor_batches()).unwrap().explain());
}

//! Columns of every type, nested ones and lists.

use arrow::array::{
    Date32Array, Decimal128Array, Float32Array, Int8Array, ListArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{Float64Type, Int64Type};

use super::*;

fn column(path: &[&str], of_element: bool, data_type: DataType) -> ReadColumn {
    let name = format!("{of_element} {}", path.join("."));
    let path = path.iter().map(|name| (*name).to_owned()).collect();
    ReadColumn { name, path, of_element, data_type: decoded_type(&data_type), nullable: true }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

fn flatten(batch: &RecordBatch, columns: Vec<ReadColumn>, unnest: Option<&str>) -> Result<Flat, String> {
    let plan = ReadPlan { columns, unnest: unnest.map(|name| vec![name.to_owned()]), position: false };
    Flattener::new(&plan, &logical_schema(&batch.schema()))?.flatten(batch)
}

#[test]
fn types_become_those_of_the_engine() {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let nanos = TimestampNanosecondArray::from(vec![Some(-1), Some(1_999), None]).with_timezone("+02:00");
    let decimal = Decimal128Array::from(vec![150, -25, 0]).with_precision_and_scale(10, 2).unwrap();
    let batch = batch(vec![
        ("i", Arc::new(Int8Array::from(vec![Some(-1), None, Some(3)])) as ArrayRef),
        ("f", Arc::new(Float32Array::from(vec![0.5, 1.5, 2.0]))),
        ("day", Arc::new(Date32Array::from(vec![0, 1, -1]))),
        ("ts", Arc::new(nanos)),
        ("m", Arc::new(decimal)),
        ("s", Arc::new(StringArray::from(vec![Some("b"), None, Some("b")]))),
    ]);
    let columns = vec![
        column(&["i"], false, DataType::Int64),
        column(&["f"], false, DataType::Float64),
        column(&["day"], false, time.clone()),
        column(&["ts"], false, time),
        column(&["m"], false, DataType::Float64),
        column(&["s"], false, DataType::Utf8),
    ];
    let (flat, ends) = flatten(&batch, columns, None).unwrap();
    assert!(ends.is_none());
    assert_eq!(flat.column(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(-1), None, Some(3)]);
    assert_eq!(flat.column(1).as_primitive::<Float64Type>().values(), &[0.5, 1.5, 2.0]);
    let micros =
        |column: usize| flat.column(column).as_primitive::<TimestampMicrosecondType>().iter().collect::<Vec<_>>();
    assert_eq!(micros(2), [Some(0), Some(86_400_000_000), Some(-86_400_000_000)]);
    assert_eq!(micros(3), [Some(-1), Some(1), None]);
    assert_eq!(flat.column(4).as_primitive::<Float64Type>().values(), &[1.5, -0.25, 0.0]);
    let text = cast(flat.column(5), &DataType::Utf8).unwrap();
    assert_eq!(text.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("b"), None, Some("b")]);
}

#[test]
fn what_does_not_fit_and_what_is_not_read_is_refused() {
    let whole = batch(vec![("u", Arc::new(UInt64Array::from(vec![u64::MAX])) as ArrayRef)]);
    let error = flatten(&whole, vec![column(&["u"], false, DataType::Int64)], None).unwrap_err();
    assert!(error.starts_with("false u: "), "{error}");
    let bytes = batch(vec![("b", Arc::new(arrow::array::BinaryArray::from(vec![&b"x"[..]])) as ArrayRef)]);
    let error = flatten(&bytes, vec![column(&["b"], false, DataType::Binary)], None).unwrap_err();
    assert_eq!(error, "b is of the type Binary, which is not read from Parquet");
}

#[test]
fn nested_columns_and_lists_become_rows() {
    let lists =
        ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![Some(3)])]);
    let inner = StructArray::try_new(
        vec![Field::new("x", DataType::Int64, true)].into(),
        vec![Arc::new(arrow::array::Int64Array::from(vec![7, 8, 9]))],
        Some(vec![true, true, false].into()),
    );
    let batch = batch(vec![("o", Arc::new(inner.unwrap()) as ArrayRef), ("l", Arc::new(lists))]);
    let columns = vec![column(&["o", "x"], false, DataType::Int64), column(&[], true, DataType::Int64)];
    let (flat, ends) = flatten(&batch, columns, Some("l")).unwrap();
    assert_eq!(ends, Some(vec![2, 2, 3]));
    assert_eq!(flat.column(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(7), Some(7), None]);
    assert_eq!(flat.column(1).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
    let (none, _) = flatten(&batch.project(&[]).unwrap(), vec![], None).unwrap();
    assert_eq!((none.num_rows(), none.num_columns()), (3, 0));
}

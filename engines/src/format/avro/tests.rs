//! The decoder against `apache-avro`, on random schemas and values, whole and damaged.

use std::collections::HashMap;
use std::sync::Arc;

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType,
};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{AvroDecoder, Schemas, source_schema};
use crate::read::{Decoder, ReadColumn, ReadPlan, decoded_type};

/// The kinds of field a random record has.
#[derive(Debug, Clone)]
enum Kind {
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Text,
    Enum,
    Millis,
    Micros,
    Date,
    Bytes,
    Fixed,
    Map,
    Odd,
    Option(Box<Kind>),
    List(Box<Kind>),
    Record(Vec<Kind>),
}

fn leaf() -> impl Strategy<Value = Kind> {
    use Kind::{Boolean, Date, Double, Enum, Float, Int, Long, Micros, Millis, Text};
    proptest::sample::select(vec![Boolean, Int, Long, Float, Double, Text, Text, Enum, Millis, Micros, Date])
}

fn kind() -> impl Strategy<Value = Kind> {
    let option = |kind| Kind::Option(Box::new(kind));
    let list = |kind| Kind::List(Box::new(kind));
    let flat = prop_oneof![
        6 => leaf(),
        3 => leaf().prop_map(option),
        2 => leaf().prop_map(list),
        1 => leaf().prop_map(option).prop_map(list),
        1 => leaf().prop_map(list).prop_map(option),
        1 => proptest::sample::select(vec![Kind::Bytes, Kind::Fixed, Kind::Map, Kind::Odd]),
    ];
    flat.prop_recursive(2, 12, 4, move |inner| {
        let record = proptest::collection::vec(inner, 1..4).prop_map(Kind::Record);
        prop_oneof![record.clone(), record.clone().prop_map(option), record.prop_map(list)]
    })
}

/// A schema, its datum, and what a reader must see, drawn from one seed.
struct Draw {
    state: u64,
    named: u32,
}

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    fn schema(&mut self, kind: &Kind) -> Json {
        match kind {
            Kind::Boolean => json!("boolean"),
            Kind::Int => json!("int"),
            Kind::Long => json!("long"),
            Kind::Float => json!("float"),
            Kind::Double => json!("double"),
            Kind::Text => json!("string"),
            Kind::Millis => json!({"type": "long", "logicalType": "timestamp-millis"}),
            Kind::Micros => json!({"type": "long", "logicalType": "timestamp-micros"}),
            Kind::Date => json!({"type": "int", "logicalType": "date"}),
            Kind::Bytes => json!("bytes"),
            Kind::Odd => json!(["int", "string", "boolean"]),
            Kind::Map => json!({"type": "map", "values": "long"}),
            Kind::Option(inner) => json!(["null", self.schema(inner)]),
            Kind::List(inner) => json!({"type": "array", "items": self.schema(inner)}),
            Kind::Enum | Kind::Fixed | Kind::Record(_) => {
                self.named += 1;
                let name = format!("N{}", self.named);
                match kind {
                    Kind::Enum => json!({"type": "enum", "name": name, "symbols": ["red", "green", "blue"]}),
                    Kind::Fixed => json!({"type": "fixed", "name": name, "size": 5}),
                    Kind::Record(fields) => {
                        let fields = fields.iter().enumerate();
                        let fields: Vec<Json> = fields
                            .map(|(index, kind)| json!({"name": format!("f{index}"), "type": self.schema(kind)}))
                            .collect();
                        json!({"type": "record", "name": name, "fields": fields})
                    }
                    _ => unreachable!(),
                }
            }
        }
    }

    fn long(&mut self) -> i64 {
        let wide = (self.next(1 << 31) << 33) | (self.next(1 << 31) << 2);
        (wide as i64) >> self.next(64)
    }

    fn text(&mut self) -> String {
        let pieces = ["a", "metric_", "", "é", "0123456789abcdef", "\u{0}", "xyz"];
        (0..self.next(4)).map(|_| pieces[self.next(pieces.len() as u64) as usize]).collect()
    }

    fn value(&mut self, kind: &Kind) -> Value {
        match kind {
            Kind::Boolean => Value::Boolean(self.next(2) == 1),
            Kind::Int => Value::Int(self.long() as i32),
            Kind::Long => Value::Long(self.long()),
            Kind::Float => Value::Float(self.long() as f32 / 8.0),
            Kind::Double => Value::Double(self.long() as f64 / 8.0),
            Kind::Text => Value::String(self.text()),
            Kind::Enum => {
                let symbol = self.next(3);
                Value::Enum(symbol as u32, ["red", "green", "blue"][symbol as usize].into())
            }
            Kind::Millis => Value::TimestampMillis(self.long()),
            Kind::Micros => Value::TimestampMicros(self.long()),
            Kind::Date => Value::Date(self.long() as i32),
            Kind::Bytes => Value::Bytes(self.text().into_bytes()),
            Kind::Fixed => Value::Fixed(5, vec![7; 5]),
            Kind::Map => {
                let entries = (0..self.next(3)).map(|_| (self.text(), Value::Long(self.long())));
                Value::Map(entries.collect::<HashMap<_, _>>())
            }
            Kind::Odd => match self.next(3) {
                0 => Value::Union(0, Box::new(Value::Int(self.long() as i32))),
                1 => Value::Union(1, Box::new(Value::String(self.text()))),
                _ => Value::Union(2, Box::new(Value::Boolean(true))),
            },
            Kind::Option(inner) => match self.next(3) {
                0 => Value::Union(0, Box::new(Value::Null)),
                _ => Value::Union(1, Box::new(self.value(inner))),
            },
            Kind::List(inner) => Value::Array((0..self.next(4)).map(|_| self.value(inner)).collect()),
            Kind::Record(fields) => {
                let fields = fields.iter().enumerate();
                Value::Record(fields.map(|(index, kind)| (format!("f{index}"), self.value(kind))).collect())
            }
        }
    }

    /// The datum with its arrays cut into blocks at random, some of them with their size in front.
    fn encode(&mut self, value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Null => {}
            Value::Boolean(value) => out.push(u8::from(*value)),
            Value::Int(value) | Value::Date(value) => zigzag(i64::from(*value), out),
            Value::Long(value) | Value::TimestampMillis(value) | Value::TimestampMicros(value) => zigzag(*value, out),
            Value::Float(value) => out.extend(value.to_le_bytes()),
            Value::Double(value) => out.extend(value.to_le_bytes()),
            Value::Bytes(bytes) => text(bytes, out),
            Value::String(value) => text(value.as_bytes(), out),
            Value::Fixed(_, bytes) => out.extend(bytes),
            Value::Enum(symbol, _) => zigzag(i64::from(*symbol), out),
            Value::Union(branch, value) => {
                zigzag(i64::from(*branch), out);
                self.encode(value, out);
            }
            Value::Record(fields) => fields.iter().for_each(|(_, value)| self.encode(value, out)),
            Value::Array(items) => {
                let items: Vec<Vec<u8>> = items.iter().map(|item| self.encoded(item)).collect();
                self.blocks(&items, out);
            }
            Value::Map(entries) => {
                let entries: Vec<Vec<u8>> = entries
                    .iter()
                    .map(|(key, value)| {
                        let mut entry = Vec::new();
                        text(key.as_bytes(), &mut entry);
                        self.encode(value, &mut entry);
                        entry
                    })
                    .collect();
                self.blocks(&entries, out);
            }
            other => panic!("{other:?} is not drawn"),
        }
    }

    fn encoded(&mut self, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(value, &mut out);
        out
    }

    fn blocks(&mut self, items: &[Vec<u8>], out: &mut Vec<u8>) {
        let mut rest = items;
        while !rest.is_empty() {
            let count = 1 + self.next(rest.len() as u64) as usize;
            let block = rest[..count].concat();
            if self.next(2) == 0 {
                zigzag(count as i64, out);
            } else {
                zigzag(-(count as i64), out);
                zigzag(block.len() as i64, out);
            }
            out.extend(block);
            rest = &rest[count..];
        }
        out.push(0);
    }
}

fn zigzag(value: i64, out: &mut Vec<u8>) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

fn text(bytes: &[u8], out: &mut Vec<u8>) {
    zigzag(bytes.len() as i64, out);
    out.extend(bytes);
}

/// Every leaf a query could read below these fields, and every list of records it could unnest.
fn explore(fields: &arrow::datatypes::Fields, path: &[String], nullable: bool, found: &mut Found) {
    for field in fields {
        let mut path = path.to_vec();
        path.push(field.name().clone());
        let nullable = nullable || field.is_nullable();
        match field.data_type() {
            DataType::Struct(fields) => explore(fields, &path, nullable, found),
            DataType::List(item) if matches!(item.data_type(), DataType::Struct(_)) => {
                found.lists.push((path, item.as_ref().clone()));
            }
            DataType::Binary | DataType::Map(..) => {}
            other => found.leaves.push((path, decoded_type(other), nullable)),
        }
    }
}

#[derive(Default)]
struct Found {
    leaves: Vec<(Vec<String>, DataType, bool)>,
    lists: Vec<(Vec<String>, arrow::datatypes::Field)>,
}

impl Found {
    fn columns(self, of_element: bool, draw: &mut Draw) -> Vec<ReadColumn> {
        let kept = self.leaves.into_iter().filter(|_| draw.next(3) > 0);
        kept.map(|(path, data_type, nullable)| ReadColumn {
            name: format!("{of_element}.{}", path.join(".")),
            path,
            of_element,
            data_type,
            nullable,
        })
        .collect()
    }
}

fn plan(schema: &str, draw: &mut Draw) -> ReadPlan {
    let schema = source_schema(schema).unwrap();
    let mut found = Found::default();
    explore(schema.fields(), &[], false, &mut found);
    let mut unnest = None;
    let mut of_element = Vec::new();
    if !found.lists.is_empty() && draw.next(4) > 0 {
        let (path, item) = found.lists.swap_remove(0);
        let mut inside = Found::default();
        let DataType::Struct(fields) = item.data_type() else { panic!("a struct") };
        explore(fields, &[], item.is_nullable(), &mut inside);
        of_element = inside.columns(true, draw);
        unnest = Some(path);
    }
    let mut columns = found.columns(false, draw);
    columns.extend(of_element);
    ReadPlan { columns, unnest, position: false }
}

/// What `path` leads to; `Null` where something on the way is null.
fn follow<'a>(value: &'a Value, path: &[String]) -> &'a Value {
    match (value, path) {
        (Value::Union(_, inner), _) if !matches!(**inner, Value::Union(..)) => follow(inner, path),
        (Value::Null, _) | (_, []) => value,
        (Value::Record(fields), [name, rest @ ..]) => {
            let (_, value) = fields.iter().find(|(field, _)| field == name).unwrap();
            follow(value, rest)
        }
        _ => panic!("{path:?} leads nowhere"),
    }
}

fn render(value: &Value) -> String {
    match value {
        Value::Union(_, inner) => render(inner),
        Value::Null => "null".into(),
        Value::Boolean(value) => value.to_string(),
        Value::Int(value) | Value::Date(value) => value.to_string(),
        Value::Long(value) | Value::TimestampMillis(value) | Value::TimestampMicros(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Double(value) => format!("{value:?}"),
        Value::String(text) | Value::Enum(_, text) => format!("{text:?}"),
        Value::Array(items) => format!("[{}]", items.iter().map(render).collect::<Vec<_>>().join(",")),
        other => panic!("{other:?} is not read"),
    }
}

fn cell(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "null".into();
    }
    match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Date32 => array.as_primitive::<Date32Type>().value(row).to_string(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            array.as_primitive::<TimestampMillisecondType>().value(row).to_string()
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            array.as_primitive::<TimestampMicrosecondType>().value(row).to_string()
        }
        DataType::Float32 => format!("{:?}", array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => format!("{:?}", array.as_primitive::<Float64Type>().value(row)),
        DataType::Dictionary(..) => {
            let array = array.as_dictionary::<Int32Type>();
            let code = array.keys().value(row) as usize;
            format!("{:?}", array.values().as_string::<i32>().value(code))
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            let items: Vec<String> = (0..items.len()).map(|item| cell(&items, item)).collect();
            format!("[{}]", items.join(","))
        }
        other => panic!("{other} is not decoded"),
    }
}

fn expected(value: &Value, plan: &ReadPlan) -> Vec<Vec<String>> {
    let row = |element: Option<&Value>| {
        let columns = plan.columns.iter();
        columns
            .map(|column| match (column.of_element, element) {
                (true, Some(element)) => render(follow(element, &column.path)),
                _ => render(follow(value, &column.path)),
            })
            .collect()
    };
    match &plan.unnest {
        None => vec![row(None)],
        Some(path) => match follow(value, path) {
            Value::Array(items) => items.iter().map(|item| row(Some(item))).collect(),
            _ => vec![],
        },
    }
}

struct Fixed(Vec<Arc<str>>);

impl Schemas for Fixed {
    fn schema(&self, id: u32) -> Result<Arc<str>, String> {
        self.0.get(id as usize).cloned().ok_or_else(|| format!("schema {id} is not there"))
    }
}

fn framed(id: u32, datum: &[u8]) -> Vec<u8> {
    let mut message = vec![0];
    message.extend(id.to_be_bytes());
    message.extend(datum);
    message
}

struct Case {
    decoder: AvroDecoder,
    plan: ReadPlan,
    values: Vec<Value>,
    messages: Vec<Vec<u8>>,
}

fn case(fields: Vec<Kind>, seed: u64, count: usize) -> Case {
    let mut draw = Draw { state: seed, named: 0 };
    let kind = Kind::Record(fields);
    let text = draw.schema(&kind).to_string();
    let plan = plan(&text, &mut draw);
    let schema = Schema::parse_str(&text).unwrap();
    let writer = GenericDatumWriter::builder(&schema).build().unwrap();
    let reader = GenericDatumReader::builder(&schema).build().unwrap();
    let mut values = Vec::new();
    let mut messages = Vec::new();
    for index in 0..count {
        let value = draw.value(&kind);
        let datum =
            if index % 2 == 0 { writer.write_value_to_vec(value.clone()).unwrap() } else { draw.encoded(&value) };
        let back = reader.read_value(&mut datum.as_slice()).unwrap();
        assert_eq!(back, value);
        messages.push(framed(0, &datum));
        values.push(value);
    }
    let decoder = AvroDecoder::new(plan.clone(), Box::new(Fixed(vec![text.into()]))).unwrap();
    Case { decoder, plan, values, messages }
}

fn rows(decoder: &mut AvroDecoder) -> Vec<Vec<String>> {
    let batch = decoder.take();
    batch.columns().iter().for_each(|array| array.to_data().validate_full().unwrap());
    (0..batch.num_rows()).map(|row| batch.columns().iter().map(|array| cell(array, row)).collect()).collect()
}

proptest! {
    #[test]
    fn it_reads_what_apache_avro_reads(
        fields in proptest::collection::vec(kind(), 1..7), seed in any::<u64>(), cut in 1usize..9
    ) {
        let mut case = case(fields, seed, 12);
        for (values, messages) in case.values.chunks(cut).zip(case.messages.chunks(cut)) {
            let mut want = Vec::new();
            for (value, message) in values.iter().zip(messages) {
                let rows = expected(value, &case.plan);
                prop_assert_eq!(case.decoder.decode(message), Ok(rows.len()));
                want.extend(rows);
            }
            prop_assert_eq!(case.decoder.rows(), want.len());
            prop_assert_eq!(rows(&mut case.decoder), want);
        }
    }

    #[test]
    fn a_damaged_message_never_panics_and_a_refused_one_leaves_nothing_behind(
        fields in proptest::collection::vec(kind(), 1..7),
        seed in any::<u64>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
    ) {
        let mut case = case(fields, seed, 3);
        let mut damaged = case.messages[1].clone();
        for (at, byte) in damage {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        damaged.truncate(length.index(damaged.len() + 1));
        let mut want = expected(&case.values[0], &case.plan);
        case.decoder.decode(&case.messages[0]).unwrap();
        match case.decoder.decode(&damaged) {
            Ok(_) => drop(rows(&mut case.decoder)),
            Err(_) => {
                want.extend(expected(&case.values[2], &case.plan));
                case.decoder.decode(&case.messages[2]).unwrap();
                prop_assert_eq!(rows(&mut case.decoder), want);
            }
        }
    }
}

const FIRST: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"id","type":"long"},{"name":"s","type":"string"}]}"#;
const REORDERED: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"new","type":["null","bytes"]},{"name":"s","type":"string"},{"name":"id","type":"int"}]}"#;
const LACKING: &str = r#"{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}"#;
const NULLABLE: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"id","type":["null","long"]},{"name":"s","type":"string"}]}"#;

#[test]
fn writer_schemas_change_in_mid_stream() {
    let column = |name: &str, data_type: &DataType| ReadColumn {
        name: name.into(),
        path: vec![name.into()],
        of_element: false,
        data_type: decoded_type(data_type),
        nullable: false,
    };
    let plan = ReadPlan {
        columns: vec![column("s", &DataType::Utf8), column("id", &DataType::Int64)],
        unnest: None,
        position: false,
    };
    let schemas = [FIRST, REORDERED, LACKING, NULLABLE].map(Arc::from).to_vec();
    let mut decoder = AvroDecoder::new(plan, Box::new(Fixed(schemas))).unwrap();
    assert_eq!(decoder.decode(&framed(0, &[2, 2, b'a'])), Ok(1));
    assert_eq!(decoder.decode(&framed(1, &[0, 2, b'b', 4])), Ok(1));
    assert_eq!(decoder.decode(&framed(0, &[6, 2, b'a'])), Ok(1));
    let refused = |decoder: &mut AvroDecoder, message: &[u8]| decoder.decode(message).unwrap_err().to_string();
    assert_eq!(
        refused(&mut decoder, &framed(2, &[2])),
        "not valid Avro: writer schema 2 does not fit the query: it has no field s"
    );
    assert_eq!(
        refused(&mut decoder, &framed(3, &[0, 0])),
        "not valid Avro: writer schema 3 does not fit the query: field id may be null in it, and was not when the query was planned"
    );
    assert_eq!(refused(&mut decoder, &framed(9, &[0])), "not valid Avro: schema 9 is not there");
    assert_eq!(
        refused(&mut decoder, &framed(0, &[2, 2, b'a', 0])),
        "not valid Avro: bytes are left over after the record: it was not written with this schema (at byte 8)"
    );
    assert_eq!(
        refused(&mut decoder, b"{}"),
        "not valid Avro: the message starts with byte 123, not with 0 and a schema id"
    );
    assert_eq!(rows(&mut decoder), [["\"a\"", "1"], ["\"b\"", "2"], ["\"a\"", "3"]]);
}

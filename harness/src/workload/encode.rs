//! Messages as bytes: Confluent framing and the Avro datum of the workload's schema, written by hand for speed.
//!
//! Every text is encoded once; an event is a handful of copies.

use super::corpus::{self, Corpus, Event, QUALITIES};

/// Bytes before the datum: a zero and the schema id.
pub const FRAME: usize = 5;

/// Encodes the corpus's messages.
#[derive(Debug, Clone)]
pub struct Encoder {
    corpus: Corpus,
    names: Vec<Box<[u8]>>,
    units: Vec<Box<[u8]>>,
    qualities: Vec<[u8; 9]>,
    tags: Vec<Box<[u8]>>,
}

impl Encoder {
    /// An encoder of this corpus.
    #[must_use]
    pub fn new(corpus: &Corpus) -> Self {
        let text = |s: &String| {
            let mut bytes = Vec::new();
            put_text(s, &mut bytes);
            bytes.into_boxed_slice()
        };
        let quality = |hundredths: u32| {
            let mut bytes = [2_u8; 9];
            bytes[1..].copy_from_slice(&corpus::quality(hundredths).to_le_bytes());
            bytes
        };
        let c = corpus.constants();
        let tags = (0..c.tag_names)
            .flat_map(|first| (0..c.max_tags).map(move |count| (first, count)))
            .map(|(first, count)| tag_array(corpus, first, count))
            .collect();
        Self {
            names: corpus.names().iter().map(text).collect(),
            units: corpus.units().iter().map(text).collect(),
            qualities: (0..QUALITIES).map(quality).collect(),
            tags,
            corpus: corpus.clone(),
        }
    }

    /// The corpus it encodes.
    #[must_use]
    pub fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// Appends message `id` to `out`.
    pub fn encode(&self, id: u64, send_ts_us: i64, schema_id: u32, out: &mut Vec<u8>) {
        let batch = self.corpus.batch(id);
        out.push(0);
        out.extend_from_slice(&schema_id.to_be_bytes());
        put_long(id as i64, out);
        put_text(batch.sensor(), out);
        match batch.region() {
            None => out.push(0),
            Some(region) => {
                out.push(2);
                put_text(region, out);
            }
        }
        put_long(batch.batch_ts_ms(), out);
        put_long(send_ts_us, out);
        let events = batch.events();
        put_long(events.len() as i64, out);
        for event in events {
            self.event(&event, out);
        }
        out.push(0);
    }

    fn event(&self, event: &Event, out: &mut Vec<u8>) {
        put_long(i64::from(event.seq), out);
        out.extend_from_slice(&self.names[event.name as usize]);
        out.extend_from_slice(&self.units[event.unit as usize]);
        put_long(event.value, out);
        match event.hundredths {
            None => out.push(0),
            Some(hundredths) => out.extend_from_slice(&self.qualities[hundredths as usize]),
        }
        let tags = event.first_tag * self.corpus.constants().max_tags + event.tag_count;
        out.extend_from_slice(&self.tags[tags as usize]);
    }
}

/// What a message says about itself before its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Schema id of the frame.
    pub schema_id: u32,
    /// Batch id.
    pub batch_id: i64,
    /// Intended time of sending, in µs since the epoch.
    pub send_ts_us: i64,
}

/// Reads the head of a message; `None` when the bytes are no message of this schema.
#[must_use]
pub fn head(message: &[u8]) -> Option<Head> {
    let (frame, mut datum) = message.split_at_checked(FRAME)?;
    let (0, id) = frame.split_first()? else { return None };
    let schema_id = u32::from_be_bytes(id.try_into().ok()?);
    let batch_id = get_long(&mut datum)?;
    skip_text(&mut datum)?;
    if get_long(&mut datum)? == 1 {
        skip_text(&mut datum)?;
    }
    get_long(&mut datum)?;
    Some(Head { schema_id, batch_id, send_ts_us: get_long(&mut datum)? })
}

fn tag_array(corpus: &Corpus, first: u32, count: u32) -> Box<[u8]> {
    let mut bytes = Vec::new();
    if count > 0 {
        put_long(i64::from(count), &mut bytes);
        for tag in corpus.tags(first, count) {
            put_text(tag, &mut bytes);
        }
    }
    bytes.push(0);
    bytes.into_boxed_slice()
}

/// Zigzag, then seven bits a byte, the low ones first.
fn put_long(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_long(text.len() as i64, out);
    out.extend_from_slice(text.as_bytes());
}

fn get_long(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

fn skip_text(bytes: &mut &[u8]) -> Option<()> {
    let length = usize::try_from(get_long(bytes)?).ok()?;
    *bytes = bytes.get(length..)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use apache_avro::reader::datum::GenericDatumReader;
    use apache_avro::types::Value;
    use apache_avro::writer::datum::GenericDatumWriter;
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::workload::spec::tests::repository_spec;

    fn message(encoder: &Encoder, id: u64, send_ts_us: i64, schema_id: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        encoder.encode(id, send_ts_us, schema_id, &mut bytes);
        bytes
    }

    fn field<'a>(record: &'a Value, name: &str) -> &'a Value {
        let Value::Record(fields) = record else { panic!("no record: {record:?}") };
        &fields.iter().find(|(n, _)| n == name).unwrap().1
    }

    fn optional(value: &Value) -> Option<&Value> {
        let Value::Union(branch, inner) = value else { panic!("no union: {value:?}") };
        (*branch == 1).then_some(inner)
    }

    /// Decodes with the Avro library and compares with the corpus field by field; encodes again with it and compares
    /// the bytes.
    #[test]
    fn an_avro_library_reads_and_writes_the_same() {
        let spec = repository_spec();
        let schema = apache_avro::Schema::parse_str(&spec.schema).unwrap();
        let reader = GenericDatumReader::builder(&schema).build().unwrap();
        let writer = GenericDatumWriter::builder(&schema).build().unwrap();
        let corpus = Corpus::new(&spec);
        let encoder = Encoder::new(&corpus);
        for id in (0..250).chain([1_023, 65_537, 999_999]) {
            let send_ts = 1_800_000_000_000_000 + id as i64;
            let bytes = message(&encoder, id, send_ts, 7);
            assert_eq!(bytes[..FRAME], [0, 0, 0, 0, 7]);
            let mut datum = &bytes[FRAME..];
            let value = reader.read_value(&mut datum).unwrap();
            assert!(datum.is_empty(), "{} bytes left of batch {id}", datum.len());

            let batch = corpus.batch(id);
            assert_eq!(field(&value, "batch_id"), &Value::Long(id as i64));
            assert_eq!(field(&value, "sensor"), &Value::String(batch.sensor().to_owned()));
            let region = batch.region().map(|r| Value::String(r.to_owned()));
            assert_eq!(optional(field(&value, "region")), region.as_ref());
            assert_eq!(field(&value, "batch_ts"), &Value::TimestampMillis(batch.batch_ts_ms()));
            assert_eq!(field(&value, "send_ts"), &Value::TimestampMicros(send_ts));
            let Value::Array(events) = field(&value, "events") else { panic!("no array") };
            assert_eq!(events.len(), 100);
            for (event, got) in batch.events().zip(events) {
                assert_eq!(field(got, "seq"), &Value::Int(event.seq as i32));
                assert_eq!(field(got, "name"), &Value::String(corpus.names()[event.name as usize].clone()));
                assert_eq!(field(got, "unit"), &Value::String(corpus.units()[event.unit as usize].clone()));
                assert_eq!(field(got, "value"), &Value::Long(event.value));
                assert_eq!(optional(field(got, "quality")), event.quality().map(Value::Double).as_ref());
                let tags = corpus.tags(event.first_tag, event.tag_count);
                let tags = tags.map(|t| Value::String(t.to_owned())).collect();
                assert_eq!(field(got, "tags"), &Value::Array(tags));
            }
            assert_eq!(writer.write_value_to_vec(value).unwrap(), bytes[FRAME..], "batch {id}");
        }
    }

    #[test]
    fn the_bytes_are_pinned() {
        let encoder = Encoder::new(&Corpus::new(&repository_spec()));
        let digest = |id| {
            let hash = Sha256::digest(message(&encoder, id, 0, 1));
            hash.iter().map(|b| format!("{b:02x}")).collect::<String>()
        };
        assert_eq!(digest(0), "05b95e3297b25865006f5f2f1be68adddbd485858665a43c5d91bddbc494481e");
        assert_eq!(digest(999_999), "c3d2ac3cd93365ccf4674a94b427bf99a03021fc7b99b8e31b27f34dc1df67dc");
    }

    proptest! {
        #[test]
        fn longs_come_back(value: i64) {
            let mut bytes = Vec::new();
            put_long(value, &mut bytes);
            prop_assert_eq!(get_long(&mut bytes.as_slice()), Some(value));
        }

        #[test]
        fn the_head_is_read_back(id in 0..corpus::MAX_BATCHES, send_ts_us in 0..i64::MAX, schema_id: u32) {
            let encoder = Encoder::new(&Corpus::new(&repository_spec()));
            let bytes = message(&encoder, id, send_ts_us, schema_id);
            prop_assert_eq!(head(&bytes), Some(Head { schema_id, batch_id: id as i64, send_ts_us }));
        }

        #[test]
        fn no_bytes_make_the_head_panic(bytes: Vec<u8>) {
            let _ = head(&bytes);
        }
    }
}

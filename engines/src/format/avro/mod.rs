//! Avro records: the schema as Arrow types, and the decoder.

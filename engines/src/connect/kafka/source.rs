//! Kafka as a source.

//! Kafka as a sink.

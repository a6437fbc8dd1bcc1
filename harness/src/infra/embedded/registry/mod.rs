//! A Confluent-compatible schema registry.

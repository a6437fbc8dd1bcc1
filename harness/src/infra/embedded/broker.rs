//! Apache Kafka, one KRaft node.

//! The ingest corpus as a pure function of `batch_id`, and its producer.

//! The ingest corpus as a pure function of `batch_id`, its closed-form expectations, and its producer.

pub mod corpus;
pub mod encode;
pub mod expect;
pub mod gate;
pub mod producer;
pub mod spec;
pub mod strict;
pub mod verify;

pub use corpus::Corpus;
pub use spec::IngestSpec;

pub use weir_model::id::Tier;

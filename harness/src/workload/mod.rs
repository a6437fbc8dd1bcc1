//! The ingest corpus as a pure function of `batch_id`, its closed-form expectations, and its producer.

pub mod corpus;
pub mod encode;
pub mod expect;
pub mod gate;
pub mod spec;
pub mod strict;

pub use corpus::Corpus;
pub use spec::IngestSpec;

/// What an arm does to the corpus between topic and table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Transport: decode, flatten, insert.
    A,
    /// Transform: tier A, with rows filtered and columns derived.
    B,
}

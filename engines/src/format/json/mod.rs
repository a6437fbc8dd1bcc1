//! JSON records: type inference, and the decoder.
//!
//! A member that is missing and a member that is null are both null. Of members with the same name the first counts.
//! Members no query reads are checked and passed, not converted.

mod columns;
mod cursor;
mod decoder;
mod infer;

pub use decoder::{JsonDecoder, Unreadable};
pub use infer::JsonSchema;

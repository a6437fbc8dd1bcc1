//! JSON records: type inference, and the decoder.
//!
//! A member that is missing and a member that is null are both null. Of members with the same name the first counts.
//! Members no query reads are checked and passed, not converted. A line that is laid out like one before it is read along
//! that one's layout.

mod columns;
mod cursor;
mod decoder;
mod infer;
mod layout;
#[cfg(test)]
mod tests;
mod word;

pub(in crate::format) use columns::Column;
pub(in crate::format) use decoder::sql_name;
pub use decoder::{JsonDecoder, Unreadable};
pub use infer::JsonSchema;

//! Queries: what is refused, and what a transform makes of rows.

mod corpus;
mod refusals;
mod transform;

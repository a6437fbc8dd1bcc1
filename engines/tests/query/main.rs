//! Queries: what is refused, what is planned, and what a transform makes of rows.

mod corpus;
mod mutations;
mod plans;
mod refusals;
mod shop;
mod transform;

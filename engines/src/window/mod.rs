//! Windows: the state of groups by pane or by session.

mod aggregate;
mod closing;
mod output;
mod pane;
mod pieces;
mod session;
mod sessions;
mod shard;
mod slots;
mod spill;
#[cfg(test)]
mod tests;
mod time;

pub use aggregate::PaneAggregate;
pub use session::SessionAggregate;

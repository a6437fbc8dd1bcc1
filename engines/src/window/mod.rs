//! Windows: the state of groups by pane or by session.

mod aggregate;
mod output;
mod pane;
mod session;
mod sessions;
mod shard;
mod slots;
mod spill;
mod time;

pub use aggregate::PaneAggregate;
pub use session::SessionAggregate;

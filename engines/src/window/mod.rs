//! Stub.
use crate::error::Error;
use crate::plan;
crate::join::stub!(PaneAggregate, plan::Aggregate);
crate::join::stub!(SessionAggregate, plan::Aggregate);

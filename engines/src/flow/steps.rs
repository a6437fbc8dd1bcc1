//! What happens to a batch on its own, on any worker.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;

use crate::error::Error;
use crate::join::LookupTable;
use crate::plan::Step;
use crate::sql::{RowError, Transform};

/// The steps of a node, ready to run; each worker has its own, for the caches in them.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps(Vec<Ready>);

#[derive(Debug, Clone)]
enum Ready {
    Transform(Box<Transform>),
    Lookup(Arc<LookupTable>),
}

impl Steps {
    /// Steps whose tables have been read: `table` gives the one of a lookup.
    ///
    /// # Errors
    /// Whatever `table` fails with.
    pub(super) fn new(
        steps: &[Step],
        mut table: impl FnMut(&crate::plan::Lookup) -> Result<Arc<LookupTable>, Error>,
    ) -> Result<Self, Error> {
        let ready = steps.iter().map(|step| match step {
            Step::Transform(transform) => Ok(Ready::Transform(transform.clone())),
            Step::Lookup(lookup) => table(lookup).map(Ready::Lookup),
        });
        ready.collect::<Result<_, _>>().map(Self)
    }

    /// Appends other steps.
    pub(super) fn then(mut self, more: &Self) -> Self {
        self.0.extend(more.0.iter().cloned());
        self
    }

    /// Runs the steps over a batch. Rows on which an expression failed are reported by their index in `batch`; behind a
    /// lookup, which may repeat rows, by that of the batch the lookup made.
    ///
    /// # Errors
    /// A table cannot be joined.
    pub(super) fn apply(&mut self, batch: &RecordBatch, failed: &mut Vec<RowError>) -> Result<RecordBatch, Error> {
        let mut current: Option<RecordBatch> = None;
        for step in &mut self.0 {
            let input = current.as_ref().unwrap_or(batch);
            current = Some(match step {
                Ready::Transform(transform) => {
                    let applied = transform.apply(input);
                    failed.extend(applied.errors);
                    applied.batch
                }
                Ready::Lookup(table) => table.join(input)?,
            });
        }
        Ok(current.unwrap_or_else(|| batch.clone()))
    }
}

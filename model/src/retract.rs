//! Taking a run back without erasing it.

use jiff::Timestamp;

use crate::archive::Located;
use crate::error::Coded;
use crate::id::RunId;
use crate::record::{Measurement, Record, Retraction};

/// Why a run is not retracted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetractError {
    /// No record is of the run.
    #[error("no run {0} is in the archive")]
    NoSuchRun(RunId),
    /// A reader must be told why.
    #[error("a retraction says why: the reason is empty")]
    NoReason,
    /// It is retracted already.
    #[error("run {run_id} is retracted already: {reason}")]
    Again {
        /// The run.
        run_id: RunId,
        /// The reason that was given.
        reason: String,
    },
    /// What takes its place cannot.
    #[error("run {by} cannot take the place of run {run_id}: {why}")]
    Successor {
        /// The run.
        run_id: RunId,
        /// The run that should take its place.
        by: RunId,
        /// What is wrong.
        why: &'static str,
    },
}

impl Coded for RetractError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoSuchRun(_) => "no_such_run",
            Self::NoReason => "no_reason",
            Self::Again { .. } => "already_retracted",
            Self::Successor { .. } => "bad_successor",
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::NoSuchRun(_)).then(|| "the page and `bench run --json` show the ids of runs".into())
    }

    fn refused(&self) -> bool {
        true
    }
}

/// The record that retracts `run_id`, for the archive to append.
///
/// # Errors
/// When there is no such run, no reason, or no such successor.
pub fn retract(
    records: &[Located],
    run_id: RunId,
    reason: &str,
    superseded_by: Option<RunId>,
    ts: Timestamp,
) -> Result<Record, RetractError> {
    let run = measured(records, run_id).ok_or(RetractError::NoSuchRun(run_id))?;
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(RetractError::NoReason);
    }
    if let Some(earlier) = retracted(records, run_id) {
        return Err(RetractError::Again { run_id, reason: earlier.reason.clone() });
    }
    if let Some(by) = superseded_by {
        let wrong = |why| Err(RetractError::Successor { run_id, by, why });
        match measured(records, by) {
            _ if by == run_id => return wrong("it is the same run"),
            None => return wrong("it is not in the archive"),
            Some(_) if retracted(records, by).is_some() => return wrong("it is retracted itself"),
            Some(it) if it.entrant.id != run.entrant.id || it.workload != run.workload => {
                return wrong("it is of another entrant or workload");
            }
            Some(_) => {}
        }
    }
    Ok(Record::Retraction(Retraction {
        run_id,
        env: run.env.id.clone(),
        entrant: run.entrant.id.clone(),
        reason: reason.to_owned(),
        superseded_by,
        ts,
    }))
}

fn measured(records: &[Located], run_id: RunId) -> Option<&Measurement> {
    records.iter().find_map(|found| match &found.record {
        Record::Measurement(it) if it.run_id == run_id => Some(&**it),
        _ => None,
    })
}

fn retracted(records: &[Located], run_id: RunId) -> Option<&Retraction> {
    records.iter().find_map(|found| match &found.record {
        Record::Retraction(it) if it.run_id == run_id => Some(it),
        _ => None,
    })
}

//! The caps of everything that is capped, read back while it runs, by the sampler.

use super::arm::Failed;
use super::{Sitting, SittingError};
use crate::measure::sampler::{Sampler, SamplerError};
use crate::runtime::{Caps, Enforcement, ReadBack, Running};

/// Lets the arm be sampled.
///
/// # Errors
/// When the sampler fails; [`Failed`] inside when the arm is gone already.
pub(super) fn sampled(sampler: &mut Sampler, arm: &mut dyn Running) -> Result<Result<(), Failed>, SittingError> {
    match sampler.add("sut", arm) {
        Ok(()) => Ok(Ok(())),
        Err(SamplerError::Refused { why, .. }) => Ok(Err(Failed(match arm.exited() {
            Some(exit) => format!("it ended at once: the arm {exit}; its log is {}", arm.log().display()),
            None => why,
        }))),
        Err(error) => Err(error.into()),
    }
}

/// Compares the caps in force with those asked for, of the arm, of the broker and of ClickHouse; gives the arm's.
///
/// # Errors
/// When the sampler fails; [`Failed`] inside when a cap is not what was asked for.
pub(super) fn hold(
    sitting: &Sitting,
    sampler: &mut Sampler,
    arm: &dyn Running,
    asked: Option<Caps>,
) -> Result<Result<Option<ReadBack>, Failed>, SittingError> {
    let (stage, resolved) = (&sitting.stage, &sitting.plan.resolved);
    if !matches!(stage.runtime.enforcement(), Enforcement::Enforced(_)) {
        return Ok(Ok(None));
    }
    let caps_of = |caps| Some(super::stage::caps(caps));
    let parts = [
        ("broker", stage.broker.as_ref(), caps_of(resolved.broker)),
        ("clickhouse", stage.clickhouse.as_ref(), caps_of(resolved.clickhouse)),
        ("sut", arm, asked),
    ];
    let mut read_back = None;
    for (name, running, caps) in parts {
        let Some(caps) = caps else { continue };
        match sampler.caps(name, running, caps) {
            Ok(read) => read_back = Some(read),
            Err(SamplerError::Refused { why, .. }) => return Ok(Err(Failed(format!("{name}: {why}")))),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Ok(read_back))
}

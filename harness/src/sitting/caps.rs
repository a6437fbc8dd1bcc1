//! The caps of everything that is capped, read back while it runs, by the sampler.

use super::arm::{Failed, tail};
use super::{Sitting, SittingError};
use crate::measure::sampler::{Sampler, SamplerError};
use crate::runtime::{Enforcement, ReadBack, Running, Service};

/// Starts a part of an arm and lets it be sampled.
///
/// # Errors
/// When the sampler fails; [`Failed`] inside when the part does not start, or is gone already.
pub(super) fn started(
    sitting: &Sitting,
    sampler: &mut Sampler,
    service: &Service,
) -> Result<Result<Box<dyn Running>, Failed>, SittingError> {
    let mut running = match sitting.stage.runtime.start(service) {
        Ok(running) => running,
        Err(error) => return Ok(Err(Failed(error.to_string()))),
    };
    match sampler.add(&service.name, running.as_ref()) {
        Ok(()) => Ok(Ok(running)),
        Err(SamplerError::Refused { why, .. }) => Ok(Err(Failed(match running.exited() {
            Some(exit) => format!("it ended at once: {} {exit}; its log ends:\n{}", service.name, tail(running.log())),
            None => why,
        }))),
        Err(error) => Err(error.into()),
    }
}

/// Compares the caps in force with those asked for, of broker, ClickHouse and every part of the arm, the data plane last;
/// gives those of the data plane.
///
/// # Errors
/// When the sampler fails; [`Failed`] inside when a cap is not what was asked for.
pub(super) fn hold(
    sitting: &Sitting,
    sampler: &mut Sampler,
    arm: &[(&Service, &dyn Running)],
) -> Result<Result<Option<ReadBack>, Failed>, SittingError> {
    let (stage, resolved) = (&sitting.stage, &sitting.plan.resolved);
    if !matches!(stage.runtime.enforcement(), Enforcement::Enforced(_)) {
        return Ok(Ok(None));
    }
    let infra = [
        ("broker", stage.broker.as_ref(), Some(super::stage::caps(resolved.broker))),
        ("clickhouse", stage.clickhouse.as_ref(), Some(super::stage::caps(resolved.clickhouse))),
    ];
    let parts = arm.iter().map(|(service, running)| (service.name.as_str(), *running, service.caps));
    let mut read_back = None;
    for (name, running, caps) in infra.into_iter().chain(parts) {
        let Some(caps) = caps else { continue };
        match sampler.caps(name, running, caps) {
            Ok(read) => read_back = Some(read),
            Err(SamplerError::Refused { why, .. }) => return Ok(Err(Failed(format!("{name}: {why}")))),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Ok(read_back))
}

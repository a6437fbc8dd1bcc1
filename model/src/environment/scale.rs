//! How an environment's caps follow from its host.

use serde::{Serialize, Serializer};

use super::{EnvironmentError, HostFacts};
use crate::units::bytes;

/// CPUs of the reference envelope.
pub const REFERENCE_CPUS: f64 = 4.0;

/// Bytes of the reference envelope.
pub const REFERENCE_MEMORY: u64 = 16 << 30;

/// Steps in which an automatic scale is given: a sixteenth is a quarter of a CPU and 1 GiB.
const STEPS: f64 = 16.0;

/// The least automatic scale: 0.5 CPUs and 2 GiB.
const LEAST: f64 = 2.0 / STEPS;

/// Share of the reference envelope that an environment gives to an arm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EnvelopeScale {
    /// As the profile says.
    Fixed(f64),
    /// By the host: half of its CPUs and at most half of its memory, in steps of a quarter CPU and 1 GiB, never more
    /// than the reference. The other half is for the broker, ClickHouse and the harness.
    Auto,
}

impl EnvelopeScale {
    /// The scale on a host: `min(1, cores / 2 / 4, memory / 2 / 16 GiB)`, rounded down to sixteenths.
    ///
    /// # Errors
    /// When an automatic scale is less than 0.5 CPUs and 2 GiB.
    pub fn on(self, host: &HostFacts) -> Result<f64, EnvironmentError> {
        match self {
            Self::Fixed(scale) => Ok(scale),
            Self::Auto => {
                let by_cpus = f64::from(host.cores) / 2.0 / REFERENCE_CPUS;
                let by_memory = host.memory as f64 / 2.0 / REFERENCE_MEMORY as f64;
                let scale = (by_cpus.min(by_memory).min(1.0) * STEPS).floor() / STEPS;
                if scale < LEAST {
                    return Err(EnvironmentError::TooSmall { cores: host.cores, memory: bytes(host.memory) });
                }
                Ok(scale)
            }
        }
    }
}

impl Serialize for EnvelopeScale {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(scale) => serializer.serialize_f64(*scale),
            Self::Auto => serializer.serialize_str("auto"),
        }
    }
}

/// A cap as a figure or as a share of the host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Share<T> {
    /// This much.
    Of(T),
    /// This percentage of what the host has.
    Percent(f64),
}

impl Share<f64> {
    /// CPUs, of a host with `cores`; a share is given in steps of a tenth, and at least that.
    #[must_use]
    pub fn of_cores(self, cores: u32) -> f64 {
        match self {
            Self::Of(cpus) => cpus,
            Self::Percent(percent) => ((f64::from(cores) * percent / 10.0).floor() / 10.0).max(0.1),
        }
    }
}

impl Share<u64> {
    /// Bytes, of a host with `memory`; a share is given in whole MiB.
    #[must_use]
    pub fn of_bytes(self, memory: u64) -> u64 {
        match self {
            Self::Of(bytes) => bytes,
            Self::Percent(percent) => ((memory as f64 * percent / 100.0) as u64) >> 20 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::host::tests::host;

    #[test]
    fn half_of_the_host_up_to_the_reference() {
        let cases = [
            (2, 24, Some(0.25)),
            (4, 16, Some(0.5)),
            (3, 64, Some(0.375)),
            (1, 8, Some(0.125)),
            (64, 512, Some(1.0)),
            (16, 8, Some(0.25)),
            (16, 3, None),
        ];
        for (cores, gib, scale) in cases {
            let found = EnvelopeScale::Auto.on(&host(cores, gib)).ok();
            assert_eq!(found, scale, "{cores} cores, {gib} GiB");
        }
        assert_eq!(EnvelopeScale::Fixed(2.0).on(&host(1, 1)), Ok(2.0));
    }

    #[test]
    fn shares_are_of_the_host() {
        assert_eq!(Share::<f64>::Percent(50.0).of_cores(3), 1.5);
        assert_eq!(Share::<f64>::Percent(1.0).of_cores(1), 0.1);
        assert_eq!(Share::<u64>::Percent(25.0).of_bytes(24 << 30), 6 << 30);
        assert_eq!(Share::Of(5.0).of_cores(2), 5.0);
    }
}

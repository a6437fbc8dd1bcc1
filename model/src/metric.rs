//! What is measured: a closed set, each metric with its name, unit and direction.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::nine_digits;

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
    /// Neither: it describes.
    Neutral,
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $variant:ident = $word:literal, $unit:literal, $direction:ident;)+) => {
        words! {
            /// A measure that does not need a producer running: every mode may carry it. Latency is not among them;
            /// see [`Latency`].
            Metric is "metric" { $($(#[doc = $doc])+ $variant = $word),+ }
        }

        impl Metric {
            /// The unit of its value.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$variant => $unit),+ }
            }

            /// Which way is better.
            #[must_use]
            pub const fn direction(self) -> Direction {
                match self { $(Self::$variant => Direction::$direction),+ }
            }

            /// What it is, in one sentence.
            #[must_use]
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii()),+ }
            }
        }
    };
}

metrics! {
    /// CPU time of the system's data plane per landed row, over the full window.
    CpuUsPerRow = "cpu_us_per_row", "us", Lower;
    /// The part of the CPU time per landed row spent in user mode.
    UserUsPerRow = "user_us_per_row", "us", Lower;
    /// The part of the CPU time per landed row spent in the kernel.
    SystemUsPerRow = "system_us_per_row", "us", Lower;
    /// Landed rows per second over the full window: first consumption to the last row.
    RowsPerS = "rows_per_s", "rows/s", Higher;
    /// Landed rows per second over the steady part of the drain.
    PlateauRowsPerS = "plateau_rows_per_s", "rows/s", Higher;
    /// Length of the full window.
    DrainSeconds = "drain_seconds", "s", Lower;
    /// CPUs the data plane used on average over the full window.
    DataPlaneCoresUsed = "data_plane_cores_used", "cores", Neutral;
    /// CPUs the control plane used on average over the full window.
    ControlPlaneCoresUsed = "control_plane_cores_used", "cores", Neutral;
    /// CPUs every container of the arm used together on average over the full window.
    ArmCoresUsed = "arm_cores_used", "cores", Neutral;
    /// Highest anonymous memory of the data plane: what it chose to use when nothing forced it to economise.
    DataPlanePeakAnonMb = "data_plane_peak_anon_mb", "MB", Neutral;
    /// Highest memory charged to the data plane's control group, page cache included.
    PeakMb = "peak_mb", "MB", Neutral;
    /// Share of the scheduler's periods in which the data plane was held back by its CPU cap.
    ThrottledShare = "throttled_share", "share", Neutral;
    /// CPU time of ClickHouse per landed row.
    ClickhouseCpuUsPerRow = "clickhouse_cpu_us_per_row", "us", Lower;
    /// CPU time of the broker per landed row.
    BrokerCpuUsPerRow = "broker_cpu_us_per_row", "us", Lower;
    /// Highest memory charged to ClickHouse.
    ClickhousePeakMb = "clickhouse_peak_mb", "MB", Neutral;
    /// Bytes the arm sent to ClickHouse per landed row, as the server counted them.
    WireBytesPerRow = "wire_bytes_per_row", "B", Lower;
    /// Mean rows in one insert.
    RowsPerInsert = "rows_per_insert", "rows", Neutral;
    /// Share of ClickHouse's measured ceiling for this wire format that the arm reached.
    ClickhouseCeilingShare = "clickhouse_ceiling_share", "share", Neutral;
    /// Share of the broker's measured ceiling that the arm reached.
    BrokerCeilingShare = "broker_ceiling_share", "share", Neutral;
    /// Share of the full window that a garbage collector stopped the data plane.
    GcPauseShare = "gc_pause_share", "share", Lower;
    /// Sustained mode: share of the offered rate that landed.
    KeptUpShare = "kept_up_share", "share", Higher;
}

/// A measured value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The value, in the metric's unit, with nine significant digits.
    pub value: f64,
    /// 95 % interval, where the value stands for several observations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// How many observations it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
}

impl Measured {
    /// One observed value.
    #[must_use]
    pub fn new(value: f64) -> Self {
        Self { value: nine_digits(value), ci95: None, n: None }
    }
}

impl From<f64> for Measured {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

/// The metrics of one run. Written with the unit of each, and refused when read with another.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics(BTreeMap<Metric, Measured>);

impl Metrics {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a metric. A value that is not finite is left out: an absence, never a zero.
    pub fn set(&mut self, metric: Metric, value: impl Into<Measured>) {
        let measured = value.into();
        if measured.value.is_finite() {
            self.0.insert(metric, measured);
        }
    }

    /// A metric, if it was measured.
    #[must_use]
    pub fn get(&self, metric: Metric) -> Option<Measured> {
        self.0.get(&metric).copied()
    }

    /// A metric's value, if it was measured.
    #[must_use]
    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.get(metric).map(|measured| measured.value)
    }

    /// Every metric that was measured.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, Measured)> + '_ {
        self.0.iter().map(|(metric, measured)| (*metric, *measured))
    }

    /// Whether nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Metric, f64)> for Metrics {
    fn from_iter<I: IntoIterator<Item = (Metric, f64)>>(values: I) -> Self {
        let mut metrics = Self::new();
        values.into_iter().for_each(|(metric, value)| metrics.set(metric, value));
        metrics
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WithUnit {
    value: f64,
    unit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ci95: Option<[f64; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<u64>,
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(metric, Measured { value, ci95, n })| {
            (metric, WithUnit { value, unit: metric.unit().to_owned(), ci95, n })
        }))
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut metrics = BTreeMap::new();
        for (metric, written) in BTreeMap::<Metric, WithUnit>::deserialize(deserializer)? {
            if written.unit != metric.unit() {
                return Err(serde::de::Error::custom(format!(
                    "{metric} is in {}, not in {}",
                    metric.unit(),
                    written.unit
                )));
            }
            metrics.insert(metric, Measured { value: written.value, ci95: written.ci95, n: written.n });
        }
        Ok(Self(metrics))
    }
}

/// Row latency, insert time less intended send time, in milliseconds. Only a sustained reading can carry it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// What the figures mean.
    pub of: LatencyOf,
    /// Median.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p999_ms: f64,
    /// Highest.
    pub max_ms: f64,
    /// HDR histogram, V2, compressed, base64.
    pub hist: String,
}

words! {
    /// What a latency figure means.
    LatencyOf is "latency kind" {
        /// The arm kept up: the latency of the pipeline at the offered rate.
        Pipeline = "latency",
        /// It did not: the age of its backlog, which says nothing about the pipeline.
        Backlog = "backlog_age",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_is_not_the_metrics_own_is_refused() {
        let error = serde_json::from_str::<Metrics>(r#"{"cpu_us_per_row":{"value":1.0,"unit":"ms"}}"#).unwrap_err();
        assert!(error.to_string().contains("cpu_us_per_row is in us, not in ms"), "{error}");
    }

    #[test]
    fn no_metric_is_a_latency() {
        assert!(Metric::ALL.iter().all(|metric| !metric.as_str().contains("latency") && metric.unit() != "ms"));
        assert!(serde_json::from_str::<Metrics>(r#"{"latency_p50":{"value":1.0,"unit":"ms"}}"#).is_err());
    }

    #[test]
    fn what_is_not_finite_is_absent() {
        let metrics: Metrics = [(Metric::RowsPerS, f64::NAN), (Metric::PeakMb, 1.0)].into_iter().collect();
        assert_eq!(metrics.value(Metric::RowsPerS), None);
        assert_eq!(metrics.iter().count(), 1);
    }
}

//! What the sampler recorded: read back, and summed up over windows of time.
//!
//! A series file holds one JSON object a line, one [`Sample`] each, in order of time. Counters between two samples
//! are interpolated linearly; nothing is extrapolated beyond the first and the last.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_model::error::Coded;

use crate::cgroup::Usage;

/// First bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Compression level of stored series.
const ZSTD_LEVEL: i32 = 12;
/// Difference between wall clock and monotonic clock, from one sample to the next, that is a step of the clock.
const CLOCK_STEP_US: u64 = 100_000;

/// Where a sample's figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The counters of the service's control group.
    Cgroup,
    /// Sums over the service's processes in `/proc`: children that nobody waited for are missed.
    Proc,
}

/// One service at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Wall clock (`CLOCK_REALTIME`), µs since 1970.
    pub t_us: u64,
    /// Monotonic clock, µs.
    pub mono_us: u64,
    /// The service.
    pub name: String,
    /// Where the figures come from.
    pub source: Source,
    /// The figures.
    #[serde(flatten)]
    pub usage: Usage,
}

/// What a service used in a window of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowUsage {
    /// Length of the window, µs.
    pub wall_us: f64,
    /// CPU time, µs.
    pub cpu_us: f64,
    /// Of it in user mode, µs.
    pub user_us: f64,
    /// Of it in the kernel, µs.
    pub system_us: f64,
    /// CPU time over wall time.
    pub cores_used: f64,
    /// Bandwidth periods in which it wanted to run; 0 without a CPU cap.
    pub periods: f64,
    /// Share of them in which its quota ran out, 0 to 1; 0 without a CPU cap.
    pub throttled_share: f64,
    /// Time its CPUs stood throttled, µs.
    pub throttled_us: f64,
    /// Highest anonymous memory sampled in the window, bytes.
    pub peak_anon: u64,
    /// Highest charged memory sampled in the window, page cache included, bytes.
    pub peak_current: u64,
    /// Bytes read from block devices, where counted.
    pub io_read: Option<f64>,
    /// Bytes written to block devices, where counted.
    pub io_written: Option<f64>,
    /// Samples in the window.
    pub samples: usize,
    /// Longest time between two samples that touch the window, µs.
    pub longest_gap_us: u64,
    /// Where the figures come from.
    pub source: Source,
}

/// Why a series cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeriesError {
    /// The file cannot be read or written.
    #[error("cannot {action} the series {path}: {source}")]
    Io {
        /// Read or write.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line is no sample.
    #[error("{path}:{line}: not a sample: {source}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// No sample of this service.
    #[error("the series has no sample of {name}; it has {known:?}")]
    Unknown {
        /// The service asked for.
        name: String,
        /// The services it has.
        known: Vec<String>,
    },
    /// The window begins before the first sample, ends after the last, or is empty.
    #[error("the window {from_us}..{to_us} µs is not within the samples of {name}, {first_us}..{last_us} µs")]
    Window {
        /// The service.
        name: String,
        /// Begin asked for.
        from_us: u64,
        /// End asked for.
        to_us: u64,
        /// First sample.
        first_us: u64,
        /// Last sample.
        last_us: u64,
    },
    /// The wall clock was set while the window was measured.
    #[error("the wall clock stepped by {step_us} µs inside the window: its length is unknown")]
    ClockStepped {
        /// By how much.
        step_us: u64,
    },
}

impl Coded for SeriesError {
    fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "series_io",
            Self::Line { .. } => "series_malformed",
            Self::Unknown { .. } => "series_unknown_service",
            Self::Window { .. } => "series_window",
            Self::ClockStepped { .. } => "series_clock_stepped",
        }
    }
}

/// The samples of one run, by service, each in order of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    path: PathBuf,
    samples: BTreeMap<String, Vec<Sample>>,
}

impl Series {
    /// Reads a series file, plain or compressed with zstd. A last line that was cut off is left out.
    ///
    /// # Errors
    /// When it cannot be read or a whole line is no sample.
    pub fn load(path: &Path) -> Result<Self, SeriesError> {
        let io = |source| SeriesError::Io { action: "read", path: path.into(), source };
        let mut bytes = std::fs::read(path).map_err(io)?;
        if bytes.starts_with(&ZSTD_MAGIC) {
            bytes = zstd::stream::decode_all(bytes.as_slice()).map_err(io)?;
        }
        let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = bytes[..whole].split_inclusive(|byte| *byte == b'\n');
        for (index, line) in lines.enumerate() {
            let sample: Sample = serde_json::from_slice(line).map_err(|source| SeriesError::Line {
                path: path.into(),
                line: index + 1,
                source,
            })?;
            samples.entry(sample.name.clone()).or_default().push(sample);
        }
        Ok(Self { path: path.into(), samples })
    }

    /// Stores the series file it was read from, compressed, at `to`; directories are made.
    ///
    /// # Errors
    /// When the one cannot be read or the other not written.
    pub fn compress_to(&self, to: &Path) -> Result<(), SeriesError> {
        let failed = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| SeriesError::Io { action, path, source }
        };
        let mut raw = Vec::new();
        File::open(&self.path).and_then(|mut file| file.read_to_end(&mut raw)).map_err(failed("read", &self.path))?;
        if let Some(dir) = to.parent() {
            std::fs::create_dir_all(dir).map_err(failed("write", to))?;
        }
        let packed = if raw.starts_with(&ZSTD_MAGIC) {
            raw
        } else {
            zstd::stream::encode_all(raw.as_slice(), ZSTD_LEVEL).map_err(failed("write", to))?
        };
        std::fs::write(to, packed).map_err(failed("write", to))
    }

    /// The services sampled.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.samples.keys().map(String::as_str)
    }

    /// The samples of service `name`, in order of time.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&[Sample]> {
        self.samples.get(name).map(Vec::as_slice)
    }

    /// What service `name` used between two instants of the wall clock, µs since 1970.
    ///
    /// # Errors
    /// When the service was not sampled all through the window, or the clock was set within it.
    pub fn window(&self, name: &str, from_us: u64, to_us: u64) -> Result<WindowUsage, SeriesError> {
        let samples = self.of(name).unwrap_or_default();
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return Err(SeriesError::Unknown { name: name.into(), known: self.names().map(str::to_owned).collect() });
        };
        if from_us < first.t_us || to_us > last.t_us || from_us >= to_us {
            return Err(SeriesError::Window {
                name: name.into(),
                from_us,
                to_us,
                first_us: first.t_us,
                last_us: last.t_us,
            });
        }
        // The samples that bound the window and everything between them.
        let begin = samples.partition_point(|sample| sample.t_us <= from_us) - 1;
        let end = samples.partition_point(|sample| sample.t_us < to_us);
        let touched = &samples[begin..=end];
        if let Some(step_us) = clock_step(touched) {
            return Err(SeriesError::ClockStepped { step_us });
        }
        Ok(sum_up(touched, from_us, to_us))
    }
}

/// Sums up a window; `touched` reaches from the last sample at or before it to the first at or after it.
fn sum_up(touched: &[Sample], from_us: u64, to_us: u64) -> WindowUsage {
    let counted =
        |counter: &dyn Fn(&Usage) -> u64| (at(touched, to_us, counter) - at(touched, from_us, counter)).max(0.0);
    let optional = |counter: &dyn Fn(&Usage) -> Option<u64>| {
        let all = touched.iter().all(|sample| counter(&sample.usage).is_some());
        all.then(|| counted(&|usage| counter(usage).unwrap_or(0)))
    };
    let inside = || touched.iter().filter(|s| (from_us..=to_us).contains(&s.t_us));
    let peak = |gauge: fn(&Usage) -> u64| {
        // A window between two samples has none inside: the two around it bound what is known.
        let within = inside().map(|sample| gauge(&sample.usage)).max();
        within.or_else(|| touched.iter().map(|sample| gauge(&sample.usage)).max()).unwrap_or(0)
    };
    let wall_us = float(to_us - from_us);
    let cpu_us = counted(&|usage| usage.cpu_us);
    let periods = counted(&|usage| usage.periods);
    let throttled = counted(&|usage| usage.throttled);
    WindowUsage {
        wall_us,
        cpu_us,
        user_us: counted(&|usage| usage.user_us),
        system_us: counted(&|usage| usage.system_us),
        cores_used: cpu_us / wall_us,
        periods,
        throttled_share: if periods > 0.0 { (throttled / periods).min(1.0) } else { 0.0 },
        throttled_us: counted(&|usage| usage.throttled_us),
        peak_anon: peak(|usage| usage.anon),
        peak_current: peak(|usage| usage.current),
        io_read: optional(&|usage| usage.io_read),
        io_written: optional(&|usage| usage.io_written),
        samples: inside().count(),
        longest_gap_us: gaps(touched).map(|(_, mono)| mono).max().unwrap_or(0),
        source: if touched.iter().all(|sample| sample.source == Source::Cgroup) {
            Source::Cgroup
        } else {
            Source::Proc
        },
    }
}

/// A counter's value at an instant, interpolated between the samples around it.
fn at(samples: &[Sample], t_us: u64, counter: &dyn Fn(&Usage) -> u64) -> f64 {
    let after = samples.partition_point(|sample| sample.t_us < t_us);
    let Some(right) = samples.get(after) else {
        return samples.last().map_or(0.0, |sample| float(counter(&sample.usage)));
    };
    let Some(left) = after.checked_sub(1).and_then(|index| samples.get(index)) else {
        return float(counter(&right.usage));
    };
    let part = float(t_us - left.t_us) / float(right.t_us - left.t_us);
    let (low, high) = (float(counter(&left.usage)), float(counter(&right.usage)));
    low + (high - low) * part
}

/// Time from each sample to the next by the wall clock and by the monotonic clock, µs.
fn gaps(samples: &[Sample]) -> impl Iterator<Item = (u64, u64)> {
    samples.windows(2).filter_map(|pair| match pair {
        [left, right] => Some((right.t_us.saturating_sub(left.t_us), right.mono_us.saturating_sub(left.mono_us))),
        _ => None,
    })
}

/// By how much the wall clock was set, if it was.
fn clock_step(samples: &[Sample]) -> Option<u64> {
    let steps = gaps(samples).map(|(wall, mono)| wall.abs_diff(mono));
    steps.max().filter(|step| *step > CLOCK_STEP_US)
}

#[expect(clippy::cast_precision_loss, reason = "µs and bytes stay far below 2^52")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T0: u64 = 1_780_000_000_000_000;

    fn sample(name: &str, at_us: u64, cpu_us: u64, anon: u64) -> Sample {
        Sample {
            t_us: T0 + at_us,
            mono_us: 5_000_000 + at_us,
            name: name.into(),
            source: Source::Cgroup,
            usage: Usage {
                cpu_us,
                user_us: cpu_us / 2,
                system_us: cpu_us / 2,
                periods: at_us / 100_000,
                throttled: at_us / 200_000,
                anon,
                current: anon * 2,
                ..Usage::default()
            },
        }
    }

    fn series(samples: Vec<Sample>) -> Series {
        let mut by_name: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
        for sample in samples {
            by_name.entry(sample.name.clone()).or_default().push(sample);
        }
        Series { path: PathBuf::new(), samples: by_name }
    }

    fn near(got: f64, want: f64) -> bool {
        (got - want).abs() < 1e-6 * want.abs().max(1.0)
    }

    #[test]
    fn counters_are_interpolated_and_peaks_are_of_the_window() {
        let series = series(vec![
            sample("sut", 0, 0, 900),
            sample("sut", 100_000, 100_000, 10),
            sample("sut", 200_000, 100_000, 30),
            sample("sut", 300_000, 400_000, 20),
        ]);
        let used = series.window("sut", T0 + 50_000, T0 + 250_000).expect("within");
        assert!(near(used.cpu_us, 200_000.0), "50 of the first 100 ms, half of the last 300: {used:?}");
        assert!(near(used.cores_used, 1.0));
        assert!(near(used.periods, 2.0));
        assert_eq!((used.peak_anon, used.peak_current, used.samples), (30, 60, 2));
        assert_eq!(used.longest_gap_us, 100_000);
    }

    #[test]
    fn a_window_between_two_samples_is_bounded_by_both() {
        let series = series(vec![sample("sut", 0, 0, 5), sample("sut", 1_000_000, 500_000, 7)]);
        let used = series.window("sut", T0 + 100_000, T0 + 200_000).expect("within");
        assert!(near(used.cores_used, 0.5));
        assert_eq!((used.peak_anon, used.samples, used.longest_gap_us), (7, 0, 1_000_000));
    }

    #[test]
    fn nothing_is_extrapolated() {
        let series = series(vec![sample("sut", 0, 0, 0), sample("sut", 100_000, 1, 0)]);
        for (from, to) in [(T0 - 1, T0 + 10), (T0, T0 + 100_001), (T0 + 5, T0 + 5)] {
            let error = series.window("sut", from, to).expect_err("outside");
            assert_eq!(error.code(), "series_window");
        }
        assert!(series.window("sut", T0, T0 + 100_000).is_ok(), "the ends belong to it");
        let error = series.window("broker", T0, T0 + 1).expect_err("never sampled");
        assert_eq!(error.to_string(), "the series has no sample of broker; it has [\"sut\"]");
    }

    #[test]
    fn a_clock_that_was_set_is_refused() {
        let mut late = sample("sut", 1_200_000, 1, 0);
        late.mono_us -= 1_000_000;
        let series = series(vec![sample("sut", 0, 0, 0), late]);
        let error = series.window("sut", T0, T0 + 1_000).expect_err("stepped");
        assert_eq!(error.code(), "series_clock_stepped");
    }

    #[test]
    fn a_file_survives_compression_and_a_cut_last_line() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let raw = dir.path().join("raw.jsonl");
        let mut text = String::new();
        for sample in [sample("a", 0, 1, 2), sample("b", 1, 2, 3), sample("a", 2, 3, 4)] {
            text.push_str(&serde_json::to_string(&sample).expect("serialisable"));
            text.push('\n');
        }
        std::fs::write(&raw, format!("{text}{{\"t_us\":1,")).expect("writable");
        let plain = Series::load(&raw).expect("readable");
        assert_eq!(plain.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(plain.of("a").map(<[Sample]>::len), Some(2));
        let packed = dir.path().join("series/0197.jsonl.zst");
        plain.compress_to(&packed).expect("writable");
        assert_eq!(Series::load(&packed).expect("readable").samples, plain.samples);
        std::fs::write(&raw, format!("{text}nonsense\n")).expect("writable");
        let error = Series::load(&raw).expect_err("a bad line");
        assert!(error.to_string().contains("raw.jsonl:4: not a sample"), "{error}");
    }

    proptest! {
        #[test]
        fn windows_that_share_a_border_add_up(
            steps in proptest::collection::vec((1_u64..300_000, 0_u64..500_000), 2..40),
            cut in 0.0_f64..1.0,
        ) {
            let (mut t, mut cpu) = (0, 0);
            let mut samples = vec![sample("sut", 0, 0, 0)];
            for (dt, dcpu) in steps {
                t += dt;
                cpu += dcpu;
                samples.push(sample("sut", t, cpu, 0));
            }
            prop_assume!(t > 2);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0..t")]
            let middle = ((float(t) * cut) as u64).clamp(1, t - 1);
            let series = series(samples);
            let cpu_of = |from, to| series.window("sut", T0 + from, T0 + to).map(|used| used.cpu_us);
            let whole = cpu_of(0, t).expect("within");
            let parts = cpu_of(0, middle).expect("within") + cpu_of(middle, t).expect("within");
            prop_assert!(near(whole, float(cpu)));
            prop_assert!(near(parts, whole), "{parts} {whole}");
        }
    }
}

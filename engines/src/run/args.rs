//! Flags of time, state and workers, and how lengths of time and amounts of memory are written.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Flags of streaming queries.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Streaming")]
pub struct FlowArgs {
    /// A further stream: NAME=URI, as --from takes it; may be repeated.
    #[arg(long = "stream", value_name = "NAME=URI", value_parser = named)]
    pub streams: Vec<(String, String)>,

    /// A table that is read whole before the first row: NAME=URI of files; may be repeated.
    #[arg(long = "table", value_name = "NAME=URI", value_parser = named)]
    pub tables: Vec<(String, String)>,

    /// How far behind the latest row of its partition a row may come [default: nothing of an input that ends is late; 0 s
    /// with --follow].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub watermark_delay: Option<Duration>,

    /// A partition that the broker says is at its end holds the watermark back no longer than this.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub idle_partition_timeout: Option<Duration>,

    /// Rows whose event time is further ahead of this machine's clock are left out.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_ahead: Option<Duration>,

    /// With --follow and a GROUP BY without a window: how often changed groups are written.
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = duration)]
    pub emit_every: Duration,

    /// Threads that decode, compute and encode [default: one per CPU].
    #[arg(long, alias = "threads", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Directory in which state is kept; a run that finds a checkpoint of the same query there goes on from it.
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,

    /// Time between two checkpoints.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    pub checkpoint_interval: Duration,

    /// Memory for state, such as 512MB; what is more is spilled to disk.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub state_memory: Option<usize>,

    /// Where state is spilled to [default: the system's directory for temporary files].
    #[arg(long, value_name = "DIR")]
    pub spill_dir: Option<PathBuf>,

    /// Output columns that name a row of a topic, where the query itself has no GROUP BY that does.
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub key: Vec<String>,
}

fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, uri)) if !name.is_empty() && !uri.is_empty() => Ok((name.to_owned(), uri.to_owned())),
        _ => Err("write NAME=URI, such as users=file://users.ndjson".to_owned()),
    }
}

/// A length of time: a number and a unit, as in `500ms`, `5 s`, `1 minute`, `2 hours`, `1 day`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const HINT: &str = "write a number and a unit: 500ms, 5s, '1 minute', 2h, '1 day'";
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let micros = match unit.trim().to_ascii_lowercase().as_str() {
        "us" | "µs" | "microsecond" | "microseconds" => 1,
        "ms" | "millisecond" | "milliseconds" => 1_000,
        "s" | "sec" | "second" | "seconds" => 1_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000,
        "h" | "hour" | "hours" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000_u64,
        "" => return Err(format!("{text} has no unit: {HINT}")),
        "month" | "months" | "year" | "years" => {
            return Err(format!("{text}: a {} has no fixed length; use days", unit.trim().trim_end_matches('s')));
        }
        _ => return Err(format!("{text}: {HINT}")),
    };
    let whole: Result<u64, _> = number.parse();
    let exact = whole.ok().and_then(|n| n.checked_mul(micros));
    let exact = exact.or_else(|| {
        let parsed: f64 = number.parse().ok().filter(|_| number.contains('.'))?;
        Some((parsed * micros as f64).round() as u64)
    });
    exact.map(Duration::from_micros).ok_or_else(|| format!("{text}: {HINT}"))
}

/// An amount of memory: a number and a unit, as in `64MB` (millions) or `64MiB`.
fn size(text: &str) -> Result<usize, String> {
    const HINT: &str = "write a number and a unit: 64MB, 512MiB, 4GB";
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: usize = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "kib" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        _ => return Err(format!("{text}: {HINT}")),
    };
    let bytes = number.parse::<usize>().ok().and_then(|n| n.checked_mul(factor));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| format!("{text}: {HINT}"))
}

/// A length of time in microseconds.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_units() {
        for (text, micros) in [
            ("500ms", 500_000),
            ("1 second", 1_000_000),
            ("5s", 5_000_000),
            ("0s", 0),
            ("1.5 minutes", 90_000_000),
            (" 2h ", 7_200_000_000),
            ("1 DAY", 86_400_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for bad in ["", "5", "1 month", "-1s", "s", "1 parsec", "1..5s", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn amounts_of_memory_have_units() {
        assert_eq!(size("64MB"), Ok(64_000_000));
        assert_eq!(size("1 GiB"), Ok(1 << 30));
        for bad in ["", "0", "MB", "1.5GB", "-1", "1TBs", "99999999999999999999GB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(named("a=file://x=y"), Ok(("a".into(), "file://x=y".into())));
        assert!(named("a").is_err() && named("=x").is_err());
    }
}

//! What a run tells its user: refused and late records, how far it is.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;

use crate::cli::Cli;
use crate::error::Error;
use crate::flow::{Progress, Watcher};
use crate::format::timestamp;
use crate::read::{BadRecord, Position};

use super::keep::Keeper;
use super::metrics::Metrics;

/// How often the line on a terminal is drawn anew.
const REDRAW: Duration = Duration::from_millis(200);

/// Follows a run.
pub(super) struct Watch {
    started: Instant,
    told: Instant,
    terminal: bool,
    /// Time between two lines of JSON.
    every: Option<Duration>,
    metrics: Metrics,
    quarantine: Option<Keeper>,
    late: Option<Keeper>,
    first: Option<BadRecord>,
    drawn: bool,
}

impl Watch {
    /// Opens what the flags ask for.
    ///
    /// # Errors
    /// A URI cannot be written, or the address of the metrics is taken.
    pub(super) fn open(cli: &Cli) -> Result<Self, Error> {
        let (quarantine, late) = Keeper::open(cli)?;
        let metrics = Metrics::serve(cli.metrics.as_deref())?;
        let now = Instant::now();
        let terminal = cli.progress.is_none() && std::io::stderr().is_terminal() && !std::io::stdout().is_terminal();
        Ok(Self {
            started: now,
            told: now,
            terminal,
            every: cli.progress,
            metrics,
            quarantine,
            late,
            first: None,
            drawn: false,
        })
    }

    /// The last words of a run.
    pub(super) fn finish(&mut self, progress: &Progress) {
        self.clear();
        if self.every.is_some() {
            eprintln!("{}", self.json(progress));
        }
        if let Some(first) = &self.first {
            eprintln!("skipped {} of {} records; the first: {first}", progress.totals.skipped, progress.totals.records);
        }
        let left_out = [
            (progress.late, "came late for all their windows and were left out"),
            (progress.partly_late, "came late for some of their windows"),
            (progress.timeless, "have no event time and were left out"),
            (progress.ahead, "are further ahead of the clock than --max-ahead and were left out"),
        ];
        for (count, what) in left_out.into_iter().filter(|(count, _)| *count > 0) {
            eprintln!("{count} rows {what}");
        }
    }

    fn json(&self, progress: &Progress) -> String {
        let totals = progress.totals;
        let mut watermark = Vec::new();
        if progress.watermark != i64::MIN && progress.watermark != i64::MAX {
            timestamp::write(&mut watermark, progress.watermark);
        }
        let watermark = String::from_utf8(watermark).ok().filter(|text| !text.is_empty());
        serde_json::json!({
            "seconds": self.started.elapsed().as_secs_f64(),
            "records": totals.records,
            "rows": totals.rows,
            "skipped": totals.skipped,
            "late": progress.late,
            "partly_late": progress.partly_late,
            "timeless": progress.timeless,
            "ahead": progress.ahead,
            "watermark": watermark,
            "state_bytes": progress.state,
            "spills": progress.spills,
            "checkpoints": progress.checkpoints,
            "checkpoint_pause_us": progress.checkpoint_pause,
        })
        .to_string()
    }

    fn draw(&mut self, progress: &Progress) {
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = progress.totals.records as f64 / seconds.max(0.001);
        eprint!(
            "\r\x1b[K{} records, {} rows, {rate:.0} records/s, {:.1} MB of state",
            progress.totals.records,
            progress.totals.rows,
            progress.state as f64 / 1e6
        );
        self.drawn = true;
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            eprint!("\r\x1b[K");
        }
    }
}

impl Watcher for Watch {
    fn refused(&mut self, bad: &BadRecord, payload: &[u8]) -> Result<(), Error> {
        self.first.get_or_insert_with(|| bad.clone());
        match &mut self.quarantine {
            Some(keeper) => keeper.refused(bad, payload),
            None => Ok(()),
        }
    }

    fn left_out(&mut self, at: Option<&Position>, why: &'static str, row: &RecordBatch) -> Result<(), Error> {
        match &mut self.late {
            Some(keeper) => keeper.left_out(at, why, row),
            None => Ok(()),
        }
    }

    fn keeps_late(&self) -> bool {
        self.late.is_some()
    }

    fn progress(&mut self, progress: &Progress) {
        self.metrics.set(progress);
        let now = Instant::now();
        if let Some(every) = self.every
            && now.duration_since(self.told) >= every
        {
            self.told = now;
            eprintln!("{}", self.json(progress));
        } else if self.terminal && now.duration_since(self.told) >= REDRAW {
            self.told = now;
            self.draw(progress);
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let keepers = self.quarantine.iter_mut().chain(&mut self.late);
        keepers.into_iter().try_for_each(Keeper::flush)
    }
}

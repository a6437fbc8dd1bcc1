//! Drain mode: the topic is full, nothing produces, and the target table is watched until it holds the corpus.
//!
//! The watching is a loop over a [`Scene`]; what its observations mean is decided by the pure functions below it.

use std::time::Duration;

/// What the loop can see and do. The real one asks ClickHouse, the broker and the runtime; tests script it.
pub trait Scene {
    /// Why the scene can no longer be watched.
    type Error;

    /// Microseconds on the clock shared with the sampler.
    fn now_us(&self) -> u64;
    /// Fails when the infrastructure can no longer carry the arm, so that the arm is not blamed.
    ///
    /// # Errors
    /// What has ended.
    fn check(&mut self) -> Result<(), Self::Error>;
    /// Rows in the target table.
    ///
    /// # Errors
    /// When ClickHouse does not answer.
    fn rows(&mut self) -> Result<u64, Self::Error>;
    /// Whether the arm has begun to consume: its consumer group is stable and has a member.
    fn consuming(&mut self) -> bool;
    /// How the arm ended, if it did.
    fn ended(&mut self) -> Option<String>;
    /// Whether somebody asked for the run to stop.
    fn interrupted(&self) -> bool;
    /// Called after every observation with the rows so far.
    fn progress(&mut self, rows: u64);
    /// Waits.
    fn pause(&mut self, time: Duration);
}

/// How the watching is paced, and when it gives up.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between observations while much is missing.
    pub coarse: Duration,
    /// Between observations once 90 % has landed, so that the window's end is sharp.
    pub fine: Duration,
    /// Rows must stay unchanged this long, after the corpus is complete, before the table counts as quiet.
    pub quiet: Duration,
    /// Without a new row for this long the arm counts as stalled.
    pub stall: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            coarse: Duration::from_millis(100),
            fine: Duration::from_millis(20),
            quiet: Duration::from_secs(2),
            stall: Duration::from_secs(60),
        }
    }
}

/// Rows in the target table at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Microseconds on the sampler's clock.
    pub at_us: u64,
    /// Rows visible then.
    pub rows: u64,
}

/// How the watching ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The corpus is there and the table is quiet.
    Complete,
    /// Rows are missing and none arrived for the stall limit.
    Stalled,
    /// The arm ended before the corpus was there.
    ArmEnded(String),
    /// Somebody stopped the run.
    Interrupted,
}

/// Everything seen while the topic drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drained {
    /// When the arm was started.
    pub started_us: u64,
    /// When it was first seen consuming.
    pub consuming_us: Option<u64>,
    /// Row counts in time order.
    pub observations: Vec<Observation>,
    /// How it ended.
    pub ending: Ending,
    /// When the watching ended; after [`Ending::Complete`] the table was quiet before it.
    pub ended_us: u64,
}

/// An interval of the run and the rows that became visible in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Start, microseconds on the sampler's clock.
    pub from_us: u64,
    /// End.
    pub to_us: u64,
    /// Rows that became visible between them.
    pub rows: u64,
}

impl Window {
    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.to_us.saturating_sub(self.from_us)) as f64 / 1e6
    }

    /// Rows per second, `None` for an empty interval.
    #[must_use]
    pub fn rows_per_s(&self) -> Option<f64> {
        let seconds = self.seconds();
        (seconds > 0.0).then(|| self.rows as f64 / seconds)
    }
}

/// Watches `scene` until `expected` rows are there and quiet, or until it is clear that they will not be.
///
/// # Errors
/// The scene's own, when the table cannot be observed.
pub fn watch<S: Scene>(scene: &mut S, expected: u64, pace: Pace) -> Result<Drained, S::Error> {
    let started_us = scene.now_us();
    let mut consuming_us = None;
    let mut observations: Vec<Observation> = Vec::new();
    let mut changed_us = started_us;
    let ending = loop {
        scene.check()?;
        if consuming_us.is_none() && scene.consuming() {
            consuming_us = Some(scene.now_us());
        }
        let rows = scene.rows()?;
        let at_us = scene.now_us();
        if observations.last().is_none_or(|last| last.rows != rows) {
            changed_us = at_us;
        }
        observations.push(Observation { at_us, rows });
        scene.progress(rows);
        let unchanged = Duration::from_micros(at_us - changed_us);
        if scene.interrupted() {
            break Ending::Interrupted;
        }
        if rows >= expected && unchanged >= pace.quiet {
            break Ending::Complete;
        }
        if rows < expected {
            if let Some(how) = scene.ended() {
                break Ending::ArmEnded(how);
            }
            if unchanged >= pace.stall {
                break Ending::Stalled;
            }
        }
        let near = rows < expected && rows >= expected - expected / 10;
        scene.pause(if near { pace.fine } else { pace.coarse });
    };
    Ok(Drained { started_us, consuming_us, observations, ending, ended_us: scene.now_us() })
}

impl Drained {
    /// From first consumption to the last row: the whole drain.
    ///
    /// First consumption is the moment the arm's consumer group was seen stable, and never later than the last
    /// observation of an empty table; `None` when no row ever landed.
    #[must_use]
    pub fn full_window(&self) -> Option<Window> {
        let last = self.observations.last().filter(|last| last.rows > 0)?;
        let complete = self.observations.iter().find(|seen| seen.rows >= last.rows)?;
        let empty = self.observations.iter().take_while(|seen| seen.rows == 0).last();
        let before_rows = empty.map_or(self.started_us, |seen| seen.at_us);
        let from_us = self.consuming_us.map_or(before_rows, |at| at.min(before_rows));
        Some(Window { from_us, to_us: complete.at_us, rows: last.rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that moves only when the loop waits, and a table filled by a function of it.
    struct Script<F: Fn(u64) -> u64> {
        now: u64,
        rows: F,
        consuming_from: u64,
        ends: Option<u64>,
        stop_at: u64,
    }

    impl<F: Fn(u64) -> u64> Scene for Script<F> {
        type Error = std::convert::Infallible;

        fn now_us(&self) -> u64 {
            self.now
        }
        fn check(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
        fn rows(&mut self) -> Result<u64, Self::Error> {
            Ok((self.rows)(self.now))
        }
        fn consuming(&mut self) -> bool {
            self.now >= self.consuming_from
        }
        fn ended(&mut self) -> Option<String> {
            self.ends.filter(|end| self.now >= *end).map(|_| "exit code 1".to_owned())
        }
        fn interrupted(&self) -> bool {
            self.now >= self.stop_at
        }
        fn progress(&mut self, _rows: u64) {}
        fn pause(&mut self, time: Duration) {
            self.now += u64::try_from(time.as_micros()).expect("short");
        }
    }

    fn script<F: Fn(u64) -> u64>(rows: F) -> Script<F> {
        Script { now: 0, rows, consuming_from: 0, ends: None, stop_at: u64::MAX }
    }

    fn watched<F: Fn(u64) -> u64>(mut scene: Script<F>, expected: u64) -> Drained {
        let Ok(drained) = watch(&mut scene, expected, Pace::default());
        drained
    }

    #[test]
    fn a_steady_drain_is_timed_from_first_consumption_to_last_row() {
        // 1,000 rows a second from t = 1 s, 10,000 in all
        let rows = |now: u64| (now.saturating_sub(1_000_000) / 1_000).min(10_000);
        let drained = watched(Script { consuming_from: 500_000, ..script(rows) }, 10_000);
        assert_eq!(drained.ending, Ending::Complete);
        let window = drained.full_window().expect("rows landed");
        assert_eq!((window.from_us, window.rows), (500_000, 10_000));
        assert!((11_000_000..=11_020_000).contains(&window.to_us), "the end is sharp to 20 ms: {window:?}");
    }

    #[test]
    fn a_duplicate_after_completion_is_waited_for() {
        let rows = |now: u64| {
            if now < 1_000_000 {
                0
            } else if now < 2_500_000 {
                100
            } else {
                101
            }
        };
        let drained = watched(script(rows), 100);
        assert_eq!(drained.ending, Ending::Complete);
        assert_eq!(drained.observations.last().map(|seen| seen.rows), Some(101));
    }

    #[test]
    fn a_lost_row_ends_as_stalled() {
        let drained = watched(script(|now| (now / 1_000).min(99)), 100);
        assert_eq!(drained.ending, Ending::Stalled);
    }

    #[test]
    fn an_arm_that_dies_early_is_named() {
        let drained = watched(Script { ends: Some(3_000_000), ..script(|_| 5) }, 100);
        assert_eq!(drained.ending, Ending::ArmEnded("exit code 1".to_owned()));
    }

    #[test]
    fn an_arm_may_end_once_its_rows_are_there() {
        let drained = watched(Script { ends: Some(0), ..script(|_| 100) }, 100);
        assert_eq!(drained.ending, Ending::Complete);
    }

    #[test]
    fn an_interruption_ends_the_watching() {
        let drained = watched(Script { stop_at: 1_000_000, ..script(|_| 5) }, 100);
        assert_eq!(drained.ending, Ending::Interrupted);
        assert!(drained.ended_us < 1_200_000);
    }

    #[test]
    fn no_rows_no_window() {
        let drained = watched(script(|_| 0), 100);
        assert_eq!(drained.full_window(), None);
    }
}

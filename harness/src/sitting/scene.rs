//! What the drain loop sees of a running arm.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::SittingError;
use super::stage::Stage;
use crate::measure::drain::Scene;
use crate::runtime::Running;
use crate::runtime::interrupt::{self, Interrupt};

/// Microseconds since the epoch, the sampler's clock.
#[must_use]
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// An arm draining into a table.
pub struct ArmScene<'a> {
    /// The arm.
    pub running: &'a mut dyn Running,
    /// What it runs against.
    pub stage: &'a mut Stage,
    /// The arm's consumer group.
    pub group: &'a str,
    /// The target table.
    pub table: &'a str,
    /// Told the rows after every observation.
    pub tell: &'a mut dyn FnMut(u64),
}

impl Scene for ArmScene<'_> {
    type Error = SittingError;

    fn now_us(&self) -> u64 {
        now_us()
    }

    fn check(&mut self) -> Result<(), SittingError> {
        self.stage.check()
    }

    fn rows(&mut self) -> Result<u64, SittingError> {
        let sql = format!("SELECT count() FROM {}", self.table);
        let answer = self.stage.client.query_text(&sql)?;
        answer.trim().parse().map_err(|_| SittingError::Answer { sql, answer })
    }

    fn consuming(&mut self) -> bool {
        // a broker that does not answer says nothing; the window then opens at the last empty observation
        matches!(self.stage.admin.group(self.group), Ok(Some(state)) if state.is_consuming())
    }

    fn ended(&mut self) -> Option<String> {
        self.running.exited().map(|exit| format!("the arm {exit}"))
    }

    fn interrupted(&self) -> bool {
        interrupt::pending() != Interrupt::None
    }

    fn progress(&mut self, rows: u64) {
        (self.tell)(rows);
    }

    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

//! Event time of an input: what its partitions have shown so far.

use serde::{Deserialize, Serialize};

use super::operator::{BEGINNING, END};

/// Event time of one input, a clock for every partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    partitions: Vec<Clock>,
    /// How far behind the latest row another one may come, in microseconds.
    delay: i64,
    /// The watermark never goes back.
    reached: i64,
}

/// Event time of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Clock {
    /// The latest event time seen.
    latest: i64,
    /// No row will come any more.
    ended: bool,
    /// Nothing comes at the moment: it holds nothing back.
    #[serde(default, skip)]
    idle: bool,
}

impl Clocks {
    /// Clocks that have seen nothing.
    #[must_use]
    pub fn new(partitions: u32, delay: i64) -> Self {
        let clock = Clock { latest: BEGINNING, ended: false, idle: false };
        Self { partitions: vec![clock; partitions as usize], delay, reached: BEGINNING }
    }

    /// Takes note of the latest event time of rows of a partition.
    pub fn observe(&mut self, partition: u32, latest: i64) {
        if let Some(clock) = self.partitions.get_mut(partition as usize) {
            clock.latest = clock.latest.max(latest);
        }
    }

    /// A partition has been read to its end.
    pub fn end(&mut self, partition: u32) {
        if let Some(clock) = self.partitions.get_mut(partition as usize) {
            clock.ended = true;
        }
    }

    /// Says which partitions have nothing to read.
    pub fn set_idle(&mut self, idle: &[u32]) {
        for (number, clock) in self.partitions.iter_mut().enumerate() {
            clock.idle = idle.iter().any(|p| *p as usize == number);
        }
    }

    /// What is behind all partitions: no row with an earlier time is on time. [`END`] once all have ended; partitions that
    /// are idle hold nothing back unless all are.
    pub fn watermark(&mut self) -> i64 {
        if self.partitions.iter().all(|clock| clock.ended) {
            self.reached = END;
            return END;
        }
        let open = self.partitions.iter().filter(|clock| !clock.ended && !clock.idle);
        let least = open.map(|clock| clock.latest).min().unwrap_or(BEGINNING);
        self.reached = self.reached.max(before(least, self.delay));
        self.reached
    }

    /// The latest event time of a partition, and the least of the others that may still send rows; [`END`] when there is
    /// none.
    #[must_use]
    pub fn around(&self, partition: u32) -> (i64, i64) {
        let own = self.partitions.get(partition as usize).map_or(BEGINNING, |clock| clock.latest);
        let others = self.partitions.iter().enumerate().filter(|(number, _)| *number != partition as usize);
        let open = others.filter(|(_, clock)| !clock.ended && !clock.idle);
        (own, open.map(|(_, clock)| clock.latest).min().unwrap_or(END))
    }

    /// The watermark as it was said last.
    #[must_use]
    pub fn reached(&self) -> i64 {
        self.reached
    }

    /// Changes the delay, as a restart with another one does.
    pub fn set_delay(&mut self, delay: i64) {
        self.delay = delay;
    }

    /// The delay.
    #[must_use]
    pub fn delay(&self) -> i64 {
        self.delay
    }
}

/// `time − delay`, where nothing seen stays nothing.
#[must_use]
pub(super) fn before(time: i64, delay: i64) -> i64 {
    if time == BEGINNING { BEGINNING } else { time.saturating_sub(delay).max(BEGINNING + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_partition_rules() {
        let mut clocks = Clocks::new(2, 10);
        assert_eq!(clocks.watermark(), BEGINNING);
        clocks.observe(0, 100);
        assert_eq!(clocks.watermark(), BEGINNING);
        clocks.observe(1, 50);
        assert_eq!(clocks.watermark(), 40);
        clocks.observe(1, 45);
        assert_eq!(clocks.watermark(), 40);
        clocks.end(1);
        assert_eq!(clocks.watermark(), 90);
        clocks.end(0);
        assert_eq!(clocks.watermark(), END);
    }

    #[test]
    fn an_idle_partition_holds_nothing_back_and_the_watermark_never_returns() {
        let mut clocks = Clocks::new(2, 0);
        clocks.observe(0, 100);
        clocks.set_idle(&[1]);
        assert_eq!(clocks.watermark(), 100);
        clocks.set_idle(&[]);
        clocks.observe(1, 7);
        assert_eq!(clocks.watermark(), 100);
        clocks.set_idle(&[0, 1]);
        assert_eq!(clocks.watermark(), 100);
        assert_eq!(before(BEGINNING, 5), BEGINNING);
        assert_eq!(before(i64::MIN + 3, 5), BEGINNING + 1);
    }
}

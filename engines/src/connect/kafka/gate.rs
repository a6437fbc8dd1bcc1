//! A gate between workers and a rebalance: while it is closed, no worker holds a message.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Workers are inside while they read. Closing the gate asks them to come out, and waits until they have.
#[derive(Debug, Default)]
pub struct Gate {
    inside: Mutex<usize>,
    changed: Condvar,
    closed: AtomicBool,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes in, waiting while the gate is closed. The worker is inside until the guard is dropped.
    pub fn enter(&self) -> Inside<'_> {
        let mut inside = self.lock();
        while self.closed() {
            inside = self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        *inside += 1;
        Inside(self)
    }

    /// Whether workers are asked to come out.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Closes the gate and waits until nobody is inside; `false` when that took longer than `limit`.
    pub fn close(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut inside = self.lock();
        self.closed.store(true, Ordering::SeqCst);
        while *inside > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let (next, _) = self.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner);
            inside = next;
        }
        true
    }

    /// Opens the gate.
    pub fn open(&self) {
        let _inside = self.lock();
        self.closed.store(false, Ordering::SeqCst);
        self.changed.notify_all();
    }
}

/// A worker inside the gate.
#[derive(Debug)]
pub struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn closing_waits_for_those_inside_and_keeps_others_out() {
        let gate = Gate::default();
        let (report, heard) = mpsc::channel();
        thread::scope(|scope| {
            let inside = gate.enter();
            scope.spawn(|| {
                assert!(gate.close(Duration::from_secs(60)));
                report.send("closed").unwrap();
            });
            while !gate.closed() {
                thread::yield_now();
            }
            assert_eq!(heard.try_recv(), Err(mpsc::TryRecvError::Empty));
            drop(inside);
            assert_eq!(heard.recv(), Ok("closed"));
            scope.spawn(|| {
                drop(gate.enter());
                report.send("entered").unwrap();
            });
            gate.open();
            assert_eq!(heard.recv(), Ok("entered"));
        });
    }

    #[test]
    fn closing_gives_up_when_somebody_stays() {
        let gate = Gate::default();
        let _inside = gate.enter();
        assert!(!gate.close(Duration::from_millis(1)));
    }
}

//! The watermark of a bounded input at each of its stretches, exact although workers decode them in parallel.

use std::sync::{Condvar, Mutex, PoisonError};

use super::watermark::Clocks;

/// Hands the clocks from one stretch to the next.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<Turn>,
    passed: Condvar,
}

#[derive(Debug)]
struct Turn {
    /// Number of the stretch whose turn it is.
    next: u64,
    clocks: Clocks,
    /// A worker has failed: nobody waits any more.
    broken: bool,
}

impl Turns {
    /// The first stretch has the number `next`.
    pub(super) fn new(clocks: Clocks, next: u64) -> Self {
        Self { state: Mutex::new(Turn { next, clocks, broken: false }), passed: Condvar::new() }
    }

    /// Waits for the stretches before `order`, lets `look` see and move the clocks, and passes them on. `None` when a worker
    /// has failed.
    pub(super) fn pass<T>(&self, order: u64, look: impl FnOnce(&mut Clocks) -> T) -> Option<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.next != order && !state.broken {
            state = self.passed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.broken {
            return None;
        }
        let seen = look(&mut state.clocks);
        state.next += 1;
        self.passed.notify_all();
        Some(seen)
    }

    /// Wakes whoever waits for a stretch that will not pass.
    pub(super) fn give_up(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).broken = true;
        self.passed.notify_all();
    }

    /// The clocks and the number of the next stretch, between rounds.
    pub(super) fn clocks(&self) -> (Clocks, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.clocks.clone(), state.next)
    }
}

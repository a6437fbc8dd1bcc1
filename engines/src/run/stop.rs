//! A request to stop: SIGTERM and SIGINT end a run gracefully, a second one ends it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Asks whether the run should end.
#[derive(Debug, Clone)]
pub struct Stop(Source);

#[derive(Debug, Clone)]
enum Source {
    Signals,
    Flag(Arc<AtomicBool>),
}

impl Stop {
    /// Turns SIGTERM and SIGINT into a request; the second signal ends the process at once.
    #[must_use]
    pub fn on_signals() -> Self {
        extern "C" fn request(signal: libc::c_int) {
            if REQUESTED.swap(true, Ordering::SeqCst) {
                // SAFETY: `_exit` is async-signal-safe.
                unsafe { libc::_exit(128 + signal) }
            }
        }
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: the handler only touches an atomic and calls `_exit`, both async-signal-safe.
            unsafe { libc::signal(signal, request as *const () as libc::sighandler_t) };
        }
        Self(Source::Signals)
    }

    /// A request made by calling [`Stop::request`].
    #[must_use]
    pub fn manual() -> Self {
        Self(Source::Flag(Arc::new(AtomicBool::new(false))))
    }

    /// Asks the run to end.
    pub fn request(&self) {
        match &self.0 {
            Source::Signals => REQUESTED.store(true, Ordering::SeqCst),
            Source::Flag(flag) => flag.store(true, Ordering::SeqCst),
        }
    }

    /// Whether the run should end.
    #[must_use]
    pub fn requested(&self) -> bool {
        match &self.0 {
            Source::Signals => REQUESTED.load(Ordering::Relaxed),
            Source::Flag(flag) => flag.load(Ordering::Relaxed),
        }
    }
}

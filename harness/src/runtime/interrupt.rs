//! SIGINT, SIGTERM and SIGHUP as a flag that the run loop polls.
//!
//! The first signal asks for a graceful end, the second for an immediate one, the third ends the process at once
//! (its supervisors then end the services, as after any death of it).

use std::sync::atomic::{AtomicU8, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static COUNT: AtomicU8 = AtomicU8::new(0);

/// What the user has asked for so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interrupt {
    /// Nothing: go on.
    None,
    /// Finish cleanly: stop services with their grace, append what is known.
    Graceful,
    /// Stop now: kill services.
    Immediate,
}

/// Catches the signals from now on; one that is ignored already (`nohup`) stays ignored.
///
/// # Errors
/// When the kernel refuses a handler, which it does for no reason known.
pub fn install() -> std::io::Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only touches an atomic and calls `_exit`, both async-signal-safe.
        let before = unsafe { sigaction(signal, &action) }?;
        if matches!(before.handler(), SigHandler::SigIgn) {
            // SAFETY: this restores what was there.
            unsafe { sigaction(signal, &before) }?;
        }
    }
    Ok(())
}

/// What has been asked for since [`install`].
#[must_use]
pub fn pending() -> Interrupt {
    match COUNT.load(Ordering::Relaxed) {
        0 => Interrupt::None,
        1 => Interrupt::Graceful,
        _ => Interrupt::Immediate,
    }
}

extern "C" fn note(signal: libc::c_int) {
    if COUNT.fetch_add(1, Ordering::Relaxed) >= 2 {
        // SAFETY: `_exit` is async-signal-safe and does not return.
        unsafe { libc::_exit(128 + signal) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test that raises these signals: the flag is one a process. SIGTERM, since what runs the tests may have
    /// them ignore SIGINT.
    #[test]
    fn first_signal_is_graceful_and_second_immediate() {
        install().expect("handlers can be set");
        assert_eq!(pending(), Interrupt::None);
        nix::sys::signal::raise(Signal::SIGTERM).expect("we may signal ourselves");
        assert_eq!(pending(), Interrupt::Graceful);
        nix::sys::signal::raise(Signal::SIGTERM).expect("we may signal ourselves");
        assert_eq!(pending(), Interrupt::Immediate);
        COUNT.store(0, Ordering::Relaxed);
    }
}

//! Signals of a child as a terminal's shell would leave them, whoever runs the tests.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{SigHandler, Signal, signal};

/// Lets the child of `command` be interrupted even where this process may not be: a shell without job control ignores
/// SIGINT in what it runs in the background, `nohup` ignores SIGHUP, and a child inherits both.
pub(crate) fn interruptible(command: &mut Command) {
    // SAFETY: `signal` is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            for one in [Signal::SIGINT, Signal::SIGHUP] {
                signal(one, SigHandler::SigDfl)?;
            }
            Ok(())
        });
    }
}

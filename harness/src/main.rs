//! `bench`: measure streaming systems and publish what was found.

use std::process::ExitCode;

use weir_harness::cmd::Bench;

fn main() -> ExitCode {
    Bench::main()
}

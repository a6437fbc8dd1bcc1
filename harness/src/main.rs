//! `bench`: measure streaming systems and publish what was found.

use std::process::ExitCode;

use clap::Parser;
use weir_harness::cmd::Bench;

fn main() -> ExitCode {
    Bench::parse().run()
}

//! The `freshet` command.

use std::process::ExitCode;

use clap::Parser;
use freshet::cli::{Cli, ErrorFormat};
use freshet::run::stop::Stop;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let stop = Stop::on_signals();
    match freshet::run::run(&cli, &stop) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.exit_code();
            if code != 0 {
                match cli.errors {
                    ErrorFormat::Text => eprintln!("{}", error.to_text()),
                    ErrorFormat::Json => eprintln!("{}", error.to_json()),
                }
            }
            ExitCode::from(code)
        }
    }
}

//! `bench verify`: walk the hash chain of every results file.

use clap::Args as ClapArgs;
use weir_model::archive::Archive;
use weir_model::error::Coded;

use super::root::Root;

/// Arguments of `bench verify`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    root: Root,
}

/// The archive is not what was appended to it.
#[derive(Debug, thiserror::Error)]
#[error("{count} places of the archive are not what was appended:\n{listed}")]
pub struct Damaged {
    count: usize,
    listed: String,
}

impl Coded for Damaged {
    fn code(&self) -> &'static str {
        "archive_damaged"
    }

    fn hint(&self) -> Option<String> {
        Some("restore the named file from version control; a wrong result is retracted, never edited".into())
    }
}

/// Runs the verb.
///
/// # Errors
/// When the archive cannot be read, or is not what was appended.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    let root = args.root.find()?;
    let archive = Archive::open(root.join("results"))?;
    let report = archive.verify()?;
    for torn in &report.torn {
        let state = if torn.sealed { "sealed" } else { "the next append seals it" };
        eprintln!("note: {}:{}: an unfinished line at byte {}; {state}", torn.file.display(), torn.line, torn.byte);
    }
    if report.is_whole() {
        for file in &report.files {
            say!("{}  {} lines  {}", file.head, file.lines, file.file.display());
        }
        say!("{} files, every line follows from the one before", report.files.len());
        return Ok(());
    }
    let mut listed = Vec::new();
    for damage in &report.damage {
        let place = match archive.first_change(damage)? {
            Some(change) => format!("\n    {change}"),
            None => String::new(),
        };
        listed.push(format!("{damage}{place}"));
    }
    Err(Box::new(Damaged { count: listed.len(), listed: listed.join("\n") }))
}

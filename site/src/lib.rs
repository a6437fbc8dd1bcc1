//! Reads the archive and draws Weir's pages: static files that ask no other host for anything.

mod chart;
mod out;
mod page;

use std::io;
use std::path::{Path, PathBuf};

use askama::Template;
use weir_model::archive::{Archive, ArchiveError, Contents};
use weir_model::descriptor::Entrant;
use weir_model::diagnostic::Problems;
use weir_model::environment::Environment;
use weir_model::error::Coded;
use weir_model::id::Trigger;
use weir_model::record::Record;
use weir_model::summary::summarise;

/// What was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The page.
    pub index: PathBuf,
    /// Records read.
    pub records: usize,
    /// Comparability groups drawn.
    pub groups: usize,
    /// Whether the archive verifies; the page says so if not.
    pub archive_is_whole: bool,
}

/// Why nothing was published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A descriptor or a profile is wrong.
    #[error("a descriptor or an environment is wrong\n\n{0}")]
    Problems(#[from] Problems),
    /// The page could not be drawn.
    #[error("cannot draw the page: {0}")]
    Template(#[from] askama::Error),
    /// The page could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Coded for PublishError {
    fn code(&self) -> &'static str {
        match self {
            Self::Archive(error) => error.code(),
            Self::Problems(error) => error.code(),
            Self::Template(_) => "template",
            Self::Write { .. } => "publish_write",
        }
    }
}

/// Draws the archive in `results` into the folder `out`, which is made if it is not there.
///
/// # Errors
/// When something cannot be read, is wrong, or cannot be written.
pub fn publish(results: &Path, entrants: &Path, environments: &Path, out: &Path) -> Result<Published, PublishError> {
    let contents = Archive::open(results)?.read()?;
    let entrants = Entrant::load_all(entrants)?;
    let environments = Environment::load_all(environments)?;
    let groups = summarise(published(&contents));
    let html = page::Page::new(&contents, &groups, &entrants, &environments).render()?;
    let index = out::write(out, "index.html", &html)?;
    Ok(Published {
        index,
        records: contents.records.len(),
        groups: groups.len(),
        archive_is_whole: contents.report.is_whole(),
    })
}

/// Records that are for readers: not those of changes under review or of tuning.
fn published(contents: &Contents) -> impl Iterator<Item = &Record> {
    contents.records.iter().map(|found| &found.record).filter(|record| match record {
        Record::Measurement(it) => !matches!(it.trigger, Trigger::PullRequest | Trigger::Tuning),
        _ => true,
    })
}

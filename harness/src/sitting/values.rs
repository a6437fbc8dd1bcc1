//! The values of an arm's placeholders in one run, and its files rendered with them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use weir_model::descriptor::{Container, Placeholder, RenderError, Variant, render};
use weir_model::error::Coded;
use weir_model::id::Tier;

use crate::infra::container::{BINS, LIBCHDB};
use crate::runtime::Caps;
use crate::runtime::docker::RUN_DIR;

/// Where a run's arm finds what it talks to.
#[derive(Debug, Clone)]
pub struct Endpoints {
    /// `host:port` of the broker.
    pub broker: String,
    /// `host:port` of the schema registry.
    pub registry: String,
    /// `host:port` of ClickHouse's HTTP interface.
    pub clickhouse: String,
    /// The topic to drain.
    pub topic: String,
}

/// Everything a placeholder can stand for in one run.
#[derive(Debug)]
pub struct Values<'a> {
    /// Where things are.
    pub endpoints: &'a Endpoints,
    /// The target table.
    pub table: &'a str,
    /// The consumer group, new for this run.
    pub group: &'a str,
    /// Which pipeline.
    pub tier: Tier,
    /// Caps of the data plane in force.
    pub caps: Caps,
    /// The variant, for its knobs.
    pub variant: &'a Variant,
    /// Containers of the arm; without containers of its own each is this host.
    pub containers: &'a [Container],
    /// The entrant's folder.
    pub entrant_dir: &'a Path,
    /// The run's own folder.
    pub run_dir: &'a Path,
    /// The folder of the binaries of this workspace.
    pub bins: &'a Path,
    /// The ClickHouse library.
    pub chdb: &'a Path,
    /// Whether the arm runs in containers, which have their own paths and host names.
    pub contained: bool,
}

/// Why an arm's texts could not be filled in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValuesError {
    /// A placeholder is unknown or has no value.
    #[error("{place}: {source}")]
    Render {
        /// The text it stands in.
        place: String,
        /// What is wrong.
        source: RenderError,
    },
    /// A file of the entrant cannot be read, or its rendered copy not be written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Coded for ValuesError {
    fn code(&self) -> &'static str {
        match self {
            Self::Render { source, .. } => source.code(),
            Self::File { .. } => "entrant_file",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Render { source, .. } => source.hint(),
            Self::File { .. } => None,
        }
    }
}

impl Values<'_> {
    /// `text` with its placeholders replaced; the files it names are rendered into the run's folder.
    ///
    /// # Errors
    /// When a placeholder has no value or a file cannot be read or written; `place` says where the text stands.
    pub fn fill(&self, place: &str, text: &str) -> Result<String, ValuesError> {
        for piece in weir_model::descriptor::pieces(text) {
            if let weir_model::descriptor::Piece::Placeholder(Placeholder::File(name)) = piece {
                self.render_file(&Placeholder::file_of(&name, self.tier))?;
            }
        }
        render(text, &|placeholder| self.lookup(placeholder))
            .map_err(|source| ValuesError::Render { place: place.to_owned(), source })
    }

    fn render_file(&self, name: &str) -> Result<(), ValuesError> {
        let from = self.entrant_dir.join(name);
        let text = fs::read_to_string(&from).map_err(|source| ValuesError::File { path: from.clone(), source })?;
        let rendered = render(&text, &|placeholder| self.lookup(placeholder))
            .map_err(|source| ValuesError::Render { place: from.display().to_string(), source })?;
        let to = self.run_dir.join(name);
        let write = || -> io::Result<()> {
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&to, rendered)
        };
        write().map_err(|source| ValuesError::File { path: to.clone(), source })
    }

    /// The run's folder as the arm sees it.
    fn run_dir(&self) -> &Path {
        if self.contained { Path::new(RUN_DIR) } else { self.run_dir }
    }

    fn lookup(&self, placeholder: &Placeholder) -> Option<String> {
        let shown = |path: PathBuf| Some(path.display().to_string());
        match placeholder {
            Placeholder::Broker => Some(self.endpoints.broker.clone()),
            Placeholder::Registry => Some(self.endpoints.registry.clone()),
            Placeholder::Clickhouse => Some(self.endpoints.clickhouse.clone()),
            Placeholder::Topic => Some(self.endpoints.topic.clone()),
            Placeholder::Table => Some(self.table.to_owned()),
            Placeholder::Database => Some("default".to_owned()),
            Placeholder::GroupId => Some(self.group.to_owned()),
            Placeholder::OffsetReset => Some("earliest".to_owned()),
            Placeholder::Tier => Some(self.tier.to_string()),
            Placeholder::EntrantDir => shown(self.entrant_dir.to_path_buf()),
            Placeholder::RunDir => shown(self.run_dir().to_path_buf()),
            Placeholder::EnvelopeCpus => Some(self.caps.cpus.to_string()),
            Placeholder::EnvelopeMemory => Some(self.caps.memory.to_string()),
            Placeholder::Knob(name) => self.variant.knobs.get(name).map(ToString::to_string),
            Placeholder::Container(name) => {
                let known = self.containers.iter().any(|container| container.name == *name);
                known.then(|| if self.contained { name.clone() } else { "127.0.0.1".to_owned() })
            }
            Placeholder::File(name) => shown(self.run_dir().join(Placeholder::file_of(name, self.tier))),
            Placeholder::Library(name) => {
                let library = if self.contained { Path::new(LIBCHDB) } else { self.chdb };
                (name == "chdb").then(|| library.display().to_string())
            }
            Placeholder::Bin(name) => {
                shown(if self.contained { Path::new(BINS).join(name) } else { self.bins.join(name) })
            }
        }
    }
}

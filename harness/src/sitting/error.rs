//! What ends a sitting early.

use std::io;
use std::path::{Path, PathBuf};

use weir_model::error::Coded;

use crate::runtime::Exit;

macro_rules! wraps {
    ($($variant:ident($inner:ty), $doc:literal;)+) => {
        /// Why a sitting could not go on. What is wrong with an arm is not here: it is recorded, and the sitting goes on.
        #[derive(Debug, thiserror::Error)]
        #[non_exhaustive]
        pub enum SittingError {
            $(
                #[doc = $doc]
                #[error(transparent)]
                $variant(#[from] $inner),
            )+
            /// A folder cannot be made.
            #[error("cannot make {path}: {source}")]
            Folder {
                /// The folder.
                path: PathBuf,
                /// The system's reason.
                source: io::Error,
            },
            /// A part of the infrastructure ended by itself.
            #[error("{what} {exit}; its log is {}", log.display())]
            InfraEnded {
                /// Which.
                what: &'static str,
                /// How.
                exit: Exit,
                /// Its log.
                log: PathBuf,
            },
            /// ClickHouse gave another answer than was asked for.
            #[error("ClickHouse answered `{answer}` to: {sql}")]
            Answer {
                /// The statement.
                sql: String,
                /// The answer.
                answer: String,
            },
            /// The gate's query gave something else than rows of it.
            #[error(transparent)]
            GateRow(#[from] crate::workload::gate::GateRowError),
            /// Ctrl-C or SIGTERM.
            #[error("interrupted; nothing of the run under way is recorded")]
            Interrupted,
            /// Runs failed.
            #[error("{failed} of {all} runs have no numbers: {}", labels.join(", "))]
            RunsFailed {
                /// How many.
                failed: usize,
                /// Of how many.
                all: usize,
                /// Which arms.
                labels: Vec<String>,
            },
        }

        impl Coded for SittingError {
            fn code(&self) -> &'static str {
                match self {
                    $(Self::$variant(inner) => inner.code(),)+
                    Self::Folder { .. } => "folder",
                    Self::InfraEnded { .. } => "infra_ended",
                    Self::Answer { .. } | Self::GateRow(_) => "clickhouse_answer",
                    Self::Interrupted => "interrupted",
                    Self::RunsFailed { .. } => "runs_failed",
                }
            }

            fn hint(&self) -> Option<String> {
                match self {
                    $(Self::$variant(inner) => inner.hint(),)+
                    Self::RunsFailed { .. } => Some("the table and each record's note say why".into()),
                    _ => None,
                }
            }

            fn refused(&self) -> bool {
                match self {
                    $(Self::$variant(inner) => inner.refused(),)+
                    _ => false,
                }
            }
        }
    };
}

wraps! {
    Build(crate::build::BuildError), "An artefact cannot be built.";
    Setup(crate::setup::SetupError), "The embedded environment cannot be fetched.";
    Lock(crate::runtime::lock::LockError), "Another sitting holds the host.";
    Runtime(crate::runtime::RuntimeError), "A service cannot be started.";
    Docker(crate::runtime::docker::DockerError), "The Docker engine failed.";
    Register(crate::infra::registry::RegisterError), "The registry does not hold the schema.";
    Cgroup(crate::cgroup::CgroupError), "Control groups cannot be used.";
    Sampler(crate::measure::sampler::SamplerError), "The sampler failed.";
    Series(crate::measure::series::SeriesError), "The samples cannot be kept.";
    Client(crate::infra::clickhouse::ClientError), "ClickHouse failed.";
    Broker(crate::infra::broker::BrokerError), "The broker failed.";
    EmbeddedBroker(crate::infra::embedded::broker::EmbeddedBrokerError), "The broker does not start.";
    Launch(crate::infra::embedded::clickhouse::LaunchError), "ClickHouse does not start.";
    Registry(crate::infra::embedded::registry::RegistryError), "The registry does not start.";
    Spec(crate::workload::spec::SpecError), "The workload is wrong.";
    Fill(crate::workload::producer::FillError), "The topic cannot be filled.";
    Archive(weir_model::archive::ArchiveError), "The archive cannot be written.";
}

impl SittingError {
    /// Wraps why `path` could not be made.
    pub(super) fn folder(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Folder { path, source }
    }
}

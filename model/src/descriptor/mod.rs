//! The descriptor of an entrant: `entrants/<id>/entrant.toml`.
//!
//! Reading is strict and reports everything wrong at once. The rules are in `check` and `fairness`, one rejected example each in
//! `model/tests/rejected/`.

mod check;
mod fairness;
mod placeholder;
mod read;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Problem, Problems};
use crate::id::{Approach, EntrantId, Role, VariantId, WireFormat, WorkloadId};
use crate::record::{Guarantees, Knob};

pub use placeholder::{Piece, Placeholder, RenderError, pieces, render};

/// A system and how it is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Entrant {
    /// Who it is.
    pub identity: Identity,
    /// Who keeps the arm and who has looked at it.
    pub maintainer: Maintainer,
    /// How its version is read from the artefact.
    pub version: Version,
    /// How it is built.
    pub build: Build,
    /// How it starts where there are no containers.
    pub process: Option<Process>,
    /// What it may use.
    pub envelope: Envelope,
    /// What it guarantees.
    pub guarantees: Guarantees,
    /// Environment variables of the data plane, with placeholders.
    pub env: BTreeMap<String, String>,
    /// Knobs that must exceed others.
    pub constraints: Vec<Constraint>,
    /// Its configurations; exactly one is the default.
    pub variants: Vec<Variant>,
    /// Where it departs from the specification.
    pub deviations: Vec<Deviation>,
    /// What it needs on the shared ClickHouse.
    pub clickhouse: Option<ServerSide>,
}

/// Who an entrant is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its folder and the join key of its records.
    pub id: EntrantId,
    /// For people.
    pub name: String,
    /// Its page.
    pub homepage: String,
    /// Its source.
    pub repo: String,
    /// SPDX expression, or `LicenseRef-…` with a link.
    pub licence: String,
    /// The text of a licence that SPDX does not list.
    pub licence_link: Option<String>,
    /// Who makes it; `self` is whoever makes this suite.
    pub vendor: String,
    /// Such as `streaming-engine`.
    pub kind: String,
    /// What it is written in.
    pub language: Vec<String>,
    /// Such as `native` or `jvm`.
    pub runtime: String,
    /// Whether it is measured.
    pub status: EntrantStatus,
}

words! {
    /// Whether an entrant is measured.
    EntrantStatus is "entrant status" {
        /// Yes.
        Active = "active",
        /// Not yet.
        Planned = "planned",
        /// No longer; its records stay.
        Historical = "historical",
        /// Its makers asked for it not to be; its records stay.
        Withdrawn = "withdrawn",
    }
}

/// Who keeps an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintainer {
    /// Who wrote it.
    pub who: String,
    /// Whether the system's own maintainers have looked at it.
    pub reviewed_upstream: bool,
    /// What they said.
    pub reviews: Vec<Review>,
}

/// What a maintainer of the system said about its arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// When, as `YYYY-MM-DD`.
    pub date: String,
    /// Where.
    pub link: String,
    /// What was said.
    pub said: String,
    /// What was done about it.
    pub done: String,
}

/// How an artefact says which version it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Run against the artefact that is measured; its output contains the version.
    pub command: Vec<String>,
    /// The version it must say.
    pub pinned: String,
    /// The newest release known, where it is not the pinned one.
    pub newest: Option<String>,
    /// The file whose SHA-256 identifies what ran, with placeholders; the built binary if it is not given.
    pub artefact: Option<String>,
}

/// How an entrant is built.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Build {
    /// The package of this workspace that holds its binary.
    pub cargo: Option<String>,
    /// The binary of that package.
    pub bin: Option<String>,
    /// The container image.
    pub image: Option<String>,
    /// What the image is built from, in the entrant's folder; without it, the image is pulled.
    pub dockerfile: Option<String>,
}

/// How an arm starts where there are no containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Program and arguments, with placeholders. A program without a slash is the built binary of that name, or one
    /// on the search path.
    pub command: Vec<String>,
    /// Environment variables on top of the entrant's, with placeholders.
    pub env: BTreeMap<String, String>,
}

/// What an arm may use on the reference environment.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// CPUs of the data plane.
    pub cpus: f64,
    /// Bytes of the data plane.
    pub memory: u64,
    /// Its containers; exactly one is the data plane.
    pub containers: Vec<Container>,
}

/// One container of an arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    /// Whose work it does.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// CPUs.
    pub cpus: f64,
    /// Bytes.
    pub memory: u64,
    /// Where a JVM writes its collector's log.
    pub gc_log: Option<String>,
    /// Its image, where it is not the entrant's.
    pub image: Option<String>,
    /// Its program and arguments, with placeholders. Without them a data plane runs what `[process]` says, a control
    /// plane its image's own command.
    pub command: Vec<String>,
}

/// A knob that must exceed another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// The larger.
    pub knob: String,
    /// The smaller.
    pub exceeds: String,
    /// Why.
    pub why: String,
}

/// One configuration of an entrant.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// Its id.
    pub id: VariantId,
    /// What it can run.
    pub workloads: Vec<WorkloadId>,
    /// What it may claim.
    pub approach: Approach,
    /// Whether it is the one that runs when none is named.
    pub default: bool,
    /// The format it inserts in.
    pub wire_format: WireFormat,
    /// Its knobs.
    pub knobs: BTreeMap<String, Knob>,
    /// What holds it back.
    pub binding: Binding,
}

/// What holds a variant back, and by which evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The constraint.
    pub constraint: BindingConstraint,
    /// Names of metrics and facts that show it.
    pub evidence: Vec<String>,
    /// Why it is this fast and not twice as fast.
    pub sentence: String,
}

words! {
    /// What can hold an arm back.
    BindingConstraint is "binding constraint" {
        /// Its CPU cap.
        Cpu = "cpu",
        /// The broker.
        Broker = "broker",
        /// ClickHouse.
        Sink = "sink",
        /// Its memory cap, or memory bandwidth.
        Memory = "memory",
        /// A lock or another serial part.
        Lock = "lock",
        /// Its garbage collector.
        Gc = "gc",
        /// The network.
        Network = "network",
    }
}

/// Where an arm departs from the specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    /// What is different.
    pub what: String,
    /// Why.
    pub why: String,
    /// What it bears on.
    pub affects: Vec<Affects>,
}

words! {
    /// What a deviation bears on.
    Affects is "thing a deviation affects" {
        /// What the envelope bounds.
        Envelope = "envelope",
        /// Work moves to the server.
        ServerSide = "server-side",
        /// What is guaranteed.
        Guarantees = "guarantees",
        /// How rows travel.
        WireFormat = "wire-format",
        /// What the pipeline does.
        Pipeline = "pipeline",
        /// How it is measured.
        Measurement = "measurement",
    }
}

/// What an arm needs on the shared ClickHouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSide {
    /// File of statements to run before the arm starts, with placeholders.
    pub arm_sql: String,
    /// File of statements to run after it.
    pub arm_teardown_sql: Option<String>,
    /// Tables whose inserts are the arm's.
    pub attribution_tables: Vec<String>,
}

impl Entrant {
    /// Reads the descriptor in an entrant's folder, and the files it names.
    ///
    /// # Errors
    /// Everything wrong with it.
    pub fn load(folder: &Path) -> Result<Self, Problems> {
        let path = folder.join("entrant.toml");
        let shown = path.display().to_string();
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&shown, &error))?;
        let id = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        Self::parse(&shown, &text, id, &|name| fs::read_to_string(folder.join(name)).ok())
    }

    /// Reads the text of a descriptor that stands in a folder called `folder`; `files` gives the text of the folder's
    /// other files.
    ///
    /// # Errors
    /// Everything wrong with it.
    pub fn parse(
        file: &str,
        text: &str,
        folder: &str,
        files: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Problems> {
        read::entrant(file, text, folder, files)
    }

    /// Reads every entrant below `folder`, in order of id.
    ///
    /// # Errors
    /// Everything wrong with any of them.
    pub fn load_all(folder: &Path) -> Result<Vec<Self>, Problems> {
        let shown = folder.display().to_string();
        let listing = fs::read_dir(folder).map_err(|error| unreadable(&shown, &error))?;
        let mut folders: Vec<PathBuf> = listing
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.join("entrant.toml").is_file())
            .collect();
        folders.sort();
        let (mut entrants, mut problems) = (Vec::new(), Problems::default());
        for folder in folders {
            match Self::load(&folder) {
                Ok(entrant) => entrants.push(entrant),
                Err(found) => problems.0.extend(found.0),
            }
        }
        problems.or(entrants)
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> &EntrantId {
        &self.identity.id
    }

    /// Its name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Whether whoever makes this suite makes this system too.
    #[must_use]
    pub fn is_our_own(&self) -> bool {
        self.identity.vendor == "self"
    }

    /// The variant that runs when none is named.
    #[must_use]
    pub fn default_variant(&self) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.default)
    }

    /// A variant by its id.
    #[must_use]
    pub fn variant(&self, id: &VariantId) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.id == *id)
    }

    /// The one container through which the rows pass.
    #[must_use]
    pub fn data_plane(&self) -> Option<&Container> {
        self.envelope.containers.iter().find(|container| container.role == Role::DataPlane)
    }

    /// The first rule that `knobs` break among the entrant's constraints.
    #[must_use]
    pub fn broken_constraint(&self, knobs: &BTreeMap<String, Knob>) -> Option<&Constraint> {
        self.constraints.iter().find(|constraint| {
            let number = |name: &str| knobs.get(name).and_then(Knob::number);
            matches!((number(&constraint.knob), number(&constraint.exceeds)), (Some(more), Some(less)) if more <= less)
        })
    }
}

fn unreadable(file: &str, error: &std::io::Error) -> Problems {
    let message = format!("cannot read it: {error}");
    Problems(vec![Problem { code: "unreadable", file: file.to_owned(), message, hint: None, place: None }])
}

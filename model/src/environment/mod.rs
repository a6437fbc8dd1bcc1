//! Environment profiles and hosts: where a measurement takes place, and what makes two places two.

mod host;
mod read;
mod scale;

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::diagnostic::{Problem, Problems};
use crate::digest::Digest;
use crate::error::Coded;
use crate::id::{Class, EnvId, ProfileId};

pub use host::HostFacts;
pub use scale::{EnvelopeScale, REFERENCE_CPUS, REFERENCE_MEMORY, Share};

/// `environments/<id>.toml`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Environment {
    /// Its file.
    pub id: ProfileId,
    /// How far its numbers reach.
    pub class: Class,
    /// How arms and infrastructure start.
    pub runtime: RuntimeKind,
    /// What a reader must know, shown in its own right.
    pub caveats: String,
    /// Share of the reference envelope.
    pub envelope_scale: EnvelopeScale,
    /// What the host is.
    pub host: Host,
    /// What arms run against.
    pub infra: Infra,
    /// How much a control may differ from itself, as a share.
    pub aa_spread: f64,
    /// Where measured ceilings are, relative to the profile.
    pub ceilings: Option<String>,
    /// The suite's own images, where containers are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<Images>,
    /// The Docker host that arms run on; none is this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_host: Option<String>,
}

/// The images that the suite itself needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Images {
    /// What images are built from: `WEIR_BASE` in a Dockerfile.
    pub base: ImageSource,
    /// The `bench` command, which samples and serves: `WEIR_TOOLS` in a Dockerfile.
    pub tools: ImageSource,
}

/// An image and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageSource {
    /// Its name.
    pub image: String,
    /// What it is built from, relative to the file that names it; without it, the image is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerfile: Option<String>,
}

words! {
    /// How arms and infrastructure start.
    RuntimeKind is "runtime" {
        /// Containers.
        Docker = "docker",
        /// Processes in control groups of their own.
        Process = "process",
    }
}

/// Facts a profile states about its host; those not stated are detected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Host {
    /// For people.
    pub description: String,
    /// CPU model.
    pub cpu: Option<String>,
    /// CPUs.
    pub cores: Option<u32>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Architecture.
    pub arch: Option<String>,
    /// Operating system.
    pub os: Option<String>,
}

/// What arms run against.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Infra {
    /// Partitions of the topic.
    pub partitions: u32,
    /// The broker.
    pub broker: Service,
    /// ClickHouse.
    pub clickhouse: Service,
    /// Which schema registry.
    pub registry: RegistryKind,
    /// `host:port` of a registry that is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry_url: Option<String>,
}

/// A part of the infrastructure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Service {
    /// Which product.
    pub kind: ServiceKind,
    /// The image, where containers are used.
    pub image: Option<ImageSource>,
    /// CPUs it may use.
    pub cpus: Share<f64>,
    /// Bytes it may use.
    pub memory: Share<u64>,
    /// The Docker host it runs on; none is this one.
    pub docker_host: Option<String>,
}

words! {
    /// A product that serves as infrastructure.
    ServiceKind is "kind of service" {
        /// Apache Kafka.
        Kafka = "kafka",
        /// Redpanda.
        Redpanda = "redpanda",
        /// ClickHouse.
        Clickhouse = "clickhouse",
        /// The engine of ClickHouse from its library, behind the suite's HTTP front.
        Chdb = "chdb",
    }
}

words! {
    /// Which schema registry.
    RegistryKind is "kind of registry" {
        /// The harness's own.
        Embedded = "embedded",
        /// The broker's own.
        RedpandaBuiltin = "redpanda-builtin",
        /// One that is there already.
        Url = "url",
    }
}

/// A profile on a host: caps in figures, and the identity of both.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The profile and eight digits of the digest.
    pub id: EnvId,
    /// Of the profile, the host's facts and the scale.
    pub digest: Digest,
    /// Share of the reference envelope.
    pub scale: f64,
    /// Caps of the broker.
    pub broker: ServiceCaps,
    /// Caps of ClickHouse.
    pub clickhouse: ServiceCaps,
}

/// Caps in figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ServiceCaps {
    /// CPUs.
    pub cpus: f64,
    /// Bytes.
    pub memory: u64,
}

/// Why a profile does not fit a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// A stated fact is not true of the host.
    #[error("environment {profile} is for {what} {stated}, and this host has {found}")]
    OtherHost {
        /// The profile.
        profile: ProfileId,
        /// Which fact.
        what: &'static str,
        /// As stated.
        stated: String,
        /// As found.
        found: String,
    },
    /// The host is too small for any envelope.
    #[error("this host has {cores} CPUs and {memory}; the least envelope is 0.5 CPUs and 2 GiB for half of a host")]
    TooSmall {
        /// Its CPUs.
        cores: u32,
        /// Its memory.
        memory: String,
    },
}

impl Coded for EnvironmentError {
    fn code(&self) -> &'static str {
        match self {
            Self::OtherHost { .. } => "other_host",
            Self::TooSmall { .. } => "host_too_small",
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::OtherHost { .. }).then(|| "`bench list environments` names the others".to_owned())
    }

    fn refused(&self) -> bool {
        true
    }
}

impl Environment {
    /// Reads `environments/<id>.toml`.
    ///
    /// # Errors
    /// Everything wrong with it.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| {
            let message = format!("cannot read it: {error}");
            Problems(vec![Problem { code: "unreadable", file: file.clone(), message, hint: None, place: None }])
        })?;
        Self::parse(&file, &text, path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default())
    }

    /// Reads the text of a profile whose file is called `stem`.
    ///
    /// # Errors
    /// Everything wrong with it.
    pub fn parse(file: &str, text: &str, stem: &str) -> Result<Self, Problems> {
        read::environment(file, text, stem)
    }

    /// Reads every profile in `folder`, in order of id.
    ///
    /// # Errors
    /// Everything wrong with any of them.
    pub fn load_all(folder: &Path) -> Result<Vec<Self>, Problems> {
        let mut paths: Vec<_> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .collect();
        paths.sort();
        let (mut profiles, mut problems) = (Vec::new(), Problems::default());
        for path in paths {
            match Self::load(&path) {
                Ok(profile) => profiles.push(profile),
                Err(found) => problems.0.extend(found.0),
            }
        }
        problems.or(profiles)
    }

    /// Puts the profile on a host: its caps in figures and its identity there.
    ///
    /// # Errors
    /// When a stated fact is not true of the host, or the host is too small.
    pub fn resolve(&self, host: &HostFacts) -> Result<Resolved, EnvironmentError> {
        self.host.check(&self.id, host)?;
        let scale = self.envelope_scale.on(host)?;
        let caps = |service: &Service| ServiceCaps {
            cpus: service.cpus.of_cores(host.cores),
            memory: service.memory.of_bytes(host.memory),
        };
        let (broker, clickhouse) = (caps(&self.infra.broker), caps(&self.infra.clickhouse));
        let rounded = |caps: ServiceCaps| serde_json::json!({ "cpus": caps.cpus, "memory_gib": caps.memory >> 30 });
        let digest = Digest::of_json(&serde_json::json!({
            "profile": self,
            "host": host.identity(),
            "scale": scale,
            "broker": rounded(broker),
            "clickhouse": rounded(clickhouse),
        }));
        Ok(Resolved { id: self.id.on(&digest), digest, scale, broker, clickhouse })
    }
}

impl Host {
    /// Every stated fact is true of the host.
    fn check(&self, profile: &ProfileId, host: &HostFacts) -> Result<(), EnvironmentError> {
        let gib = |memory: u64| format!("{} GiB", memory.div_ceil(1 << 30));
        let facts = [
            ("CPU", self.cpu.clone(), host.cpu.clone()),
            ("cores", self.cores.map(|cores| cores.to_string()), host.cores.to_string()),
            ("memory", self.memory.map(gib), gib(host.memory)),
            ("architecture", self.arch.clone(), host.arch.clone()),
            ("operating system", self.os.clone(), host.os.clone()),
        ];
        for (what, stated, found) in facts {
            if let Some(stated) = stated.filter(|stated| *stated != found) {
                return Err(EnvironmentError::OtherHost { profile: profile.clone(), what, stated, found });
            }
        }
        Ok(())
    }
}

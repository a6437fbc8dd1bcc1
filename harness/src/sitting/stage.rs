//! The infrastructure of an environment, up and under its caps for as long as the value lives.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_model::digest::Digest;
use weir_model::environment::{RegistryKind, ServiceCaps};
use weir_model::record::{InfraFacts, ServiceFacts};

use super::SittingError;
use super::docker::Containers;
use super::upstream::Upstream;
use super::values::Endpoints;
use crate::infra::broker::Admin;
use crate::infra::clickhouse::Client;
use crate::infra::embedded::clickhouse::{self, Launch};
use crate::infra::embedded::registry::Registry;
use crate::measure::sampler::Sampler;
use crate::plan::RunPlan;
use crate::runtime::process::ProcessRuntime;
use crate::runtime::{Caps, Running, Runtime};
use crate::setup::Home;
use crate::workload::IngestSpec;

/// How long a part of the infrastructure is given to come up.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Broker, registry and ClickHouse, running.
pub struct Stage {
    // fields drop in this order: clients first, then what they talk to, then what started it
    /// Statements on the shared ClickHouse.
    pub client: Client,
    /// Questions to the broker.
    pub admin: Admin,
    /// ClickHouse's process.
    pub clickhouse: Box<dyn Running>,
    /// The broker's process.
    pub broker: Box<dyn Running>,
    pub(super) registry: Option<Box<dyn Running>>,
    pub(super) _served: Option<Registry>,
    pub(super) broker_version: String,
    /// Images of the broker and of ClickHouse.
    pub(super) images: [Option<Digest>; 2],
    /// Id of the workload's schema.
    pub schema_id: u32,
    /// Addresses for arms.
    pub endpoints: Endpoints,
    /// What starts arms.
    pub runtime: Box<dyn Runtime>,
    /// The `bench` binary.
    pub(super) bench: PathBuf,
    /// What arms are started from where they run in containers.
    pub(super) containers: Option<Containers>,
}

/// Where the parts of a stage are kept.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The repository.
    pub root: &'a Path,
    /// The cache directory.
    pub home: &'a Home,
    /// Scratch of the sitting.
    pub run: &'a Path,
    /// The `bench` binary.
    pub bench: &'a Path,
}

impl Stage {
    /// Starts everything under the caps of the plan's environment and waits until it serves.
    ///
    /// # Errors
    /// What could not be started, with the end of its log.
    pub fn open(
        plan: &RunPlan,
        spec: &IngestSpec,
        places: Places<'_>,
        runtime: ProcessRuntime,
    ) -> Result<Self, SittingError> {
        let mut upstream = Upstream::start(&plan.environment, plan.resolved.broker, spec, places, &runtime)?;
        let launch = launch(plan, places)?;
        let mut clickhouse_process = runtime.start(&clickhouse::service(&launch))?;
        let client = clickhouse::wait_ready(&launch, clickhouse_process.as_mut(), PATIENCE)?;
        let admin = upstream.wait_ready()?;
        let endpoints = Endpoints {
            broker: upstream.broker_address,
            registry: upstream.registry_address,
            clickhouse: client.url().trim_start_matches("http://").to_owned(),
            topic: spec.topic.name.clone(),
        };
        Ok(Self {
            client,
            admin,
            clickhouse: clickhouse_process,
            broker: upstream.process,
            endpoints,
            registry: upstream.registry,
            _served: upstream.served,
            broker_version: upstream.version,
            images: [None, None],
            schema_id: upstream.schema_id,
            runtime: Box::new(runtime),
            bench: places.bench.to_path_buf(),
            containers: None,
        })
    }

    /// The infrastructure as records tell it.
    ///
    /// # Errors
    /// When ClickHouse does not say its version.
    pub fn facts(&self, plan: &RunPlan) -> Result<InfraFacts, SittingError> {
        let capped = |kind: &str, version: String, caps: ServiceCaps, image: Option<Digest>| ServiceFacts {
            kind: kind.to_owned(),
            version,
            cpus: Some(caps.cpus),
            memory: Some(caps.memory),
            image,
        };
        let infra = &plan.environment.infra;
        let [broker_image, clickhouse_image] = self.images;
        let registry_version = match infra.registry {
            RegistryKind::Embedded => env!("CARGO_PKG_VERSION").to_owned(),
            RegistryKind::RedpandaBuiltin => self.broker_version.clone(),
            RegistryKind::Url => "unknown".to_owned(),
        };
        let clickhouse = self.client.query_text("SELECT version()")?.trim().to_owned();
        Ok(InfraFacts {
            partitions: infra.partitions,
            broker: capped(infra.broker.kind.as_str(), self.broker_version.clone(), plan.resolved.broker, broker_image),
            clickhouse: capped(infra.clickhouse.kind.as_str(), clickhouse, plan.resolved.clickhouse, clickhouse_image),
            registry: ServiceFacts {
                kind: infra.registry.to_string(),
                version: registry_version,
                cpus: None,
                memory: None,
                image: None,
            },
            ceilings: std::collections::BTreeMap::new(),
        })
    }

    /// The two numbers that a statement gives.
    ///
    /// # Errors
    /// When ClickHouse fails or gives something else.
    pub fn pair(&self, sql: &str) -> Result<(u64, u64), SittingError> {
        let answer = self.client.query_text(sql)?;
        let numbers: Vec<u64> = answer.trim().split('\t').filter_map(|text| text.parse().ok()).collect();
        match numbers[..] {
            [first, second] => Ok((first, second)),
            _ => Err(SittingError::Answer { sql: sql.to_owned(), answer }),
        }
    }

    /// Starts a sampler that writes to the new file `path`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn sampler(&self, path: &Path) -> Result<Sampler, SittingError> {
        match &self.containers {
            Some(containers) => Ok(containers.sampler(path)?),
            None => Ok(Sampler::start(&self.bench, path)?),
        }
    }

    /// Fails if a part of the infrastructure has ended.
    ///
    /// # Errors
    /// Which part, how, and where its log is.
    pub fn check(&mut self) -> Result<(), SittingError> {
        let mut parts = vec![("the broker", &mut self.broker), ("ClickHouse", &mut self.clickhouse)];
        if let Some(registry) = &mut self.registry {
            parts.push(("the schema registry", registry));
        }
        for (what, process) in parts {
            if let Some(exit) = process.exited() {
                return Err(SittingError::InfraEnded { what, exit, log: process.log().to_path_buf() });
            }
        }
        Ok(())
    }
}

pub(super) fn caps(of: ServiceCaps) -> Caps {
    Caps { cpus: of.cpus, memory: of.memory }
}

/// A ClickHouse with an empty data directory.
fn launch(plan: &RunPlan, places: Places<'_>) -> Result<Launch, SittingError> {
    let run = places.run.join("clickhouse");
    fs::create_dir_all(&run).map_err(SittingError::folder(&run))?;
    Ok(Launch {
        name: "clickhouse".into(),
        program: places.bench.to_path_buf(),
        library: places.home.libchdb(),
        data: run.join("data"),
        run,
        startup: None,
        config: None,
        users: vec![],
        caps: Some(caps(plan.resolved.clickhouse)),
    })
}

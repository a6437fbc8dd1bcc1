//! The infrastructure of the embedded environment, up and under its caps for as long as the value lives.

use std::fs;
use std::path::Path;
use std::time::Duration;

use weir_model::environment::ServiceCaps;
use weir_model::record::{InfraFacts, ServiceFacts};

use super::SittingError;
use super::values::Endpoints;
use crate::infra::broker::Admin;
use crate::infra::clickhouse::Client;
use crate::infra::embedded::broker::{Broker, BrokerSettings};
use crate::infra::embedded::clickhouse::{self, Launch};
use crate::infra::embedded::registry::Registry;
use crate::plan::RunPlan;
use crate::runtime::process::ProcessRuntime;
use crate::runtime::{Caps, Running, Runtime};
use crate::setup::Home;
use crate::setup::lock::{Lock, Name};
use crate::workload::IngestSpec;

/// How long a part of the infrastructure is given to come up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest heap of the broker: beyond it page cache serves better.
const BROKER_HEAP: u64 = 1 << 30;

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
    _registry: Registry,
    broker_version: String,
    /// Id of the workload's schema.
    pub schema_id: u32,
    /// Addresses for arms.
    pub endpoints: Endpoints,
    /// What starts arms.
    pub runtime: ProcessRuntime,
}

/// Where the parts of a stage are kept.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
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
        let state = places.home.state(plan.environment.id.as_str());
        fs::create_dir_all(&state).map_err(SittingError::folder(&state))?;
        let broker_caps = caps(plan.resolved.broker);
        let broker = Broker::prepare(&BrokerSettings {
            libs: places.home.kafka_libs(),
            data: state.join("kafka"),
            run: places.run.join("broker"),
            heap: BROKER_HEAP.min(broker_caps.memory / 3),
            caps: Some(broker_caps),
        })?;
        let mut broker_process = runtime.start(broker.service())?;
        let registry = Registry::start(&state.join("registry.json"))?;
        let schema_id = registry.register(&spec.topic.subject, &spec.schema)?;
        let launch = launch(plan, places)?;
        let mut clickhouse_process = runtime.start(&clickhouse::service(&launch))?;
        let client = clickhouse::wait_ready(&launch, clickhouse_process.as_mut(), PATIENCE)?;
        let admin = broker.wait_ready(broker_process.as_mut(), PATIENCE)?;
        let endpoints = Endpoints {
            broker: broker.bootstrap().to_owned(),
            registry: registry.address().to_string(),
            clickhouse: client.url().trim_start_matches("http://").to_owned(),
            topic: spec.topic.name.clone(),
        };
        Ok(Self {
            client,
            admin,
            clickhouse: clickhouse_process,
            broker: broker_process,
            endpoints,
            _registry: registry,
            broker_version: Lock::pinned().version(Name::Kafka).to_owned(),
            schema_id,
            runtime,
        })
    }

    /// The infrastructure as records tell it.
    ///
    /// # Errors
    /// When ClickHouse does not say its version.
    pub fn facts(&self, plan: &RunPlan) -> Result<InfraFacts, SittingError> {
        let capped = |kind: &str, version: String, caps: ServiceCaps| ServiceFacts {
            kind: kind.to_owned(),
            version,
            cpus: Some(caps.cpus),
            memory: Some(caps.memory),
        };
        let clickhouse = self.client.query_text("SELECT version()")?.trim().to_owned();
        Ok(InfraFacts {
            partitions: plan.environment.infra.partitions,
            broker: capped("kafka", self.broker_version.clone(), plan.resolved.broker),
            clickhouse: capped("clickhouse", clickhouse, plan.resolved.clickhouse),
            registry: ServiceFacts {
                kind: "embedded".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                cpus: None,
                memory: None,
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

    /// Fails if a part of the infrastructure has ended.
    ///
    /// # Errors
    /// Which part, how, and where its log is.
    pub fn check(&mut self) -> Result<(), SittingError> {
        for (what, process) in [("the broker", &mut self.broker), ("ClickHouse", &mut self.clickhouse)] {
            if let Some(exit) = process.exited() {
                return Err(SittingError::InfraEnded { what, exit, log: process.log().to_path_buf() });
            }
        }
        Ok(())
    }
}

fn caps(of: ServiceCaps) -> Caps {
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

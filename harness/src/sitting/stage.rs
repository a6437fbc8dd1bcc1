//! The infrastructure of the embedded environment, up and under its caps for as long as the value lives.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::SittingError;
use super::values::Endpoints;
use crate::infra::broker::Admin;
use crate::infra::clickhouse::Client;
use crate::infra::embedded::broker::{Broker, BrokerSettings};
use crate::infra::embedded::registry::Registry;
use crate::plan::RunPlan;
use crate::runtime::interrupt::{self, Interrupt};
use crate::runtime::process::ProcessRuntime;
use crate::runtime::{Caps, Running, Runtime, Service};
use crate::setup::Home;
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
    registry: Registry,
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
        let broker_caps = caps(plan.resolved.broker.cpus, plan.resolved.broker.memory);
        let broker = Broker::prepare(&BrokerSettings {
            libs: places.home.kafka_libs(),
            data: state.join("kafka"),
            run: places.run.join("broker"),
            heap: BROKER_HEAP.min(broker_caps.memory / 3),
            caps: Some(broker_caps),
        })?;
        let mut broker_process = runtime.start(broker.service())?;
        let registry = Registry::start(&state.join("registry.json"))?;
        let schema_id = registry.register(&spec.topic.subject, spec.schema())?;
        let clickhouse = ClickHouse::prepare(plan, places)?;
        let mut clickhouse_process = runtime.start(&clickhouse.service)?;
        let address = clickhouse.wait_ready(clickhouse_process.as_mut())?;
        let admin = broker.wait_ready(broker_process.as_mut(), PATIENCE)?;
        let client = Client::new(&format!("http://{address}"));
        Ok(Self {
            client,
            admin,
            clickhouse: clickhouse_process,
            broker: broker_process,
            endpoints: Endpoints {
                broker: broker.bootstrap().to_owned(),
                registry: registry.address().to_string(),
                clickhouse: address.to_string(),
                topic: spec.topic.name.clone(),
            },
            registry,
            schema_id,
            runtime,
        })
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

fn caps(cpus: f64, memory: u64) -> Caps {
    Caps { cpus, memory }
}

/// The embedded ClickHouse as a service that tells its address in a file.
struct ClickHouse {
    service: Service,
    address_file: PathBuf,
}

impl ClickHouse {
    /// A server with an empty data directory.
    fn prepare(plan: &RunPlan, places: Places<'_>) -> Result<Self, SittingError> {
        let dir = places.run.join("clickhouse");
        fs::create_dir_all(&dir).map_err(SittingError::folder(&dir))?;
        let address_file = dir.join("address");
        let limits = plan.resolved.clickhouse;
        let shown = |path: PathBuf| path.display().to_string();
        let command = vec![
            shown(places.bench.to_path_buf()),
            "clickhouse".into(),
            "--library".into(),
            shown(places.home.libchdb()),
            "--data".into(),
            shown(dir.join("data")),
            "--address-file".into(),
            shown(address_file.clone()),
            "--max-server-memory".into(),
            (limits.memory / 10 * 9).to_string(),
        ];
        let service = Service {
            name: "clickhouse".into(),
            command,
            env: std::collections::BTreeMap::new(),
            log: dir.join("clickhouse.log"),
            dir,
            caps: Some(caps(limits.cpus, limits.memory)),
            grace: Duration::from_secs(20),
        };
        Ok(Self { service, address_file })
    }

    /// Waits until the server has written its address and answers.
    fn wait_ready(&self, running: &mut dyn Running) -> Result<SocketAddr, SittingError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(exit) = running.exited() {
                return Err(SittingError::InfraEnded {
                    what: "ClickHouse",
                    exit,
                    log: self.service.log.clone(),
                });
            }
            let address = fs::read_to_string(&self.address_file).ok();
            if let Some(address) = address.and_then(|text| text.trim().parse().ok()) {
                if Client::new(&format!("http://{address}")).ping() {
                    return Ok(address);
                }
            }
            if interrupt::pending() != Interrupt::None {
                return Err(SittingError::Interrupted);
            }
            if Instant::now() >= deadline {
                return Err(SittingError::InfraSlow { what: "ClickHouse", log: self.service.log.clone() });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

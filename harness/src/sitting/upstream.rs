//! What feeds an arm: the broker, the registry, and the topic filled with the corpus.

use std::fs;
use std::path::Path;
use std::time::Duration;

use uuid::Uuid;
use weir_model::digest::Digest;
use weir_model::environment::{Environment, Resolved, RuntimeKind, ServiceCaps};

use super::docker::Site;
use super::stage::{PATIENCE, Places, caps};
use super::{SittingError, bar};
use crate::build;
use crate::infra::broker::Admin;
use crate::infra::embedded::broker::{Broker, BrokerSettings};
use crate::infra::embedded::registry::Registry;
use crate::infra::registry::register;
use crate::runtime::interrupt::{self, Interrupt};
use crate::runtime::lock::HostLock;
use crate::runtime::process::ProcessRuntime;
use crate::runtime::{Running, Runtime};
use crate::setup::lock::{Lock, Name};
use crate::setup::{self, Home};
use crate::workload::encode::Encoder;
use crate::workload::producer::{Fill, Filled, Step};
use crate::workload::{Corpus, IngestSpec};

/// Largest heap of the broker: beyond it page cache serves better.
const BROKER_HEAP: u64 = 1 << 30;
/// Threads that fill and verify.
const THREADS: u32 = 2;

/// Broker and registry, started.
pub(super) struct Upstream {
    /// The broker's own address for the harness.
    pub(super) broker: Broker,
    /// The broker's process.
    pub(super) process: Box<dyn Running>,
    /// The registry, where the harness itself serves it.
    pub(super) served: Option<Registry>,
    /// The registry, where it is a container.
    pub(super) registry: Option<Box<dyn Running>>,
    /// Id of the workload's schema.
    pub(super) schema_id: u32,
    /// Address of the broker for arms.
    pub(super) broker_address: String,
    /// Address of the registry for arms.
    pub(super) registry_address: String,
    /// The broker's version.
    pub(super) version: String,
    /// The broker's image.
    pub(super) image: Option<Digest>,
}

impl Upstream {
    /// Starts the broker, without waiting for it, and the registry with the workload's schema.
    pub(super) fn start(
        environment: &Environment,
        broker_caps: ServiceCaps,
        spec: &IngestSpec,
        places: Places<'_>,
        runtime: &ProcessRuntime,
    ) -> Result<Self, SittingError> {
        let state = places.home.state(environment.id.as_str());
        fs::create_dir_all(&state).map_err(SittingError::folder(&state))?;
        let broker = Broker::prepare(&BrokerSettings {
            libs: places.home.kafka_libs(),
            data: state.join("kafka"),
            run: places.run.join("broker"),
            heap: BROKER_HEAP.min(broker_caps.memory / 3),
            caps: Some(caps(broker_caps)),
        })?;
        let process = runtime.start(broker.service())?;
        let broker_address = broker.bootstrap().to_owned();
        let version = Lock::pinned().version(Name::Kafka).to_owned();
        let (served, registry_address, schema_id) = match &environment.infra.registry_url {
            Some(address) => {
                let id = register(address, &spec.topic.subject, &spec.schema, PATIENCE)?;
                (None, address.clone(), id)
            }
            None => {
                let registry = Registry::start(&state.join("registry.json"))?;
                let id = registry.register(&spec.topic.subject, &spec.schema)?;
                let address = registry.address().to_string();
                (Some(registry), address, id)
            }
        };
        Ok(Self {
            broker,
            process,
            served,
            registry: None,
            schema_id,
            broker_address,
            registry_address,
            version,
            image: None,
        })
    }

    /// Waits until the broker serves.
    pub(super) fn wait_ready(&mut self) -> Result<Admin, SittingError> {
        Ok(self.broker.wait_ready(self.process.as_mut(), PATIENCE)?)
    }
}

/// Makes the topic hold exactly the corpus, with a bar that shows how far it is.
pub(super) fn fill(
    admin: &Admin,
    schema_id: u32,
    spec: &IngestSpec,
    batches: u64,
    partitions: u32,
) -> Result<Filled, SittingError> {
    let encoder = Encoder::new(&Corpus::new(spec));
    let fill = Fill {
        encoder: &encoder,
        topic: &spec.topic.name,
        compression: &spec.topic.compression,
        schema_id,
        batches,
        partitions,
        threads: THREADS,
    };
    let progress = bar("topic", batches, "batches");
    let filled = fill.prefill(admin, &mut |now| {
        progress.set_message(if now.step == Step::Produce { "filling the topic" } else { "verifying the topic" });
        progress.set_length(now.of);
        progress.set_position(now.done);
        interrupt::pending() == Interrupt::None
    });
    progress.finish_and_clear();
    Ok(filled?)
}

/// Fills the topic of an environment and ends what it started for that.
///
/// # Errors
/// What could not be had. What was filled stays, and nothing is left running.
pub fn prefill(
    (environment, resolved): (&Environment, &Resolved),
    root: &Path,
    home: &Home,
    batches: u64,
) -> Result<(Filled, Duration), SittingError> {
    let id = Uuid::now_v7().to_string();
    let _lock = HostLock::acquire(home.root(), "bench prefill")?;
    interrupt::install().map_err(SittingError::folder(Path::new("signal handlers")))?;
    setup::ensure(home)?;
    let spec = IngestSpec::load(&root.join("workload/ingest"))?;
    let run = home.run(&id);
    fs::create_dir_all(&run).map_err(SittingError::folder(&run))?;
    let bench = build::own_folder()?.join("bench");
    let places = Places { root, home, run: &run, bench: &bench };
    let runtime = ProcessRuntime::with(bench.clone(), &id, crate::cgroup::Hierarchy::detect()?);
    runtime.sweep()?;
    let mut upstream = match environment.runtime {
        RuntimeKind::Process => Upstream::start(environment, resolved.broker, &spec, places, &runtime)?,
        RuntimeKind::Docker => {
            let site = Site::new(environment, places, &id)?;
            let images = site.images(site.broker_host())?;
            site.upstream(&images, resolved.broker, &spec)?
        }
    };
    let admin = upstream.wait_ready()?;
    let begun = std::time::Instant::now();
    let filled = fill(&admin, upstream.schema_id, &spec, batches, environment.infra.partitions)?;
    let took = begun.elapsed();
    drop(admin);
    upstream.process.stop();
    Ok((filled, took))
}

//! A stage in containers: images first, then broker, registry and ClickHouse, then whatever an arm consists of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use weir_model::descriptor::Container;
use weir_model::digest::Digest;
use weir_model::environment::{Environment, ImageSource, RegistryKind, Service as Part, ServiceCaps};
use weir_model::id::EntrantId;

use super::SittingError;
use super::stage::{PATIENCE, Places, Stage, caps};
use super::upstream::Upstream;
use super::values::Endpoints;
use crate::image::{Images, Shelf};
use crate::infra::container::{self, BROKER_PORT, CLICKHOUSE_PORT, Place, REGISTRY_PORT};
use crate::infra::embedded::broker::Broker;
use crate::infra::registry::register;
use crate::measure::sampler::Sampler;
use crate::plan::{Arm, RunPlan};
use crate::runtime::docker::{DockerError, DockerRuntime, Engine, Image};
use crate::runtime::{Running, Runtime};
use crate::workload::IngestSpec;

/// The engines of an environment, and what images are made of.
pub(super) struct Site<'a> {
    environment: &'a Environment,
    runtime: DockerRuntime,
    shelf: Shelf,
    folder: PathBuf,
    run: PathBuf,
}

/// What arms are started from.
#[derive(Debug)]
pub(super) struct Containers {
    runtime: DockerRuntime,
    /// The image that samples, by Docker host.
    tools: BTreeMap<String, Image>,
    /// By entrant and container.
    arms: BTreeMap<(EntrantId, String), ArmImage>,
    /// The Docker host that arms run on.
    pub(super) host: String,
}

/// The image of a container of an arm, as it was when the sitting began.
#[derive(Debug, Clone)]
pub(super) struct ArmImage {
    /// Its name.
    pub(super) reference: String,
    /// The image.
    pub(super) image: Image,
}

/// Who serves the schemas.
struct Registrar {
    /// Its container, where it has one of its own.
    running: Option<Box<dyn Running>>,
    /// `host:port` for the harness.
    outside: String,
    /// `host:port` for arms.
    inside: String,
}

impl Containers {
    /// Starts the samplers.
    pub(super) fn sampler(&self, path: &Path) -> Result<Sampler, DockerError> {
        self.runtime.sampler(&self.tools, path)
    }

    /// The image of an arm's container.
    ///
    /// # Errors
    /// [`DockerError::Swapped`] when its name means another image than when the sitting began.
    pub(super) fn image(&self, arm: &Arm, container: &str) -> Result<&ArmImage, DockerError> {
        let key = (arm.entrant.identity.id.clone(), container.to_owned());
        let none = || DockerError::NoImage { image: format!("{}/{container}", key.0) };
        let found = self.arms.get(&key).ok_or_else(none)?;
        self.runtime.engine(&self.host)?.same_image(&found.reference, &found.image)?;
        Ok(found)
    }

    /// What a command prints in the image of an arm's container, or why it did not.
    pub(super) fn ask(&self, arm: &Arm, container: &str, command: &[String]) -> Result<(String, Digest), String> {
        let asked = || -> Result<_, DockerError> {
            let image = self.image(arm, container)?.image.id;
            let engine = self.runtime.engine(&self.host)?;
            Ok((engine.run_once(&image.to_string(), command, &[], vec![])?, image))
        };
        let (said, image) = asked().map_err(|error| format!("cannot be run: {error}"))?;
        if said.code == 0 { Ok((said.out, image)) } else { Err(format!("gave {}: {}", said.code, said.err.trim())) }
    }
}

impl<'a> Site<'a> {
    /// Connects to the engines of an environment and removes what dead sittings left there.
    pub(super) fn new(environment: &'a Environment, places: Places<'_>, sitting: &str) -> Result<Self, SittingError> {
        let bins = places.bench.parent().unwrap_or(places.root);
        let infra = &environment.infra;
        let hosts: BTreeSet<String> =
            [&infra.broker.docker_host, &infra.clickhouse.docker_host, &environment.system_host]
                .into_iter()
                .map(|host| host.clone().unwrap_or_default())
                .collect();
        Ok(Self {
            environment,
            runtime: DockerRuntime::new(sitting, &hosts)?,
            shelf: Shelf::of(bins, places.home),
            folder: places.root.join("environments"),
            run: places.run.to_path_buf(),
        })
    }

    /// The Docker host of the broker.
    pub(super) fn broker_host(&self) -> &str {
        self.environment.infra.broker.docker_host.as_deref().unwrap_or_default()
    }

    fn system_host(&self) -> &str {
        self.environment.system_host.as_deref().unwrap_or_default()
    }

    /// The suite's own images, on the engine of `host`.
    pub(super) fn images(&self, host: &str) -> Result<Images<'_>, SittingError> {
        let declared = self.environment.images.as_ref();
        let declared = declared.ok_or_else(|| DockerError::NoImage { image: "[images]".into() })?;
        Ok(Images::prepare(self.runtime.engine(host)?, &self.shelf, declared, &self.folder)?)
    }

    /// The image of a part of the infrastructure, and its name.
    fn image_of(&self, images: &Images<'_>, part: &'a Part) -> Result<(&'a str, Image), SittingError> {
        let source = part.image.as_ref().ok_or_else(|| DockerError::NoImage { image: part.kind.to_string() })?;
        Ok((&source.image, images.ensure(source, &self.folder)?))
    }

    /// A volume that outlives sittings, made if it is not there.
    fn volume(&self, host: &str, what: &str) -> Result<String, DockerError> {
        let name = format!("weir-{}-{what}", self.environment.id);
        self.runtime.keep_volume(host, &name).map(|()| name)
    }

    /// The address for arms of a part that is called `name` and listens on `port`.
    fn reach(&self, engine: &Engine, name: &str, port: u16, published: SocketAddr) -> String {
        if engine.host() == self.system_host() {
            return format!("{name}:{port}");
        }
        format!("{}:{}", engine.public_name(), published.port())
    }

    /// Starts the broker, without waiting for it, and the registry with the workload's schema.
    pub(super) fn upstream(
        &self,
        images: &Images<'_>,
        broker_caps: ServiceCaps,
        spec: &IngestSpec,
    ) -> Result<Upstream, SittingError> {
        let (engine, infra) = (images.engine(), &self.environment.infra);
        let (reference, image) = self.image_of(images, &infra.broker)?;
        let volume = self.volume(engine.host(), "broker")?;
        container::format(infra.broker.kind, engine, &image, &volume)?;
        let command = container::version_command(infra.broker.kind);
        let said = engine.run_once(&image.id.to_string(), &command, &[], vec![])?;
        let silent = || DockerError::Silent { what: format!("the broker's version: {}{}", said.out, said.err) };
        let version = container::version_in(&said.out).ok_or_else(silent)?;
        let place = Place {
            host: engine.host(),
            reference,
            image: &image,
            caps: Some(caps(broker_caps)),
            run: &self.run,
            published: container::published(engine, 0)?,
            second: container::published(engine, 1)?,
        };
        let public = engine.public_name();
        let service = container::broker(infra.broker.kind, &place, &public, &volume);
        let process = self.runtime.start(&service)?;
        let Registrar { running: registry, outside, inside } = self.registry(images, &place)?;
        let schema_id = register(&outside, &spec.topic.subject, &spec.schema, PATIENCE)?;
        Ok(Upstream {
            broker: Broker::of(format!("{public}:{}", place.published.port()), service),
            process,
            served: None,
            registry,
            schema_id,
            broker_address: self.reach(engine, "broker", BROKER_PORT, place.published),
            registry_address: inside,
            version,
            image: Some(image.id),
        })
    }

    /// Starts the registry, where it is a part of its own.
    fn registry(&self, images: &Images<'_>, broker: &Place<'_>) -> Result<Registrar, SittingError> {
        let (engine, infra) = (images.engine(), &self.environment.infra);
        let published = container::published(engine, 2)?;
        let outside = format!("{}:{}", engine.public_name(), published.port());
        match infra.registry {
            RegistryKind::Url => {
                let address = infra.registry_url.clone().unwrap_or_default();
                Ok(Registrar { running: None, outside: address.clone(), inside: address })
            }
            RegistryKind::RedpandaBuiltin => {
                let outside = format!("{}:{}", engine.public_name(), broker.second.port());
                let inside = format!("broker:{REGISTRY_PORT}");
                Ok(Registrar { running: None, outside, inside })
            }
            RegistryKind::Embedded => {
                let place = Place { image: &images.tools, reference: "tools", caps: None, published, ..broker.clone() };
                let volume = self.volume(engine.host(), "registry")?;
                let running = self.runtime.start(&container::registry(&place, &volume))?;
                let inside = self.reach(engine, "registry", REGISTRY_PORT, published);
                Ok(Registrar { running: Some(running), outside, inside })
            }
        }
    }

    /// Every image of an arm, on the engine that arms run on.
    fn arm_images(&self, images: &Images<'_>, arm: &Arm) -> Result<Vec<(String, ArmImage)>, SittingError> {
        let mut found = Vec::new();
        for container in &arm.entrant.envelope.containers {
            let source = image_source(arm, container);
            let source = source.ok_or_else(|| DockerError::NoImage { image: arm.label() })?;
            let image = images.ensure(&source, &arm.dir)?;
            found.push((container.name.clone(), ArmImage { reference: source.image, image }));
        }
        Ok(found)
    }
}

/// What the image of an arm's container is made from: its own, else the entrant's.
fn image_source(arm: &Arm, container: &Container) -> Option<ImageSource> {
    match (&container.image, &arm.entrant.build.image) {
        (Some(image), _) => Some(ImageSource { image: image.clone(), dockerfile: None }),
        (None, Some(image)) => {
            Some(ImageSource { image: image.clone(), dockerfile: arm.entrant.build.dockerfile.clone() })
        }
        (None, None) => None,
    }
}

/// Builds or pulls every image of a plan; gives their names and ids.
pub(super) fn build(plan: &RunPlan, places: Places<'_>, id: &str) -> Result<Vec<(String, Digest)>, SittingError> {
    let site = Site::new(&plan.environment, places, id)?;
    let infra = &plan.environment.infra;
    let mut built = BTreeMap::new();
    for (host, part) in [(&infra.broker.docker_host, &infra.broker), (&infra.clickhouse.docker_host, &infra.clickhouse)]
    {
        let images = site.images(host.as_deref().unwrap_or_default())?;
        let (name, image) = site.image_of(&images, part)?;
        built.insert(name.to_owned(), image.id);
        if let Some(declared) = &plan.environment.images {
            built.insert(declared.base.image.clone(), images.base.id);
            built.insert(declared.tools.image.clone(), images.tools.id);
        }
    }
    let images = site.images(site.system_host())?;
    for arm in &plan.arms {
        built.extend(site.arm_images(&images, arm)?.into_iter().map(|(_, it)| (it.reference, it.image.id)));
    }
    Ok(built.into_iter().collect())
}

/// Starts everything under the caps of the plan's environment and waits until it serves.
pub(super) fn open(plan: &RunPlan, spec: &IngestSpec, places: Places<'_>, id: &str) -> Result<Stage, SittingError> {
    let run = places.run.join("infra");
    fs::create_dir_all(&run).map_err(SittingError::folder(&run))?;
    let site = Site::new(&plan.environment, Places { run: &run, ..places }, id)?;
    let mut images = BTreeMap::new();
    for engine in site.runtime.engines() {
        images.insert(engine.host(), site.images(engine.host())?);
    }
    let mut arms = BTreeMap::new();
    for arm in &plan.arms {
        for (container, image) in site.arm_images(&images[site.system_host()], arm)? {
            arms.insert((arm.entrant.identity.id.clone(), container), image);
        }
    }
    let mut upstream = site.upstream(&images[site.broker_host()], plan.resolved.broker, spec)?;
    let part = &plan.environment.infra.clickhouse;
    let own = &images[part.docker_host.as_deref().unwrap_or_default()];
    let (reference, image) = site.image_of(own, part)?;
    let engine = own.engine();
    let place = Place {
        host: engine.host(),
        reference,
        image: &image,
        caps: Some(caps(plan.resolved.clickhouse)),
        run: &run,
        published: container::published(engine, 3)?,
        second: container::published(engine, 3)?,
    };
    let mut clickhouse = site.runtime.start(&container::clickhouse(part.kind, &place))?;
    let address = format!("{}:{}", engine.public_name(), place.published.port());
    let client = container::clickhouse_ready(&address, clickhouse.as_mut(), PATIENCE)?;
    let admin = upstream.wait_ready()?;
    Ok(Stage {
        client,
        admin,
        clickhouse,
        broker: upstream.process,
        registry: upstream.registry,
        _served: None,
        broker_version: upstream.version,
        images: [upstream.image, Some(image.id)],
        schema_id: upstream.schema_id,
        endpoints: Endpoints {
            broker: upstream.broker_address,
            registry: upstream.registry_address,
            clickhouse: site.reach(engine, "clickhouse", CLICKHOUSE_PORT, place.published),
            topic: spec.topic.name.clone(),
        },
        runtime: Box::new(site.runtime.clone()),
        bench: places.bench.to_path_buf(),
        containers: Some(Containers {
            tools: images.iter().map(|(host, images)| ((*host).to_owned(), images.tools.clone())).collect(),
            runtime: site.runtime.clone(),
            arms,
            host: site.system_host().to_owned(),
        }),
    })
}

//! Services as containers of one or more Docker engines.
//!
//! Everything made carries the sitting's labels, so that what a crash leaves behind is found by the next sitting. On each
//! engine the sitting has a network of its own, in which a service is reached by its name. A service is bound to an
//! image by its id; its caps are read from the control group of the running container, never from what Docker says.

mod container;
mod engine;
mod error;
mod images;
mod label;
mod sidecar;
mod sweep;
mod tunnel;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bollard::models::{NetworkCreateRequest, VolumeCreateRequest};

pub use engine::{Engine, Image, Said};
pub use error::DockerError;
pub use label::{CONTENT, Labels};
pub use sweep::Swept;

use super::{Enforcement, Running, Runtime, RuntimeError, Service};
use crate::cgroup::Version;
use crate::measure::sampler::{Link, Sampler};
use container::Container;
use sidecar::Sidecar;

/// Folder of a container for the files of its run; a volume that goes with the container.
pub const RUN_DIR: &str = "/weir/run";

/// Starts services as containers. Clones share engines and networks, which the last one removes.
#[derive(Debug, Clone)]
pub struct DockerRuntime {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engines: Vec<Engine>,
    labels: Labels,
    network: String,
    version: Version,
}

impl DockerRuntime {
    /// A runtime for one sitting over the engines that `hosts` name; this host's where a name is empty. What dead
    /// sittings left on them is removed first.
    ///
    /// # Errors
    /// When an engine does not answer or makes no network; [`DockerError::Busy`] when another sitting runs there.
    pub fn new(sitting: &str, hosts: &BTreeSet<String>) -> Result<Self, DockerError> {
        let labels = Labels::new(sitting);
        let network = format!("weir-{}", labels.owner());
        let mut engines = Vec::new();
        for host in hosts {
            engines.push(Engine::connect(host, labels.clone())?);
        }
        let mut version = Version::V2;
        for engine in &engines {
            let swept = engine.sweep()?;
            if swept != Swept::default() {
                eprintln!("removed what dead sittings left: {swept}");
            }
            if let Some(owner) = engine.holder()? {
                return Err(DockerError::Busy { host: engine.host().to_owned(), owner });
            }
            if engine.cgroup_version()? == 1 {
                version = Version::V1;
            }
        }
        let shared = Arc::new(Shared { engines, labels, network, version });
        for engine in &shared.engines {
            let request = NetworkCreateRequest {
                name: shared.network.clone(),
                driver: Some("bridge".into()),
                labels: Some(shared.labels.sitting()),
                ..NetworkCreateRequest::default()
            };
            engine.ask("make the sitting's network", engine.docker().create_network(request))?;
        }
        Ok(Self { shared })
    }

    /// The engine of a host.
    ///
    /// # Errors
    /// When the sitting has none there.
    pub fn engine(&self, host: &str) -> Result<&Engine, DockerError> {
        let found = self.shared.engines.iter().find(|engine| engine.host() == host);
        found.ok_or_else(|| DockerError::Address { host: host.to_owned() })
    }

    /// Every engine.
    #[must_use]
    pub fn engines(&self) -> &[Engine] {
        &self.shared.engines
    }

    /// Makes a volume that outlives sittings, if it is not there.
    ///
    /// # Errors
    /// When the engine refuses.
    pub fn keep_volume(&self, host: &str, name: &str) -> Result<(), DockerError> {
        let engine = self.engine(host)?;
        let request = VolumeCreateRequest { name: Some(name.to_owned()), ..VolumeCreateRequest::default() };
        engine.ask(format!("make volume {name}"), engine.docker().create_volume(request)).map(drop)
    }

    /// Starts a sampler in a container beside the services of each engine, from its image in `tools`, by host; its
    /// samples go to the file `path`.
    ///
    /// # Errors
    /// When one of them does not start.
    pub fn sampler(&self, tools: &BTreeMap<String, Image>, path: &Path) -> Result<Sampler, DockerError> {
        let mut links: Vec<(String, Box<dyn Link>)> = Vec::new();
        for (host, image) in tools {
            let sidecar = Sidecar::start(self.engine(host)?, &image.id.to_string(), path)?;
            links.push((host.clone(), Box::new(sidecar)));
        }
        Ok(Sampler::over(links, path))
    }
}

impl Runtime for DockerRuntime {
    fn start(&self, service: &Service) -> Result<Box<dyn Running>, RuntimeError> {
        let Some(contained) = &service.contained else {
            let what = "it names no image".to_owned();
            return Err(RuntimeError::Service { name: service.name.clone(), what });
        };
        let failed = |source| RuntimeError::Docker { name: service.name.clone(), source };
        let engine = self.engine(&contained.host).map_err(failed)?;
        let body = container::body(service, contained, &self.shared.labels, &self.shared.network);
        let name = format!("weir-{}-{}", self.shared.labels.owner(), service.name);
        engine.remove(&name);
        let id = engine.create(&name, body, &contained.files).map_err(failed)?;
        match Container::start(engine, id.clone(), service, contained) {
            Ok(running) => Ok(Box::new(running)),
            Err(error) => {
                engine.remove(&id);
                Err(error)
            }
        }
    }

    fn enforcement(&self) -> Enforcement {
        Enforcement::Enforced(self.shared.version)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for engine in &self.engines {
            // a network that is still in use goes with the next sweep
            let _ = engine.wait(engine.docker().remove_network(&self.network));
        }
    }
}

//! Removing what dead sittings left on an engine.

use std::collections::HashMap;
use std::fmt;

use bollard::query_parameters::{ListContainersOptionsBuilder, ListNetworksOptionsBuilder};

use super::DockerError;
use super::engine::Engine;
use super::label::OWNER;

/// What a sweep removed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Swept {
    /// Containers, with their unnamed volumes.
    pub containers: usize,
    /// Networks.
    pub networks: usize,
}

impl fmt::Display for Swept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} containers, {} networks", self.containers, self.networks)
    }
}

impl Engine {
    /// Removes containers and networks of sittings whose harness is gone. Volumes and images that outlive sittings
    /// stay.
    ///
    /// # Errors
    /// When the engine cannot list them.
    pub fn sweep(&self) -> Result<Swept, DockerError> {
        let labelled = HashMap::from([("label".to_owned(), vec![OWNER.to_owned()])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&labelled).build();
        let containers = self.ask("list containers", self.docker().list_containers(Some(options)))?;
        let mut swept = Swept::default();
        for container in containers {
            let labels = container.labels.unwrap_or_default();
            if let Some(id) = container.id.filter(|_| self.labels().left_behind(&labels, self.is_local())) {
                self.remove(&id);
                swept.containers += 1;
            }
        }
        let options = ListNetworksOptionsBuilder::default().filters(&labelled).build();
        let networks = self.ask("list networks", self.docker().list_networks(Some(options)))?;
        for network in networks {
            let labels = network.labels.unwrap_or_default();
            if let Some(id) = network.id.filter(|_| self.labels().left_behind(&labels, self.is_local())) {
                self.ask("remove a dead sitting's network", self.docker().remove_network(&id))?;
                swept.networks += 1;
            }
        }
        Ok(swept)
    }
}

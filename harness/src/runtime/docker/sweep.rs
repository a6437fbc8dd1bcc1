//! Removing what dead sittings left on an engine.

use std::collections::HashMap;
use std::fmt;

use bollard::models::ContainerSummary;
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
        let labelled = labelled();
        let mut swept = Swept::default();
        for container in self.ours()? {
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

    /// The sitting that runs on this engine, if it is another than this one's.
    ///
    /// # Errors
    /// When the engine cannot list its containers.
    pub fn holder(&self) -> Result<Option<String>, DockerError> {
        let owners = self.ours()?.into_iter().filter_map(|container| container.labels?.remove(OWNER));
        Ok(owners.into_iter().find(|owner| owner != self.labels().owner()))
    }

    /// Containers of sittings, dead or alive.
    fn ours(&self) -> Result<Vec<ContainerSummary>, DockerError> {
        let options = ListContainersOptionsBuilder::default().all(true).filters(&labelled()).build();
        self.ask("list containers", self.docker().list_containers(Some(options)))
    }
}

/// What carries a sitting's label.
fn labelled() -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), vec![OWNER.to_owned()])])
}

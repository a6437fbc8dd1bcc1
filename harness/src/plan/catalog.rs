//! What the repository declares: entrants and environments.

use std::path::{Path, PathBuf};

use weir_model::descriptor::Entrant;
use weir_model::diagnostic::Problems;
use weir_model::environment::Environment;
use weir_model::id::EntrantId;

use super::PlanError;

/// The declared entrants and environments of a repository.
#[derive(Debug, Clone)]
pub struct Catalog {
    root: PathBuf,
    pub(super) entrants: Vec<Entrant>,
    environments: Vec<Environment>,
}

impl Catalog {
    /// Reads `entrants/` and `environments/` below `root`.
    ///
    /// # Errors
    /// Everything wrong with any file of them, at once.
    pub fn load(root: &Path) -> Result<Self, PlanError> {
        let entrants = Entrant::load_all(&root.join("entrants"));
        let environments = Environment::load_all(&root.join("environments"));
        match (entrants, environments) {
            (Ok(entrants), Ok(environments)) => Ok(Self { root: root.to_path_buf(), entrants, environments }),
            (left, right) => {
                let mut all = Problems::default();
                all.0.extend(left.err().into_iter().chain(right.err()).flat_map(|problems| problems.0));
                Err(PlanError::Problems(all))
            }
        }
    }

    /// The repository.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Every entrant, by id.
    #[must_use]
    pub fn entrants(&self) -> &[Entrant] {
        &self.entrants
    }

    /// Every environment, by id.
    #[must_use]
    pub fn environments(&self) -> &[Environment] {
        &self.environments
    }

    /// The entrant `id`.
    ///
    /// # Errors
    /// When there is none.
    pub fn entrant(&self, id: &EntrantId) -> Result<&Entrant, PlanError> {
        self.entrants.iter().find(|entrant| entrant.identity.id == *id).ok_or_else(|| PlanError::NoEntrant {
            asked: id.clone(),
            known: self.entrants.iter().map(|entrant| entrant.identity.id.to_string()).collect(),
        })
    }

    /// The environment `id`.
    ///
    /// # Errors
    /// When there is none.
    pub fn environment(&self, id: &str) -> Result<&Environment, PlanError> {
        self.environments.iter().find(|environment| environment.id.as_str() == id).ok_or_else(|| {
            PlanError::NoEnvironment {
                asked: id.to_owned(),
                known: self.environments.iter().map(|environment| environment.id.to_string()).collect(),
            }
        })
    }

    /// Folder of an entrant.
    #[must_use]
    pub fn folder(&self, id: &EntrantId) -> PathBuf {
        self.root.join("entrants").join(id.as_str())
    }
}

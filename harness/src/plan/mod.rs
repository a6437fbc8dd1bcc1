//! From a request, the catalog and a host to a plan of runs, or a refusal. Pure; `--dry-run` prints the plan that
//! would run.

mod catalog;
pub mod order;
mod show;

use std::path::PathBuf;

use weir_model::descriptor::{Container, Entrant, EntrantStatus, Variant};
use weir_model::diagnostic::Problems;
use weir_model::environment::{
    Environment, EnvironmentError, HostFacts, REFERENCE_CPUS, REFERENCE_MEMORY, Resolved, RuntimeKind,
};
use weir_model::error::Coded;
use weir_model::id::{EntrantId, Mode, Role, Selector, Trigger, VariantChoice, VariantId, WorkloadId};

pub use catalog::Catalog;
use order::{Slot, interleave};

use crate::runtime::Caps;

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Which arms; none means every active entrant's default variant.
    pub selectors: Vec<Selector>,
    /// The environment profile's id.
    pub env: String,
    /// The pipeline.
    pub workload: WorkloadId,
    /// How load is offered.
    pub mode: Mode,
    /// Repetitions of each arm.
    pub reps: u32,
    /// Messages in the corpus.
    pub batches: u64,
    /// Seed of the order; the caller draws one if the user did not.
    pub seed: u64,
    /// Why.
    pub trigger: Trigger,
}

/// One arm of a plan.
#[derive(Debug, Clone)]
pub struct Arm {
    /// The system.
    pub entrant: Entrant,
    /// Index of the variant.
    variant: usize,
    /// Its folder.
    pub dir: PathBuf,
    /// Caps of its data plane on this environment.
    pub caps: Caps,
    /// Share of its envelope that the environment gives.
    scale: f64,
}

impl Arm {
    /// The configuration.
    #[must_use]
    pub fn variant(&self) -> &Variant {
        &self.entrant.variants[self.variant]
    }

    /// Caps of one of its containers on this environment.
    #[must_use]
    pub fn caps_of(&self, container: &Container) -> Caps {
        scaled(container.cpus, container.memory, self.scale)
    }

    /// Its containers on top of the envelope, which start before the data plane.
    pub fn control_plane(&self) -> impl Iterator<Item = &Container> {
        self.entrant.envelope.containers.iter().filter(|container| container.role == Role::ControlPlane)
    }

    /// `<entrant>:<variant>`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}:{}", self.entrant.identity.id, self.variant().id)
    }
}

/// Everything a sitting needs to know before it starts anything.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The profile.
    pub environment: Environment,
    /// The profile on this host.
    pub resolved: Resolved,
    /// This host.
    pub host: HostFacts,
    /// The pipeline.
    pub workload: WorkloadId,
    /// Messages in the corpus.
    pub batches: u64,
    /// Repetitions.
    pub reps: u32,
    /// Seed of the order.
    pub seed: u64,
    /// Why.
    pub trigger: Trigger,
    /// The arms.
    pub arms: Vec<Arm>,
    /// The runs, in order.
    pub slots: Vec<Slot>,
}

/// Why a request cannot be carried out as it stands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Descriptors or profiles are wrong.
    #[error("{0}")]
    Problems(Problems),
    /// No such environment.
    #[error("there is no environment `{asked}`; there are: {}", known.join(", "))]
    NoEnvironment {
        /// What was asked for.
        asked: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The environment does not fit this host.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// An arm has no image, and the environment runs in containers.
    #[error("{arm} has no image, and environment `{env}` runs in containers")]
    NoImage {
        /// The arm.
        arm: String,
        /// The environment.
        env: String,
    },
    /// No such entrant.
    #[error("there is no entrant `{asked}`; there are: {}", known.join(", "))]
    NoEntrant {
        /// What was asked for.
        asked: EntrantId,
        /// What there is.
        known: Vec<String>,
    },
    /// No such variant.
    #[error("{entrant} has no variant `{asked}`; it has: {}", known.join(", "))]
    NoVariant {
        /// The entrant.
        entrant: EntrantId,
        /// What was asked for.
        asked: VariantId,
        /// What there is.
        known: Vec<String>,
    },
    /// The entrant may not be run.
    #[error("{entrant} is {status}, not active")]
    NotActive {
        /// The entrant.
        entrant: EntrantId,
        /// Its status.
        status: EntrantStatus,
    },
    /// The variant does not run the workload.
    #[error("{label} does not run {workload}")]
    NotForWorkload {
        /// The arm.
        label: String,
        /// The workload.
        workload: WorkloadId,
    },
    /// A mode that is not there.
    #[error("mode `{0}` is not implemented; `drain` is")]
    Mode(Mode),
    /// A number that cannot be.
    #[error("{what} must be {must}")]
    Number {
        /// Which.
        what: &'static str,
        /// What it must be.
        must: &'static str,
    },
    /// Nothing to run.
    #[error("no active entrant has a variant for {0}")]
    Nothing(WorkloadId),
}

impl Coded for PlanError {
    fn code(&self) -> &'static str {
        match self {
            Self::Problems(_) => "bad_descriptor",
            Self::NoEnvironment { .. } => "no_environment",
            Self::Environment(error) => error.code(),
            Self::NoImage { .. } => "no_image",
            Self::NoEntrant { .. } => "no_entrant",
            Self::NoVariant { .. } => "no_variant",
            Self::NotActive { .. } => "not_active",
            Self::NotForWorkload { .. } => "not_for_workload",
            Self::Mode(_) => "mode_not_supported",
            Self::Number { .. } => "bad_number",
            Self::Nothing(_) => "nothing_to_run",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoEntrant { .. } | Self::NoVariant { .. } | Self::NotForWorkload { .. } => {
                Some("`bench list` shows every entrant, variant and workload".into())
            }
            Self::Environment(error) => error.hint(),
            Self::NoImage { .. } => Some("its descriptor needs `[build] image`; or use --env embedded".into()),
            _ => None,
        }
    }

    fn refused(&self) -> bool {
        true
    }
}

impl RunPlan {
    /// The plan for `request`, or why there is none.
    ///
    /// # Errors
    /// Everything that makes the request impossible on this catalog and host.
    pub fn resolve(request: &Request, catalog: &Catalog, host: HostFacts) -> Result<Self, PlanError> {
        if request.mode != Mode::Drain {
            return Err(PlanError::Mode(request.mode));
        }
        if request.reps == 0 {
            return Err(PlanError::Number { what: "--reps", must: "at least 1" });
        }
        if request.batches == 0 {
            return Err(PlanError::Number { what: "--batches", must: "at least 1" });
        }
        let (environment, resolved) = environment(&request.env, catalog, &host)?;
        let arms = choose(request, catalog, resolved.scale)?;
        let bare = arms.iter().find(|arm| arm.entrant.build.image.is_none());
        if let Some(arm) = bare.filter(|_| environment.runtime == RuntimeKind::Docker) {
            return Err(PlanError::NoImage { arm: arm.label(), env: request.env.clone() });
        }
        let slots = interleave(arms.len(), request.reps, request.seed);
        Ok(Self {
            environment,
            resolved,
            host,
            workload: request.workload,
            batches: request.batches,
            reps: request.reps,
            seed: request.seed,
            trigger: request.trigger,
            arms,
            slots,
        })
    }

    /// The binaries of this workspace that the arms are built as, each once.
    #[must_use]
    pub fn bins(&self) -> Vec<String> {
        let mut bins: Vec<String> = self.arms.iter().filter_map(|arm| arm.entrant.build.bin.clone()).collect();
        bins.sort();
        bins.dedup();
        bins
    }
}

/// The environment `id` and its figures on this host.
///
/// # Errors
/// When there is none, and when it is not for this host.
pub fn environment(id: &str, catalog: &Catalog, host: &HostFacts) -> Result<(Environment, Resolved), PlanError> {
    let environment = catalog.environment(id)?.clone();
    let resolved = environment.resolve(host)?;
    Ok((environment, resolved))
}

/// The arms that the selectors mean, each once, in the order asked.
fn choose(request: &Request, catalog: &Catalog, scale: f64) -> Result<Vec<Arm>, PlanError> {
    let every = [Selector::Every];
    let selectors = if request.selectors.is_empty() { &every[..] } else { &request.selectors };
    let mut arms: Vec<Arm> = Vec::new();
    let mut add = |entrant: &Entrant, variant: usize| {
        let arm = Arm {
            entrant: entrant.clone(),
            variant,
            dir: catalog.folder(&entrant.identity.id),
            caps: scaled(entrant.envelope.cpus, entrant.envelope.memory, scale),
            scale,
        };
        if arms.iter().all(|there| there.label() != arm.label()) {
            arms.push(arm);
        }
    };
    for selector in selectors {
        match selector {
            Selector::Every => {
                for entrant in
                    catalog.entrants().iter().filter(|entrant| entrant.identity.status == EntrantStatus::Active)
                {
                    let default = entrant.variants.iter().position(|variant| variant.default);
                    let fits = |at: &usize| entrant.variants[*at].workloads.contains(&request.workload);
                    if let Some(default) = default.filter(fits) {
                        add(entrant, default);
                    }
                }
            }
            Selector::Entrant(id, choice) => {
                let entrant = catalog.entrant(id)?;
                if entrant.identity.status != EntrantStatus::Active {
                    return Err(PlanError::NotActive { entrant: id.clone(), status: entrant.identity.status });
                }
                for variant in variants(entrant, choice, request.workload)? {
                    add(entrant, variant);
                }
            }
        }
    }
    if arms.is_empty() { Err(PlanError::Nothing(request.workload)) } else { Ok(arms) }
}

/// Caps as declared, times the environment's scale.
fn scaled(cpus: f64, memory: u64, scale: f64) -> Caps {
    Caps {
        cpus: share(cpus / REFERENCE_CPUS * scale) * REFERENCE_CPUS,
        memory: (memory as f64 / REFERENCE_MEMORY as f64 * scale * REFERENCE_MEMORY as f64) as u64,
    }
}

/// A share in steps that a control group can hold exactly: hundredths of a CPU of the reference.
fn share(share: f64) -> f64 {
    (share * 400.0).round() / 400.0
}

/// Indices of the variants that a choice means.
fn variants(entrant: &Entrant, choice: &VariantChoice, workload: WorkloadId) -> Result<Vec<usize>, PlanError> {
    let fits = |at: usize| entrant.variants[at].workloads.contains(&workload);
    let not_for = |at: usize| PlanError::NotForWorkload {
        label: format!("{}:{}", entrant.identity.id, entrant.variants[at].id),
        workload,
    };
    match choice {
        VariantChoice::All => Ok((0..entrant.variants.len()).filter(|at| fits(*at)).collect()),
        VariantChoice::Default => {
            let at = entrant.variants.iter().position(|variant| variant.default).unwrap_or(0);
            if fits(at) { Ok(vec![at]) } else { Err(not_for(at)) }
        }
        VariantChoice::One(id) => {
            let at = entrant.variants.iter().position(|variant| variant.id == *id).ok_or_else(|| {
                let known = entrant.variants.iter().map(|variant| variant.id.to_string()).collect();
                PlanError::NoVariant { entrant: entrant.identity.id.clone(), asked: id.clone(), known }
            })?;
            if fits(at) { Ok(vec![at]) } else { Err(not_for(at)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn catalog() -> (tempfile::TempDir, Catalog) {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let entrants = dir.path().join("entrants");
        std::fs::create_dir(&entrants).unwrap();
        std::os::unix::fs::symlink(repository.join("model/tests/accepted/rill"), entrants.join("rill")).unwrap();
        std::os::unix::fs::symlink(repository.join("environments"), dir.path().join("environments")).unwrap();
        let catalog = Catalog::load(dir.path()).unwrap();
        (dir, catalog)
    }

    fn host() -> HostFacts {
        HostFacts {
            cpu: "a processor".into(),
            cores: 4,
            memory: 32 << 30,
            arch: "x86_64".into(),
            os: "Debian 12".into(),
            kernel: "6.18".into(),
            governor: None,
            smt: None,
            cgroup: "v2".into(),
            virtualisation: None,
            swap: 0,
            boot_id: "00000000-0000-0000-0000-000000000000".into(),
        }
    }

    fn request(selectors: &[&str]) -> Request {
        Request {
            selectors: selectors.iter().map(|text| text.parse().unwrap()).collect(),
            env: "embedded".into(),
            workload: WorkloadId::IngestB,
            mode: Mode::Drain,
            reps: 2,
            batches: 1_000,
            seed: 7,
            trigger: Trigger::Manual,
        }
    }

    fn labels(plan: &RunPlan) -> Vec<String> {
        plan.arms.iter().map(Arm::label).collect()
    }

    #[test]
    fn no_selector_means_every_default_variant() {
        let (_dir, catalog) = catalog();
        let plan = RunPlan::resolve(&request(&[]), &catalog, host()).unwrap();
        assert_eq!(plan.arms.len(), 1);
        assert!(plan.arms[0].variant().default);
        assert_eq!(plan.slots.len(), 4, "the arm and its control, twice");
        assert_eq!(labels(&plan), labels(&RunPlan::resolve(&request(&["*", "rill"]), &catalog, host()).unwrap()));
    }

    #[test]
    fn caps_are_the_descriptors_times_the_scale() {
        let (_dir, catalog) = catalog();
        let plan = RunPlan::resolve(&request(&[]), &catalog, host()).unwrap();
        assert_eq!(plan.resolved.scale, 0.5);
        assert_eq!(plan.arms[0].caps, Caps { cpus: 2.0, memory: 8 << 30 });
    }

    #[test]
    fn the_reference_is_planned_with_its_own_caps() {
        let (_dir, catalog) = catalog();
        let plan =
            RunPlan::resolve(&Request { env: "reference-docker".into(), ..request(&[]) }, &catalog, host()).unwrap();
        assert_eq!(plan.environment.runtime, RuntimeKind::Docker);
        assert_eq!((plan.resolved.broker.cpus, plan.resolved.broker.memory), (8.0, 8 << 30));
        assert_eq!((plan.resolved.clickhouse.cpus, plan.resolved.clickhouse.memory), (5.0, 12 << 30));
        assert_eq!(plan.arms[0].caps, Caps { cpus: 4.0, memory: 16 << 30 });
        let control: Vec<Caps> = plan.arms[0].control_plane().map(|it| plan.arms[0].caps_of(it)).collect();
        assert_eq!(control, [Caps { cpus: 0.5, memory: 1 << 30 }]);
        let shown = plan.to_string();
        for line in [
            "broker       8 CPUs, 8 GiB, from redpandadata/redpanda:v26.1.13\n",
            "clickhouse   5 CPUs, 12 GiB, from clickhouse/clickhouse-server:26.3\n",
            "arm          rill:native in 4 CPUs, 16 GiB, from weir-rill\n             with coordinator in 0.5 CPUs, 1 GiB on top\n",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
    }

    #[test]
    fn an_arm_without_an_image_cannot_run_in_containers() {
        let (_dir, mut catalog) = catalog();
        catalog.entrants[0].build.image = None;
        let error =
            RunPlan::resolve(&Request { env: "local-docker".into(), ..request(&[]) }, &catalog, host()).unwrap_err();
        assert_eq!((error.code(), error.refused()), ("no_image", true));
        assert_eq!(error.to_string(), "rill:native has no image, and environment `local-docker` runs in containers");
    }

    #[test]
    fn a_plan_prints_as_it_would_run() {
        let (_dir, catalog) = catalog();
        let plan = RunPlan::resolve(&request(&["rill:*"]), &catalog, host()).unwrap();
        insta::assert_snapshot!(plan.to_string());
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_what_there_is() {
        let (_dir, catalog) = catalog();
        let requests = [
            Request { env: "moon".into(), ..request(&[]) },
            request(&["nobody"]),
            request(&["rill:nothing"]),
            Request { reps: 0, ..request(&[]) },
            Request { batches: 0, ..request(&[]) },
            Request { mode: Mode::Sustained, ..request(&[]) },
        ];
        let refusals: Vec<String> = requests
            .iter()
            .map(|request| {
                let error = RunPlan::resolve(request, &catalog, host()).unwrap_err();
                assert!(error.refused());
                format!("{}: {error} ({})", error.code(), error.hint().unwrap_or_default())
            })
            .collect();
        insta::assert_snapshot!(refusals.join("\n"));
    }
}

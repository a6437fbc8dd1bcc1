//! A sitting: the infrastructure up, the topic full, then every run of the plan, one after the other.
//!
//! A run goes through types, so that the compiler holds the order: [`arm::Planned`] → [`arm::Identified`] →
//! [`arm::Prepared`] → [`arm::Measured`] → [`arm::Judged`]. A number comes only from the last.

pub mod arm;
mod caps;
mod contained;
mod docker;
mod error;
mod outcome;
pub mod report;
pub mod scene;
pub mod stage;
pub mod upstream;
pub mod values;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use uuid::Uuid;
use weir_model::archive::{Appended, Archive, KeptSeries};
use weir_model::digest::Digest;
use weir_model::environment::RuntimeKind;
use weir_model::flag::Flag;
use weir_model::id::{RunId, SittingId};
use weir_model::record::{Head, ProtocolFacts, Record};
use weir_model::summary::verdict;

pub use error::SittingError;
pub use outcome::Outcome;

use crate::build::{self, Source};
use crate::cgroup::Hierarchy;
use crate::plan::RunPlan;
use crate::runtime::Enforcement;
use crate::runtime::interrupt::{self, Interrupt};
use crate::runtime::lock::HostLock;
use crate::runtime::process::ProcessRuntime;
use crate::setup::{self, Home, host};
use crate::workload::IngestSpec;
use crate::workload::expect::Expect;
use arm::{Failed, Judged, Planned};
use report::Shared;
use stage::{Places, Stage};
use values::Values;

/// A sitting under way.
pub struct Sitting {
    /// What is to be run.
    pub plan: RunPlan,
    /// Its identity.
    pub id: SittingId,
    /// The infrastructure.
    pub stage: Stage,
    /// Closed forms of the corpus.
    pub expect: Expect,
    /// When the topic was filled, in µs since the epoch.
    pub send_ts_us: RangeInclusive<i64>,
    /// What every record has in common.
    pub shared: Shared,
    /// The `bench` binary.
    pub bench: PathBuf,
    spec: IngestSpec,
    archive: Archive,
    run: PathBuf,
    bins: PathBuf,
    chdb: PathBuf,
    digests: HashMap<PathBuf, Digest>,
    // last: other sittings wait until everything above is gone
    _lock: HostLock,
}

/// A UUID of version 7, by this host's clock.
fn uuid() -> Uuid {
    Uuid::now_v7()
}

impl Sitting {
    /// Fetches and builds what is missing, takes the host, starts the infrastructure and fills the topic.
    ///
    /// # Errors
    /// What could not be had. Nothing is left running.
    pub fn open(plan: RunPlan, root: &Path, home: Home) -> Result<Self, SittingError> {
        let id = SittingId::try_from(uuid()).unwrap_or_else(|_| unreachable!("a fresh UUID has version 7"));
        let lock = HostLock::acquire(home.root(), &format!("bench run, sitting {id}"))?;
        interrupt::install().map_err(SittingError::folder(Path::new("signal handlers")))?;
        setup::ensure(&home)?;
        build::build(root, &plan.bins())?;
        let spec = IngestSpec::load(&root.join("workload/ingest"))?;
        let run = home.run(&id.to_string());
        fs::create_dir_all(&run).map_err(SittingError::folder(&run))?;
        let bins = build::own_folder()?;
        let bench = bins.join("bench");
        let hierarchy = Hierarchy::detect()?;
        let places = Places { root, home: &home, run: &run, bench: &bench };
        let runtime = ProcessRuntime::with(bench.clone(), &id.to_string(), hierarchy.clone());
        runtime.sweep()?;
        let stage = match plan.environment.runtime {
            RuntimeKind::Process => Stage::open(&plan, &spec, places, runtime)?,
            RuntimeKind::Docker => docker::open(&plan, &spec, places, &id.to_string())?,
        };
        let enforced = matches!(stage.runtime.enforcement(), Enforcement::Enforced(_));
        let partitions = plan.environment.infra.partitions;
        let filled = upstream::fill(&stage.admin, stage.schema_id, &spec, plan.batches, partitions)?;
        let send_ts_us = filled.send_ts_us.start..=filled.send_ts_us.end - 1;
        let source = Source::of(root);
        let shared = Shared {
            protocol: ProtocolFacts {
                harness_version: report::HARNESS_VERSION,
                dataset_version: spec.dataset_version(),
                harness_commit: source.commit.clone(),
                seed: plan.seed,
                batches: plan.batches,
            },
            infra: stage.facts(&plan)?,
            flags: flags(&plan, &hierarchy, enforced, source.dirty),
            enforced,
            toolchain: source.toolchain,
        };
        Ok(Self {
            id,
            expect: Expect::new(&spec),
            send_ts_us,
            shared,
            bench,
            archive: Archive::open(root.join("results"))?,
            run,
            bins,
            chdb: home.libchdb(),
            digests: HashMap::new(),
            spec,
            stage,
            plan,
            _lock: lock,
        })
    }

    /// Carries out the plan. Each run is recorded when it ends; a signal ends the sitting between two records. The
    /// verdict on all of them is the last.
    ///
    /// # Errors
    /// When the infrastructure fails, or a signal came. What was recorded stays.
    pub fn run(mut self) -> Result<Outcome, SittingError> {
        let plan = self.plan.clone();
        let (mut records, mut lines) = (Vec::new(), Vec::new());
        let mut heads = Heads::default();
        for slot in &plan.slots {
            let run_id = RunId::try_from(uuid()).unwrap_or_else(|_| unreachable!("a fresh UUID has version 7"));
            let record = self.one(Planned { run_id, slot: *slot, arm: &plan.arms[slot.arm] })?;
            lines.push(heads.saw(&self.archive, self.archive.append(&record)?));
            if let Record::Measurement(measurement) = record {
                eprintln!("{}", outcome::line(&measurement, plan.slots.len()));
                records.push(*measurement);
            }
        }
        let verdict = verdict(&records, plan.environment.aa_spread, heads.0, Timestamp::now());
        if let Some(verdict) = &verdict {
            lines.push(self.archive.append(&Record::Verdict(verdict.clone()))?.text);
        }
        Ok(Outcome { records, verdict, lines })
    }

    /// One run, from its place in the plan to its record.
    fn one(&mut self, planned: Planned<'_>) -> Result<Record, SittingError> {
        self.stage.check()?;
        if interrupt::pending() != Interrupt::None {
            return Err(SittingError::Interrupted);
        }
        let who = match planned.identify(self)? {
            Ok(who) => who,
            Err(Failed(why)) => return Ok(report::of_unidentified(self, planned, &why)),
        };
        let prepared = match who.clone().prepare(self)? {
            Ok(prepared) => prepared,
            Err(Failed(why)) => return Ok(report::of_failed(self, &who, &why)),
        };
        let measured = match prepared.measure(self)? {
            Ok(measured) => measured,
            Err(Failed(why)) => return Ok(report::of_failed(self, &who, &why)),
        };
        if measured.interrupted() {
            return Err(SittingError::Interrupted);
        }
        let judged = measured.judge(self)?;
        let series = self.keep_series(&judged)?;
        Ok(report::of_judged(self, &judged, series))
    }

    /// Keeps the raw samples of a run beside the archive; gives where.
    fn keep_series(&self, judged: &Judged<'_>) -> Result<KeptSeries, SittingError> {
        let run = judged.measured.who.planned.run_id;
        let compressed = self.run_dir(run)?.join("series.jsonl.zst");
        judged.measured.series.compress_to(&compressed)?;
        let bytes = fs::read(&compressed).map_err(SittingError::folder(&compressed))?;
        Ok(self.archive.keep_series(&self.plan.resolved.id, run, &bytes)?)
    }

    /// Rows that the target table must hold in the end.
    #[must_use]
    pub fn expected_rows(&self) -> u64 {
        self.expect.rows(self.plan.workload.tier(), self.plan.batches)
    }

    /// The target table.
    #[must_use]
    pub fn table(&self) -> &str {
        self.spec.table(self.plan.workload.tier())
    }

    /// Drops the target table, if it is there, and creates it empty.
    fn recreate_table(&self) -> Result<(), SittingError> {
        self.stage.client.execute(&format!("DROP TABLE IF EXISTS {} SYNC", self.table()))?;
        Ok(self.stage.client.execute(self.spec.create_table(self.plan.workload.tier()))?)
    }

    /// Rows and queries that ClickHouse has counted as inserted since it started.
    fn insert_counters(&self) -> Result<(u64, u64), SittingError> {
        let sql = "SELECT sumIf(value, event = 'InsertedRows'), sumIf(value, event = 'InsertQuery') FROM system.events";
        self.stage.pair(sql)
    }

    /// The folder of one run, made.
    fn run_dir(&self, run: RunId) -> Result<PathBuf, SittingError> {
        let dir = self.run.join(run.to_string());
        fs::create_dir_all(&dir).map_err(SittingError::folder(&dir))?;
        Ok(dir)
    }

    /// The values of an arm's placeholders.
    fn values<'v>(&'v self, planned: &Planned<'v>, run_dir: &'v Path, group: &'v str) -> Values<'v> {
        Values {
            endpoints: &self.stage.endpoints,
            table: self.table(),
            group,
            tier: self.plan.workload.tier(),
            caps: planned.arm.caps,
            variant: planned.arm.variant(),
            containers: &planned.arm.entrant.envelope.containers,
            entrant_dir: &planned.arm.dir,
            run_dir,
            bins: &self.bins,
            chdb: &self.chdb,
            contained: self.stage.containers.is_some(),
        }
    }

    /// Where a program is: as given if it is a path, else built beside this one, else on `PATH`.
    fn program(&self, name: &str) -> PathBuf {
        let beside = self.bins.join(name);
        if name.contains('/') || beside.is_file() {
            return if name.contains('/') { PathBuf::from(name) } else { beside };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file()).unwrap_or(beside)
    }

    /// What a command prints, or why it did not.
    fn ask(&self, command: &[String]) -> Result<String, String> {
        let program = self.program(&command[0]);
        let output = std::process::Command::new(&program)
            .args(&command[1..])
            .output()
            .map_err(|error| format!("cannot be started: {error}"))?;
        if !output.status.success() {
            return Err(format!("failed: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The digest of a file, computed once a sitting.
    fn digest_of(&mut self, path: &Path) -> std::io::Result<Digest> {
        if let Some(known) = self.digests.get(path) {
            return Ok(*known);
        }
        let digest = Digest::of_reader(fs::File::open(path)?)?;
        self.digests.insert(path.to_path_buf(), digest);
        Ok(digest)
    }

    /// A bar for one run.
    fn progress(&self, planned: &Planned<'_>, expected: u64) -> ProgressBar {
        let label = format!("{} {}/{}", planned.arm.label(), planned.slot.rep, self.plan.reps);
        bar(&label, expected, "rows")
    }
}

/// Builds or pulls every image that a plan needs; gives their names and ids.
///
/// # Errors
/// When one of them cannot be had.
pub fn build_images(plan: &RunPlan, root: &Path, home: &Home) -> Result<Vec<(String, Digest)>, SittingError> {
    let id = uuid().to_string();
    setup::ensure(home)?;
    build::build(root, &plan.bins())?;
    let bench = build::own_folder()?.join("bench");
    docker::build(plan, Places { root, home, run: home.root(), bench: &bench }, &id)
}

/// The ends of the chains that a sitting wrote to, by file.
#[derive(Default)]
struct Heads(BTreeMap<String, Head>);

impl Heads {
    /// Remembers where a record was put; gives its line.
    fn saw(&mut self, archive: &Archive, appended: Appended) -> String {
        let file = appended.file.strip_prefix(archive.root()).unwrap_or(&appended.file).display().to_string();
        self.0.insert(file, Head { lines: appended.line as u64, digest: appended.head });
        appended.text
    }
}

/// A progress bar; indicatif draws nothing when stderr is no terminal.
fn bar(label: &str, length: u64, unit: &str) -> ProgressBar {
    let template = format!("{{msg}} [{{bar:30}}] {{human_pos}}/{{human_len}} {unit} {{per_sec}}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style.progress_chars("=> ")).with_message(label.to_owned())
}

/// What a reader should know about host and checkout.
fn flags(plan: &RunPlan, hierarchy: &Hierarchy, enforced: bool, dirty: bool) -> Vec<Flag> {
    let mut flags = host::flags(&plan.host, hierarchy);
    // what this user may not do, a container engine may
    flags.retain(|flag| !(enforced && matches!(flag, Flag::EnvelopeUnenforced { .. })));
    if dirty {
        flags.push(Flag::DirtyTree);
    }
    flags
}

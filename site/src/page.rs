//! What the page says, as plain values for its template.

use askama::Template;
use weir_model::archive::Contents;
use weir_model::comparability::Key;
use weir_model::descriptor::{Entrant, EntrantStatus};
use weir_model::environment::{Environment, REFERENCE_CPUS, REFERENCE_MEMORY};
use weir_model::flag::Flag;
use weir_model::id::{Approach, Class, WorkloadId};
use weir_model::metric::Metric;
use weir_model::record::{Measurement, ServiceFacts};
use weir_model::status::Status;
use weir_model::summary::{Arm, Group, Run};
use weir_model::units::{bytes, count, percent, plain};

use crate::chart::{Chart, SUBJECTS, range, written};

/// `index.html`.
#[derive(Template)]
#[template(path = "index.html")]
pub(crate) struct Page {
    /// Names of the systems whose vendor is the suite's own.
    ours: Vec<String>,
    groups: Vec<GroupView>,
    damage: Vec<String>,
    heads: Vec<Head>,
    records: String,
    unpublished: usize,
    newest: String,
}

/// The end of one file's chain.
struct Head {
    file: String,
    lines: usize,
    digest: String,
}

/// A comparability group.
struct GroupView {
    anchor: String,
    title: &'static str,
    pipeline: &'static str,
    mode: String,
    env: String,
    class: &'static str,
    class_says: &'static str,
    caveats: String,
    envelope: String,
    host: String,
    facts: Vec<(&'static str, String)>,
    flags: Vec<(String, &'static str)>,
    visible: String,
    charts: Vec<Chart>,
    arms: Vec<ArmView>,
    apart: Vec<ArmView>,
    absent: Vec<String>,
    runs: Vec<RunView>,
    others: Vec<Other>,
}

/// Another group and why it is another.
struct Other {
    anchor: String,
    name: String,
    why: String,
}

/// One arm: a row of the table.
struct ArmView {
    rank: String,
    name: String,
    variant: String,
    version: String,
    ours: bool,
    approach: &'static str,
    status: Status,
    status_says: String,
    failures: Vec<Failure>,
    figures: Vec<FigureView>,
    wire_format: String,
    delivery: String,
    durability: String,
    duplicates: String,
    knobs: String,
    binding: String,
    deviations: Vec<(String, String)>,
    reviewed: bool,
    flags: Vec<String>,
    links: Vec<(String, String, bool)>,
    earlier: String,
    homepage: String,
}

/// Why a run's numbers do not stand, and the numbers that a retraction strikes through.
struct Failure {
    says: String,
    struck: Vec<String>,
}

/// A cell of the table.
struct FigureView {
    label: &'static str,
    value: String,
    range: String,
    interval: String,
}

/// A run: a row of the table behind the charts.
struct RunView {
    id: String,
    name: String,
    rep: String,
    when: String,
    status: Status,
    values: Vec<String>,
    duplicates: String,
    retracted: Option<String>,
    note: String,
}

/// The metrics of the table's cells, with their heads.
const COLUMNS: [(Metric, &str); 4] = [
    (Metric::CpuUsPerRow, "CPU µs/row"),
    (Metric::RowsPerS, "rows/s"),
    (Metric::ClickhouseCpuUsPerRow, "ClickHouse µs/row"),
    (Metric::DataPlanePeakAnonMb, "memory MB"),
];

impl Page {
    /// The page of an archive.
    pub(crate) fn new(
        contents: &Contents,
        groups: &[Group<'_>],
        entrants: &[Entrant],
        environments: &[Environment],
    ) -> Self {
        let report = &contents.report;
        let shown = groups.iter().map(|group| group_view(group, groups, entrants, environments)).collect();
        let head = |file: &weir_model::archive::FileReport| Head {
            file: file.file.display().to_string(),
            lines: file.lines,
            digest: file.head.to_string(),
        };
        Self {
            ours: entrants.iter().filter(|entrant| entrant.is_our_own()).map(|it| it.name().to_owned()).collect(),
            groups: shown,
            damage: report.damage.iter().map(ToString::to_string).collect(),
            heads: report.files.iter().map(head).collect(),
            records: count(contents.records.len() as u64),
            unpublished: contents.records.len() - crate::published(contents).count(),
            newest: groups.first().map(|group| day(group.newest)).unwrap_or_default(),
        }
    }
}

fn day(measurement: &Measurement) -> String {
    measurement.ts.strftime("%Y-%m-%d").to_string()
}

const fn class_says(class: Class) -> &'static str {
    match class {
        Class::Authoritative => "Measured on hardware of its own with every cap enforced.",
        Class::Indicative => "Real measurements on a host that distorts them. Read differences with care.",
        Class::Fixture => {
            "These numbers prove that the suite works. They are not results and not to be quoted as such."
        }
    }
}

const fn pipeline(workload: WorkloadId) -> (&'static str, &'static str) {
    match workload {
        WorkloadId::IngestA => ("Ingest, tier A", "Kafka → decode Avro → flatten → ClickHouse"),
        WorkloadId::IngestB => ("Ingest, tier B", "Kafka → decode Avro → flatten, filter, derive → ClickHouse"),
    }
}

/// A link target that stays the same while the group does.
fn anchor(key: &Key) -> String {
    let apart = weir_model::digest::Digest::of(format!("{key:?}")).short();
    format!("{}-{}-{}-{apart}", key.workload, key.mode, key.env)
}

fn group_view(group: &Group<'_>, all: &[Group<'_>], entrants: &[Entrant], environments: &[Environment]) -> GroupView {
    let key = &group.key;
    let env = &group.newest.env;
    let (title, pipeline) = pipeline(key.workload);
    let profile = environments.iter().find(|environment| environment.id == env.profile);
    let caveats = profile.map_or_else(
        || format!("There is no profile `{}` any more, so its caveats are not known.", env.profile),
        |profile| profile.caveats.clone(),
    );
    let arms: Vec<&Arm<'_>> = group.arms.iter().collect();
    let named = |arm: &Arm<'_>| {
        let entrant = entrants.iter().find(|entrant| entrant.id() == arm.entrant);
        (name_of(arm, entrant), entrant.is_some_and(Entrant::is_our_own))
    };
    let flags = group.host_flags.iter().chain(&group.sitting_flags);
    let other = |other: &Group<'_>| Other {
        anchor: anchor(&other.key),
        name: format!("{} · {}", self::pipeline(other.key.workload).0, other.key.env),
        why: differences(key, &other.key),
    };
    GroupView {
        anchor: anchor(key),
        title,
        pipeline,
        mode: key.mode.to_string(),
        env: key.env.to_string(),
        class: env.class.as_str(),
        class_says: class_says(env.class),
        caveats,
        envelope: envelope(env.envelope_scale),
        host: env.host.summary(),
        facts: facts(group),
        flags: flags.map(|flag| (flag.wording(), flag.remedy())).collect(),
        visible: visible(group),
        charts: SUBJECTS.into_iter().filter_map(|subject| Chart::new(subject, &arms, named)).collect(),
        arms: group.arms.iter().map(|arm| arm_view(arm, &group.arms, entrants)).collect(),
        apart: group.apart.iter().map(|arm| arm_view(arm, &group.arms, entrants)).collect(),
        absent: absent(group, entrants),
        runs: every_run(group, entrants),
        others: all.iter().filter(|it| it.key != *key).map(other).collect(),
    }
}

fn differences(ours: &Key, theirs: &Key) -> String {
    let one =
        |it: weir_model::comparability::Difference| format!("{} ({} here, {} there)", it.what, it.ours, it.theirs);
    ours.differences(theirs).into_iter().map(one).collect::<Vec<_>>().join(", ")
}

fn cpus(count: f64) -> String {
    format!("{} CPU{}", plain(count), if count == 1.0 { "" } else { "s" })
}

fn envelope(scale: f64) -> String {
    let memory = bytes((REFERENCE_MEMORY as f64 * scale) as u64);
    let share = if scale == 1.0 { String::new() } else { format!(", {} of the reference", percent(scale)) };
    format!("{} and {memory} for each system{share}", cpus(REFERENCE_CPUS * scale))
}

fn facts(group: &Group<'_>) -> Vec<(&'static str, String)> {
    let infra = &group.newest.infra;
    let service = |it: &ServiceFacts| {
        let caps: Vec<String> = [it.cpus.map(cpus), it.memory.map(bytes)].into_iter().flatten().collect();
        let caps = if caps.is_empty() { String::new() } else { format!(" ({})", caps.join(", ")) };
        format!("{} {}{caps}", it.kind, it.version)
    };
    vec![
        ("Broker", format!("{}, {} partitions", service(&infra.broker), infra.partitions)),
        ("ClickHouse", service(&infra.clickhouse)),
        ("Registry", service(&infra.registry)),
        ("Corpus", format!("{} batches, dataset {}", count(group.key.batches), group.key.dataset_version)),
        ("Protocol", format!("version {}", group.key.harness_version)),
        ("Newest record", day(group.newest)),
    ]
}

fn visible(group: &Group<'_>) -> String {
    let visible = match group.smallest_visible.get(&Metric::CpuUsPerRow) {
        Some(share) => format!(
            "Differences in CPU per row below {} do not show in these runs; arms that they do not tell apart share a rank.",
            percent(*share)
        ),
        None => "There are too few runs to tell arms apart, so they share a rank.".to_owned(),
    };
    match group.aa_spread.get(&Metric::CpuUsPerRow) {
        Some(spread) => {
            format!("{visible} One arm ran twice as a control and differed from itself by {}.", percent(*spread))
        }
        None => visible,
    }
}

/// Active entrants that could have run here and have no record.
fn absent(group: &Group<'_>, entrants: &[Entrant]) -> Vec<String> {
    let has_run = |entrant: &Entrant| group.arms.iter().chain(&group.apart).any(|arm| arm.entrant == entrant.id());
    let could = |entrant: &Entrant| {
        entrant.identity.status == EntrantStatus::Active
            && entrant.variants.iter().any(|variant| variant.workloads.contains(&group.key.workload))
    };
    entrants.iter().filter(|it| could(it) && !has_run(it)).map(|it| it.name().to_owned()).collect()
}

fn name_of(arm: &Arm<'_>, entrant: Option<&Entrant>) -> String {
    entrant.map_or_else(|| arm.entrant.to_string(), |entrant| entrant.name().to_owned())
}

fn rank(arm: &Arm<'_>, all: &[Arm<'_>]) -> String {
    match arm.rank {
        None => String::new(),
        Some(rank) if all.iter().filter(|other| other.rank == arm.rank).count() > 1 => format!("{rank}="),
        Some(rank) => rank.to_string(),
    }
}

fn arm_view(arm: &Arm<'_>, all: &[Arm<'_>], entrants: &[Entrant]) -> ArmView {
    let entrant = entrants.iter().find(|entrant| entrant.id() == arm.entrant);
    let latest = arm.latest();
    let text = |of: fn(&Measurement) -> String| latest.map(of).unwrap_or_default();
    let figures = COLUMNS.iter().map(|(metric, label)| figure_view(arm, *metric, label)).collect();
    let deviations = entrant.map(|entrant| &entrant.deviations).into_iter().flatten();
    let flag = |(flag, times): &(Flag, usize)| {
        let runs = if *times == arm.runs.len() {
            "every run".to_owned()
        } else {
            format!("{times} of {} runs", arm.runs.len())
        };
        format!("{} ({runs})", flag.wording())
    };
    ArmView {
        rank: rank(arm, all),
        name: name_of(arm, entrant),
        variant: arm.variant.to_string(),
        version: text(|it| it.entrant.version.clone()),
        ours: entrant.is_some_and(Entrant::is_our_own),
        approach: if arm.approach == Approach::Realistic { "" } else { arm.approach.as_str() },
        status: arm.status,
        status_says: status_says(arm),
        failures: failures(arm),
        figures,
        wire_format: text(|it| it.wire_format.to_string()),
        delivery: text(|it| it.guarantees.delivery.to_string()),
        durability: text(|it| {
            format!("{} every {} s", it.guarantees.durability, plain(it.guarantees.interval_ms as f64 / 1e3))
        }),
        duplicates: arm.duplicates().map_or_else(|| "–".to_owned(), count),
        knobs: text(|it| {
            it.knobs.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
        }),
        binding: text(|it| it.binding.clone()),
        deviations: deviations.map(|it| (it.what.clone(), it.why.clone())).collect(),
        reviewed: entrant.is_some_and(|entrant| entrant.maintainer.reviewed_upstream),
        flags: arm.flags.iter().map(flag).collect(),
        links: arm.runs.iter().map(link).collect(),
        earlier: if arm.earlier == 0 { String::new() } else { count(arm.earlier as u64) },
        homepage: entrant.map(|entrant| entrant.identity.homepage.clone()).unwrap_or_default(),
    }
}

/// A run's id, its repetition, and whether it is retracted.
fn link(run: &Run<'_>) -> (String, String, bool) {
    (run.record.run_id.to_string(), run.record.rep.to_string(), run.retraction.is_some())
}

fn status_says(arm: &Arm<'_>) -> String {
    let standing = arm.runs.iter().filter(|run| run.stands()).count();
    if standing == arm.runs.len() && arm.status == Status::Ok {
        return match standing {
            1 => "1 run, every gate passed".to_owned(),
            runs => format!("{runs} runs, every gate passed"),
        };
    }
    format!("{}; {standing} of {} runs stand", arm.status.wording(), arm.runs.len())
}

/// Why runs of an arm do not stand.
fn failures(arm: &Arm<'_>) -> Vec<Failure> {
    let struck = |record: &Measurement| {
        let value =
            |(metric, label): &(Metric, &str)| Some(format!("{} {label}", written(*metric, record.value(*metric)?)));
        COLUMNS.iter().filter_map(value).collect()
    };
    let failure = |run: &Run<'_>| match run.retraction {
        Some(it) => Some(Failure {
            says: format!("Repetition {} is retracted: {}", run.record.rep, it.reason),
            struck: struck(run.record),
        }),
        None if run.record.status.is_measured() => None,
        None => {
            Some(Failure { says: format!("Repetition {}: {}", run.record.rep, run.record.note), struck: Vec::new() })
        }
    };
    arm.runs.iter().filter_map(failure).collect()
}

fn figure_view(arm: &Arm<'_>, metric: Metric, label: &'static str) -> FigureView {
    let figure = arm.figure(metric);
    let interval = figure
        .filter(|_| metric == Metric::CpuUsPerRow || metric == Metric::RowsPerS)
        .and_then(|it| it.ci95())
        .map(|(low, high)| format!("95 % interval of the median: {}–{}", written(metric, low), written(metric, high)));
    FigureView {
        label,
        value: figure.map_or_else(|| "–".to_owned(), |it| written(metric, it.median)),
        range: figure.map(|it| range(metric, it)).unwrap_or_default(),
        interval: interval.unwrap_or_default(),
    }
}

/// Every run of a group, the control's last.
fn every_run(group: &Group<'_>, entrants: &[Entrant]) -> Vec<RunView> {
    let arms = group.arms.iter().chain(&group.apart).flat_map(|arm| &arm.runs);
    let view = |run: &Run<'_>| {
        let id = &run.record.entrant.id;
        let name = entrants.iter().find(|entrant| entrant.id() == id).map_or(id.as_str(), Entrant::name);
        run_view(run, name)
    };
    arms.chain(&group.control).map(view).collect()
}

fn run_view(run: &Run<'_>, name: &str) -> RunView {
    let value =
        |record: &Measurement, metric| record.value(metric).map_or_else(|| "–".to_owned(), |it| written(metric, it));
    let control = if run.record.aa { " (control)" } else { "" };
    RunView {
        id: run.record.run_id.to_string(),
        name: format!("{name} {}{control}", run.record.entrant.variant),
        rep: format!("{}/{}", run.record.rep, run.record.reps),
        when: run.record.ts.strftime("%Y-%m-%d %H:%M").to_string(),
        status: run.record.status,
        values: COLUMNS.iter().map(|(metric, _)| value(run.record, *metric)).collect(),
        duplicates: run
            .record
            .gates
            .as_ref()
            .filter(|_| run.record.status.is_measured())
            .map_or_else(|| "–".to_owned(), |gates| count(gates.duplicates)),
        retracted: run.retraction.map(|retraction| match retraction.superseded_by {
            Some(by) => format!("{} (superseded by {by})", retraction.reason),
            None => retraction.reason.clone(),
        }),
        note: run.record.note.clone(),
    }
}

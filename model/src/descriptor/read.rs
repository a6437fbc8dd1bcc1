//! From the text of a descriptor to an [`Entrant`]: keys, types and vocabularies.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::diagnostic::Problems;
use crate::document::{At, Document, Table, number};
use crate::id::{WireFormat, WorkloadId};
use crate::record::{Guarantees, Knob};

use super::check::{self, Spans};
use super::fairness;
use super::{
    Affects, Binding, BindingConstraint, Build, Constraint, Container, Deviation, Entrant, Envelope, Identity,
    Maintainer, Process, Review, ServerSide, Variant, Version,
};

/// Gives the text of a file of the entrant's folder, if it is there.
pub(super) type Files<'f> = dyn Fn(&str) -> Option<String> + 'f;

/// Reads a descriptor; `folder` is the name of the folder it stands in.
pub(super) fn entrant(file: &str, text: &str, folder: &str, files: &Files<'_>) -> Result<Entrant, Problems> {
    let doc = Document::new(file, text);
    let parsed = doc.parse();
    if !doc.is_sound() {
        return Err(doc.problems());
    }
    let mut spans = Spans::default();
    let entrant = sections(Table::root(&doc, &parsed), &mut spans);
    check::figures(&doc, &spans);
    if let Some(entrant) = &entrant {
        check::rules(&doc, entrant, &spans, folder);
        fairness::rules(&doc, entrant, &spans);
        check::placeholders(&doc, entrant, &spans, files);
    }
    match (doc.problems(), entrant) {
        (problems, Some(entrant)) => problems.or(entrant),
        (problems, None) => Err(problems),
    }
}

/// Reads every section, so that all problems are found, and builds the entrant if every one is complete.
fn sections(root: Table<'_, '_>, spans: &mut Spans) -> Option<Entrant> {
    root.schema();
    let identity = root.table("entrant").and_then(|table| identity(table, spans));
    let maintainer = root.table("maintainer").and_then(|table| maintainer(table, spans));
    let version = root.table("version").and_then(|table| version(table, spans));
    let build = root.maybe_table("build").map(|table| build(table, spans)).unwrap_or_default();
    let process = root.maybe_table("process").map(|table| process(table, spans));
    let envelope = root.table("envelope").and_then(|table| envelope(table, spans));
    let guarantees = root.table("guarantees").and_then(|table| guarantees(table, spans));
    let env = root.maybe_table("env").map(|table| variables(table, spans)).unwrap_or_default();
    let constraints: Vec<_> = root.tables("constraints").into_iter().map(|table| constraint(table, spans)).collect();
    let variants: Vec<_> = root.tables("variants").into_iter().map(|table| variant(table, spans)).collect();
    let deviations: Vec<_> = root.tables("deviations").into_iter().map(deviation).collect();
    let clickhouse = root.maybe_table("clickhouse").map(|table| server_side(table, spans));
    root.finish();
    Some(Entrant {
        identity: identity?,
        maintainer: maintainer?,
        version: version?,
        build,
        process: process.transpose_missing()?,
        envelope: envelope?,
        guarantees: guarantees?,
        env,
        constraints: constraints.into_iter().collect::<Option<_>>()?,
        variants: variants.into_iter().collect::<Option<_>>()?,
        deviations: deviations.into_iter().collect::<Option<_>>()?,
        clickhouse: clickhouse.transpose_missing()?,
    })
}

/// An optional section: not there is fine, there and incomplete is not.
trait Optional<T> {
    /// `None` if the section is there and incomplete.
    fn transpose_missing(self) -> Option<Option<T>>;
}

impl<T> Optional<T> for Option<Option<T>> {
    fn transpose_missing(self) -> Option<Option<T>> {
        match self {
            None => Some(None),
            Some(section) => section.map(Some),
        }
    }
}

fn values<T>(texts: Vec<At<T>>) -> Vec<T> {
    texts.into_iter().map(|text| text.value).collect()
}

fn identity(table: Table<'_, '_>, spans: &mut Spans) -> Option<Identity> {
    let id = table.parsed("id");
    let name = table.text("name");
    let homepage = table.text("homepage");
    let repo = table.text("repo");
    let licence = table.text("licence");
    let licence_link = table.maybe_text("licence_link");
    let vendor = table.text("vendor");
    let kind = table.text("kind");
    let language = values(table.some_texts("language"));
    let runtime = table.text("runtime");
    let status = table.word("status");
    spans.id = id.as_ref().map(|id: &At<_>| id.span.clone()).unwrap_or_default();
    spans.status = table.span();
    spans.links.extend([&homepage, &repo, &licence_link].into_iter().flatten().cloned());
    spans.licence = licence.clone();
    table.finish();
    Some(Identity {
        id: id?.value,
        name: name?.value,
        homepage: homepage?.value,
        repo: repo?.value,
        licence: licence?.value,
        licence_link: licence_link.map(|link| link.value),
        vendor: vendor?.value,
        kind: kind?.value,
        language,
        runtime: runtime?.value,
        status: status?.value,
    })
}

fn maintainer(table: Table<'_, '_>, spans: &mut Spans) -> Option<Maintainer> {
    let who = table.text("who");
    let reviewed = table.flag("reviewed_upstream");
    let reviews: Vec<_> = table.tables("review").into_iter().map(|table| review(table, spans)).collect();
    spans.reviewed = reviewed.as_ref().map(|it| it.span.clone()).unwrap_or_default();
    table.finish();
    Some(Maintainer {
        who: who?.value,
        reviewed_upstream: reviewed?.value,
        reviews: reviews.into_iter().collect::<Option<_>>()?,
    })
}

fn review(table: Table<'_, '_>, spans: &mut Spans) -> Option<Review> {
    let date = match table.maybe_date("date") {
        Some(date) => Some(date),
        None => table.text("date"),
    };
    let link = table.text("link");
    let (said, done) = (table.text("said"), table.text("done"));
    spans.links.extend(link.clone());
    spans.dates.extend(date.clone());
    table.finish();
    Some(Review { date: date?.value, link: link?.value, said: said?.value, done: done?.value })
}

fn version(table: Table<'_, '_>, spans: &mut Spans) -> Option<Version> {
    let command = table.some_texts("command");
    let pinned = table.text("pinned");
    let newest = table.maybe_text("newest");
    let artefact = table.maybe_text("artefact");
    spans.versions.extend(pinned.iter().chain(&newest).cloned());
    spans.templates.extend(command.iter().chain(&artefact).cloned());
    table.finish();
    Some(Version {
        command: values(command),
        pinned: pinned?.value,
        newest: newest.map(|it| it.value),
        artefact: artefact.map(|it| it.value),
    })
}

fn build(table: Table<'_, '_>, spans: &mut Spans) -> Build {
    let (cargo, bin) = (table.maybe_text("cargo"), table.maybe_text("bin"));
    let (image, dockerfile) = (table.maybe_text("image"), table.maybe_text("dockerfile"));
    if cargo.is_some() != bin.is_some() {
        table.missing(if cargo.is_some() { "bin" } else { "cargo" });
    }
    if dockerfile.is_some() && image.is_none() {
        table.missing("image");
    }
    spans.dockerfile = dockerfile.clone();
    table.finish();
    let value = |text: Option<At<String>>| text.map(|it| it.value);
    Build { cargo: value(cargo), bin: value(bin), image: value(image), dockerfile: value(dockerfile) }
}

fn process(table: Table<'_, '_>, spans: &mut Spans) -> Option<Process> {
    let command = table.some_texts("command");
    let env = table.maybe_table("env").map(|table| variables(table, spans)).unwrap_or_default();
    spans.templates.extend(command.iter().cloned());
    table.finish();
    Some(Process { command: values(command), env })
}

fn variables(table: Table<'_, '_>, spans: &mut Spans) -> BTreeMap<String, String> {
    let variables = table.free_texts();
    spans.variables.extend(variables.iter().map(|(key, _)| key.clone()));
    spans.templates.extend(variables.iter().map(|(_, value)| value.clone()));
    variables.into_iter().map(|(key, value)| (key.value, value.value)).collect()
}

fn envelope(table: Table<'_, '_>, spans: &mut Spans) -> Option<Envelope> {
    let cpus = table.number("cpus");
    let memory = table.size("memory");
    let containers: Vec<_> = table.tables("container").into_iter().map(|table| container(table, spans)).collect();
    spans.envelope = table.span();
    spans.cpus.extend(cpus.clone());
    table.finish();
    Some(Envelope {
        cpus: cpus?.value,
        memory: memory?.value,
        containers: containers.into_iter().collect::<Option<_>>()?,
    })
}

fn container(table: Table<'_, '_>, spans: &mut Spans) -> Option<Container> {
    let role = table.word("role");
    let name = table.text("name");
    let cpus = table.number("cpus");
    let memory = table.size("memory");
    let gc_log = table.maybe_text("gc_log");
    spans.gc_logs.extend(gc_log.iter().map(|log| log.span.clone()));
    let image = table.maybe_text("image").map(|it| it.value);
    let command = table.texts("command");
    spans.templates.extend(command.iter().cloned());
    spans.containers.push(name.as_ref().map_or_else(|| table.span(), |name| name.span.clone()));
    spans.cpus.extend(cpus.clone());
    table.finish();
    let command = values(command);
    let (role, name, cpus, memory) = (role?.value, name?.value, cpus?.value, memory?.value);
    let gc_log = gc_log.map(|log| log.value);
    Some(Container { role, name, cpus, memory, gc_log, image, command })
}

fn guarantees(table: Table<'_, '_>, spans: &mut Spans) -> Option<Guarantees> {
    let delivery = table.word("delivery");
    let durability = table.text("durability");
    let interval = table.int("interval_ms");
    if let Some(interval) = &interval
        && interval.value <= 0
    {
        let message = format!("`guarantees.interval_ms` is {}: durability has an interval", interval.value);
        table.doc.report("bad_interval", interval.span.clone(), message, None);
    }
    spans.interval = interval.as_ref().map(|interval| interval.span.clone()).unwrap_or_default();
    table.finish();
    Some(Guarantees {
        delivery: delivery?.value,
        durability: durability?.value,
        interval_ms: u64::try_from(interval?.value).ok()?,
    })
}

fn constraint(table: Table<'_, '_>, spans: &mut Spans) -> Option<Constraint> {
    let (knob, exceeds, why) = (table.text("knob"), table.text("exceeds"), table.text("why"));
    spans.constrained.extend([&knob, &exceeds].into_iter().flatten().cloned());
    table.finish();
    Some(Constraint { knob: knob?.value, exceeds: exceeds?.value, why: why?.value })
}

fn variant(table: Table<'_, '_>, spans: &mut Spans) -> Option<Variant> {
    let id = table.parsed("id");
    let workloads: Vec<At<WorkloadId>> =
        table.some_texts("workloads").iter().filter_map(|text| table.as_word(text)).collect();
    let approach = table.word("approach");
    let default = table.maybe_flag("default");
    let wire_format: Option<At<WireFormat>> = table.table("reports").and_then(|reports| {
        let format = reports.word("wire_format");
        reports.finish();
        format
    });
    let knobs = table.maybe_table("knobs").map(|table| knobs(table, spans)).unwrap_or_default();
    let mut constraint = Range::default();
    let binding = table.table("binding").and_then(|table| binding(table, spans, &mut constraint));
    spans.variants.push(super::check::VariantSpans {
        id: id.as_ref().map_or_else(|| table.span(), |id: &At<_>| id.span.clone()),
        approach: approach.as_ref().map_or_else(|| table.span(), |it: &At<_>| it.span.clone()),
        workloads: workloads.clone(),
        wire_format: wire_format.as_ref().map(|it| it.span.clone()).unwrap_or_default(),
        constraint,
    });
    table.finish();
    Some(Variant {
        id: id?.value,
        workloads: values(workloads),
        approach: approach?.value,
        default: default.is_some_and(|default| default.value),
        wire_format: wire_format?.value,
        knobs,
        binding: binding?,
    })
}

fn knobs(table: Table<'_, '_>, spans: &mut Spans) -> BTreeMap<String, Knob> {
    let mut knobs = BTreeMap::new();
    for (name, value, span) in table.free() {
        let whole = value.as_integer().and_then(|it| i64::from_str_radix(it.as_str(), it.radix()).ok());
        let knob = value
            .as_bool()
            .map(Knob::Bool)
            .or(whole.map(Knob::Int))
            .or_else(|| number(value).filter(|it| it.is_finite()).map(Knob::Float))
            .or_else(|| value.as_str().map(|text| Knob::Text(text.to_owned())));
        match knob {
            Some(knob) => {
                spans.knobs.push(name.clone());
                knobs.insert(name.value, knob);
            }
            None => {
                let message = format!("knob `{}` is a text, a number, true or false", *name);
                table.doc.report("wrong_type", span, message, None);
            }
        }
    }
    knobs
}

fn binding(table: Table<'_, '_>, spans: &mut Spans, place: &mut Range<usize>) -> Option<Binding> {
    let constraint: Option<At<BindingConstraint>> = table.word("constraint");
    *place = constraint.as_ref().map(|it| it.span.clone()).unwrap_or_default();
    let evidence = table.some_texts("evidence");
    let sentence = table.text("sentence");
    spans.evidence.extend(evidence.iter().cloned());
    table.finish();
    Some(Binding { constraint: constraint?.value, evidence: values(evidence), sentence: sentence?.value })
}

fn deviation(table: Table<'_, '_>) -> Option<Deviation> {
    let (what, why) = (table.text("what"), table.text("why"));
    let affects: Vec<At<Affects>> = table.some_texts("affects").iter().filter_map(|text| table.as_word(text)).collect();
    table.finish();
    Some(Deviation { what: what?.value, why: why?.value, affects: values(affects) })
}

fn server_side(table: Table<'_, '_>, spans: &mut Spans) -> Option<ServerSide> {
    let arm_sql = table.text("arm_sql");
    let teardown = table.maybe_text("arm_teardown_sql");
    let attribution_tables = values(table.some_texts("attribution_tables"));
    spans.server_side = table.span();
    spans.files.extend(arm_sql.iter().chain(&teardown).cloned());
    table.finish();
    Some(ServerSide { arm_sql: arm_sql?.value, arm_teardown_sql: teardown.map(|it| it.value), attribution_tables })
}

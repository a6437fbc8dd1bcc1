//! The rules of a descriptor that go beyond keys and types.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::document::{At, Document};
use crate::id::{Approach, Role, Tier, WorkloadId};
use crate::metric::Metric;
use crate::words::closest;

use super::placeholder::{Piece, Placeholder, pieces};
use super::read::Files;
use super::{Affects, Entrant, EntrantStatus};

/// Facts that a binding constraint may call as evidence beside the metrics.
const FACTS: [&str; 4] = ["cores_used", "idle_share", "ceiling_share", "gc_share"];

/// Where things stand in the text, for what the rules say about them.
#[derive(Default)]
pub(super) struct Spans {
    pub(super) id: Range<usize>,
    pub(super) status: Range<usize>,
    pub(super) reviewed: Range<usize>,
    pub(super) envelope: Range<usize>,
    pub(super) interval: Range<usize>,
    pub(super) server_side: Range<usize>,
    pub(super) licence: Option<At<String>>,
    pub(super) dockerfile: Option<At<String>>,
    pub(super) versions: Vec<At<String>>,
    pub(super) variables: Vec<At<String>>,
    pub(super) gc_logs: Vec<Range<usize>>,
    pub(super) links: Vec<At<String>>,
    pub(super) dates: Vec<At<String>>,
    pub(super) cpus: Vec<At<f64>>,
    pub(super) containers: Vec<Range<usize>>,
    pub(super) constrained: Vec<At<String>>,
    pub(super) variants: Vec<VariantSpans>,
    pub(super) knobs: Vec<At<String>>,
    pub(super) evidence: Vec<At<String>>,
    pub(super) templates: Vec<At<String>>,
    pub(super) files: Vec<At<String>>,
}

/// Where the parts of a variant stand.
pub(super) struct VariantSpans {
    pub(super) id: Range<usize>,
    pub(super) approach: Range<usize>,
    pub(super) workloads: Vec<At<WorkloadId>>,
    pub(super) wire_format: Range<usize>,
    pub(super) constraint: Range<usize>,
}

/// Checks what needs no other part of the descriptor, even where parts are missing.
pub(super) fn figures(doc: &Document<'_>, spans: &Spans) {
    for link in spans.links.iter().filter(|link| !link.starts_with("https://")) {
        doc.report("bad_link", link.span.clone(), format!("`{}` is not an https:// link", link.value), None);
    }
    for date in spans.dates.iter().filter(|date| date.parse::<jiff::civil::Date>().is_err()) {
        doc.report("bad_date", date.span.clone(), format!("`{}` is not a date such as 2026-12-01", date.value), None);
    }
    for cpus in spans.cpus.iter().filter(|cpus| !(cpus.value > 0.0 && cpus.value.is_finite())) {
        doc.report("bad_cpus", cpus.span.clone(), format!("{} is not a number of CPUs", cpus.value), None);
    }
    for evidence in &spans.evidence {
        let known = || Metric::ALL.iter().map(|metric| metric.as_str()).chain(FACTS);
        if !known().any(|name| name == evidence.value) {
            let hint = closest(evidence, known()).map(|near| format!("did you mean `{near}`?"));
            let message = format!("evidence `{}` is neither a metric nor a fact", evidence.value);
            doc.report("unknown_evidence", evidence.span.clone(), message, hint);
        }
    }
}

/// Checks how the parts of a descriptor fit, but for placeholders.
pub(super) fn rules(doc: &Document<'_>, entrant: &Entrant, spans: &Spans, folder: &str) {
    if entrant.id().as_str() != folder {
        let message = format!("id `{}` is not the name of the folder, `{folder}`", entrant.id());
        doc.report("id_not_folder", spans.id.clone(), message, None);
    }
    if entrant.maintainer.reviewed_upstream && entrant.maintainer.reviews.is_empty() {
        let message = "`reviewed_upstream` is true, but there is no review".to_owned();
        let hint = Some("add a `[[maintainer.review]]` with date, link, what was said and what was done".to_owned());
        doc.report("review_without_evidence", spans.reviewed.clone(), message, hint);
    }
    let can_start = entrant.process.is_some() || entrant.build.image.is_some();
    if entrant.identity.status == EntrantStatus::Active && !can_start {
        let message = "an active entrant can start: it has `[process]`, `[build] image`, or both".to_owned();
        doc.report("cannot_start", spans.status.clone(), message, None);
    }
    containers(doc, entrant, spans);
    variants(doc, entrant, spans);
    knobs(doc, entrant, spans);
}

/// Exactly one data plane, which is the whole envelope; a control plane is a deviation.
fn containers(doc: &Document<'_>, entrant: &Entrant, spans: &Spans) {
    let envelope = &entrant.envelope;
    let data_planes: Vec<_> =
        envelope.containers.iter().zip(&spans.containers).filter(|(it, _)| it.role == Role::DataPlane).collect();
    match data_planes.as_slice() {
        [] => {
            let message = "no container is the data plane".to_owned();
            let hint = Some("exactly one `[[envelope.container]]` has `role = \"data-plane\"`".to_owned());
            doc.report("no_data_plane", spans.envelope.clone(), message, hint);
        }
        [(it, span)] if it.cpus != envelope.cpus || it.memory != envelope.memory => {
            let message = format!(
                "data-plane container `{}` has {} CPUs and {}, the envelope {} CPUs and {}",
                it.name,
                it.cpus,
                crate::units::bytes(it.memory),
                envelope.cpus,
                crate::units::bytes(envelope.memory)
            );
            doc.report("envelope_sum", (*span).clone(), message, Some("the data plane is the whole envelope".into()));
        }
        [_] => {}
        [_, (second, span), ..] => {
            let message = format!("container `{}` is a second data plane", second.name);
            doc.report("second_data_plane", (*span).clone(), message, None);
        }
    }
    let mut names = BTreeSet::new();
    for (it, span) in envelope.containers.iter().zip(&spans.containers) {
        if !names.insert(&it.name) {
            doc.report("duplicate_container", span.clone(), format!("two containers are called `{}`", it.name), None);
        }
        let disclosed = entrant.deviations.iter().any(|deviation| deviation.affects.contains(&Affects::Envelope));
        if it.role == Role::ControlPlane && !disclosed {
            let message = format!("control-plane container `{}` is on top of the envelope and not disclosed", it.name);
            let hint = Some("add a `[[deviations]]` whose `affects` has \"envelope\"".to_owned());
            doc.report("undisclosed_control_plane", span.clone(), message, hint);
        }
    }
}

/// One default, and it is realistic; no id and no workload twice.
fn variants(doc: &Document<'_>, entrant: &Entrant, spans: &Spans) {
    if entrant.variants.is_empty() {
        doc.report("no_variant", 0..0, "there is no `[[variants]]`".to_owned(), None);
        return;
    }
    let both = || entrant.variants.iter().zip(&spans.variants);
    let mut defaults = both().filter(|(variant, _)| variant.default);
    match defaults.next() {
        None => {
            let hint = Some("exactly one variant has `default = true`, and it is realistic".to_owned());
            doc.report("no_default", spans.variants[0].id.clone(), "no variant is the default".to_owned(), hint);
        }
        Some((variant, span)) if variant.approach != Approach::Realistic => {
            let message = format!("the default variant `{}` is {}, not realistic", variant.id, variant.approach);
            doc.report("default_not_realistic", span.approach.clone(), message, None);
        }
        Some(_) => {}
    }
    for (variant, span) in defaults {
        doc.report("second_default", span.id.clone(), format!("variant `{}` is a second default", variant.id), None);
    }
    let mut ids = BTreeSet::new();
    for (variant, span) in both() {
        if !ids.insert(&variant.id) {
            doc.report("duplicate_variant", span.id.clone(), format!("two variants are called `{}`", variant.id), None);
        }
        let mut seen = BTreeSet::new();
        for workload in span.workloads.iter().filter(|workload| !seen.insert(workload.value)) {
            let message = format!("workload `{}` is listed twice", workload.value);
            doc.report("duplicate_workload", workload.span.clone(), message, None);
        }
    }
}

/// Constraints are about knobs that exist, and every variant keeps them.
fn knobs(doc: &Document<'_>, entrant: &Entrant, spans: &Spans) {
    let known: BTreeSet<&str> =
        entrant.variants.iter().flat_map(|variant| variant.knobs.keys().map(String::as_str)).collect();
    for knob in spans.constrained.iter().filter(|knob| !known.contains(knob.value.as_str())) {
        let hint = closest(knob, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        doc.report("unknown_knob", knob.span.clone(), format!("no variant has a knob `{}`", knob.value), hint);
    }
    for (variant, span) in entrant.variants.iter().zip(&spans.variants) {
        if let Some(broken) = entrant.broken_constraint(&variant.knobs) {
            let message = format!("variant `{}`: `{}` does not exceed `{}`", variant.id, broken.knob, broken.exceeds);
            doc.report("broken_constraint", span.id.clone(), message, Some(broken.why.clone()));
        }
    }
}

/// Checks every placeholder of the descriptor and of the files it names; every knob has an effect somewhere.
pub(super) fn placeholders(doc: &Document<'_>, entrant: &Entrant, spans: &Spans, files: &Files<'_>) {
    let mut check = Placeholders { doc, entrant, files, seen: BTreeSet::new(), knobs: BTreeSet::new() };
    for template in &spans.templates {
        check.text(&template.value, None, &template.span);
    }
    if let Some(dockerfile) = &spans.dockerfile
        && (check.files)(&dockerfile.value).is_none()
    {
        let message = format!("there is no file `{}` in the entrant's folder, or it is not text", dockerfile.value);
        doc.report("missing_file", dockerfile.span.clone(), message, None);
    }
    for file in &spans.files {
        for tier in check.tiers() {
            check.file(&Placeholder::file_of(file, tier), &file.span);
        }
    }
    let mut used: BTreeSet<String> = spans.constrained.iter().map(|knob| knob.value.clone()).collect();
    used.append(&mut check.knobs);
    let mut told = BTreeMap::new();
    for knob in spans.knobs.iter().filter(|knob| !used.contains(&knob.value)) {
        if told.insert(&knob.value, ()).is_none() {
            let message = format!("knob `{}` changes nothing", knob.value);
            let hint = format!("use {{{{knob:{}}}}} in a command, a variable or a file, or take it out", knob.value);
            doc.report("unused_knob", knob.span.clone(), message, Some(hint));
        }
    }
}

struct Placeholders<'a, 't> {
    doc: &'a Document<'t>,
    entrant: &'a Entrant,
    files: &'a Files<'a>,
    seen: BTreeSet<String>,
    knobs: BTreeSet<String>,
}

impl Placeholders<'_, '_> {
    /// The tiers that any variant runs.
    fn tiers(&self) -> Vec<Tier> {
        let tiers: BTreeSet<Tier> =
            self.entrant.variants.iter().flat_map(|it| &it.workloads).map(|workload| workload.tier()).collect();
        tiers.into_iter().collect()
    }

    /// Checks `text`, which stands in `file` or in the descriptor itself, and which `span` of the descriptor leads to.
    fn text(&mut self, text: &str, file: Option<&str>, span: &Range<usize>) {
        let place = file.map(|file| format!("{file}: ")).unwrap_or_default();
        for piece in pieces(text) {
            match piece {
                Piece::Text(_) => {}
                Piece::Unknown(inner) => {
                    let known: Vec<String> = Placeholder::known().collect();
                    let hint = match closest(inner, known.iter().map(String::as_str)) {
                        Some(near) => format!("did you mean `{{{{{near}}}}}`?"),
                        None => format!("known: {}", known.join(", ")),
                    };
                    let message = format!("{place}`{{{{{inner}}}}}` is not a placeholder");
                    self.doc.report("unknown_placeholder", span.clone(), message, Some(hint));
                }
                Piece::Placeholder(placeholder) => self.placeholder(&placeholder, &place, span),
            }
        }
    }

    fn placeholder(&mut self, placeholder: &Placeholder, place: &str, span: &Range<usize>) {
        match placeholder {
            Placeholder::Knob(name) => {
                let lacking = self.entrant.variants.iter().find(|variant| !variant.knobs.contains_key(name));
                if let Some(variant) = lacking {
                    let message = format!("{place}variant `{}` has no knob `{name}`", variant.id);
                    self.doc.report("unknown_knob", span.clone(), message, None);
                }
                self.knobs.insert(name.clone());
            }
            Placeholder::Container(name)
                if !self.entrant.envelope.containers.iter().any(|container| container.name == *name) =>
            {
                let message = format!("{place}there is no container `{name}`");
                self.doc.report("unknown_container", span.clone(), message, None);
            }
            Placeholder::File(name) => {
                for tier in self.tiers() {
                    self.file(&Placeholder::file_of(name, tier), span);
                }
            }
            _ => {}
        }
    }

    /// Checks a file of the entrant's folder, once.
    fn file(&mut self, name: &str, span: &Range<usize>) {
        if !self.seen.insert(name.to_owned()) {
            return;
        }
        match (self.files)(name) {
            Some(text) => self.text(&text, Some(name), span),
            None => {
                let message = format!("there is no file `{name}` in the entrant's folder, or it is not text");
                self.doc.report("missing_file", span.clone(), message, None);
            }
        }
    }
}

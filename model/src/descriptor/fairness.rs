//! The rules of a descriptor that METHODOLOGY.md asks for: what must be equal, disclosed or shown.

use crate::document::Document;
use crate::environment::{REFERENCE_CPUS, REFERENCE_MEMORY};
use crate::id::{WireFormat, is_name};
use crate::units::bytes;

use super::check::Spans;
use super::{Affects, BindingConstraint, Entrant};

/// The interval that every arm's durability mechanism has, in milliseconds.
const INTERVAL_MS: u64 = 5000;

/// Evidence that something idles, or does not.
const USE: [&str; 6] =
    ["cores_used", "idle_share", "throttled_share", "data_plane_cores_used", "arm_cores_used", "cpu_us_per_row"];

/// Checks a descriptor against the rules for arms.
pub(super) fn rules(doc: &Document<'_>, entrant: &Entrant, spans: &Spans) {
    identity(doc, entrant, spans);
    envelope(doc, entrant, spans);
    disclosure(doc, entrant, spans);
    collectors(doc, entrant, spans);
    evidence(doc, entrant, spans);
}

/// A licence that can be looked up, versions and variables that can be used.
fn identity(doc: &Document<'_>, entrant: &Entrant, spans: &Spans) {
    if let Some(licence) = &spans.licence {
        let own = licence.value.contains("LicenseRef-");
        if !is_licence(&licence.value) {
            let message = format!("`{}` is not an SPDX expression", licence.value);
            let hint = "write it as `Apache-2.0`, `MIT OR Apache-2.0`, or `LicenseRef-name` with `licence_link`";
            doc.report("bad_licence", licence.span.clone(), message, Some(hint.to_owned()));
        } else if own && entrant.identity.licence_link.is_none() {
            let message = format!("`{}` is not in SPDX's list, and no `licence_link` leads to it", licence.value);
            doc.report("bad_licence", licence.span.clone(), message, None);
        }
    }
    for version in spans.versions.iter().filter(|version| version.value.contains(char::is_whitespace)) {
        let message = format!("version `{}` is not one word, so no artefact can say it", version.value);
        doc.report("bad_version", version.span.clone(), message, None);
    }
    for variable in &spans.variables {
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let is_variable = variable.value.chars().all(usable) && !variable.value.starts_with(|c: char| c.is_numeric());
        if !is_variable || variable.value.is_empty() {
            let message = format!("`{}` is not the name of an environment variable", variable.value);
            doc.report("bad_variable", variable.span.clone(), message, None);
        }
    }
    for (container, span) in entrant.envelope.containers.iter().zip(&spans.containers) {
        if !is_name(&container.name) {
            let message = format!("container name `{}` is no host name", container.name);
            let hint = Some("use a–z, 0–9 and inner hyphens, at most 64 characters".to_owned());
            doc.report("bad_container", span.clone(), message, hint);
        }
    }
}

/// Identifiers joined by `AND`, `OR` and `WITH`, in parentheses or not.
fn is_licence(text: &str) -> bool {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let mut depth = 0_i32;
    let mut wants_id = true;
    for token in spaced.split_whitespace() {
        let is_id = token.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '+'));
        match token {
            "(" if wants_id => depth += 1,
            ")" if !wants_id && depth > 0 => depth -= 1,
            "AND" | "OR" | "WITH" if !wants_id => wants_id = true,
            _ if wants_id && is_id => wants_id = false,
            _ => return false,
        }
    }
    !wants_id && depth == 0
}

/// Every arm declares the reference envelope; an environment scales it for all of them alike.
fn envelope(doc: &Document<'_>, entrant: &Entrant, spans: &Spans) {
    let declared = &entrant.envelope;
    if declared.cpus != REFERENCE_CPUS || declared.memory != REFERENCE_MEMORY {
        let message = format!(
            "the envelope is {} CPUs and {}, not the {REFERENCE_CPUS} CPUs and {} of every arm",
            declared.cpus,
            bytes(declared.memory),
            bytes(REFERENCE_MEMORY)
        );
        let hint = Some("an environment's `envelope_scale` makes it smaller, for all arms alike".to_owned());
        doc.report("envelope_not_reference", spans.envelope.clone(), message, hint);
    }
}

/// What departs from the specification is a deviation.
fn disclosure(doc: &Document<'_>, entrant: &Entrant, spans: &Spans) {
    let discloses = |what: Affects| entrant.deviations.iter().any(|deviation| deviation.affects.contains(&what));
    let hint = |what: &str| Some(format!("add a `[[deviations]]` whose `affects` has \"{what}\""));
    let interval = entrant.guarantees.interval_ms;
    if interval != INTERVAL_MS && !discloses(Affects::Guarantees) {
        let message = format!("durability every {interval} ms, not {INTERVAL_MS} as every arm's, is not disclosed");
        doc.report("undisclosed_guarantee", spans.interval.clone(), message, hint("guarantees"));
    }
    if entrant.clickhouse.is_some() && !discloses(Affects::ServerSide) {
        let message = "work on the shared ClickHouse is outside the envelope and not disclosed".to_owned();
        doc.report("undisclosed_server_side", spans.server_side.clone(), message, hint("server-side"));
    }
    for (variant, span) in entrant.variants.iter().zip(&spans.variants) {
        if variant.wire_format == WireFormat::None && entrant.clickhouse.is_none() {
            let message = format!("variant `{}` sends nothing to ClickHouse and has no SQL there", variant.id);
            let hint = Some("name the format it inserts in, or add `[clickhouse]`".to_owned());
            doc.report("no_wire_format", span.wire_format.clone(), message, hint);
        }
    }
}

/// A collector's log is for a runtime that has one, and then it is asked for.
fn collectors(doc: &Document<'_>, entrant: &Entrant, spans: &Spans) {
    let is_jvm = entrant.identity.runtime == "jvm";
    for log in spans.gc_logs.iter().filter(|_| !is_jvm) {
        let message = format!("`gc_log` is for runtime `jvm`, not `{}`", entrant.identity.runtime);
        doc.report("gc_log_without_jvm", log.clone(), message, None);
    }
    for (container, span) in entrant.envelope.containers.iter().zip(&spans.containers) {
        if is_jvm && container.role == crate::id::Role::DataPlane && container.gc_log.is_none() {
            let message = format!("container `{}` runs a JVM and names no `gc_log`", container.name);
            let hint = Some("let `-Xlog:gc*` write to a file of the run's folder and name it".to_owned());
            doc.report("missing_gc_log", span.clone(), message, hint);
        }
    }
}

/// A binding constraint's evidence bears on it.
fn evidence(doc: &Document<'_>, entrant: &Entrant, spans: &Spans) {
    for (variant, span) in entrant.variants.iter().zip(&spans.variants) {
        let constraint = variant.binding.constraint;
        let further: &[&str] = match constraint {
            BindingConstraint::Cpu => &[],
            BindingConstraint::Sink => &["ceiling_share", "clickhouse_ceiling_share", "clickhouse_cpu_us_per_row"],
            BindingConstraint::Broker => &["ceiling_share", "broker_ceiling_share", "broker_cpu_us_per_row"],
            BindingConstraint::Memory => &["data_plane_peak_anon_mb", "peak_mb"],
            BindingConstraint::Gc => &["gc_share", "gc_pause_share"],
            BindingConstraint::Lock => &["system_us_per_row"],
            BindingConstraint::Network => &["wire_bytes_per_row"],
        };
        let use_counts = !matches!(constraint, BindingConstraint::Gc | BindingConstraint::Memory);
        let bears = |name: &String| further.contains(&name.as_str()) || (use_counts && USE.contains(&name.as_str()));
        if !variant.binding.evidence.iter().any(bears) {
            let known: Vec<&str> = further.iter().chain(USE.iter().filter(|_| use_counts)).copied().collect();
            let message = format!("variant `{}`: no evidence bears on its constraint `{constraint}`", variant.id);
            let hint = format!("name at least one of {}", known.join(", "));
            doc.report("evidence_beside_the_point", span.constraint.clone(), message, Some(hint));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_licence;

    #[test]
    fn a_licence_is_an_expression() {
        for good in
            ["Apache-2.0", "MIT OR Apache-2.0", "(MIT AND BSD-3-Clause) OR GPL-2.0+", "LicenseRef-own", "BUSL-1.1"]
        {
            assert!(is_licence(good), "{good}");
        }
        for bad in ["", "Apache 2.0", "MIT/Apache-2.0", "MIT OR", "(MIT", "MIT)", "AND MIT", "see LICENSE"] {
            assert!(!is_licence(bad), "{bad}");
        }
    }
}

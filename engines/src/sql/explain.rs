//! A plan for a reader.

use std::fmt::Write as _;

use arrow::datatypes::DataType;

use crate::plan::{Aggregate, Function, JoinKind, Node, Plan, Step, Window};
use crate::read::string_type;

/// What a plan reads, keeps and writes.
pub(super) fn explain(plan: &Plan) -> String {
    let mut text = String::new();
    for input in &plan.inputs {
        let _ = writeln!(text, "read {}", input.name);
        let unnest = input.reads.unnest.as_deref();
        for column in &input.reads.columns {
            let _ = writeln!(text, "  {} {}", column.display_path(unnest), shown(&column.data_type));
        }
        if let Some(list) = unnest {
            let _ = writeln!(text, "  unnest {}", list.join("."));
        }
    }
    node(&plan.root, plan, 0, &mut text);
    text.push_str("write\n");
    for field in plan.output.fields() {
        let _ = writeln!(text, "  {} {}", field.name(), shown(field.data_type()));
    }
    if !plan.upsert_key.is_empty() {
        let names: Vec<&str> = plan.upsert_key.iter().map(|at| plan.output.field(*at).name().as_str()).collect();
        let _ = writeln!(text, "  key {}", names.join(", "));
    }
    if let Some(limit) = plan.limit {
        let _ = writeln!(text, "  limit {limit}");
    }
    text.replace('\u{0}', "")
}

fn node(node_: &Node, plan: &Plan, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    let steps = match node_ {
        Node::Source { input, steps, .. } => {
            let _ = writeln!(text, "{indent}from {}", plan.inputs[*input].name);
            steps
        }
        Node::Aggregate { input, aggregate, steps } => {
            node(input, plan, depth + 1, text);
            let _ = writeln!(text, "{indent}{}", grouping(aggregate));
            steps
        }
        Node::Join { left, right, join, steps } => {
            node(left, plan, depth + 1, text);
            node(right, plan, depth + 1, text);
            let kind = match join.kind {
                JoinKind::Inner => "",
                JoinKind::Left => "left ",
                JoinKind::Right => "right ",
                JoinKind::Full => "full ",
            };
            let (lower, upper) = (length(join.lower), length(join.upper));
            let keys = join.left_keys.len();
            let _ =
                writeln!(text, "{indent}{kind}join on {keys} keys, right time minus left time from {lower} to {upper}");
            steps
        }
        Node::Union { inputs, steps } => {
            inputs.iter().for_each(|input| node(input, plan, depth + 1, text));
            let _ = writeln!(text, "{indent}one behind the other");
            steps
        }
    };
    for step in steps {
        match step {
            Step::Transform(transform) => transform.explain(&indent, text),
            Step::Lookup(lookup) => {
                let how = if lookup.closest.is_some() { "the closest row of" } else { "look up in" };
                let keys: Vec<String> = lookup.keys.iter().map(|(own, other)| format!("#{own} = #{other}")).collect();
                let (name, keys) = (&plan.inputs[lookup.table].name, keys.join(", "));
                let (with, kept) =
                    (if keys.is_empty() { "" } else { " with " }, if lookup.keep { ", or none" } else { "" });
                let _ = writeln!(text, "{indent}{how} {name}{with}{keys}{kept}");
                if let Some(prepare) = &lookup.prepare {
                    prepare.explain(&format!("{indent}    "), text);
                }
            }
        }
    }
}

fn grouping(aggregate: &Aggregate) -> String {
    let window = match aggregate.window {
        Window::None => "group for all time".to_owned(),
        Window::Tumble { size, offset } => format!("group by windows of {}{}", length(size), shift(offset)),
        Window::Hop { slide, size, offset } => {
            format!("group by windows of {} every {}{}", length(size), length(slide), shift(offset))
        }
        Window::Session { gap } => format!("group by sessions with gaps up to {}", length(gap)),
    };
    let calls: Vec<String> = aggregate
        .calls
        .iter()
        .map(|call| {
            let distinct = if call.distinct { "distinct " } else { "" };
            let of = if call.args.is_empty() { "*" } else { "" };
            let filter = if call.filter.is_some() { " filtered" } else { "" };
            let rank =
                if let Function::ApproxPercentile(rank) = call.function { format!(" {rank}") } else { String::new() };
            format!("{}({distinct}{of}{}){rank}{filter}", call.function.name(), columns(&call.args))
        })
        .collect();
    format!("{window} and {} keys: {}", aggregate.keys.len(), calls.join(", "))
}

/// A type; that strings are dictionaries is of no interest to a reader.
fn shown(data_type: &DataType) -> String {
    data_type.to_string().replace(&string_type().to_string(), "Utf8")
}

fn columns(columns: &[usize]) -> String {
    columns.iter().map(|column| format!("#{column}")).collect::<Vec<_>>().join(", ")
}

fn shift(offset: i64) -> String {
    if offset == 0 { String::new() } else { format!(" moved by {}", length(offset)) }
}

/// A length of time with its largest whole unit.
fn length(micros: i64) -> String {
    const UNITS: [(i64, &str); 5] =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms")];
    let unit = UNITS.iter().find(|(unit, _)| micros != 0 && micros % unit == 0);
    unit.map_or_else(|| format!("{micros} µs"), |(unit, name)| format!("{} {name}", micros / unit))
}

//! Generated queries, each as Freshet and as DuckDB write it.

use super::random::Random;

/// One question in two dialects.
pub(crate) struct Question {
    pub(crate) ours: String,
    pub(crate) theirs: String,
    /// Rows come in one order; otherwise they are compared as a set.
    pub(crate) ordered: bool,
    /// Every byte is the same; otherwise doubles may differ in their last digits.
    pub(crate) exact: bool,
    pub(crate) needs: Needs,
}

/// Which further input a query reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Events,
    Other,
    Names,
}

/// An expression in both dialects.
type Both = (&'static str, &'static str);

/// Aggregates whose result is one text.
const EXACT: &[Both] = &[
    ("count(*)", "count(*)"),
    ("count(v)", "count(v)"),
    ("count(DISTINCT v % 10)", "count(DISTINCT v % 10)"),
    ("count(DISTINCT k)", "count(DISTINCT k)"),
    ("sum(v)", "sum(v)"),
    ("sum(big)", "sum(big)"),
    ("sum(d)", "sum(d)"),
    ("sum(v * 3 - g)", "sum(v * 3 - g)"),
    ("min(v)", "min(v)"),
    ("max(big)", "max(big)"),
    ("min(d)", "min(d)"),
    ("max(k)", "max(k)"),
    ("min(k)", "min(k)"),
    ("max(ts)", "max(ts)"),
    ("min(ts)", "min(ts)"),
    ("bool_and(b)", "bool_and(b)"),
    ("bool_or(b)", "bool_or(b)"),
    ("bool_or(v > 900)", "bool_or(v > 900)"),
    ("count(*) FILTER (WHERE b)", "count(*) FILTER (WHERE b)"),
    ("sum(v) FILTER (WHERE v < 0 OR k = 'a')", "sum(v) FILTER (WHERE v < 0 OR k = 'a')"),
    ("max(v) FILTER (WHERE g IS NOT NULL)", "max(v) FILTER (WHERE g IS NOT NULL)"),
    ("sum(CASE WHEN b THEN v ELSE -v END)", "sum(CASE WHEN b THEN v ELSE -v END)"),
];

/// Aggregates that depend on the order of rows, which the parts of a union have not.
const ORDERED: &[Both] = &[
    ("first(v)", "first(v ORDER BY id)"),
    ("last(k)", "last(k ORDER BY id)"),
    ("any_value(v)", "any_value(v ORDER BY id)"),
    ("arg_min(v, p)", "arg_min(v, p)"),
    ("arg_max(k, p)", "arg_max(k, p)"),
    ("string_agg(k, '|')", "string_agg(k, '|' ORDER BY id)"),
];

/// Those of many values, which are kept for windows only.
const LISTS: &[Both] = &[("array_agg(v)", "list(v ORDER BY id)"), ("array_agg(k)", "list(k ORDER BY id)")];

/// Aggregates whose last digits are a matter of method.
const NEAR: &[Both] = &[
    ("avg(v)", "avg(v)"),
    ("avg(d)", "avg(d)"),
    ("stddev_samp(v)", "stddev_samp(v)"),
    ("stddev_pop(d)", "stddev_pop(d)"),
    ("var_samp(d)", "var_samp(d)"),
    ("var_pop(v)", "var_pop(v)"),
    ("count(*)", "count(*)"),
    ("min(v)", "min(v)"),
    ("avg(v) FILTER (WHERE NOT b)", "avg(v) FILTER (WHERE NOT b)"),
];

const KEYS: &[&str] =
    &["k", "g", "b", "v % 4", "upper(k)", "coalesce(k, '-')", "CASE WHEN v > 0 THEN 'up' ELSE 'down' END"];

const CONDITIONS: &[&str] = &[
    "v > 0",
    "k <> 'a'",
    "k IS NOT NULL AND (v < 500 OR b)",
    "g IN (0, 1, 2)",
    "v BETWEEN -500 AND 500",
    "NOT b",
    "k LIKE '%a%'",
    "length(k) > 0",
    "d >= -100.5",
    "ts >= TIMESTAMP '1970-01-01 00:00:00'",
    "abs(v) % 3 = 1",
    "big > 0 OR big IS NULL",
];

const HAVING: &[&str] = &["count(*) > 1", "sum(v) > 0", "min(v) < max(v)", "count(DISTINCT k) = 1"];

const WIDTHS: &[(&str, i64)] = &[
    ("1 second", 1_000_000),
    ("250 milliseconds", 250_000),
    ("5 seconds", 5_000_000),
    ("7 seconds", 7_000_000),
    ("1 minute", 60_000_000),
    ("10 minutes", 600_000_000),
    ("1 hour", 3_600_000_000),
    ("1 day", 86_400_000_000),
    ("7 days", 604_800_000_000),
];

/// How rows are put together.
enum Window {
    None,
    Tumble,
    Hop,
    Session,
}

pub(crate) fn question(random: &mut Random) -> Question {
    match random.below(10) {
        0 => grouped(random, &Window::None),
        1..=3 => grouped(random, &Window::Tumble),
        4 | 5 => grouped(random, &Window::Hop),
        6 | 7 => grouped(random, &Window::Session),
        8 => interval_join(random),
        _ => random.pick(&[lookup as fn(&mut Random) -> Question, as_of, projected])(random),
    }
}

/// What is read: the stream, a part of it, or several parts.
fn relation(random: &mut Random) -> String {
    let condition = random.pick(CONDITIONS);
    match random.below(6) {
        0 => format!("(SELECT * FROM events WHERE {condition}) AS x"),
        1 => {
            let parts = "SELECT id, k, g, v, big, d, b, p, ts FROM events";
            format!("({parts} WHERE {condition} UNION ALL {parts} WHERE NOT ({condition})) AS x")
        }
        _ => "events".to_owned(),
    }
}

fn grouped(random: &mut Random, window: &Window) -> Question {
    let exact = !random.once_in(4);
    let count = 1 + random.below(5);
    let relation = relation(random);
    let mut calls = random.some(if exact { EXACT } else { NEAR }, count);
    if exact && random.once_in(4) {
        calls.extend(random.some(ORDERED, 2));
        if !matches!(window, Window::None) {
            calls.push(random.pick(LISTS));
        }
    }
    if relation.contains("UNION") {
        calls.retain(|call| !ORDERED.contains(call) && !LISTS.contains(call));
        calls.push(EXACT[0]);
    }
    let least = usize::from(matches!(window, Window::None));
    let wanted = least + random.below(3);
    let keys = random.some(KEYS, wanted);
    let condition = if random.once_in(3) { format!(" WHERE {}", random.pick(CONDITIONS)) } else { String::new() };
    let having = if random.once_in(5) { format!(" HAVING {}", random.pick(HAVING)) } else { String::new() };
    let limit = if random.once_in(6) { format!(" LIMIT {}", 1 + random.below(20)) } else { String::new() };
    let (ours, theirs, rows, order) = windows(random, window, &keys, &format!("{relation}{condition}"));
    let named = |at: usize, text: &str| format!("{text} AS c{at}");
    let calls_of = |theirs: bool| {
        let text = |call: &Both| if theirs { call.1 } else { call.0 };
        calls.iter().enumerate().map(|(at, call)| named(at, text(call))).collect::<Vec<_>>()
    };
    let mut outputs: Vec<String> = keys.iter().enumerate().map(|(at, key)| format!("{key} AS k{at}")).collect();
    outputs.extend(ours.iter().map(|window| format!("{window} AS w")));
    outputs.extend(calls_of(false));
    let groups: Vec<&str> = keys.iter().copied().chain(ours.as_deref()).collect();
    let (head, groups) = (outputs.join(", "), groups.join(", "));
    let ours = format!("SELECT {head} FROM {relation}{condition} GROUP BY {groups}{having}{limit}");

    let key = |at: usize| format!("key{at}");
    let mut outputs: Vec<String> = (0..keys.len()).map(|at| format!("{} AS k{at}", key(at))).collect();
    outputs.extend(theirs.iter().map(|(window, _)| format!("{window} AS w")));
    outputs.extend(calls_of(true));
    let mut groups: Vec<String> = (0..keys.len()).map(key).collect();
    groups.extend(theirs.iter().map(|(_, group)| group.clone()));
    let mut sorted: Vec<String> = order;
    sorted.extend((0..keys.len()).map(key));
    let sorted: Vec<String> = sorted.iter().map(|by| format!("{by} NULLS LAST")).collect();
    let (head, groups, sorted) = (outputs.join(", "), groups.join(", "), sorted.join(", "));
    let theirs = format!("SELECT {head} FROM ({rows}) GROUP BY {groups}{having} ORDER BY {sorted}{limit}");
    Question { ours, theirs, ordered: true, exact, needs: Needs::Events }
}

type Windows = (Option<String>, Option<(String, String)>, String, Vec<String>);

/// The window of ours; of theirs what is printed and what is grouped by, the rows with their windows, and the order.
fn windows(random: &mut Random, window: &Window, keys: &[&str], from: &str) -> Windows {
    let named: Vec<String> = keys.iter().enumerate().map(|(at, key)| format!(", {key} AS key{at}")).collect();
    let keyed = format!("SELECT *{} FROM {from}", named.concat());
    let ((text, width), offset) = (random.pick(WIDTHS), random.once_in(5).then(|| 1 + random.below(9)));
    let ours_offset = offset.map(|seconds| format!(", INTERVAL '{seconds} seconds'")).unwrap_or_default();
    match window {
        Window::None => (None, None, keyed, Vec::new()),
        Window::Tumble => {
            let ours = format!("TUMBLE(ts, INTERVAL '{text}'{ours_offset})");
            let rows = format!("SELECT *, time_bucket(INTERVAL '{text}', ts{ours_offset}) AS win FROM ({keyed})");
            (Some(ours), Some(("win".into(), "win".into())), rows, vec!["win".into()])
        }
        Window::Hop => {
            // From windows with gaps between them to ten a row.
            let size = (width * (2 + random.below(30) as i64) / 6).max(1_000);
            let ours = format!("HOP(ts, INTERVAL '{text}', INTERVAL '{size} microseconds'{ours_offset})");
            let bucket = format!("time_bucket(INTERVAL '{text}', ts{ours_offset})");
            let starts = format!("[{bucket} - to_microseconds({width} * i) for i in range(0, {})]", size / width + 1);
            let within = format!("list_filter({starts}, s -> s <= ts AND s + to_microseconds({size}) > ts)");
            let list = format!("CASE WHEN ts IS NULL THEN [NULL::TIMESTAMP] ELSE {within} END");
            let rows = format!("SELECT *, unnest({list}) AS win FROM ({keyed})");
            (Some(ours), Some(("win".into(), "win".into())), rows, vec!["win".into()])
        }
        Window::Session => {
            let ours = format!("SESSION(ts, INTERVAL '{text}')");
            let by: Vec<String> = (0..keys.len()).map(|at| format!("key{at}, ")).collect();
            let over = format!("OVER (PARTITION BY {}ts IS NULL ORDER BY ts, id)", by.concat());
            let begins = format!("coalesce(ts - lag(ts) {over} > INTERVAL '{text}', false)");
            let marked = format!("SELECT *, CASE WHEN {begins} THEN 1 ELSE 0 END AS begins FROM ({keyed})");
            let rows = format!("SELECT *, sum(begins) {over} AS session FROM ({marked})");
            let group = "session, ts IS NULL".to_owned();
            (Some(ours), Some(("min(ts)".into(), group)), rows, vec!["max(ts)".into(), "min(ts)".into()])
        }
    }
}

fn interval_join(random: &mut Random) -> Question {
    let kind = random.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
    let (before, after) = (random.pick(WIDTHS).0, random.pick(WIDTHS).0);
    let band = match random.below(3) {
        0 => format!("o.ts BETWEEN e.ts - INTERVAL '{before}' AND e.ts + INTERVAL '{after}'"),
        1 => format!("o.ts BETWEEN e.ts AND e.ts + INTERVAL '{after}'"),
        _ => format!("e.ts >= o.ts - INTERVAL '{before}' AND e.ts <= o.ts"),
    };
    let more = if random.once_in(3) { " AND e.v > o.w" } else { "" };
    let query = format!("SELECT e.id, e.k, o.oid, o.w FROM events e {kind} other o ON e.k = o.k AND {band}{more}");
    Question { ours: query.clone(), theirs: query, ordered: false, exact: true, needs: Needs::Other }
}

fn lookup(random: &mut Random) -> Question {
    let kind = random.pick(&["JOIN", "LEFT JOIN"]);
    let condition =
        if random.once_in(2) { format!(" WHERE e.{}", random.pick(&["v > 0", "id % 2 = 0"])) } else { String::new() };
    let query = format!("SELECT e.id, e.k, n.name FROM events e {kind} names n ON e.k = n.k{condition}");
    Question { ours: query.clone(), theirs: query, ordered: false, exact: true, needs: Needs::Names }
}

fn as_of(random: &mut Random) -> Question {
    let join = "names n ON e.k = n.k AND e.ts >= n.ts";
    // To DuckDB a NULL is after every instant: its rows are told apart.
    let (ours, theirs) = if random.once_in(2) {
        let theirs = format!("SELECT e.id, n.name FROM events e ASOF JOIN {join} WHERE e.ts IS NOT NULL");
        (format!("SELECT e.id, n.name FROM events e ASOF JOIN {join}"), theirs)
    } else {
        let name = "CASE WHEN e.ts IS NOT NULL THEN n.name END AS name";
        let theirs = format!("SELECT e.id, {name} FROM events e ASOF LEFT JOIN {join}");
        (format!("SELECT e.id, n.name FROM events e ASOF LEFT JOIN {join}"), theirs)
    };
    Question { ours, theirs, ordered: false, exact: true, needs: Needs::Names }
}

/// Rows as they come.
fn projected(random: &mut Random) -> Question {
    let outputs = [
        "v + 1",
        "upper(k)",
        "coalesce(v, 0) * 2",
        "k || '-' || g",
        "ts",
        "CASE WHEN b THEN d ELSE -d END",
        "g % 2 = 0",
        "substr(k, 1, 2)",
        "length(k)",
        "abs(v)",
        "v IS NULL",
        "lower(k)",
        "nullif(k, 'a')",
    ];
    let count = 1 + random.below(4);
    let outputs = random.some(&outputs, count);
    let outputs: Vec<String> = outputs.iter().enumerate().map(|(at, one)| format!("{one} AS c{at}")).collect();
    let (head, relation, condition) = (outputs.join(", "), relation(random), random.pick(CONDITIONS));
    let query = format!("SELECT id, {head} FROM {relation} WHERE {condition}");
    Question { ours: query.clone(), theirs: query, ordered: false, exact: true, needs: Needs::Events }
}

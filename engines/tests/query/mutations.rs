//! No text makes the front panic, and a query it accepts is typed.

use freshet::plan::Node;
use freshet::sql::SqlError;
use proptest::prelude::*;

use super::plans::PLANNED;
use super::shop::compile;

/// Words and signs that a query can be spoiled with.
const PIECES: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "LIMIT",
    "JOIN",
    "LEFT JOIN",
    "FULL JOIN",
    "ASOF JOIN",
    "ON",
    "AND",
    "OR",
    "NOT",
    "NULL",
    "IS NULL",
    "BETWEEN",
    "UNION ALL",
    "DISTINCT",
    "FILTER (WHERE paid)",
    "AS w",
    "WITH x AS (",
    "(",
    ")",
    ",",
    "*",
    "+",
    "-",
    "/",
    "=",
    "<",
    ">=",
    "<>",
    ".",
    "'",
    "\"",
    "''",
    "1",
    "0",
    "-1",
    "9223372036854775808",
    "1e400",
    "0.5",
    "ts",
    "orders",
    "payments",
    "merchants",
    "merchant",
    "amount",
    "e",
    "o.ts",
    "window_start",
    "window_end",
    "window_start()",
    "TUMBLE(ts, INTERVAL '5 seconds')",
    "HOP(ts, INTERVAL '1 minute', INTERVAL '7 days')",
    "SESSION(ts, INTERVAL '0')",
    "INTERVAL '1 month'",
    "INTERVAL '106751992 days'",
    "INTERVAL '-5 seconds'",
    "count(*)",
    "sum(amount)",
    "first(amount)",
    "approx_percentile(price, 2)",
    "string_agg(merchant, ',')",
    "CASE WHEN paid THEN 1 END",
    "CAST(amount AS VARCHAR)",
    "UNNEST(items) AS e",
    "OVER ()",
    "MATCH_CONDITION (o.ts >= m.since)",
    "--",
    "/*",
    "é",
    "\u{0}",
    "$1",
    "@x",
    "[0]",
    "::BIGINT",
    "COLLATE \"de\"",
    "IN (1, 2)",
    "IN (SELECT 1)",
    "EXISTS (SELECT 1)",
    "LIKE '%a'",
    "AT TIME ZONE 'UTC'",
    ";",
];

/// What is done to a text, at a place given as a share of its words.
#[derive(Debug, Clone)]
enum Change {
    Insert(f64, usize),
    Replace(f64, usize),
    Delete(f64, usize),
    Repeat(f64, usize),
    Swap(f64, f64),
    Flip(f64, u8),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let piece = 0..PIECES.len();
    let change = prop_oneof![
        (0.0..1.0, piece.clone()).prop_map(|(at, piece)| Change::Insert(at, piece)),
        (0.0..1.0, piece).prop_map(|(at, piece)| Change::Replace(at, piece)),
        (0.0..1.0, 1_usize..6).prop_map(|(at, count)| Change::Delete(at, count)),
        (0.0..1.0, 1_usize..12).prop_map(|(at, count)| Change::Repeat(at, count)),
        (0.0..1.0, 0.0..1.0).prop_map(|(a, b)| Change::Swap(a, b)),
        (0.0..1.0, any::<u8>()).prop_map(|(at, byte)| Change::Flip(at, byte)),
    ];
    prop::collection::vec(change, 1..5)
}

fn place(share: f64, length: usize) -> usize {
    ((share * length as f64) as usize).min(length.saturating_sub(1))
}

fn changed(sql: &str, changes: &[Change]) -> String {
    let mut words: Vec<String> = sql.split_whitespace().map(str::to_owned).collect();
    for change in changes {
        let length = words.len();
        if length == 0 {
            break;
        }
        match *change {
            Change::Insert(at, piece) => words.insert(place(at, length), PIECES[piece].to_owned()),
            Change::Replace(at, piece) => words[place(at, length)] = PIECES[piece].to_owned(),
            Change::Delete(at, count) => {
                let at = place(at, length);
                words.drain(at..(at + count).min(length));
            }
            Change::Repeat(at, count) => {
                let at = place(at, length);
                let again: Vec<String> = words[at..(at + count).min(length)].to_vec();
                words.splice(at..at, again);
            }
            Change::Swap(a, b) => words.swap(place(a, length), place(b, length)),
            Change::Flip(at, byte) => {
                let word = &mut words[place(at, length)];
                let mut bytes = std::mem::take(word).into_bytes();
                let middle = bytes.len() / 2;
                bytes[middle] ^= byte;
                *word = String::from_utf8_lossy(&bytes).into_owned();
            }
        }
    }
    words.join(" ")
}

/// A planner that panics is caught and says so.
fn check(sql: &str) -> Result<(), TestCaseError> {
    match compile(sql) {
        Err(SqlError::NotSupported { what, .. }) => prop_assert!(!what.contains("the planner fails"), "{sql}"),
        Err(error) => prop_assert!(!error.to_string().is_empty() && !error.hint().is_empty(), "{sql}: {error:?}"),
        Ok(query) => {
            let plan = query.plan();
            let last = match &plan.root {
                Node::Source { steps, .. }
                | Node::Aggregate { steps, .. }
                | Node::Join { steps, .. }
                | Node::Union { steps, .. } => steps.last(),
            };
            if let Some(freshet::plan::Step::Transform(transform)) = last {
                prop_assert_eq!(transform.output_schema(), plan.output.clone(), "{}", sql);
            }
            prop_assert!(plan.upsert_key.iter().all(|column| *column < plan.output.fields().len()));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn a_spoiled_query_is_planned_or_refused(which in 0..PLANNED.len(), changes in changes()) {
        check(&changed(PLANNED[which], &changes))?;
    }

    #[test]
    fn any_text_is_planned_or_refused(pieces in prop::collection::vec(0..PIECES.len(), 0..24)) {
        let words: Vec<&str> = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        check(&words.join(" "))?;
        check(&format!("SELECT {} FROM orders", words.join(" ")))?;
    }

    #[test]
    fn any_characters_are_planned_or_refused(text in "\\PC{0,60}") {
        check(&text)?;
    }
}

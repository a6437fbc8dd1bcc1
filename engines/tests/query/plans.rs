//! What queries are planned as.

use std::fmt::Write as _;

use arrow::datatypes::{DataType, TimeUnit};
use freshet::plan::{Comparison, Function, IntervalJoin, JoinKind, Lookup, Node, Plan, Role, Step, Window};
use freshet::read::string_type;

use super::shop::compile;

/// Queries of every kind.
pub(crate) const PLANNED: &[&str] = &[
    "SELECT merchant, amount * 2 AS twice FROM orders WHERE amount > 10 LIMIT 5",
    "SELECT o.address.city, e.sku, e.pieces * e.price AS total FROM orders AS o, UNNEST(o.items) AS e WHERE e.pieces > 0",
    "SELECT merchant, count(*) AS n, sum(amount) AS total FROM orders GROUP BY merchant",
    "SELECT upper(merchant) AS m, count(*) FROM orders GROUP BY m",
    "SELECT merchant, count(*) AS n FROM orders GROUP BY 1",
    "SELECT count(*), count(amount), count(DISTINCT merchant) FROM orders",
    "SELECT DISTINCT merchant, paid FROM orders WHERE amount > 0",
    "SELECT merchant, TUMBLE(ts, INTERVAL '5 seconds') AS w, count(*) AS n FROM orders GROUP BY merchant, TUMBLE(ts, INTERVAL '5 seconds')",
    "SELECT TUMBLE(ts, INTERVAL '1 hour', INTERVAL '15 minutes') AS w, merchant, avg(price) AS p FROM orders GROUP BY w, merchant",
    "SELECT window_start, window_end, sum(amount) AS s FROM orders GROUP BY TUMBLE(ts, INTERVAL '1 day')",
    "SELECT window_end() AS e, merchant, max(price) AS m FROM orders GROUP BY HOP(ts, INTERVAL '5 seconds', INTERVAL '20 seconds'), merchant HAVING max(price) > 1 AND window_start() > TIMESTAMP '2026-01-01'",
    "SELECT merchant, SESSION(ts, INTERVAL '30' SECOND) AS s, window_end AS until, count(*) AS n FROM orders GROUP BY merchant, SESSION(ts, INTERVAL '30' SECOND)",
    "SELECT merchant, min(amount), max(ts), avg(amount), stddev(price), var_pop(price), bool_and(paid), bool_or(paid), approx_distinct(id), approx_percentile(price, 0.99) FROM orders GROUP BY merchant",
    "SELECT merchant, first(amount) AS f, last(price) AS l, any_value(paid) AS a, arg_min(id, price) AS i, arg_max(id, ts) AS x, string_agg(merchant, ', ') AS names, array_agg(amount) AS amounts FROM orders GROUP BY merchant",
    "SELECT merchant, sum(amount) FILTER (WHERE paid) AS paid, count(*) FILTER (WHERE NOT paid) AS open, sum(DISTINCT amount) AS d FROM orders GROUP BY merchant HAVING sum(amount) > 100",
    "WITH big AS (SELECT * FROM orders WHERE amount > 100), named AS (SELECT merchant AS m, amount, ts FROM big) SELECT m, count(*) AS n FROM named GROUP BY m, TUMBLE(ts, INTERVAL '1 minute')",
    "SELECT m, sum(n) AS n FROM (SELECT merchant AS m, TUMBLE(ts, INTERVAL '1 minute') AS w, count(*) AS n FROM orders GROUP BY merchant, TUMBLE(ts, INTERVAL '1 minute')) AS x GROUP BY m, TUMBLE(w, INTERVAL '1 hour')",
    "SELECT max(n) AS most, window_start FROM (SELECT merchant, window_start, count(*) AS n FROM orders GROUP BY merchant, TUMBLE(ts, INTERVAL '1 minute')) AS x GROUP BY window_start",
    "SELECT merchant, amount AS v, ts FROM orders UNION ALL SELECT merchant, \"sum\", ts FROM payments WHERE \"sum\" > 0",
    "SELECT merchant, TUMBLE(ts, INTERVAL '10 seconds') AS w, sum(v) AS s FROM (SELECT merchant, amount AS v, ts FROM orders UNION ALL SELECT merchant, \"sum\", ts FROM payments) AS both_ GROUP BY merchant, w",
    "SELECT o.id, p.\"sum\" FROM orders AS o JOIN payments AS p ON o.id = p.order_id AND p.ts BETWEEN o.ts - INTERVAL '5 seconds' AND o.ts + INTERVAL '1 minute'",
    "SELECT o.id, p.order_id, p.ts AS paid_at FROM orders AS o LEFT JOIN payments AS p ON o.id = p.order_id AND o.merchant = p.merchant AND p.ts >= o.ts AND p.ts < o.ts + INTERVAL '5 seconds' AND p.\"sum\" >= o.amount AND p.\"sum\" > 0",
    "SELECT o.id, p.order_id FROM orders AS o FULL JOIN payments AS p ON o.id = p.order_id AND p.ts - o.ts BETWEEN INTERVAL '0 seconds' AND INTERVAL '5 seconds' WHERE o.amount > 5 OR o.amount IS NULL",
    "SELECT o.id, p.order_id FROM orders AS o RIGHT JOIN payments AS p ON o.id = p.order_id AND o.ts > p.ts - INTERVAL '1 hour' AND o.ts <= p.ts AND o.paid",
    "SELECT TUMBLE(o.ts, INTERVAL '1 minute') AS w, count(*) AS n, sum(p.\"sum\" - o.amount) AS over FROM orders AS o JOIN payments AS p ON o.id = p.order_id AND o.ts BETWEEN p.ts - INTERVAL '5 seconds' AND p.ts GROUP BY TUMBLE(o.ts, INTERVAL '1 minute')",
    "SELECT a.id, b.id AS other FROM orders AS a JOIN orders AS b ON a.merchant = b.merchant AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '1 second' AND a.id <> b.id",
    "SELECT o.id, m.name FROM orders AS o JOIN merchants AS m ON o.merchant = m.merchant WHERE m.rate > 0.1 AND o.amount > 5",
    "SELECT o.id, coalesce(m.name, 'unknown') AS name FROM orders AS o LEFT JOIN merchants AS m ON o.merchant = m.merchant AND m.rate > 0.1",
    "SELECT o.id, m.rate FROM orders AS o ASOF JOIN merchants AS m ON o.merchant = m.merchant AND o.ts >= m.since",
    "SELECT o.id, m.rate FROM orders AS o ASOF LEFT JOIN merchants AS m ON o.merchant = m.merchant AND m.since < o.ts",
    "SELECT o.id, m.rate FROM orders o ASOF JOIN merchants m MATCH_CONDITION (o.ts >= m.since) ON o.merchant = m.merchant",
    "SELECT m.name, TUMBLE(o.ts, INTERVAL '1 minute') AS w, sum(o.amount * m.rate) AS r, last(o.amount) AS l FROM orders AS o JOIN merchants AS m ON o.merchant = m.merchant GROUP BY m.name, TUMBLE(o.ts, INTERVAL '1 minute')",
    "SELECT e.sku, sum(e.pieces) AS n FROM orders AS o CROSS JOIN UNNEST(o.items) AS e GROUP BY e.sku, TUMBLE(o.ts, INTERVAL '1 minute')",
    "SELECT x.name, count(*) AS n FROM (SELECT m.name, o.amount FROM orders o JOIN merchants m ON o.merchant = m.merchant) AS x WHERE x.amount > 3 GROUP BY x.name",
    "SELECT sum(amount) + 1 AS s, sum(amount) / count(*) AS mean, round(avg(price), 2) AS r, sum(amount) > 5 AS many FROM orders",
    "SELECT m.name FROM orders o LEFT JOIN merchants m ON o.merchant = m.merchant AND o.amount > 5",
    "SELECT o.id FROM orders o NATURAL JOIN payments p",
    "SELECT e.sku FROM orders JOIN UNNEST(items) AS e ON e.pieces > 1",
    "SELECT sum(amount) > 99999999999999999999 AS many, TIMESTAMP '2026-01-01' AS t, CAST(merchant AS TIMESTAMP) AS u FROM orders GROUP BY merchant",
    "SELECT CASE WHEN amount > 10 THEN 'big' ELSE 'small' END AS size, abs(amount) AS a, coalesce(merchant, 'none') AS m, merchant LIKE 'a%' AS l, date_trunc('hour', ts) AS h, extract(epoch FROM ts) AS e, CAST(amount AS DOUBLE) AS d FROM orders",
];

#[test]
fn plans_read_as_what_they_do() {
    let mut text = String::new();
    for sql in PLANNED {
        let plan = match compile(sql) {
            Ok(query) => format!("{}{}", query.explain(), outputs(query.plan())),
            Err(error) => format!("refused: {error:?}\n"),
        };
        writeln!(text, "{sql}\n{plan}").unwrap();
    }
    insta::assert_snapshot!(text);
    assert!(!text.contains("refused:"));
}

/// Which output columns may be null.
fn outputs(plan: &Plan) -> String {
    let open: Vec<&str> =
        plan.output.fields().iter().filter(|field| !field.is_nullable()).map(|field| field.name().as_str()).collect();
    if open.is_empty() { String::new() } else { format!("never null: {}\n", open.join(", ")) }
}

fn plan(sql: &str) -> Plan {
    match compile(sql) {
        Ok(query) => query.plan().clone(),
        Err(error) => panic!("{sql}: {error:?}"),
    }
}

fn join(sql: &str) -> IntervalJoin {
    match plan(sql).root {
        Node::Join { join, .. } => join,
        other => panic!("{sql}: {other:?}"),
    }
}

fn lookup(sql: &str) -> Lookup {
    let Node::Source { steps, .. } = plan(sql).root else { panic!("{sql}") };
    let found = steps.into_iter().find_map(|step| match step {
        Step::Lookup(lookup) => Some(lookup),
        Step::Transform(_) => None,
    });
    found.expect("a lookup")
}

const SECOND: i64 = 1_000_000;

#[test]
fn every_spelling_of_a_band_is_the_same_band() {
    let spellings = [
        ("p.ts BETWEEN o.ts - INTERVAL '5 seconds' AND o.ts + INTERVAL '10 seconds'", -5 * SECOND, 10 * SECOND),
        ("p.ts >= o.ts - INTERVAL '5 seconds' AND p.ts <= o.ts + INTERVAL '10 seconds'", -5 * SECOND, 10 * SECOND),
        ("o.ts - INTERVAL '5 seconds' <= p.ts AND o.ts + INTERVAL '10 seconds' >= p.ts", -5 * SECOND, 10 * SECOND),
        ("o.ts BETWEEN p.ts - INTERVAL '10 seconds' AND p.ts + INTERVAL '5 seconds'", -5 * SECOND, 10 * SECOND),
        ("o.ts <= p.ts + INTERVAL '5 seconds' AND p.ts - INTERVAL '10 seconds' <= o.ts", -5 * SECOND, 10 * SECOND),
        ("p.ts - o.ts BETWEEN INTERVAL '-5 seconds' AND INTERVAL '10 seconds'", -5 * SECOND, 10 * SECOND),
        ("o.ts - p.ts <= INTERVAL '5 seconds' AND p.ts - o.ts <= INTERVAL '10 seconds'", -5 * SECOND, 10 * SECOND),
        ("INTERVAL '5 seconds' >= o.ts - p.ts AND INTERVAL '-10 seconds' <= o.ts - p.ts", -5 * SECOND, 10 * SECOND),
        ("p.ts + INTERVAL '5 seconds' >= o.ts AND p.ts <= o.ts + INTERVAL '10 seconds'", -5 * SECOND, 10 * SECOND),
        ("p.ts > o.ts - INTERVAL '5 seconds' AND p.ts < o.ts + INTERVAL '10 seconds'", 1 - 5 * SECOND, 10 * SECOND - 1),
        ("o.ts < p.ts AND o.ts + INTERVAL '1 second' > p.ts", 1, SECOND - 1),
        ("p.ts BETWEEN o.ts AND o.ts + INTERVAL '7' SECOND + INTERVAL '3' SECOND", 0, 10 * SECOND),
        ("p.ts = o.ts", 0, 0),
        ("p.ts = o.ts + INTERVAL '1 minute'", 60 * SECOND, 60 * SECOND),
        (
            "p.ts >= o.ts AND p.ts >= o.ts + INTERVAL '1 second' AND p.ts <= o.ts + INTERVAL '1 hour' AND p.ts <= o.ts + INTERVAL '2 seconds'",
            SECOND,
            2 * SECOND,
        ),
    ];
    for (band, lower, upper) in spellings {
        for (keyword, kind) in [
            ("JOIN", JoinKind::Inner),
            ("LEFT JOIN", JoinKind::Left),
            ("RIGHT OUTER JOIN", JoinKind::Right),
            ("FULL JOIN", JoinKind::Full),
        ] {
            let found = join(&format!(
                "SELECT o.id, p.order_id FROM orders o {keyword} payments p ON o.id = p.order_id AND {band}"
            ));
            assert_eq!((found.kind, found.lower, found.upper), (kind, lower, upper), "{keyword} {band}");
            assert_eq!((found.left_keys.len(), found.right_keys.len()), (1, 1), "{band}");
            assert!(found.condition.is_none(), "{band}");
        }
        let found = join(&format!("SELECT o.id FROM orders o, payments p WHERE {band} AND p.order_id = o.id"));
        assert_eq!((found.kind, found.lower, found.upper), (JoinKind::Inner, lower, upper), "WHERE {band}");
    }
}

#[test]
fn what_else_a_join_asks_goes_where_it_may() {
    let band = "o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1 second'";
    let on =
        |kind: &str, more: &str| join(&format!("SELECT o.id FROM orders o {kind} payments p ON {band} AND {more}"));
    // Of both sides: it is part of what pairs.
    assert!(on("JOIN", "o.amount < p.\"sum\"").condition.is_some());
    assert!(on("LEFT JOIN", "o.amount < p.\"sum\"").condition.is_some());
    // Of one side: a filter of that side, unless its rows stay in any case.
    assert!(on("JOIN", "o.amount < 5").condition.is_none());
    assert!(on("LEFT JOIN", "p.\"sum\" < 5").condition.is_none());
    assert!(on("LEFT JOIN", "o.amount < 5").condition.is_some());
    assert!(on("RIGHT JOIN", "p.\"sum\" < 5").condition.is_some());
    assert!(on("FULL JOIN", "p.\"sum\" < 5").condition.is_some());
    assert!(on("JOIN", "o.merchant = p.merchant").left_keys.len() == 2);
    assert!(on("JOIN", "upper(o.merchant) = p.merchant").left_keys.len() == 2);
    let without_keys =
        join("SELECT o.id FROM orders o JOIN payments p ON p.ts BETWEEN o.ts AND o.ts + INTERVAL '1 second'");
    assert!(without_keys.left_keys.is_empty());
}

#[test]
fn columns_of_a_side_that_may_lack_are_nullable() {
    let found = join(
        "SELECT o.id FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1 second' AND p.\"sum\" > o.amount",
    );
    let nullable = |from: usize, to: usize| found.schema.fields()[from..to].iter().all(|field| field.is_nullable());
    assert!(nullable(found.left.fields().len(), found.schema.fields().len()));
    let position = found.left.field(found.left_position);
    assert_eq!((position.data_type(), position.is_nullable()), (&DataType::UInt64, false));
    assert_eq!(found.left.field(found.left_time).data_type(), &DataType::Timestamp(TimeUnit::Microsecond, None));
}

#[test]
fn lookups_and_the_closest_row() {
    let inner = lookup("SELECT m.name FROM orders o JOIN merchants m ON m.merchant = o.merchant");
    assert!(!inner.keep && inner.closest.is_none() && inner.keys.len() == 1);
    let turned = lookup("SELECT m.name FROM merchants m RIGHT JOIN orders o ON m.merchant = o.merchant");
    assert!(turned.keep && turned.keys.len() == 1);
    let comparisons = [
        ("o.ts >= m.since", Comparison::NotBefore),
        ("m.since <= o.ts", Comparison::NotBefore),
        ("o.ts > m.since", Comparison::After),
        ("o.ts <= m.since", Comparison::NotAfter),
        ("m.since > o.ts", Comparison::Before),
    ];
    for (condition, comparison) in comparisons {
        for sql in [
            format!("SELECT m.rate FROM orders o ASOF JOIN merchants m ON o.merchant = m.merchant AND {condition}"),
            format!("SELECT m.rate FROM orders o ASOF JOIN merchants m ON {condition} AND o.merchant = m.merchant"),
            format!(
                "SELECT m.rate FROM orders o ASOF JOIN merchants m MATCH_CONDITION ({condition}) ON o.merchant = m.merchant"
            ),
            format!(
                "SELECT m.rate FROM orders o ASOF LEFT JOIN merchants m ON o.merchant = m.merchant AND {condition}"
            ),
        ] {
            let found = lookup(&sql);
            assert_eq!(found.closest.map(|c| c.comparison), Some(comparison), "{sql}");
            assert_eq!((found.keys.len(), found.keep), (1, sql.contains("LEFT")), "{sql}");
        }
    }
    let keyless = lookup("SELECT m.rate FROM orders o ASOF JOIN merchants m ON o.ts >= m.since");
    assert!(keyless.keys.is_empty() && keyless.closest.is_some());
}

#[test]
fn the_joins_of_a_query_are_told_apart() {
    let sql = "SELECT e.sku, m.name, n.rate FROM orders o CROSS JOIN UNNEST(o.items) AS e \
               JOIN merchants m ON e.sku = m.name ASOF JOIN merchants n ON o.merchant = n.merchant AND o.ts >= n.since";
    let Node::Source { steps, .. } = plan(sql).root else { panic!("{sql}") };
    let closest: Vec<bool> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Lookup(lookup) => Some(lookup.closest.is_some()),
            Step::Transform(_) => None,
        })
        .collect();
    assert_eq!(closest, [false, true]);
    assert_eq!(
        plan(sql).inputs.iter().map(|input| input.role).collect::<Vec<_>>(),
        [Role::Stream, Role::Table, Role::Table]
    );
    // A column may be called so.
    assert!(compile("SELECT amount AS asof FROM orders").is_ok());
}

#[test]
fn keys_of_a_group_are_its_columns_wherever_they_stand() {
    let key = |sql: &str| {
        let plan = plan(sql);
        plan.upsert_key.iter().map(|at| plan.output.field(*at).name().clone()).collect::<Vec<_>>()
    };
    let window = "TUMBLE(ts, INTERVAL '5 seconds')";
    assert_eq!(
        key(&format!("SELECT {window} AS w, count(*) AS n, merchant FROM orders GROUP BY merchant, {window}")),
        ["merchant", "w"]
    );
    assert_eq!(
        key(&format!("SELECT window_end AS e, merchant, 1 AS x FROM orders GROUP BY {window}, merchant")),
        ["e", "merchant"]
    );
    assert_eq!(key(&format!("SELECT merchant, count(*) AS n FROM orders GROUP BY merchant, {window}")), [""; 0]);
    assert_eq!(key("SELECT DISTINCT paid, merchant FROM orders"), ["paid", "merchant"]);
    assert_eq!(key("SELECT merchant FROM orders"), [""; 0]);
    assert_eq!(key("SELECT count(*) FROM orders"), [""; 0]);
    assert_eq!(
        key("SELECT n, m FROM (SELECT merchant AS m, count(*) AS n FROM orders GROUP BY 1) AS x WHERE n > 1"),
        ["m"]
    );
    assert_eq!(
        key("SELECT merchant, count(*) AS n FROM orders GROUP BY 1 UNION ALL SELECT merchant, 1 FROM payments"),
        [""; 0]
    );
}

#[test]
fn only_what_is_needed_is_read() {
    let columns =
        |sql: &str| -> Vec<String> { plan(sql).inputs[0].reads.columns.iter().map(|c| c.name.clone()).collect() };
    assert_eq!(columns("SELECT count(*) FROM orders"), [""; 0]);
    assert_eq!(columns("SELECT n FROM (SELECT merchant, amount + 1 AS n FROM orders) AS x"), ["amount"]);
    assert_eq!(columns("WITH x AS (SELECT * FROM orders) SELECT count(*) AS n FROM x WHERE x.paid"), ["paid"]);
    let positions = |sql: &str| plan(sql).inputs[0].reads.position;
    assert!(positions("SELECT first(amount) FROM orders"));
    assert!(positions("SELECT arg_max(amount, ts) FROM orders"));
    assert!(!positions("SELECT max(amount), count(*) FROM orders"));
    assert!(!positions("SELECT amount FROM orders"));
    assert!(
        matches!(plan("SELECT amount FROM orders WHERE paid").root, Node::Source { steps, clock: None, .. } if steps.len() == 1)
    );
}

#[test]
fn results_are_typed() {
    let sql = "SELECT merchant, sum(amount) AS a, sum(price) AS b, avg(amount) AS c, count(*) AS d, min(ts) AS e, \
               string_agg(merchant, ',') AS f, array_agg(merchant) AS g, max(merchant) AS h, sum(amount) + 1 AS i, bool_or(paid) AS j, \
               upper(min(merchant)) AS k, approx_percentile(amount, 0.5) AS l FROM orders GROUP BY merchant";
    let output = plan(sql).output;
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let list = DataType::List(std::sync::Arc::new(arrow::datatypes::Field::new("item", string_type(), true)));
    let wide = DataType::Decimal128(38, 0);
    let expected = [
        string_type(),
        wide.clone(),
        DataType::Float64,
        DataType::Float64,
        DataType::Int64,
        time,
        string_type(),
        list,
        string_type(),
        wide,
        DataType::Boolean,
        string_type(),
        DataType::Float64,
    ];
    let types: Vec<DataType> = output.fields().iter().map(|field| field.data_type().clone()).collect();
    assert_eq!(types, expected);
    assert!(!output.field(4).is_nullable() && output.field(1).is_nullable());
}

#[test]
fn windows_are_as_written() {
    let window = |call: &str| {
        let Node::Aggregate { aggregate, .. } = plan(&format!("SELECT count(*) AS n FROM orders GROUP BY {call}")).root
        else {
            panic!("{call}")
        };
        aggregate.window
    };
    assert_eq!(window("TUMBLE(ts, INTERVAL '5 seconds')"), Window::Tumble { size: 5 * SECOND, offset: 0 });
    assert_eq!(
        window("tumble(ts, INTERVAL '1 day', INTERVAL '-2 hours')"),
        Window::Tumble { size: 86_400 * SECOND, offset: -7_200 * SECOND }
    );
    assert_eq!(window("TUMBLE(ts, INTERVAL '250 milliseconds')"), Window::Tumble { size: 250_000, offset: 0 });
    assert_eq!(window("TUMBLE(ts, INTERVAL '1' MINUTE)"), Window::Tumble { size: 60 * SECOND, offset: 0 });
    assert_eq!(window("TUMBLE(ts, INTERVAL 2 HOUR)"), Window::Tumble { size: 7_200 * SECOND, offset: 0 });
    assert_eq!(window("TUMBLE(ts, INTERVAL '1 week')"), Window::Tumble { size: 7 * 86_400 * SECOND, offset: 0 });
    assert_eq!(
        window("HOP(ts, INTERVAL '40 seconds', INTERVAL '1 minute', INTERVAL '1 second')"),
        Window::Hop { slide: 40 * SECOND, size: 60 * SECOND, offset: SECOND }
    );
    assert_eq!(window("SESSION(ts, INTERVAL '1 minute 30 seconds')"), Window::Session { gap: 90 * SECOND });
    assert_eq!(window("merchant"), Window::None);
}

#[test]
fn a_call_is_made_once() {
    let sql = "SELECT count(*) AS a, count(1) AS b, sum(amount) AS c, sum(amount) + count(*) AS d, min(DISTINCT amount) AS e, \
               min(amount) AS f, count(amount) AS g, sum(amount) FILTER (WHERE paid) AS h FROM orders HAVING count(*) > 0";
    let Node::Aggregate { aggregate, .. } = plan(sql).root else { panic!("{sql}") };
    let functions: Vec<&Function> = aggregate.calls.iter().map(|call| &call.function).collect();
    assert_eq!(functions, [&Function::Count, &Function::Sum, &Function::Min, &Function::Count, &Function::Sum]);
    assert_eq!(aggregate.calls.iter().filter(|call| call.filter.is_some()).count(), 1);
}

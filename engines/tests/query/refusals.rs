//! Every refusal with its code, message and hint.

use std::fmt::Write as _;

use freshet::error::Error;
use freshet::sql::Query;

use super::corpus::sensor_batches;
use super::shop::compile;

/// Of the statement and its clauses.
const STATEMENTS: &[&str] = &[
    "",
    "SELEC 1",
    "SELECT merchant FROM orders WHERE",
    "SELECT 'open FROM orders",
    "SELECT 1; SELECT 2",
    "INSERT INTO orders VALUES (1)",
    "DROP TABLE orders",
    "VALUES (1)",
    "SELECT 1",
    "WITH x AS (SELECT 1) SELECT * FROM x",
    "WITH RECURSIVE x AS (SELECT merchant FROM orders UNION ALL SELECT merchant FROM x) SELECT * FROM x",
    "SELECT merchant FROM orders UNION SELECT merchant FROM payments",
    "SELECT merchant FROM orders EXCEPT SELECT merchant FROM payments",
    "SELECT merchant FROM orders INTERSECT ALL SELECT merchant FROM payments",
    "SELECT merchant FROM orders UNION ALL SELECT merchant, ts FROM payments",
    "SELECT merchant FROM orders UNION ALL SELECT ts FROM payments",
    "SELECT DISTINCT ON (merchant) merchant, amount FROM orders",
    "SELECT merchant FROM orders ORDER BY merchant",
    "SELECT merchant FROM orders LIMIT 10 OFFSET 5",
    "SELECT merchant FROM orders LIMIT 1 + 1",
    "SELECT merchant FROM orders LIMIT -1",
    "SELECT merchant FROM orders LIMIT 1.5",
    "SELECT merchant FROM orders LIMIT 99999999999999999999",
    "SELECT merchant FROM orders FETCH FIRST 5 ROWS ONLY",
    "SELECT TOP 5 merchant FROM orders",
    "SELECT merchant FROM (SELECT merchant FROM orders LIMIT 5) AS x",
    "SELECT merchant FROM (SELECT merchant FROM orders ORDER BY ts) AS x",
    "SELECT merchant FROM orders FOR UPDATE",
    "SELECT merchant FROM orders QUALIFY row_number() OVER () = 1",
    "SELECT merchant FROM orders WINDOW w AS (PARTITION BY merchant)",
    "SELECT row_number() OVER (PARTITION BY merchant) FROM orders",
    "SELECT sum(amount) OVER (ORDER BY ts) FROM orders",
    "SELECT merchant INTO x FROM orders",
    "SELECT * EXCLUDE (items) FROM orders",
];

/// Of FROM, without joins.
const SOURCES: &[&str] = &[
    "SELECT merchant FROM nothing",
    "SELECT merchant FROM orderz",
    "SELECT merchant FROM a.b",
    "SELECT x FROM generate_series(1, 3) AS x",
    "SELECT merchant FROM orders AS x(a, b)",
    "SELECT merchant FROM LATERAL (SELECT merchant FROM orders) AS x",
    "SELECT merchant FROM orders WHERE id IN (SELECT order_id FROM payments)",
    "SELECT (SELECT max(amount) FROM orders) FROM payments",
    "SELECT merchant FROM orders WHERE EXISTS (SELECT 1 FROM payments)",
    "SELECT merchant FROM orders TABLESAMPLE (10)",
    "SELECT merchant FROM orders FOR SYSTEM_TIME AS OF '2026-01-01'",
    "SELECT unnest(items) FROM orders",
    "SELECT 1 FROM orders, UNNEST(merchant) AS e",
    "SELECT 1 FROM orders, UNNEST(nothing) AS e",
    "SELECT 1 FROM orders, UNNEST(upper(merchant)) AS e",
    "SELECT 1 FROM orders, UNNEST(items) AS orders",
    "SELECT 1 FROM orders, UNNEST(items) WITH OFFSET AS e",
    "SELECT 1 FROM orders, UNNEST(items) AS e, UNNEST(items) AS f",
    "SELECT 1 FROM UNNEST(items) AS e",
    "SELECT a FROM orders, UNNEST(items) AS e(a, b, c, d)",
    "SELECT e.sku FROM orders LEFT JOIN UNNEST(items) AS e ON true",
    "SELECT merchants.name FROM merchants",
];

/// Of windows.
const WINDOWS: &[&str] = &[
    "SELECT TUMBLE(ts, INTERVAL '1 month') AS w, count(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '1 month')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '1 year')",
    "SELECT count(*) FROM orders GROUP BY HOP(ts, INTERVAL '1 day', INTERVAL '1 month')",
    "SELECT count(*) FROM orders GROUP BY SESSION(ts, INTERVAL '2 months 3 days')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '0 seconds')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '-5 seconds')",
    "SELECT count(*) FROM orders GROUP BY HOP(ts, INTERVAL '0 seconds', INTERVAL '5 seconds')",
    "SELECT count(*) FROM orders GROUP BY HOP(ts, INTERVAL '5 seconds', INTERVAL '-5 seconds')",
    "SELECT count(*) FROM orders GROUP BY HOP(ts, INTERVAL '1 microsecond', INTERVAL '7 days')",
    "SELECT count(*) FROM orders GROUP BY SESSION(ts, INTERVAL '0 seconds')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, 5)",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, '5 seconds')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '5')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '5 lightyears')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '1 nanosecond')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '300000000 days')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, amount * INTERVAL '1 second')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts)",
    "SELECT count(*) FROM orders GROUP BY HOP(ts, INTERVAL '5 seconds')",
    "SELECT count(*) FROM orders GROUP BY SESSION(ts, INTERVAL '5 seconds', INTERVAL '1 second')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(merchant, INTERVAL '5 seconds')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(amount, INTERVAL '5 seconds')",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(INTERVAL '5 seconds', ts)",
    "SELECT count(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '5 seconds'), HOP(ts, INTERVAL '5 seconds', INTERVAL '10 seconds')",
    "SELECT count(*) FROM orders GROUP BY date_trunc('hour', TUMBLE(ts, INTERVAL '5 seconds'))",
    "SELECT TUMBLE(ts, INTERVAL '5 seconds') AS w FROM orders",
    "SELECT amount FROM orders WHERE TUMBLE(ts, INTERVAL '5 seconds') > TIMESTAMP '2026-01-01'",
    "SELECT sum(amount) FROM orders HAVING TUMBLE(ts, INTERVAL '5 seconds') > TIMESTAMP '2026-01-01'",
    "SELECT TUMBLE(ts, INTERVAL '5 seconds') AS w, count(*) FROM orders GROUP BY merchant",
    "SELECT TUMBLE(ts, INTERVAL '10 seconds') AS w, count(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '5 seconds')",
    "SELECT max(TUMBLE(ts, INTERVAL '5 seconds')) FROM orders",
    "SELECT window_start, count(*) FROM orders GROUP BY merchant",
    "SELECT window_end() FROM orders",
    "SELECT window_start(1, 2) FROM orders",
    "SELECT TUMBL(ts, INTERVAL '5 seconds') AS w FROM orders",
];

/// Of aggregates and groups.
const AGGREGATES: &[&str] = &[
    "SELECT merchant, count(*) FROM orders",
    "SELECT merchant, amount, count(*) FROM orders GROUP BY merchant",
    "SELECT merchant FROM orders HAVING merchant = 'a'",
    "SELECT merchant, count(*) FROM orders GROUP BY merchant HAVING amount > 1",
    "SELECT merchant FROM orders WHERE count(*) > 1",
    "SELECT sum(count(*)) FROM orders",
    "SELECT sum(amount + max(amount)) FROM orders",
    "SELECT merchant FROM orders GROUP BY count(*)",
    "SELECT merchant, count(*) FROM orders GROUP BY ALL",
    "SELECT merchant, count(*) FROM orders GROUP BY ROLLUP (merchant)",
    "SELECT merchant, count(*) FROM orders GROUP BY GROUPING SETS ((merchant), ())",
    "SELECT merchant, count(*) FROM orders GROUP BY 7",
    "SELECT median(amount) FROM orders",
    "SELECT mode(amount) FROM orders",
    "SELECT quantile_cont(amount, 0.5) FROM orders",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) FROM orders",
    "SELECT corr(amount, price) FROM orders",
    "SELECT sum(merchant) FROM orders",
    "SELECT sum(ts) FROM orders",
    "SELECT sum(amount, price) FROM orders",
    "SELECT sum() FROM orders",
    "SELECT sum(*) FROM orders",
    "SELECT avg(paid) FROM orders",
    "SELECT bool_and(amount) FROM orders",
    "SELECT string_agg(amount, ',') FROM orders",
    "SELECT string_agg(merchant) FROM orders",
    "SELECT string_agg(merchant, merchant) FROM orders",
    "SELECT approx_percentile(amount, 2) FROM orders",
    "SELECT approx_percentile(amount, price) FROM orders",
    "SELECT approx_percentile(merchant, 0.5) FROM orders",
    "SELECT arg_max(amount) FROM orders",
    "SELECT stddev(DISTINCT amount) FROM orders",
    "SELECT first(amount ORDER BY ts) FROM orders",
    "SELECT first(amount) IGNORE NULLS FROM orders",
    "SELECT count(amount, price) FROM orders",
    "SELECT count(DISTINCT *) FROM orders",
    "SELECT max(items) FROM orders",
    "SELECT max(address) FROM orders",
    "SELECT sum(amount) FILTER (WHERE count(*) > 1) FROM orders",
    "SELECT first(n) FROM (SELECT merchant, count(*) AS n FROM orders GROUP BY merchant) AS x",
    "SELECT last(v) FROM (SELECT amount AS v FROM orders UNION ALL SELECT \"sum\" FROM payments) AS x",
    "SELECT items, count(*) FROM orders GROUP BY items",
    "SELECT cuont(*) FROM orders",
];

/// Of joins.
const JOINS: &[&str] = &[
    "SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id",
    "SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts >= o.ts",
    "SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts >= o.ts AND p.ts <= o.ts + INTERVAL '1 month'",
    "SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts - INTERVAL '1 second'",
    "SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id AND p.\"sum\" BETWEEN o.amount AND o.amount + 5",
    "SELECT o.id FROM orders o JOIN payments p USING (merchant)",
    "SELECT o.id FROM orders o CROSS JOIN payments p",
    "SELECT o.id FROM orders o, payments p",
    "SELECT o.id FROM orders o LEFT SEMI JOIN payments p ON o.id = p.order_id",
    "SELECT o.id FROM orders o LEFT ANTI JOIN payments p ON o.id = p.order_id",
    "SELECT o.id FROM (orders o JOIN payments p ON o.id = p.order_id)",
    "SELECT id FROM orders o JOIN payments o ON o.id = o.order_id",
    "SELECT ts FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1 second'",
    "SELECT * FROM (SELECT id, ts FROM orders) o JOIN (SELECT order_id, ts FROM payments) p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1 second'",
    "SELECT n FROM (SELECT merchant, TUMBLE(ts, INTERVAL '1 minute') AS w, count(*) AS n FROM orders GROUP BY 1, 2) a JOIN payments p ON a.merchant = p.merchant AND p.ts BETWEEN a.w AND a.w + INTERVAL '1 minute'",
    "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id AND a.ts = b.ts JOIN payments p ON p.order_id = a.id AND p.ts = a.ts",
    "SELECT m.name FROM orders o RIGHT JOIN merchants m ON o.merchant = m.merchant",
    "SELECT m.name FROM orders o FULL JOIN merchants m ON o.merchant = m.merchant",
    "SELECT m.name FROM orders o JOIN merchants m ON o.amount > m.rate",
    "SELECT m.name FROM orders o, merchants m",
    "SELECT m.name FROM orders o LEFT JOIN merchants m ON o.merchant = m.merchant AND o.amount > m.rate",
    "SELECT m.name FROM merchants m JOIN merchants n ON n.merchant = m.merchant",
    "SELECT x.n FROM orders o JOIN (SELECT merchant, count(*) AS n FROM merchants GROUP BY merchant) x ON o.merchant = x.merchant",
    "SELECT o.id FROM orders o ASOF JOIN payments p ON o.merchant = p.merchant AND o.ts >= p.ts",
    "SELECT m.rate FROM orders o ASOF JOIN merchants m ON o.merchant = m.merchant",
    "SELECT m.rate FROM orders o ASOF JOIN merchants m ON o.merchant = m.merchant AND o.ts >= m.since AND o.ts <= m.since",
    "SELECT m.rate FROM orders o ASOF JOIN merchants m USING (merchant)",
    "SELECT m.rate FROM orders o ASOF RIGHT JOIN merchants m ON o.merchant = m.merchant AND o.ts >= m.since",
    "SELECT m.rate FROM merchants m ASOF JOIN orders o ON o.merchant = m.merchant AND o.ts >= m.since",
    "SELECT m.rate FROM orders o ASOF JOIN merchants m ON o.merchant = m.merchant AND o.amount >= m.since",
    "SELECT count(*) FROM orders o JOIN merchants m ON o.merchant = m.merchant GROUP BY TUMBLE(m.since, INTERVAL '1 day')",
];

/// Of names, types and functions.
const EXPRESSIONS: &[&str] = &[
    "SELECT mercant FROM orders",
    "SELECT e.sk FROM orders, UNNEST(items) AS e",
    "SELECT \"MERCHANT\" FROM orders",
    "SELECT x.merchant FROM orders",
    "SELECT merchant.a FROM orders",
    "SELECT address.street FROM orders",
    "SELECT address FROM orders",
    "SELECT items FROM orders",
    "SELECT * FROM orders",
    "SELECT merchant, merchant FROM orders",
    "SELECT id AS a, amount AS a FROM orders",
    "SELECT uper(merchant) FROM orders",
    "SELECT now() FROM orders",
    "SELECT random() FROM orders",
    "SELECT merchant + ts FROM orders",
    "SELECT merchant FROM orders WHERE amount",
    "SELECT upper(merchant, paid) FROM orders",
    "SELECT merchant FROM orders WHERE ts > INTERVAL '1 day'",
    "SELECT ts + 5 FROM orders",
    "SELECT CAST(merchant AS NOTATYPE) FROM orders",
    "SELECT 9223372036854775807 + 1 FROM orders",
    "SELECT 1 / 0 FROM orders",
    "SELECT amount * (9223372036854775807 - -1) FROM orders",
    "SELECT amount FROM orders WHERE amount > 5 % 0",
    "SELECT 999999999999999999999999999999999999999 FROM orders",
    "SELECT CAST('x' AS BIGINT) FROM orders",
    "SELECT INTERVAL '5' FROM orders",
    "SELECT upper(DISTINCT merchant) FROM orders",
    "SELECT upper(merchant) FILTER (WHERE paid) FROM orders",
    "SELECT x FROM orders, UNNEST(items) AS e(x, x)",
    "SELECT @x FROM orders",
    "SELECT $1 FROM orders",
    "SELECT merchant FROM orders WHERE paid = 'x' AND merchant > 5.5 AND amount = 'y'",
    "SELECT asof_join_condition() FROM orders",
];

/// With one source, which the query may call anything.
const ONE_SOURCE: &[&str] = &[
    "SELECT sensor FROM s JOIN t ON s.batch_id = t.batch_id",
    "SELECT 1 FROM s, UNNEST(events) AS s",
    "SELECT e.sensor FROM s, UNNEST(events) AS e",
    "SELECT events FROM s",
    "SELECT * FROM s",
    "SELECT sensr FROM s",
    "SELECT batch_ts FROM s UNION ALL SELECT send_ts, sensor FROM s",
];

fn answers(queries: &[&str], ask: impl Fn(&str) -> Result<Query, freshet::sql::SqlError>) -> String {
    let mut text = String::new();
    for sql in queries {
        let answer = match ask(sql) {
            Ok(query) => format!("accepted: {}", query.explain()),
            Err(error) => Error::from(error).to_text(),
        };
        let _ = writeln!(text, "{sql}\n{answer}\n");
    }
    text
}

#[test]
fn every_refusal_says_what_and_what_instead() {
    let groups = [
        ("statements", STATEMENTS),
        ("sources", SOURCES),
        ("windows", WINDOWS),
        ("aggregates", AGGREGATES),
        ("joins", JOINS),
        ("expressions", EXPRESSIONS),
    ];
    let source = sensor_batches();
    let mut texts: Vec<(&str, String)> = groups.map(|(name, queries)| (name, answers(queries, compile))).into();
    texts.push(("one_source", answers(ONE_SOURCE, |sql| Query::compile(sql, &source))));
    let mut accepted = Vec::new();
    for (name, text) in &texts {
        insta::assert_snapshot!(*name, text);
        accepted.extend(text.split("\n\n").filter(|answer| answer.contains("\naccepted:")));
    }
    assert!(accepted.is_empty(), "{}", accepted.join("\n\n"));
}

//! Every refusal with its code, message and hint.

use std::fmt::Write as _;

use freshet::error::Error;
use freshet::sql::Query;

use super::corpus::sensor_batches;

const REFUSED: &[&str] = &[
    "",
    "SELEC 1",
    "SELECT sensor FROM s WHERE",
    "SELECT 'open FROM s",
    "SELECT 1; SELECT 2",
    "INSERT INTO s VALUES (1)",
    "DROP TABLE s",
    "VALUES (1)",
    "(SELECT sensor FROM s)",
    "SELECT 1",
    "WITH x AS (SELECT 1) SELECT * FROM x",
    "SELECT sensor FROM s UNION ALL SELECT sensor FROM s",
    "SELECT DISTINCT sensor FROM s",
    "SELECT sensor FROM s ORDER BY sensor",
    "SELECT sensor FROM s LIMIT 10 OFFSET 5",
    "SELECT sensor FROM s LIMIT 1 + 1",
    "SELECT sensor, count(*) FROM s GROUP BY sensor",
    "SELECT count(*) FROM s",
    "SELECT sensor FROM s HAVING sensor = 'a'",
    "SELECT TUMBLE(send_ts, INTERVAL '5 seconds') FROM s",
    "SELECT row_number() OVER (PARTITION BY sensor) FROM s",
    "SELECT sensor FROM s JOIN t ON s.a = t.a",
    "SELECT sensor FROM s, t",
    "SELECT sensor FROM (SELECT * FROM s) AS x",
    "SELECT sensor FROM a.b",
    "SELECT x FROM generate_series(1, 3) AS x",
    "SELECT sensor FROM s AS x(a, b)",
    "SELECT sensor FROM s WHERE batch_id IN (SELECT 1)",
    "SELECT (SELECT 1) FROM s",
    "SELECT unnest(events) FROM s",
    "SELECT 1 FROM s, UNNEST(sensor) AS e",
    "SELECT 1 FROM s, UNNEST(nothing) AS e",
    "SELECT 1 FROM s, UNNEST(upper(sensor)) AS e",
    "SELECT 1 FROM s, UNNEST(events) AS s",
    "SELECT 1 FROM s, UNNEST(events) WITH OFFSET AS e",
    "SELECT 1 FROM s, UNNEST(events) AS e, UNNEST(events) AS f",
    "SELECT 1 FROM UNNEST(events) AS e",
    "SELECT a FROM s, UNNEST(events) AS e(a, b, c, d, f, g, h)",
    "SELECT sensr FROM s",
    "SELECT e.sequence FROM s, UNNEST(events) AS e",
    "SELECT \"SENSOR\" FROM s",
    "SELECT x.sensor FROM s",
    "SELECT sensor.a FROM s",
    "SELECT events FROM s",
    "SELECT * FROM s",
    "SELECT sensor, sensor FROM s",
    "SELECT sensor AS a, region AS a FROM s",
    "SELECT uper(sensor) FROM s",
    "SELECT now() FROM s",
    "SELECT random() FROM s",
    "SELECT sensor + batch_ts FROM s",
    "SELECT sensor FROM s WHERE batch_id",
    "SELECT upper(sensor, region) FROM s",
    "SELECT sensor FROM s WHERE batch_ts > INTERVAL '1 day'",
    "SELECT CAST(sensor AS NOTATYPE) FROM s",
    "SELECT sensor FROM s TABLESAMPLE (10)",
    "SELECT sensor FROM s FOR SYSTEM_TIME AS OF '2026-01-01'",
    "SELECT upper(DISTINCT sensor) FROM s",
    "SELECT upper(sensor) FILTER (WHERE batch_id > 1) FROM s",
    "SELECT e.sensor FROM s, UNNEST(events) AS e",
    "SELECT x FROM s, UNNEST(events) AS e(x, x)",
    "SELECT @x FROM s",
    "SELECT $1 FROM s",
];

#[test]
fn every_refusal_says_what_and_what_instead() {
    let source = sensor_batches();
    let mut text = String::new();
    for sql in REFUSED {
        let answer = match Query::compile(sql, &source) {
            Ok(query) => format!("accepted: {:?}", query.output_schema().fields()),
            Err(error) => Error::from(error).to_text(),
        };
        writeln!(text, "{sql}\n{answer}\n").unwrap();
    }
    insta::assert_snapshot!(text);
    assert!(!text.contains("accepted:"));
}

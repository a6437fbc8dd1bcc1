-- A week starts on a Monday, as DuckDB's time_bucket has it.
-- input: events
--| {"v":1,"ts":"2024-02-25 23:59:59"}
--| {"v":2,"ts":"2024-02-26 00:00:00"}
--| {"v":4,"ts":"2024-03-03 12:00:00"}
--| {"v":8,"ts":"2024-03-04 00:00:00"}
-- expect
--| {"w":"2024-02-19 00:00:00","s":1}
--| {"w":"2024-02-26 00:00:00","s":6}
--| {"w":"2024-03-04 00:00:00","s":8}
SELECT TUMBLE(ts, INTERVAL '1 week') AS w, sum(v) AS s
FROM events
GROUP BY TUMBLE(ts, INTERVAL '1 week')

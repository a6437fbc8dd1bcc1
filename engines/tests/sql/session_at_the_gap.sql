-- A distance of just the gap joins two rows, a microsecond more does not; rows out of order bridge two sessions.
-- input: events
--| {"k":"a","ts":"2026-03-01 00:00:00"}
--| {"k":"a","ts":"2026-03-01 00:00:10"}
--| {"k":"a","ts":"2026-03-01 00:00:20.000001"}
--| {"k":"b","ts":"2026-03-01 00:00:00"}
--| {"k":"b","ts":"2026-03-01 00:00:18"}
--| {"k":"b","ts":"2026-03-01 00:00:09"}
-- expect
--| {"k":"a","w":"2026-03-01 00:00:00","e":"2026-03-01 00:00:10","n":2}
--| {"k":"b","w":"2026-03-01 00:00:00","e":"2026-03-01 00:00:18","n":3}
--| {"k":"a","w":"2026-03-01 00:00:20.000001","e":"2026-03-01 00:00:20.000001","n":1}
SELECT k, SESSION(ts, INTERVAL '10 seconds') AS w, window_end() AS e, count(*) AS n
FROM events
GROUP BY k, SESSION(ts, INTERVAL '10 seconds')

-- An offset moves the start of every window.
-- input: events
--| {"v":1,"ts":"2026-01-05 05:59:59.999999"}
--| {"v":2,"ts":"2026-01-05 06:00:00"}
--| {"v":4,"ts":"2026-01-06 05:00:00"}
-- expect
--| {"w":"2026-01-04 06:00:00","s":1}
--| {"w":"2026-01-05 06:00:00","s":6}
SELECT TUMBLE(ts, INTERVAL '1 day', INTERVAL '6 hours') AS w, sum(v) AS s
FROM events
GROUP BY TUMBLE(ts, INTERVAL '1 day', INTERVAL '6 hours')

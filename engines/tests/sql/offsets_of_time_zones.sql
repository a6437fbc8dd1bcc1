-- An offset names an instant; without one a time is UTC.
-- input: events
--| {"v":1,"ts":"2026-06-01T02:30:00+03:00"}
--| {"v":2,"ts":"2026-05-31T23:10:00Z"}
--| {"v":4,"ts":"2026-05-31T18:45:00-05:00"}
--| {"v":8,"ts":"2026-05-31 23:59:59.9999999"}
--| {"v":16,"ts":"2026-06-01T05:30:00+0530"}
-- expect
--| {"w":"2026-05-31 23:00:00","s":15}
--| {"w":"2026-06-01 00:00:00","s":16}
SELECT TUMBLE(ts, INTERVAL '1 hour') AS w, sum(v) AS s
FROM events
GROUP BY TUMBLE(ts, INTERVAL '1 hour')

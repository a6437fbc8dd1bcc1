-- With a delay a row is late by the rows before it in its partition; a row that is late for every window is left out.
-- options: --watermark-delay 5s
-- input: events
--| {"v":1,"ts":"2026-03-01 00:00:01"}
--| {"v":2,"ts":"2026-03-01 00:00:14"}
--| {"v":4,"ts":"2026-03-01 00:00:09"}
--| {"v":8,"ts":"2026-03-01 00:00:15"}
--| {"v":16,"ts":"2026-03-01 00:00:09.999999"}
--| {"v":32,"ts":"2026-03-01 00:00:10"}
-- expect
--| {"w":"2026-03-01 00:00:00","s":5}
--| {"w":"2026-03-01 00:00:10","s":42}
SELECT TUMBLE(ts, INTERVAL '10 seconds') AS w, sum(v) AS s
FROM events
GROUP BY TUMBLE(ts, INTERVAL '10 seconds')

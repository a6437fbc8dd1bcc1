-- A row without an event time is in the window NULL, and moves no watermark.
-- input: events
--| {"k":"a","v":1,"ts":"2026-03-01 00:00:01"}
--| {"k":"a","v":2,"ts":null}
--| {"k":"b","v":4}
--| {"k":"a","v":8,"ts":"2026-03-01 00:00:02"}
-- expect
--| {"k":"a","w":"2026-03-01 00:00:00","s":9}
--| {"k":"a","w":null,"s":2}
--| {"k":"b","w":null,"s":4}
SELECT k, TUMBLE(ts, INTERVAL '1 minute') AS w, sum(v) AS s
FROM events
GROUP BY k, TUMBLE(ts, INTERVAL '1 minute')

-- A size that is no multiple of the slide: a row is in one window or in two.
-- input: events
--| {"k":"a","v":1,"ts":"2026-03-01 00:00:00"}
--| {"k":"a","v":2,"ts":"2026-03-01 00:00:04"}
--| {"k":"a","v":4,"ts":"2026-03-01 00:00:05"}
--| {"k":"a","v":8,"ts":"2026-03-01 00:00:05.999999"}
--| {"k":"a","v":16,"ts":"2026-03-01 00:00:06"}
-- expect
--| {"k":"a","w":"2026-02-28 23:59:56","e":"2026-03-01 00:00:02","s":1}
--| {"k":"a","w":"2026-03-01 00:00:00","e":"2026-03-01 00:00:06","s":15}
--| {"k":"a","w":"2026-03-01 00:00:04","e":"2026-03-01 00:00:10","s":30}
SELECT k, HOP(ts, INTERVAL '4 seconds', INTERVAL '6 seconds') AS w, window_end() AS e, sum(v) AS s
FROM events
GROUP BY k, HOP(ts, INTERVAL '4 seconds', INTERVAL '6 seconds')

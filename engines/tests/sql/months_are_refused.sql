-- A month has no fixed length.
-- input: events
--| {"ts":"2026-01-31 12:00:00"}
-- error: NOT_SUPPORTED
--| month
SELECT TUMBLE(ts, INTERVAL '2 months') AS w, count(*) AS n FROM events GROUP BY TUMBLE(ts, INTERVAL '2 months')

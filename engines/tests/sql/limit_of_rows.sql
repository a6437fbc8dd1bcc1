-- The first rows of the answer's order.
-- input: events
--| {"k":"c"}
--| {"k":"a"}
--| {"k":"b"}
-- expect
--| {"k":"a","n":1}
--| {"k":"b","n":1}
SELECT k, count(*) AS n FROM events GROUP BY k LIMIT 2

-- Both parts of a union are grouped together.
-- input: events
--| {"k":"a","v":1}
--| {"k":"b","v":20}
--| {"k":"a","v":300}
-- expect
--| {"k":"a","s":602}
--| {"k":"b","s":60}
SELECT k, sum(v) AS s FROM (
  SELECT k, v FROM events WHERE v < 100 UNION ALL SELECT k, v FROM events UNION ALL SELECT k, v FROM events WHERE v > 10 AND v < 1000
) AS x GROUP BY k

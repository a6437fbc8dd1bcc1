-- FILTER is of one aggregate, HAVING of groups, and a CTE is read as what it says.
-- input: events
--| {"k":"a","v":1}
--| {"k":"a","v":-5}
--| {"k":"b","v":7}
--| {"k":"c","v":-9}
-- expect
--| {"k":"a","up":1,"n":2}
--| {"k":"b","up":7,"n":1}
WITH signed AS (SELECT k, v FROM events)
SELECT k, sum(v) FILTER (WHERE v > 0) AS up, count(*) AS n FROM signed GROUP BY k
HAVING sum(v) FILTER (WHERE v > 0) IS NOT NULL

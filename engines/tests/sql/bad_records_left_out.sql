-- With skip, a bad record takes nothing else with it.
-- options: --bad-records skip --columns 'v BIGINT'
-- input: events
--| {"k":"a","v":1}
--| {"k":"a","v":"many"}
--| {"k":"a",
--| {"k":"a","v":4}
-- expect
--| {"k":"a","n":2,"s":5}
SELECT k, count(*) AS n, sum(v) AS s FROM events GROUP BY k

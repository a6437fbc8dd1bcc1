-- Both ends of the band belong to it; NULL keys and NULL times join nothing.
-- input: orders
--| {"id":1,"k":"a","ts":"2026-03-01 00:00:00"}
--| {"id":2,"k":"a","ts":"2026-03-01 00:01:00"}
--| {"id":3,"k":null,"ts":"2026-03-01 00:01:00"}
--| {"id":4,"k":"a","ts":null}
-- input: payments
--| {"pid":1,"k":"a","ts":"2026-03-01 00:00:00"}
--| {"pid":2,"k":"a","ts":"2026-03-01 00:00:10"}
--| {"pid":3,"k":"a","ts":"2026-03-01 00:01:10.000001"}
--| {"pid":4,"k":null,"ts":"2026-03-01 00:01:00"}
-- expect
--| {"id":1,"pid":1}
--| {"id":1,"pid":2}
SELECT o.id, p.pid FROM orders o JOIN payments p
ON o.k = p.k AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '10 seconds'

-- A full join keeps what finds no partner on either side.
-- input: sales
--| {"id":1,"k":"a","ts":"2026-03-01 00:00:00"}
--| {"id":2,"k":"a","ts":"2026-03-01 00:01:00"}
-- input: refunds
--| {"pid":1,"k":"a","ts":"2026-03-01 00:00:05"}
--| {"pid":2,"k":"b","ts":"2026-03-01 00:00:30"}
-- expect
--| {"id":1,"pid":1}
--| {"id":null,"pid":2}
--| {"id":2,"pid":null}
SELECT o.id, p.pid FROM sales o FULL JOIN refunds p
ON o.k = p.k AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '10 seconds'

-- Windows of instants before 1970 start before them.
-- input: events
--| {"k":"a","ts":"1969-12-31 23:59:59.999999"}
--| {"k":"a","ts":"1970-01-01 00:00:00"}
--| {"k":"b","ts":"1969-12-31 23:59:30"}
--| {"k":"a","ts":"1899-02-28 12:00:29.999999"}
-- expect
--| {"k":"a","w":"1899-02-28 12:00:00","n":1}
--| {"k":"a","w":"1969-12-31 23:59:30","n":1}
--| {"k":"b","w":"1969-12-31 23:59:30","n":1}
--| {"k":"a","w":"1970-01-01 00:00:00","n":1}
SELECT k, TUMBLE(ts, INTERVAL '30 seconds') AS w, count(*) AS n
FROM events
GROUP BY k, TUMBLE(ts, INTERVAL '30 seconds')

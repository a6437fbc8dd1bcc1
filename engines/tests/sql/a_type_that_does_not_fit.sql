-- A value that is not of its column's type is a bad record, never a silent NULL.
-- options: --columns 'v BIGINT'
-- input: events
--| {"k":"a","v":1}
--| {"k":"a","v":"many"}
-- error: SOURCE_ERROR
--| many
SELECT k, sum(v) AS s FROM events GROUP BY k

-- Text after a record is an error that names its line, and nothing is printed.
-- files only
-- input: events
--| {"k":"a","v":1}
--| {"k":"a","v":2} {"k":"a","v":3}
-- error: SOURCE_ERROR
--| line 2
SELECT k, sum(v) AS s FROM events GROUP BY k

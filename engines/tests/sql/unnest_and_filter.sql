-- One row for each element, in its order.
-- input: batches
--| {"id":1,"items":[{"sku":"x","n":2},{"sku":"y","n":0}]}
--| {"id":2,"items":[]}
--| {"id":3,"items":null}
--| {"id":4,"items":[{"sku":"z","n":5}]}
-- expect
--| {"id":1,"sku":"x","n":2}
--| {"id":4,"sku":"z","n":5}
SELECT id, i.sku, i.n FROM batches, UNNEST(items) AS i WHERE i.n > 0

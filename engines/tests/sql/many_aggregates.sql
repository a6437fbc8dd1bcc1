-- Every aggregate that has one exact answer.
-- input: events
--| {"k":"a","v":4,"t":"x","b":true}
--| {"k":"a","v":1,"t":"z","b":false}
--| {"k":"a","v":1,"t":null,"b":null}
--| {"k":"b","v":null,"t":null,"b":null}
-- expect
--| {"k":"a","n":3,"d":2,"lo":1,"hi":4,"m":2.0,"f":"x","l":null,"amin":"z","amax":"x","ev":false,"some":true,"sd":1.7320508075688772,"vp":2.0}
--| {"k":"b","n":1,"d":0,"lo":null,"hi":null,"m":null,"f":null,"l":null,"amin":null,"amax":null,"ev":null,"some":null,"sd":null,"vp":null}
SELECT k, count(*) AS n, count(DISTINCT v) AS d, min(v) AS lo, max(v) AS hi, avg(v) AS m, first(t) AS f, last(t) AS l,
  arg_min(t, v) AS amin, arg_max(t, v) AS amax, bool_and(b) AS ev, bool_or(b) AS some,
  stddev_samp(v) AS sd, var_pop(v) AS vp
FROM events GROUP BY k

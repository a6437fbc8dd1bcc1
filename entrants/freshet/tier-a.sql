SELECT batch_id, e.seq AS event_seq, sensor, coalesce(region, '') AS region, e.name, e.unit, e.value, e.quality, e.tags,
       batch_ts, send_ts
FROM "sensor-batches", UNNEST(events) AS e

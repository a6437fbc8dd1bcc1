SELECT batch_id, e.seq AS event_seq, sensor, coalesce(region, '') AS region, upper(e.name) AS name_upper, e.unit,
       e.value, e.value * 1000 / (e.seq + 1) AS value_scaled, e.quality, e.tags, batch_ts, send_ts
FROM "sensor-batches", UNNEST(events) AS e
WHERE e.unit <> 'drop' AND (e.quality IS NULL OR e.quality >= 0.2)

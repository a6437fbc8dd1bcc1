//! The query that sums up a target table batch by batch, and its answer as values.

use super::Tier;
use super::expect::{BatchExpect, TAG_SEPARATOR};

/// One line of the answer to [`gate_sql`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateRow {
    /// What the table holds of a batch, to be compared with [`super::expect::Expect::batch`].
    pub batch: BatchExpect,
    /// Smallest `send_ts` of its rows, in µs since the epoch.
    pub send_ts_min_us: i64,
    /// Largest `send_ts` of its rows, in µs since the epoch.
    pub send_ts_max_us: i64,
}

/// A line that is no answer to [`gate_sql`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an answer of the gate's query: column {column} of {line:?}")]
pub struct GateRowError {
    /// Number of the column, from 1, that is missing, superfluous or no integer in range.
    pub column: usize,
    /// The line.
    pub line: String,
}

/// The query over `table` whose answer is one line: rows, and distinct identities `(batch_id, event_seq)`.
///
/// It equals `count(), uniqExact((batch_id, event_seq))`, with a small set per batch in place of a large one.
#[must_use]
pub fn identities_sql(table: &str) -> String {
    format!(
        "SELECT sum(n), sum(u) FROM \
         (SELECT count() AS n, uniqExact(event_seq) AS u FROM {table} GROUP BY batch_id)"
    )
}

/// The query over `table` whose answer, in `TabSeparated`, is one [`GateRow`] a line in the order of `batch_id`.
///
/// Rows that are equal in every column but `ingest_ts` count once, so that a repeated delivery changes nothing; a
/// second row of the same identity that differs anywhere counts, and fails its batch. Only batches in which an
/// identity repeats pay for finding equal rows.
#[must_use]
pub fn gate_sql(tier: Tier, table: &str) -> String {
    let (name, scaled) = match tier {
        Tier::A => ("name", "toInt64(0)"),
        Tier::B => ("name_upper", "value_scaled"),
    };
    let separator = format!("\\x{:02x}", u32::from(TAG_SEPARATOR));
    let columns = format!(
        "batch_id, toUInt64(event_seq) + 1 AS weight, value, {scaled} AS scaled, quality, \
         length(tags) AS tag_count, batch_ts, send_ts, \
         toUInt64(xxHash64(sensor)) AS sensor_h, toUInt64(xxHash64(region)) AS region_h, \
         toUInt64(xxHash64({name})) AS name_h, toUInt64(xxHash64(unit)) AS unit_h, \
         xxHash64(arrayStringConcat(tags, '{separator}')) AS tags_h"
    );
    format!(
        "WITH repeated AS \
         (SELECT batch_id FROM {table} GROUP BY batch_id HAVING count() != uniqExact(event_seq)) \
         SELECT batch_id, count(), sum(value), sum(scaled), countIf(isNull(quality)), sum(tag_count), \
         toUnixTimestamp64Milli(min(batch_ts)), toUnixTimestamp64Milli(max(batch_ts)), \
         sum(weight * sensor_h), sum(weight * region_h), sum(weight * name_h), sum(weight * unit_h), \
         sum(weight * tags_h), sum(weight * ifNull(reinterpretAsUInt64(quality), 0)), \
         toUnixTimestamp64Micro(min(send_ts)), toUnixTimestamp64Micro(max(send_ts)) \
         FROM (SELECT {columns} FROM {table} WHERE batch_id NOT IN repeated \
         UNION ALL SELECT DISTINCT {columns} FROM {table} WHERE batch_id IN repeated) \
         GROUP BY batch_id ORDER BY batch_id"
    )
}

impl GateRow {
    /// Reads one line of the answer, without its line feed.
    ///
    /// # Errors
    /// When the line has another number of columns, or a column is no integer of its range.
    pub fn parse(line: &str) -> Result<Self, GateRowError> {
        let mut columns = Columns { line, rest: line.split('\t'), column: 0 };
        let row = Self {
            batch: BatchExpect {
                batch_id: columns.next()?,
                rows: columns.next()?,
                sum_value: columns.next()?,
                sum_value_scaled: columns.next()?,
                null_quality: columns.next()?,
                tag_count: columns.next()?,
                batch_ts_min_ms: columns.next()?,
                batch_ts_max_ms: columns.next()?,
                sensor: columns.next()?,
                region: columns.next()?,
                name: columns.next()?,
                unit: columns.next()?,
                tags: columns.next()?,
                quality: columns.next()?,
            },
            send_ts_min_us: columns.next()?,
            send_ts_max_us: columns.next()?,
        };
        columns.end()?;
        Ok(row)
    }
}

struct Columns<'a> {
    line: &'a str,
    rest: std::str::Split<'a, char>,
    column: usize,
}

impl Columns<'_> {
    fn next<T: std::str::FromStr>(&mut self) -> Result<T, GateRowError> {
        self.column += 1;
        self.rest.next().and_then(|text| text.parse().ok()).ok_or_else(|| self.error())
    }

    fn end(mut self) -> Result<(), GateRowError> {
        self.column += 1;
        if self.rest.next().is_none() { Ok(()) } else { Err(self.error()) }
    }

    fn error(&self) -> GateRowError {
        GateRowError { column: self.column, line: self.line.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let row = GateRow::parse("1\t2\t-3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13\t18446744073709551615\t15\t16").unwrap();
        assert_eq!((row.batch.batch_id, row.batch.rows, row.batch.sum_value), (1, 2, -3));
        assert_eq!((row.batch.quality, row.send_ts_min_us, row.send_ts_max_us), (u64::MAX, 15, 16));
    }

    #[test]
    fn another_shape_is_refused() {
        assert_eq!(GateRow::parse("1\t2\t3").unwrap_err().column, 4);
        assert_eq!(GateRow::parse("1\t-2").unwrap_err().column, 2);
        let line = ["1"; 17].join("\t");
        assert_eq!(GateRow::parse(&line).unwrap_err().column, 17);
    }
}

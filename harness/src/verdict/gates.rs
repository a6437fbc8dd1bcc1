//! The gates: every row of the corpus is compared with its closed form before any number is computed.

use std::fmt;
use std::ops::RangeInclusive;

use crate::workload::Tier;
use crate::workload::expect::{Difference, Expect};
use crate::workload::gate::GateRow;

/// A check that stands before every number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The distinct identities are as many as the closed form says.
    Completeness,
    /// Every batch's counts, sums and fingerprints are those of the closed form.
    Values,
    /// `batch_ts` is exact, `send_ts` lies within the time the topic was filled in.
    Datetime,
    /// ClickHouse counted at least as many inserted rows as were found.
    Attribution,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completeness => "completeness",
            Self::Values => "values",
            Self::Datetime => "datetime",
            Self::Attribution => "attribution",
        })
    }
}

/// What the target table as a whole was found to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// `count()`.
    pub rows: u64,
    /// `uniqExact((batch_id, event_seq))`.
    pub distinct: u64,
    /// Rows that ClickHouse counted as inserted while the arm ran.
    pub inserted: u64,
}

impl Totals {
    /// Rows that landed more than once, each extra landing counted.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.rows.saturating_sub(self.distinct)
    }
}

/// A gate that does not hold, and where it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("gate {gate}: {what}")]
pub struct Failure {
    /// The gate.
    pub gate: Gate,
    /// Expected, got and the batch, in words.
    pub what: String,
}

/// What the gates found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Rows the closed form says.
    pub expected: u64,
    /// Distinct rows found.
    pub got: u64,
    /// Extra landings.
    pub duplicates: u64,
    /// Batches compared.
    pub checked_batches: u64,
    /// The first failure of each gate that fails.
    pub failures: Vec<Failure>,
}

impl Report {
    /// Whether every gate holds.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    fn fail(&mut self, gate: Gate, what: String) {
        if self.failures.iter().all(|failure| failure.gate != gate) {
            self.failures.push(Failure { gate, what });
        }
    }
}

/// The corpus as a tier's table must hold it.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Closed forms.
    pub expect: &'a Expect,
    /// Which table.
    pub tier: Tier,
    /// Batches `0..batches`.
    pub batches: u64,
    /// When the topic was filled, in µs since the epoch.
    pub send_ts_us: &'a RangeInclusive<i64>,
}

/// Compares totals and one row per batch, ascending by `batch_id`, with the closed forms.
///
/// # Errors
/// What `rows` gives when the table cannot be read to its end.
pub fn judge<E>(
    wanted: Wanted<'_>,
    totals: Totals,
    rows: impl Iterator<Item = Result<GateRow, E>>,
) -> Result<Report, E> {
    let expected = wanted.expect.rows(wanted.tier, wanted.batches);
    let mut report = Report {
        expected,
        got: totals.distinct,
        duplicates: totals.duplicates(),
        checked_batches: 0,
        failures: vec![],
    };
    if totals.distinct != expected {
        let what = format!("expected {expected} distinct rows, got {}", totals.distinct);
        report.fail(Gate::Completeness, what);
    }
    if totals.inserted < totals.distinct {
        let what = format!("ClickHouse counted {} inserted rows, the table holds {}", totals.inserted, totals.distinct);
        report.fail(Gate::Attribution, what);
    }
    let mut next = 0;
    for row in rows {
        let row = row?;
        let id = row.batch.batch_id;
        if id >= wanted.batches {
            report.fail(Gate::Completeness, format!("batch {id} is not of the corpus (0..{})", wanted.batches));
            continue;
        }
        if let Some(missing) = (next..id).find(|missing| wanted.expect.rows_of(wanted.tier, *missing) > 0) {
            report.fail(Gate::Completeness, format!("batch {missing} is missing"));
        }
        next = id + 1;
        compare(&mut report, wanted, &row);
        report.checked_batches += 1;
    }
    if let Some(missing) = (next..wanted.batches).find(|missing| wanted.expect.rows_of(wanted.tier, *missing) > 0) {
        report.fail(Gate::Completeness, format!("batch {missing} is missing"));
    }
    Ok(report)
}

fn compare(report: &mut Report, wanted: Wanted<'_>, row: &GateRow) {
    let right = wanted.expect.batch(wanted.tier, row.batch.batch_id);
    if let Some(difference) = right.first_difference(&row.batch) {
        let gate = gate_of(&difference);
        report.fail(gate, difference.to_string());
    }
    for got in [row.send_ts_min_us, row.send_ts_max_us] {
        if !wanted.send_ts_us.contains(&got) {
            let (from, to) = wanted.send_ts_us.clone().into_inner();
            let what = format!("batch {}: send_ts: expected {from}..={to} µs, got {got}", row.batch.batch_id);
            report.fail(Gate::Datetime, what);
        }
    }
}

/// The gate to which a field belongs.
fn gate_of(difference: &Difference) -> Gate {
    match difference.field {
        "rows" => Gate::Completeness,
        field if field.contains("_ts") => Gate::Datetime,
        _ => Gate::Values,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::path::Path;

    use super::*;
    use crate::workload::spec::IngestSpec;

    const BATCHES: u64 = 50;
    const FILLED: RangeInclusive<i64> = 1_000..=2_000;

    fn expect() -> Expect {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        Expect::new(&IngestSpec::load(&root.join("workload/ingest")).unwrap())
    }

    fn right(expect: &Expect) -> Vec<GateRow> {
        (0..BATCHES)
            .map(|id| GateRow { batch: expect.batch(Tier::B, id), send_ts_min_us: 1_000, send_ts_max_us: 2_000 })
            .collect()
    }

    fn totals(expect: &Expect) -> Totals {
        let rows = expect.rows(Tier::B, BATCHES);
        Totals { rows, distinct: rows, inserted: rows }
    }

    fn judged(expect: &Expect, totals: Totals, rows: Vec<GateRow>) -> Report {
        let wanted = Wanted { expect, tier: Tier::B, batches: BATCHES, send_ts_us: &FILLED };
        let Ok(report) = judge(wanted, totals, rows.into_iter().map(Ok::<_, Infallible>));
        report
    }

    fn failed(report: &Report) -> Vec<Gate> {
        report.failures.iter().map(|failure| failure.gate).collect()
    }

    #[test]
    fn the_right_table_passes() {
        let expect = expect();
        let report = judged(&expect, totals(&expect), right(&expect));
        assert!(report.passed(), "{report:?}");
        assert_eq!((report.checked_batches, report.duplicates), (BATCHES, 0));
    }

    #[test]
    fn a_lost_row_fails_completeness_and_names_its_batch() {
        let expect = expect();
        let mut rows = right(&expect);
        rows[7].batch.rows -= 1;
        let report =
            judged(&expect, Totals { distinct: totals(&expect).distinct - 1, ..totals(&expect) }, rows.clone());
        assert_eq!(failed(&report), [Gate::Completeness]);
        let report = judged(&expect, totals(&expect), rows);
        assert!(report.failures[0].what.starts_with("batch 7: rows:"), "{report:?}");
    }

    #[test]
    fn duplicates_are_counted_and_do_not_fail() {
        let expect = expect();
        let report = judged(&expect, Totals { rows: totals(&expect).rows + 3, ..totals(&expect) }, right(&expect));
        assert_eq!((report.passed(), report.duplicates), (true, 3));
    }

    #[test]
    fn a_missing_batch_is_named_wherever_it_is() {
        let expect = expect();
        for gone in [0, 20, BATCHES - 1] {
            let mut rows = right(&expect);
            rows.remove(usize::try_from(gone).unwrap());
            let report = judged(&expect, totals(&expect), rows);
            assert_eq!(report.failures[0].what, format!("batch {gone} is missing"));
        }
    }

    #[test]
    fn a_batch_from_elsewhere_fails_completeness() {
        let expect = expect();
        let mut rows = right(&expect);
        rows.push(GateRow { batch: expect.batch(Tier::B, BATCHES), send_ts_min_us: 1_000, send_ts_max_us: 1_000 });
        assert_eq!(failed(&judged(&expect, totals(&expect), rows)), [Gate::Completeness]);
    }

    #[test]
    fn wrong_values_and_wrong_times_are_told_apart() {
        let expect = expect();
        let mut rows = right(&expect);
        rows[3].batch.name ^= 1;
        assert_eq!(failed(&judged(&expect, totals(&expect), rows)), [Gate::Values]);
        let mut rows = right(&expect);
        rows[3].batch.batch_ts_min_ms = 0;
        assert_eq!(failed(&judged(&expect, totals(&expect), rows)), [Gate::Datetime]);
        let mut rows = right(&expect);
        rows[3].send_ts_min_us = 0;
        assert_eq!(failed(&judged(&expect, totals(&expect), rows)), [Gate::Datetime]);
    }

    #[test]
    fn rows_that_no_insert_of_the_arm_wrote_fail_attribution() {
        let expect = expect();
        let report = judged(&expect, Totals { inserted: 1, ..totals(&expect) }, right(&expect));
        assert_eq!(failed(&report), [Gate::Attribution]);
    }
}

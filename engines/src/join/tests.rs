//! The interval join against one that looks at all pairs: any batches, watermarks, worker counts and restarts.

use std::sync::Arc;

use arrow::array::types::{Int32Type, TimestampMicrosecondType, UInt64Type};
use arrow::array::{Array, AsArray, DictionaryArray, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use super::IntervalJoin;
use crate::flow::operator::{BEGINNING, END, Late, Operator};
use crate::plan::{self, JoinKind};
use crate::read::string_type;
use crate::state::run::{RunFile, RunWriter};

#[derive(Debug, Clone, PartialEq)]
struct Row {
    side: usize,
    key: Option<u8>,
    time: Option<i64>,
    position: u64,
}

/// What happens after some rows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Nothing,
    Advance,
    Freeze(bool),
    /// Everything but the checkpoints is lost; so many workers go on.
    Restart(usize),
}

fn side_schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    Arc::new(Schema::new(vec![
        Field::new("key", string_type(), true),
        Field::new("time", time, true),
        Field::new("position", DataType::UInt64, false),
        Field::new("text", string_type(), false),
    ]))
}

fn plan(kind: JoinKind, lower: i64, upper: i64) -> plan::IntervalJoin {
    let fields = side_schema().fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect::<Vec<_>>();
    let schema = Schema::new(fields.iter().chain(&fields).cloned().collect::<Vec<_>>());
    plan::IntervalJoin {
        kind,
        left: side_schema(),
        right: side_schema(),
        left_keys: vec![0],
        right_keys: vec![0],
        left_time: 1,
        right_time: 1,
        lower,
        upper,
        left_position: 2,
        right_position: 2,
        condition: None,
        schema: Arc::new(schema),
    }
}

fn text(row: &Row) -> String {
    format!("{}:{}", row.side, row.position)
}

fn batch(rows: &[&Row]) -> RecordBatch {
    let keys: Vec<Option<String>> = rows.iter().map(|row| row.key.map(|key| format!("k{key}"))).collect();
    let keys: DictionaryArray<Int32Type> = keys.iter().map(Option::as_deref).collect();
    let times: TimestampMicrosecondArray = rows.iter().map(|row| row.time).collect();
    let positions: UInt64Array = rows.iter().map(|row| row.position).collect::<Vec<_>>().into();
    let texts: Vec<String> = rows.iter().map(|row| text(row)).collect();
    let texts: DictionaryArray<Int32Type> = texts.iter().map(|text| Some(text.as_str())).collect();
    let columns: Vec<arrow::array::ArrayRef> =
        vec![Arc::new(keys), Arc::new(times), Arc::new(positions), Arc::new(texts)];
    RecordBatch::try_new(side_schema(), columns).unwrap()
}

type Out = (Option<u64>, Option<u64>);

fn advance(join: &mut IntervalJoin, watermark: i64, out: &mut Vec<Out>) {
    join.advance(watermark, &mut |jobs| {
        for job in jobs {
            let batch = job()?;
            let positions = [2, 6].map(|column| batch.column(column).as_primitive::<UInt64Type>().clone());
            let texts = [3, 7].map(|column| cast(batch.column(column), &DataType::Utf8).unwrap());
            for row in 0..batch.num_rows() {
                let [left, right] = [0, 1].map(|side| {
                    let texts: &StringArray = texts[side].as_string();
                    let position = positions[side].is_valid(row).then(|| positions[side].value(row));
                    let expected = position.map(|position| format!("{side}:{position}"));
                    assert_eq!(texts.is_valid(row).then(|| texts.value(row).to_owned()), expected);
                    position
                });
                out.push((left, right));
            }
        }
        Ok(())
    })
    .unwrap();
}

/// Every pair, and every row without one, in the order of the output.
fn expected(rows: &[Row], plan: &plan::IntervalJoin) -> Vec<Out> {
    let of = |side: usize| rows.iter().filter(move |row| row.side == side);
    let pairs = |l: &Row, r: &Row| {
        let (Some(lt), Some(rt)) = (l.time, r.time) else { return false };
        l.key.is_some() && l.key == r.key && (plan.lower..=plan.upper).contains(&(rt - lt))
    };
    let mut out: Vec<(i64, u64, u64)> = Vec::new();
    for l in of(0) {
        for r in of(1).filter(|r| pairs(l, r)) {
            out.push((l.time.max(r.time).unwrap(), l.position, r.position));
        }
        if matches!(plan.kind, JoinKind::Left | JoinKind::Full) && !of(1).any(|r| pairs(l, r)) {
            out.push((l.time.map_or(END, |t| t + plan.upper.max(0)), l.position, u64::MAX));
        }
    }
    for r in of(1) {
        if matches!(plan.kind, JoinKind::Right | JoinKind::Full) && !of(0).any(|l| pairs(l, r)) {
            out.push((r.time.map_or(END, |t| t + (-plan.lower).max(0)), u64::MAX, r.position));
        }
    }
    out.sort_unstable();
    let there = |position: u64| (position != u64::MAX).then_some(position);
    out.into_iter().map(|(_, l, r)| (there(l), there(r))).collect()
}

struct Run {
    join: IntervalJoin,
    workers: usize,
    closed: i64,
    out: Vec<Out>,
    taken: Vec<Row>,
    late: Late,
    /// The last checkpoint: its runs, and what was there.
    runs: Vec<RunFile>,
    kept: (i64, Vec<Out>, Vec<Row>),
    directory: tempfile::TempDir,
    files: u32,
}

impl Run {
    fn new(plan: &plan::IntervalJoin, workers: usize, bounded: bool) -> Self {
        Self {
            join: IntervalJoin::new(plan.clone(), workers, bounded).unwrap(),
            workers,
            closed: BEGINNING,
            out: vec![],
            taken: vec![],
            late: Late::default(),
            runs: vec![],
            kept: (BEGINNING, vec![], vec![]),
            directory: tempfile::tempdir().unwrap(),
            files: 0,
        }
    }

    fn push(&mut self, rows: &[Row], order: u64, bounded: bool) {
        for side in 0..2 {
            let some: Vec<&Row> = rows.iter().filter(|row| row.side == side).collect();
            if some.is_empty() {
                continue;
            }
            let shard = usize::try_from(order).unwrap() % self.workers;
            let late = self.join.shards()[shard].push(side, &batch(&some), self.closed, order).unwrap();
            let is_late = |row: &&&Row| row.time.is_some_and(|time| time < self.closed);
            let timeless = |row: &&&Row| row.time.is_none() && !bounded;
            assert_eq!(late.wholly, some.iter().filter(is_late).count() as u64);
            assert_eq!(late.timeless, some.iter().filter(timeless).count() as u64);
            self.late += late;
            self.taken.extend(some.iter().filter(|row| !is_late(row) && !timeless(row)).map(|row| (**row).clone()));
        }
        self.join.exchange().unwrap();
    }

    fn then(&mut self, then: Then, plan: &plan::IntervalJoin, bounded: bool) {
        match then {
            Then::Nothing => {}
            Then::Advance => {
                let latest = self.taken.iter().filter_map(|row| row.time).max();
                self.closed = self.closed.max(latest.map_or(BEGINNING, |latest| latest - 10));
                advance(&mut self.join, self.closed, &mut self.out);
            }
            Then::Freeze(whole) => {
                let (whole, run) = self.join.freeze(whole);
                self.files += 1;
                let path = self.directory.path().join(self.files.to_string());
                let mut out = RunWriter::create(&path).unwrap();
                run.write(&mut out).unwrap();
                out.finish(false).unwrap();
                if whole {
                    self.runs.clear();
                }
                self.runs.push(RunFile::open(&path).unwrap());
                self.kept = (self.closed, self.out.clone(), self.taken.clone());
            }
            Then::Restart(workers) => {
                self.workers = workers;
                self.join = IntervalJoin::new(plan.clone(), workers, bounded).unwrap();
                (self.closed, self.out, self.taken) = self.kept.clone();
                self.runs.iter().for_each(|run| self.join.restore(run, self.closed).unwrap());
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<(Vec<Row>, Then)>> {
    let row = (0_usize..2, proptest::option::weighted(0.9, 0_u8..3), proptest::option::weighted(0.95, -9_i64..12));
    let then = prop_oneof![
        2 => Just(Then::Nothing),
        4 => Just(Then::Advance),
        2 => any::<bool>().prop_map(Then::Freeze),
        1 => (1_usize..4).prop_map(Then::Restart),
    ];
    let steps = proptest::collection::vec((proptest::collection::vec(row, 0..12), then), 0..14);
    steps.prop_map(|steps| {
        let mut position = 0;
        let step = |(at, (rows, then)): (i64, (Vec<_>, Then))| {
            let row = |(side, key, time): (usize, Option<u8>, Option<i64>)| {
                position += 1;
                Row { side, key, time: time.map(|time| time + at * 6 - 20), position }
            };
            (rows.into_iter().map(row).collect(), then)
        };
        (0..).zip(steps).map(step).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn all_pairs_in_order_whatever_happens_between(
        steps in steps(), workers in 1_usize..4, bounded: bool,
        kind in prop_oneof![Just(JoinKind::Inner), Just(JoinKind::Left), Just(JoinKind::Right), Just(JoinKind::Full)],
        lower in -12_i64..6, length in 0_i64..15,
    ) {
        let plan = plan(kind, lower, lower + length);
        let mut run = Run::new(&plan, workers, bounded);
        for (order, (rows, then)) in (0..).zip(&steps) {
            run.push(rows, order, bounded);
            run.then(*then, &plan, bounded);
        }
        run.join.exchange().unwrap();
        advance(&mut run.join, END, &mut run.out);
        prop_assert_eq!(&run.out, &expected(&run.taken, &plan));
    }
}

/// Rows by time, each side once; keys that are gone are forgotten.
#[test]
fn keys_of_rows_that_are_gone_are_forgotten() {
    let plan = plan(JoinKind::Inner, 0, 5);
    let mut join = IntervalJoin::new(plan, 2, false).unwrap();
    let mut out = Vec::new();
    let mut most = 0;
    for round in 0..40_i64 {
        for side in 0..2 {
            let keys: Vec<String> = (0..5_000).map(|n| format!("{round}-{n}")).collect();
            let keys: DictionaryArray<Int32Type> = keys.iter().map(|key| Some(key.as_str())).collect();
            let times = TimestampMicrosecondArray::from_value(round * 10, 5_000);
            let from = u64::try_from(round).unwrap() * 5_000;
            let positions = UInt64Array::from_iter_values(from..from + 5_000);
            let texts: Vec<String> = (from..from + 5_000).map(|position| format!("{side}:{position}")).collect();
            let texts: DictionaryArray<Int32Type> = texts.iter().map(|text| Some(text.as_str())).collect();
            let columns: Vec<arrow::array::ArrayRef> =
                vec![Arc::new(keys), Arc::new(times), Arc::new(positions), Arc::new(texts)];
            let batch = RecordBatch::try_new(side_schema(), columns).unwrap();
            assert_eq!(batch.column(1).as_primitive::<TimestampMicrosecondType>().value(0), round * 10);
            let order = u64::try_from(round * 2).unwrap() + side;
            join.shards()[usize::from(side == 1)].push(side as usize, &batch, round * 10, order).unwrap();
        }
        join.exchange().unwrap();
        advance(&mut join, round * 10 + 8, &mut out);
        most = most.max(join.memory());
    }
    assert_eq!(out.len(), 200_000);
    assert!(out.iter().all(|(left, right)| left == right));
    assert!(most < 24 << 20, "{most} bytes");
}

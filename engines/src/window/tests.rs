//! Windows against a model that keeps every row: any split over workers, any batches, late rows, spills, and restarts from
//! checkpoints that are written late.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use arrow::array::types::{Decimal128Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, StringDictionaryBuilder, TimestampMicrosecondArray, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use super::time::floor;
use super::{PaneAggregate, SessionAggregate};
use crate::error::Error;
use crate::flow::operator::{BEGINNING, END, Job, Late, Operator};
use crate::plan::{Aggregate, Call, Function, Window};
use crate::read::string_type;
use crate::state::run::{Run, RunFile, RunWriter};

#[derive(Debug, Clone)]
struct Row {
    key: Option<&'static str>,
    time: Option<i64>,
    value: Option<i64>,
    counts: bool,
    position: u64,
}

/// What leaves: the window, the key, count(*), sum(value), first(value) of the rows that count, count(DISTINCT value).
type Out = (Option<(i64, i64)>, Option<String>, i64, Option<i128>, Option<i64>, i64);

#[derive(Debug, Clone)]
enum Action {
    Push { worker: usize, rows: Vec<Row> },
    Advance(i64),
    Spill,
    Checkpoint { whole: bool },
    Restart { workers: usize },
}

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn aggregate(window: Window) -> Aggregate {
    let input = Schema::new(vec![
        Field::new("k", string_type(), true),
        Field::new("t", timestamp(), true),
        Field::new("v", DataType::Int64, true),
        Field::new("f", DataType::Boolean, true),
        Field::new("p", DataType::UInt64, false),
    ]);
    let call = |function, args, filter, distinct, data_type| Call { function, args, filter, distinct, data_type };
    let calls = vec![
        call(Function::Count, vec![], None, false, DataType::Int64),
        call(Function::Sum, vec![2], None, false, DataType::Decimal128(38, 0)),
        call(Function::First, vec![2], Some(3), false, DataType::Int64),
        call(Function::Count, vec![2], None, true, DataType::Int64),
    ];
    let mut fields = vec![Field::new("k", string_type(), true)];
    fields.extend((0..).zip(&calls).map(|(n, call): (i32, _)| Field::new(n.to_string(), call.data_type.clone(), true)));
    let time = (window != Window::None).then_some(1);
    if time.is_some() {
        let bounds = ["window_start", "window_end"].map(|name| Field::new(name, timestamp(), true));
        fields.splice(0..0, bounds);
    }
    let (input, schema) = (Arc::new(input), Arc::new(Schema::new(fields)));
    Aggregate { window, input, time, keys: vec![0], calls, position: Some(4), schema }
}

fn batch(rows: &[Row], schema: &SchemaRef) -> RecordBatch {
    let mut keys = StringDictionaryBuilder::<Int32Type>::new();
    rows.iter().for_each(|row| keys.append_option(row.key));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(keys.finish()),
        Arc::new(rows.iter().map(|row| row.time).collect::<TimestampMicrosecondArray>()),
        Arc::new(rows.iter().map(|row| row.value).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| Some(row.counts)).collect::<BooleanArray>()),
        Arc::new(rows.iter().map(|row| row.position).collect::<UInt64Array>()),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns).unwrap()
}

fn read(batch: &RecordBatch, windowed: bool, out: &mut Vec<Out>) -> Result<(), Error> {
    let first = if windowed { 2 } else { 0 };
    let long = |column: usize, row: usize| {
        let column = batch.column(first + column).as_primitive::<Int64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    let keys = cast(batch.column(first), &DataType::Utf8).unwrap();
    for row in 0..batch.num_rows() {
        let window = windowed.then(|| [0, 1].map(|n| batch.column(n).as_primitive::<TimestampMicrosecondType>()));
        let window = window.filter(|[from, _]| from.is_valid(row)).map(|[from, to]| (from.value(row), to.value(row)));
        let key = keys.is_valid(row).then(|| keys.as_string::<i32>().value(row).to_owned());
        let sums = batch.column(first + 2).as_primitive::<Decimal128Type>();
        let sum = sums.is_valid(row).then(|| sums.value(row));
        out.push((window, key, long(1, row).unwrap(), sum, long(3, row), long(4, row).unwrap()));
    }
    Ok(())
}

fn result(window: Option<(i64, i64)>, key: Option<&str>, rows: &[&Row]) -> Out {
    let values = || rows.iter().filter_map(|row| row.value);
    let sum = (values().count() > 0).then(|| values().map(i128::from).sum());
    let first = rows.iter().filter(|row| row.counts).min_by_key(|row| row.position).and_then(|row| row.value);
    let distinct = values().collect::<BTreeSet<_>>().len() as i64;
    (window, key.map(str::to_owned), rows.len() as i64, sum, first, distinct)
}

/// Nulls last.
fn ordered_key(key: Option<&str>) -> (bool, Option<&str>) {
    (key.is_none(), key)
}

trait Model: Clone {
    fn push(&mut self, rows: &[Row], closed: i64) -> Late;
    fn advance(&mut self, closed: i64, watermark: i64) -> Vec<Out>;
}

/// Rows with the first window start they count for.
#[derive(Clone)]
struct Panes {
    slide: i64,
    size: i64,
    offset: i64,
    bounded: bool,
    rows: Vec<(Row, i64)>,
}

impl Panes {
    fn windows(&self, time: i64) -> Vec<i64> {
        let last = floor(time, self.slide, self.offset);
        let starts = (0..=self.size / self.slide + 1).rev().map(|n| last - n * self.slide);
        starts.filter(|start| *start <= time && time < start + self.size).collect()
    }
}

impl Model for Panes {
    fn push(&mut self, rows: &[Row], closed: i64) -> Late {
        let mut late = Late::default();
        for row in rows {
            let Some(time) = row.time else {
                late.timeless += u64::from(!self.bounded);
                if self.bounded {
                    self.rows.push((row.clone(), BEGINNING));
                }
                continue;
            };
            let windows = self.windows(time);
            let open: Vec<i64> = windows.iter().copied().filter(|start| start + self.size > closed).collect();
            match open.first() {
                Some(first) => {
                    late.partly += u64::from(open.len() < windows.len());
                    self.rows.push((row.clone(), *first));
                }
                None => late.wholly += u64::from(!windows.is_empty()),
            }
        }
        late
    }

    fn advance(&mut self, closed: i64, watermark: i64) -> Vec<Out> {
        let mut groups: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
        for (row, first) in &self.rows {
            let Some(time) = row.time else {
                if watermark == END {
                    groups.entry((true, 0, ordered_key(row.key))).or_default().push(row);
                }
                continue;
            };
            for start in self.windows(time).into_iter().filter(|start| start >= first) {
                let end = start + self.size;
                if end > closed && end <= watermark {
                    groups.entry((false, start, ordered_key(row.key))).or_default().push(row);
                }
            }
        }
        let out = groups.iter().map(|((timeless, start, key), rows)| {
            result((!timeless).then_some((*start, start + self.size)), key.1, rows)
        });
        out.collect()
    }
}

#[derive(Clone)]
struct SessionModel {
    gap: i64,
    bounded: bool,
    open: Vec<(Option<&'static str>, Vec<Row>)>,
    timeless: Vec<Row>,
}

fn span(rows: &[Row]) -> (i64, i64) {
    let times = || rows.iter().filter_map(|row| row.time);
    (times().min().unwrap(), times().max().unwrap())
}

impl Model for SessionModel {
    fn push(&mut self, rows: &[Row], closed: i64) -> Late {
        let mut late = Late::default();
        for row in rows {
            let Some(time) = row.time else {
                late.timeless += u64::from(!self.bounded);
                if self.bounded {
                    self.timeless.push(row.clone());
                }
                continue;
            };
            let gap = self.gap;
            let touches = |(key, rows): &mut (Option<&'static str>, Vec<Row>)| {
                let (start, last) = span(rows);
                *key == row.key && last + gap >= closed && start - gap <= time && time <= last + gap
            };
            let touched: Vec<_> = self.open.extract_if(.., touches).collect();
            if touched.is_empty() && time + gap < closed {
                late.wholly += 1;
                continue;
            }
            let rows = touched.into_iter().flat_map(|(_, rows)| rows).chain([row.clone()]).collect();
            self.open.push((row.key, rows));
        }
        late
    }

    fn advance(&mut self, _: i64, watermark: i64) -> Vec<Out> {
        let gap = self.gap;
        let over = |(_, rows): &mut (_, Vec<Row>)| watermark == END || span(rows).1 + gap < watermark;
        let mut closed: Vec<_> = self.open.extract_if(.., over).collect();
        closed.sort_by_key(|(key, rows)| (span(rows).1, span(rows).0, ordered_key(*key)));
        let mut out: Vec<Out> =
            closed.iter().map(|(key, rows)| result(Some(span(rows)), *key, &rows.iter().collect::<Vec<_>>())).collect();
        if watermark == END {
            let mut groups: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
            self.timeless.iter().for_each(|row| groups.entry(ordered_key(row.key)).or_default().push(row));
            out.extend(groups.iter().map(|(key, rows)| result(None, key.1, rows)));
        }
        out
    }
}

/// An operator and the checkpoints of it.
struct Subject<O, M> {
    make: fn(Aggregate, usize, bool) -> Result<O, Error>,
    plan: Aggregate,
    bounded: bool,
    operator: O,
    model: M,
    closed: i64,
    order: u64,
    saved: Option<(M, i64)>,
    runs: Vec<RunFile>,
    /// Frozen and not written yet.
    waiting: Option<(bool, Box<dyn Run>)>,
    written: usize,
}

impl<O: Operator, M: Model> Subject<O, M> {
    fn new(make: fn(Aggregate, usize, bool) -> Result<O, Error>, plan: Aggregate, bounded: bool, model: M) -> Self {
        let operator = make(plan.clone(), 2, bounded).unwrap();
        let (saved, runs, waiting) = (None, vec![], None);
        Self { make, plan, bounded, operator, model, closed: BEGINNING, order: 0, saved, runs, waiting, written: 0 }
    }

    fn write(&mut self, directory: &Path) {
        let Some((whole, run)) = self.waiting.take() else { return };
        let path = directory.join(format!("run-{}", self.written));
        self.written += 1;
        let mut out = RunWriter::create(&path).unwrap();
        run.write(&mut out).unwrap();
        out.finish(false).unwrap();
        if whole {
            self.runs.clear();
        }
        self.runs.push(RunFile::open(&path).unwrap());
    }

    fn act(&mut self, action: &Action, directory: &Path) -> Result<(), TestCaseError> {
        match action {
            Action::Push { worker, rows } => {
                let batch = batch(rows, &self.plan.input);
                let mut shards = self.operator.shards();
                let worker = worker % shards.len();
                let mut late = shards[worker].push(0, &batch, self.closed, self.order).unwrap();
                self.order += 1;
                self.operator.exchange().unwrap();
                late += self.operator.take_late().0;
                prop_assert_eq!(late, self.model.push(rows, self.closed));
            }
            Action::Advance(watermark) if *watermark > self.closed => {
                let mut found = Vec::new();
                let windowed = self.plan.time.is_some();
                let mut emit = |jobs: Vec<Job<'_>>| -> Result<(), Error> {
                    jobs.into_iter().try_for_each(|job| read(&job()?, windowed, &mut found))
                };
                self.operator.advance(*watermark, &mut emit).unwrap();
                prop_assert_eq!(found, self.model.advance(self.closed, *watermark));
                self.closed = *watermark;
            }
            Action::Advance(_) => {}
            Action::Spill => self.operator.spill(directory).unwrap(),
            Action::Checkpoint { whole } => {
                self.write(directory);
                self.waiting = Some(self.operator.freeze(*whole || self.runs.is_empty()));
                self.saved = Some((self.model.clone(), self.closed));
            }
            Action::Restart { workers } => {
                self.write(directory);
                let Some((model, closed)) = self.saved.clone() else { return Ok(()) };
                self.operator = (self.make)(self.plan.clone(), *workers, self.bounded).unwrap();
                (self.model, self.closed) = (model, closed);
                self.runs.iter().for_each(|run| self.operator.restore(run, closed).unwrap());
            }
        }
        Ok(())
    }

    fn all(&mut self, actions: &[Action]) -> Result<(), TestCaseError> {
        let directory = tempfile::tempdir().unwrap();
        actions.iter().try_for_each(|action| self.act(action, directory.path()))?;
        self.act(&Action::Advance(END), directory.path())
    }
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let key = prop_oneof![Just(None), prop::sample::select(vec!["", "a", "aa", "b", "é"]).prop_map(Some)];
    let row = (key, prop::option::weighted(0.9, -60_i64..100), prop::option::weighted(0.9, -3_i64..4), any::<bool>());
    let row = row.prop_map(|(key, time, value, counts)| Row { key, time, value, counts, position: 0 });
    prop::collection::vec(row, 0..12)
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        6 => (0_usize..3, rows()).prop_map(|(worker, rows)| Action::Push { worker, rows }),
        3 => (-60_i64..120).prop_map(Action::Advance),
        1 => Just(Action::Spill),
        2 => any::<bool>().prop_map(|whole| Action::Checkpoint { whole }),
        1 => (1_usize..4).prop_map(|workers| Action::Restart { workers }),
    ];
    prop::collection::vec(action, 0..25).prop_map(|mut actions| {
        let mut position = 0;
        for action in &mut actions {
            if let Action::Push { rows, .. } = action {
                rows.iter_mut().for_each(|row| {
                    row.position = position;
                    position += 1;
                });
            }
        }
        actions
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn panes_are_those_of_the_model(
        actions in actions(), slide in 1_i64..30, size in 1_i64..50, offset in -40_i64..40, tumble in any::<bool>(),
        bounded in any::<bool>(),
    ) {
        let slide = if tumble { size } else { slide };
        let window = if tumble { Window::Tumble { size, offset } } else { Window::Hop { slide, size, offset } };
        let model = Panes { slide, size, offset, bounded, rows: vec![] };
        Subject::new(PaneAggregate::new, aggregate(window), bounded, model).all(&actions)?;
    }

    #[test]
    fn sessions_are_those_of_the_model(actions in actions(), gap in 0_i64..20, bounded in any::<bool>()) {
        let model = SessionModel { gap, bounded, open: vec![], timeless: vec![] };
        Subject::new(SessionAggregate::new, aggregate(Window::Session { gap }), bounded, model).all(&actions)?;
    }

    #[test]
    fn a_view_says_what_has_changed(actions in actions()) {
        let directory = tempfile::tempdir().unwrap();
        let mut rows: Vec<Row> = Vec::new();
        let mut touched: BTreeSet<_> = BTreeSet::new();
        let mut saved: Option<(Vec<Row>, BTreeSet<_>)> = None;
        let (mut runs, mut numbers) = (Vec::<RunFile>::new(), 0..);
        let plan = aggregate(Window::None);
        let mut operator = PaneAggregate::new(plan.clone(), 2, false).unwrap();
        for action in actions.iter().chain([&Action::Advance(0)]) {
            match action {
                Action::Push { worker, rows: new } => {
                    operator.shards()[worker % 2].push(0, &batch(new, &plan.input), BEGINNING, 0).unwrap();
                    touched.extend(new.iter().map(|row| ordered_key(row.key)));
                    rows.extend_from_slice(new);
                }
                Action::Checkpoint { whole } => {
                    let (whole, run) = operator.freeze(*whole || runs.is_empty());
                    let path = directory.path().join(format!("{}", numbers.next().unwrap_or(0)));
                    let mut out = RunWriter::create(&path).unwrap();
                    run.write(&mut out).unwrap();
                    out.finish(false).unwrap();
                    if whole {
                        runs.clear();
                    }
                    runs.push(RunFile::open(&path).unwrap());
                    saved = Some((rows.clone(), touched.clone()));
                }
                Action::Restart { .. } => {
                    let Some((before, changed)) = saved.clone() else { continue };
                    (rows, touched) = (before, changed);
                    operator = PaneAggregate::new(plan.clone(), 2, false).unwrap();
                    runs.iter().for_each(|run| operator.restore(run, BEGINNING).unwrap());
                }
                Action::Spill => operator.spill(directory.path()).unwrap(),
                Action::Advance(_) => {
                    let mut found = Vec::new();
                    let mut emit = |jobs: Vec<Job<'_>>| -> Result<(), Error> {
                        jobs.into_iter().try_for_each(|job| read(&job()?, false, &mut found))
                    };
                    operator.changes(&mut emit).unwrap();
                    let mut keys: Vec<_> = found.iter().map(|out| ordered_key(out.1.as_deref())).collect();
                    prop_assert!(keys.is_sorted(), "{:?}", keys);
                    // After a restart more may be said again than has changed.
                    prop_assert!(touched.iter().all(|key| keys.contains(key)), "{:?} of {:?}", keys, touched);
                    keys.dedup();
                    for (out, key) in found.iter().zip(keys) {
                        let own: Vec<&Row> = rows.iter().filter(|row| ordered_key(row.key) == key).collect();
                        prop_assert_eq!(out, &result(None, key.1, &own));
                    }
                    touched.clear();
                }
            }
        }
    }
}

#[test]
fn no_rows_are_one_group_without_keys_at_the_end() {
    let mut plan = aggregate(Window::None);
    plan.keys.clear();
    plan.schema = Arc::new(Schema::new(plan.schema.fields()[1..].to_vec()));
    let mut operator = PaneAggregate::new(plan, 2, true).unwrap();
    let mut rows = Vec::new();
    let mut emit = |jobs: Vec<Job<'_>>| -> Result<(), Error> {
        for job in jobs {
            let batch = job()?;
            rows.push((
                batch.num_rows(),
                batch.column(0).as_primitive::<Int64Type>().value(0),
                batch.column(1).is_null(0),
            ));
        }
        Ok(())
    };
    operator.advance(END, &mut emit).unwrap();
    assert_eq!(rows, [(1, 0, true)]);
}

//! Measures how fast windows take up rows that have been decoded: nanoseconds per row on one worker, best of several runs.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::types::Int32Type;
use arrow::array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use freshet::flow::operator::{BEGINNING, END, Job, Operator};
use freshet::plan::{Aggregate, Call, Function, Window};
use freshet::read::string_type;
use freshet::window::{PaneAggregate, SessionAggregate};

const ROWS: usize = 2_000_000;
const BATCH: usize = 8_192;
const SECOND: i64 = 1_000_000;

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

/// Rows at 50,000 a second with keys in no order.
fn batches(keys: usize, shuffled: bool) -> Vec<RecordBatch> {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..keys).map(|key| format!("merchant-{key:06}"))));
    let mut state = 7_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", string_type(), true),
        Field::new("t", timestamp(), true),
        Field::new("v", DataType::Int64, true),
    ]));
    (0..ROWS / BATCH)
        .map(|batch| {
            let codes: Int32Array = (0..BATCH).map(|_| (random() % keys as u64) as i32).collect();
            let late = |random: &mut dyn FnMut() -> u64| if shuffled { (random() % 20_000_000) as i64 } else { 0 };
            let time = |row: usize| 1_600_000_000 * SECOND + (batch * BATCH + row) as i64 * 20;
            let times =
                TimestampMicrosecondArray::from_iter_values((0..BATCH).map(|row| time(row) - late(&mut random)));
            let values: Int64Array = (0..BATCH).map(|_| (random() % 1_000) as i64).collect();
            let keys = DictionaryArray::<Int32Type>::try_new(codes, Arc::clone(&texts)).expect("codes are in range");
            let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(times), Arc::new(values)];
            RecordBatch::try_new(Arc::clone(&schema), columns).expect("columns fit")
        })
        .collect()
}

fn aggregate(window: Window, input: &RecordBatch) -> Aggregate {
    let calls = vec![
        Call { function: Function::Count, args: vec![], filter: None, distinct: false, data_type: DataType::Int64 },
        Call {
            function: Function::Sum,
            args: vec![2],
            filter: None,
            distinct: false,
            data_type: DataType::Decimal128(38, 0),
        },
    ];
    let mut fields = vec![Field::new("k", string_type(), true)];
    fields.extend([Field::new("n", DataType::Int64, true), Field::new("s", DataType::Decimal128(38, 0), true)]);
    let time = (window != Window::None).then_some(1);
    if time.is_some() {
        fields.splice(0..0, ["window_start", "window_end"].map(|name| Field::new(name, timestamp(), true)));
    }
    let schema = Arc::new(Schema::new(fields));
    Aggregate { window, input: input.schema(), time, keys: vec![0], calls, position: None, schema }
}

fn measure(name: &str, make: &dyn Fn() -> Box<dyn Operator>, batches: &[RecordBatch], spills: bool) {
    let directory = std::env::temp_dir();
    let (mut best, mut closing, mut pause, mut rows) = (f64::MAX, f64::MAX, f64::MAX, 0);
    for _ in 0..3 {
        let mut operator = make();
        let begun = Instant::now();
        for (order, batch) in (0..).zip(batches) {
            operator.shards()[0].push(0, batch, BEGINNING, order).expect("rows are taken");
            operator.exchange().expect("rows are exchanged");
            if spills && order as usize % (batches.len() / 4) == 1 {
                operator.spill(&directory).expect("state is spilled");
            }
        }
        best = best.min(begun.elapsed().as_secs_f64());
        if !spills {
            let begun = Instant::now();
            let (_, run) = operator.freeze(true);
            pause = pause.min(begun.elapsed().as_secs_f64());
            drop(run);
        }
        let begun = Instant::now();
        rows = 0;
        let mut emit = |jobs: Vec<Job<'_>>| {
            jobs.into_iter().try_for_each(|job| {
                rows += job()?.num_rows();
                Ok(())
            })
        };
        operator.advance(END, &mut emit).expect("windows close");
        closing = closing.min(begun.elapsed().as_secs_f64());
    }
    let each = best * 1e9 / (batches.len() * BATCH) as f64;
    let close = closing * 1e9 / rows.max(1) as f64;
    println!("{name}: {each:.1} ns per row, {rows} groups closed at {close:.0} ns, frozen in {:.2} ms", pause * 1e3);
}

fn main() {
    let tumble = Window::Tumble { size: 5 * SECOND, offset: 0 };
    let hop = Window::Hop { slide: 5 * SECOND, size: 20 * SECOND, offset: 0 };
    let session = Window::Session { gap: SECOND };
    for (keys, shuffled) in [(100, false), (10_000, false), (10_000, true), (1_000_000, false)] {
        let input = batches(keys, shuffled);
        let panes = |window: Window| {
            let plan = aggregate(window, &input[0]);
            move || Box::new(PaneAggregate::new(plan.clone(), 1, true).expect("a plan")) as Box<dyn Operator>
        };
        let order = if shuffled { ", times in no order" } else { "" };
        measure(&format!("{keys} keys{order}, no window"), &panes(Window::None), &input, false);
        measure(&format!("{keys} keys{order}, TUMBLE"), &panes(tumble), &input, false);
        measure(&format!("{keys} keys{order}, TUMBLE, spilled"), &panes(tumble), &input, true);
        measure(&format!("{keys} keys{order}, HOP"), &panes(hop), &input, false);
        let plan = aggregate(session, &input[0]);
        let sessions = || Box::new(SessionAggregate::new(plan.clone(), 1, true).expect("a plan")) as Box<dyn Operator>;
        measure(&format!("{keys} keys{order}, SESSION"), &sessions, &input, false);
    }
}

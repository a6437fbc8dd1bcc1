//! Measures the tier-B transform: nanoseconds per input row, best of several runs.

#[path = "../tests/query/corpus.rs"]
mod corpus;

use std::time::Instant;

use freshet::sql::Query;

fn main() {
    let query = Query::compile(corpus::TIER_B, &corpus::sensor_batches()).expect("tier B compiles");
    let mut worker = query.worker().expect("a stateless query");
    for rows in [4_096, 16_384, 65_536] {
        let input = corpus::flat_rows(query.reads(), rows);
        let mut best = f64::MAX;
        let mut kept = 0;
        for _ in 0..300 {
            let start = Instant::now();
            kept = worker.apply(&input).batch.num_rows();
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("{rows} rows, {kept} kept: {:.1} ns per input row", best * 1e9 / rows as f64);
    }
}

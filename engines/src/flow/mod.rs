//! The flow: rounds of parallel work between which state is advanced, and output leaves in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connect::sink::Sink;
use crate::connect::source::Source;
use crate::error::Error;
use crate::join::LookupTable;
use crate::plan::{Lookup, Plan};
use crate::run::Totals;
use crate::run::stop::Stop;

mod advance;
mod checkpoint;
mod cut;
mod emit;
pub mod operator;
mod order;
mod steps;
mod tree;
mod watermark;
mod worker;

use checkpoint::{Checkpoints, Resumed};
use emit::{Executor, Out};
use order::Turns;
use tree::{Making, Target, Tree};
pub use watermark::Clocks;
use worker::{Haul, Lane, Lateness, LeafRound, Refusal, Round, Worker};

pub use checkpoint::{CheckpointOptions, Identity};

/// Stretches of a leaf in one round of a bounded run: what is emitted when must not depend on the number of workers.
const STRETCHES: i64 = 32;
/// How long a round of a live run goes on while there is more to read.
const LIVE_ROUND: Duration = Duration::from_millis(5);

/// What a run is to do besides its plan.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads.
    pub workers: usize,
    /// How far behind the latest row of its partition a row may come, in microseconds. `None`: on input that ends nothing
    /// is late; on input that does not, 0.
    pub delay: Option<i64>,
    /// How far ahead of the clock on the wall event times are believed, in microseconds.
    pub max_ahead: Option<i64>,
    /// How long a partition must have had nothing before it no longer holds the watermark back.
    pub idle: Option<Duration>,
    /// Refused records are counted and left out.
    pub skip: bool,
    /// How often a view without a window is emitted.
    pub emit_every: Duration,
    /// Bytes of state in memory before it is spilled.
    pub memory: Option<usize>,
    /// Where state is spilled to.
    pub spill: std::path::PathBuf,
}

/// Takes what the run refuses or counts.
pub trait Watcher: Send {
    /// A record or row was refused and left out.
    ///
    /// # Errors
    /// It cannot be kept.
    fn refused(&mut self, bad: &crate::read::BadRecord, payload: &[u8]) -> Result<(), Error>;

    /// A row was left out for its event time: `late` or `ahead`. Where it stood is known unless it was found late among the
    /// rows of other workers.
    ///
    /// # Errors
    /// It cannot be kept.
    fn left_out(
        &mut self,
        at: Option<&crate::read::Position>,
        why: &'static str,
        row: &arrow::record_batch::RecordBatch,
    ) -> Result<(), Error>;

    /// Whether rows that are left out are wanted, not only their number.
    fn keeps_late(&self) -> bool;

    /// How far the run is.
    fn progress(&mut self, progress: &Progress);

    /// Brings what was kept to where it survives.
    ///
    /// # Errors
    /// It cannot be written.
    fn flush(&mut self) -> Result<(), Error>;
}

/// How far a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records read and rows written.
    pub totals: Totals,
    /// Rows late for all their windows, for some of them, without a time, and too far ahead.
    pub late: u64,
    /// As above.
    pub partly_late: u64,
    /// As above.
    pub timeless: u64,
    /// As above.
    pub ahead: u64,
    /// The watermark of the slowest input, in microseconds; `i64::MIN` before the first.
    pub watermark: i64,
    /// Bytes of state in memory.
    pub state: u64,
    /// Times state was spilled.
    pub spills: u64,
    /// Checkpoints on disk.
    pub checkpoints: u64,
    /// Microseconds the rounds waited for the last checkpoint.
    pub checkpoint_pause: u64,
}

/// A query that runs.
pub struct Flow<'a> {
    tree: Tree,
    leaves: Vec<LeafState>,
    workers: Vec<Worker>,
    executors: Vec<std::sync::Mutex<Vec<Executor>>>,
    out: Out,
    pool: rayon::ThreadPool,
    options: Options,
    bounded: bool,
    watcher: &'a mut dyn Watcher,
    progress: Progress,
    checkpoints: Option<Checkpoints>,
    resumed: Resumed,
    emitted: Instant,
    /// Batches that stages have handed to stages.
    handed: u64,
}

/// A leaf between rounds.
struct LeafState {
    source: Box<dyn Source>,
    clocks: Clocks,
    turns: Option<Turns>,
    ended: bool,
    /// Since when each partition has had nothing to read.
    idle: Vec<(u32, Instant)>,
}

/// The inputs of a plan, opened: streams and tables in the order of [`Plan::inputs`].
pub type Inputs = Vec<Box<dyn Source>>;

impl<'a> Flow<'a> {
    /// Prepares a run: reads the tables and goes to the positions of the last checkpoint.
    ///
    /// # Errors
    /// A table cannot be read, or the checkpoint cannot be resumed.
    pub fn new(
        plan: &Plan,
        inputs: Inputs,
        sink: Box<dyn Sink>,
        options: Options,
        watcher: &'a mut dyn Watcher,
    ) -> Result<Self, Error> {
        let mut inputs: Vec<Option<Box<dyn Source>>> = inputs.into_iter().map(Some).collect();
        let bounded = plan.inputs.iter().zip(&inputs).all(|(_, source)| source.as_ref().is_some_and(|s| s.bounded()));
        let mut table = |lookup: &Lookup| {
            let source = inputs.get_mut(lookup.table).and_then(Option::as_mut);
            let source = source.ok_or_else(|| Error::source("a table is missing", "report this as a bug"))?;
            table_of(plan, lookup, source.as_mut()).map(Arc::new)
        };
        let tree = Tree::new(plan, &mut Making { workers: options.workers, bounded, table: &mut table })?;
        let mut leaves = Vec::new();
        for leaf in &tree.leaves {
            let source = inputs.get_mut(leaf.input).and_then(Option::take);
            let source = source.ok_or_else(|| Error::source("an input is read twice", "report this as a bug"))?;
            let clocks = Clocks::new(source.partitions(), options.delay.unwrap_or(0));
            leaves.push(LeafState { source, clocks, turns: None, ended: false, idle: vec![] });
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(options.workers).build();
        let pool = pool.map_err(|e| Error::usage(format!("the workers cannot be started: {e}"), "ask for fewer"))?;
        Ok(Self {
            tree,
            leaves,
            workers: vec![],
            executors: vec![],
            out: Out::new(sink, plan.limit),
            pool,
            options,
            bounded,
            watcher,
            progress: Progress { watermark: operator::BEGINNING, ..Progress::default() },
            checkpoints: None,
            resumed: Resumed::default(),
            emitted: Instant::now(),
            handed: 0,
        })
    }

    /// Runs until the inputs end, enough rows are out, or a stop is requested.
    ///
    /// # Errors
    /// Whatever ends the run early.
    pub fn run(&mut self, plan: &Plan, stop: &Stop) -> Result<Progress, Error> {
        self.prepare(plan)?;
        while !self.finished() && !stop.requested() {
            self.turn()?;
        }
        if stop.requested() && !self.finished() {
            self.interrupted()?
        } else {
            self.complete()?
        }
        self.watcher.flush()?;
        self.watcher.progress(&self.progress);
        Ok(self.progress)
    }

    fn finished(&self) -> bool {
        self.out.satisfied() || self.leaves.iter().all(|leaf| leaf.ended)
    }

    /// Makes the workers' lanes; the sources stand where reading begins.
    fn prepare(&mut self, plan: &Plan) -> Result<(), Error> {
        let workers = self.options.workers;
        let mut lanes: Vec<Vec<Lane>> = (0..workers).map(|_| vec![]).collect();
        let exact = self.exact();
        for (leaf, state) in self.tree.leaves.iter().zip(&mut self.leaves) {
            let readers = state.source.readers(&plan.inputs[leaf.input].reads, workers)?;
            for (lanes, reader) in lanes.iter_mut().zip(readers) {
                let (clock, steps, target) = (leaf.clock.clone(), leaf.steps.clone(), leaf.target);
                lanes.push(Lane { reader, ended: state.ended, clock, steps, target });
            }
            state.turns = exact.then(|| Turns::new(state.clocks.clone(), 0));
        }
        self.workers = lanes.into_iter().map(|lanes| Worker { lanes, encoder: self.out.encoder() }).collect();
        let executors = |stage: &tree::Stage| {
            let to_sink = stage.target == Target::Sink;
            let one =
                || Executor { steps: stage.steps.clone(), encoder: if to_sink { self.out.encoder() } else { None } };
            // The thread that waits for the others may take one too.
            std::sync::Mutex::new((0..=workers).map(|_| one()).collect())
        };
        self.executors = self.tree.stages.iter().map(executors).collect();
        Ok(())
    }

    /// Whether lateness is judged by the watermark at each row: input that ends, with a delay that was asked for, from one
    /// stream. Several streams share the watermark of the round before.
    fn exact(&self) -> bool {
        self.bounded && self.options.delay.is_some() && self.leaves.len() == 1
    }

    /// One round and what follows it.
    fn turn(&mut self) -> Result<(), Error> {
        let hauls = self.round()?;
        self.settle(hauls)?;
        self.advance()?;
        self.publish()?;
        self.relieve()?;
        self.checkpoint()?;
        self.watcher.progress(&self.progress);
        Ok(())
    }

    /// The leaves that are read in this round. Input that ends is read one leaf at a time: in order, or with a delay the one
    /// that is furthest behind.
    fn active(&mut self) -> Vec<bool> {
        let open: Vec<bool> = self.leaves.iter().map(|leaf| !leaf.ended).collect();
        if !self.bounded {
            return open;
        }
        let timed = self.options.delay.is_some() && self.tree.leaves.iter().all(|leaf| leaf.target != Target::Sink);
        let times: Vec<i64> = self.leaves.iter().map(|leaf| if timed { leaf.clocks.reached() } else { 0 }).collect();
        let first = (0..open.len()).filter(|n| open[*n]).min_by_key(|n| times[*n]);
        (0..open.len()).map(|n| Some(n) == first).collect()
    }

    fn round(&mut self) -> Result<Vec<Haul>, Error> {
        let active = self.active();
        let live = !self.bounded;
        let latest = self.latest();
        let closed: Vec<i64> = self.tree.leaves.iter().map(|leaf| self.closed_at(leaf.target)).collect();
        let delayed = live || self.options.delay.is_some();
        let leaves = self.leaves.iter().zip(&active).zip(&closed).map(|((leaf, active), closed)| LeafRound {
            budget: (if *active { STRETCHES } else { 0 }).into(),
            lateness: match &leaf.turns {
                Some(turns) => Lateness::Exact(turns),
                None if delayed => Lateness::Closed(*closed),
                None => Lateness::Never,
            },
        });
        let round = Round {
            leaves: leaves.collect(),
            patience: if live { LIVE_ROUND } else { Duration::from_millis(100) },
            until: live.then(|| Instant::now() + LIVE_ROUND),
            latest,
            keep_late: self.watcher.keeps_late(),
        };
        let mut shards: Vec<worker::Shards<'_>> = self.workers.iter().map(|_| vec![]).collect();
        for stage in &mut self.tree.stages {
            for (own, shard) in shards.iter_mut().zip(stage.operator.shards()) {
                own.push(shard);
            }
        }
        let mut results: Vec<Option<Result<Haul, Error>>> = self.workers.iter().map(|_| None).collect();
        let round = &round;
        self.pool.scope(|scope| {
            for ((worker, mut shards), result) in self.workers.iter_mut().zip(shards).zip(&mut results) {
                scope.spawn(move |_| *result = Some(worker.round(round, &mut shards)));
            }
        });
        results.into_iter().flatten().collect()
    }

    /// Event times after this are not believed.
    fn latest(&self) -> i64 {
        let Some(ahead) = self.options.max_ahead else { return operator::END };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_micros()).unwrap_or(i64::MAX).saturating_add(ahead)
    }

    fn closed_at(&self, target: Target) -> i64 {
        match target {
            Target::Stage(stage, _) => self.tree.stages[stage].closed,
            Target::Sink => operator::BEGINNING,
        }
    }
}

/// Reads a table whole.
fn table_of(plan: &Plan, lookup: &Lookup, source: &mut dyn Source) -> Result<LookupTable, Error> {
    let reads = &plan.inputs[lookup.table].reads;
    let mut prepare = lookup.prepare.clone();
    let mut rows = Vec::new();
    for mut reader in source.readers(reads, 1)? {
        loop {
            let stretch = match reader.read(Duration::from_millis(100))? {
                crate::connect::source::Read::Nothing => continue,
                crate::connect::source::Read::End => break,
                crate::connect::source::Read::Stretch(stretch) => stretch,
            };
            if let Some(refused) = stretch.refused.into_iter().next() {
                let at = source.locate(refused.place);
                return Err(crate::read::BadRecord { at, error: refused.error }.into());
            }
            for decoded in stretch.batches {
                let Some(prepare) = &mut prepare else {
                    rows.push(decoded.batch);
                    continue;
                };
                let applied = prepare.apply(&decoded.batch);
                if let Some(failed) = applied.errors.first() {
                    let at = source.locate(decoded.place_of(failed.row).unwrap_or(0));
                    return Err(crate::read::BadRecord { at, error: failed.error.clone() }.into());
                }
                rows.push(applied.batch);
            }
        }
    }
    let schema = match (&prepare, rows.first()) {
        (_, Some(batch)) => batch.schema(),
        (Some(prepare), None) => prepare.output_schema(),
        (None, None) => reads.flat_schema(),
    };
    LookupTable::new(lookup, rows, schema)
}

/// Refusals in the order of the source.
fn in_order(hauls: &mut [Haul]) -> Vec<Refusal> {
    let mut refused: Vec<Refusal> = hauls.iter_mut().flat_map(|haul| std::mem::take(&mut haul.refused)).collect();
    refused.sort_by_key(|r| (r.leaf, r.order, r.place));
    refused
}

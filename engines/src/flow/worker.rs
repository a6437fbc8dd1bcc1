//! What one worker does in a round: read, decode, transform, push.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::types::TimestampMicrosecondType;
use arrow::array::{AsArray, PrimitiveArray};
use arrow::record_batch::RecordBatch;

use super::cut::{Cut, cuts};
use super::operator::{BEGINNING, Late, Shard};
use super::order::Turns;
use super::steps::Steps;
use super::tree::Target;
use super::watermark::Clocks;
use crate::connect::sink::{Encoded, Encoder};
use crate::connect::source::{Decoded, Read, Reader, Stretch};
use crate::error::Error;
use crate::read::RecordError;
use crate::sql::Transform;

/// One worker.
pub(super) struct Worker {
    /// One for each leaf.
    pub(super) lanes: Vec<Lane>,
    /// Encodes what goes straight to the sink; without it the batches themselves are handed over.
    pub(super) encoder: Option<Box<dyn Encoder>>,
}

/// A worker's part of a leaf.
pub(super) struct Lane {
    pub(super) reader: Box<dyn Reader>,
    pub(super) ended: bool,
    pub(super) clock: Option<Box<Transform>>,
    pub(super) steps: Steps,
    pub(super) target: Target,
}

/// What a round is about, the same for all workers.
pub(super) struct Round<'a> {
    pub(super) leaves: Vec<LeafRound<'a>>,
    pub(super) patience: Duration,
    /// When the round is over although there is more to read.
    pub(super) until: Option<Instant>,
    /// Event times after this are not believed.
    pub(super) latest: i64,
    /// Keep late rows, not only their number.
    pub(super) keep_late: bool,
}

/// What a round is about for one leaf.
pub(super) struct LeafRound<'a> {
    /// Stretches that may still be taken.
    pub(super) budget: AtomicI64,
    pub(super) lateness: Lateness<'a>,
}

/// How lateness is judged.
#[derive(Clone, Copy)]
pub(super) enum Lateness<'a> {
    /// Nothing is late.
    Never,
    /// By the watermark of the last round.
    Closed(i64),
    /// By the watermark at each row.
    Exact(&'a Turns),
}

/// What a worker brings back from a round.
#[derive(Default)]
pub(super) struct Haul {
    /// Rows for the sink, by leaf and order.
    pub(super) outputs: Vec<Output>,
    pub(super) refused: Vec<Refusal>,
    pub(super) late: Late,
    /// Rows whose event time is not believed.
    pub(super) ahead: u64,
    /// Late rows and rows ahead as the query read them.
    pub(super) kept: Vec<Kept>,
    /// Latest event time of a stretch's partition, and whether the partition ended.
    pub(super) seen: Vec<Seen>,
    pub(super) records: u64,
}

/// Rows for the sink.
pub(super) struct Output {
    pub(super) leaf: usize,
    pub(super) order: u64,
    pub(super) encoded: Encoded,
}

/// A record or row that was refused.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) leaf: usize,
    pub(super) order: u64,
    pub(super) place: u64,
    pub(super) error: RecordError,
    pub(super) payload: Vec<u8>,
}

/// A row that was left out for its event time.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) leaf: usize,
    pub(super) order: u64,
    pub(super) place: u64,
    pub(super) why: &'static str,
    pub(super) row: RecordBatch,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) leaf: usize,
    pub(super) partition: u32,
    pub(super) latest: i64,
    pub(super) last: bool,
}

/// The shards of one worker, one per stage.
pub(super) type Shards<'s> = Vec<&'s mut dyn Shard>;

impl Worker {
    /// Works until the budget, the time or the input is used up.
    pub(super) fn round(&mut self, round: &Round<'_>, shards: &mut Shards<'_>) -> Result<Haul, Error> {
        let mut haul = Haul::default();
        let worked = self.work(round, shards, &mut haul);
        if worked.is_err() {
            for leaf in &round.leaves {
                if let Lateness::Exact(turns) = leaf.lateness {
                    turns.give_up();
                }
            }
        }
        worked.map(|()| haul)
    }

    fn work(&mut self, round: &Round<'_>, shards: &mut Shards<'_>, haul: &mut Haul) -> Result<(), Error> {
        loop {
            let mut found = false;
            for (number, leaf) in round.leaves.iter().enumerate() {
                let lane = &mut self.lanes[number];
                if lane.ended || leaf.budget.fetch_sub(1, Ordering::Relaxed) <= 0 {
                    continue;
                }
                match lane.reader.read(round.patience)? {
                    Read::Nothing => {}
                    Read::End => lane.ended = true,
                    Read::Stretch(stretch) => {
                        found = true;
                        let mut taking = Taking { round, shards, haul, encoder: &mut self.encoder, leaf: number };
                        taking.stretch(lane, stretch)?;
                    }
                }
            }
            if !found || round.until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
        }
    }
}

/// Takes one stretch.
struct Taking<'t, 's> {
    round: &'t Round<'t>,
    shards: &'t mut Shards<'s>,
    haul: &'t mut Haul,
    encoder: &'t mut Option<Box<dyn Encoder>>,
    leaf: usize,
}

type Times = PrimitiveArray<TimestampMicrosecondType>;

impl Taking<'_, '_> {
    fn stretch(&mut self, lane: &mut Lane, stretch: Stretch) -> Result<(), Error> {
        let Stretch { order, partition, last, records, batches, refused } = stretch;
        let leaf = self.leaf;
        self.haul.records += records;
        let refusals = refused.into_iter().map(|refused| Refusal {
            leaf,
            order,
            place: refused.place,
            error: refused.error,
            payload: refused.payload,
        });
        self.haul.refused.extend(refusals);
        let mut times = Vec::with_capacity(batches.len());
        for decoded in &batches {
            times.push(lane.clock.as_mut().and_then(|clock| times_of(clock, &decoded.batch)));
        }
        let believed = |time: &i64| *time <= self.round.latest;
        let latest = times.iter().flatten().flat_map(|t| t.iter().flatten()).filter(believed).max();
        let latest = latest.unwrap_or(BEGINNING);
        let watch = match self.round.leaves[leaf].lateness {
            Lateness::Never => Watch::closed(BEGINNING),
            Lateness::Closed(closed) => Watch::closed(closed),
            Lateness::Exact(turns) => match turns.pass(order, |clocks| Watch::pass(clocks, partition, latest, last)) {
                Some(watch) => watch,
                None => return Ok(()),
            },
        };
        self.haul.seen.push(Seen { leaf, partition, latest, last });
        let mut watch = watch;
        for (decoded, times) in batches.iter().zip(&times) {
            self.batch(lane, decoded, times.as_ref(), &mut watch, order)?;
        }
        Ok(())
    }

    fn batch(
        &mut self,
        lane: &mut Lane,
        decoded: &Decoded,
        times: Option<&Times>,
        watch: &mut Watch,
        order: u64,
    ) -> Result<(), Error> {
        let rows = decoded.batch.num_rows();
        let Some(times) = times else { return self.rows(lane, decoded, (0, rows), BEGINNING, order).map(|_| ()) };
        for cut in cuts(times, watch, self.round.latest) {
            match cut {
                Cut::OnTime { from, to } => {
                    self.rows(lane, decoded, (from, to), BEGINNING, order)?;
                }
                Cut::MayBeLate { row, closed } => {
                    let late = self.rows(lane, decoded, (row, row + 1), closed, order)?;
                    if late.wholly > 0 && self.round.keep_late {
                        self.keep(decoded, row, order, "late");
                    }
                }
                Cut::Ahead { row } => {
                    self.haul.ahead += 1;
                    if self.round.keep_late {
                        self.keep(decoded, row, order, "ahead");
                    }
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, decoded: &Decoded, row: usize, order: u64, why: &'static str) {
        let place = decoded.place_of(row).unwrap_or(0);
        let row = decoded.batch.slice(row, 1);
        self.haul.kept.push(Kept { leaf: self.leaf, order, place, why, row });
    }

    /// Takes the rows of a range through the steps to their target.
    fn rows(
        &mut self,
        lane: &mut Lane,
        decoded: &Decoded,
        (from, to): (usize, usize),
        closed: i64,
        order: u64,
    ) -> Result<Late, Error> {
        if from == to {
            return Ok(Late::default());
        }
        let whole = from == 0 && to == decoded.batch.num_rows();
        let batch = if whole { decoded.batch.clone() } else { decoded.batch.slice(from, to - from) };
        let mut failed = Vec::new();
        let batch = lane.steps.apply(&batch, &mut failed)?;
        let leaf = self.leaf;
        for row in failed {
            let place = decoded.place_of(from + row.row).unwrap_or(0);
            self.haul.refused.push(Refusal { leaf, order, place, error: row.error, payload: Vec::new() });
        }
        if batch.num_rows() == 0 {
            return Ok(Late::default());
        }
        match lane.target {
            Target::Stage(stage, input) => {
                let order = (leaf as u64) << 48 | order;
                let late = self.shards[stage].push(input, &batch, closed, order)?;
                self.haul.late += late;
                Ok(late)
            }
            Target::Sink => {
                let encoded = match self.encoder {
                    Some(encoder) => encoder.encode(&batch)?,
                    None => Encoded { rows: batch.num_rows() as u64, batch: Some(batch), ..Encoded::default() },
                };
                self.haul.outputs.push(Output { leaf, order, encoded });
                Ok(Late::default())
            }
        }
    }
}

/// Event time of every row, `None` where it cannot be told: then no row has one.
fn times_of(clock: &mut Transform, batch: &RecordBatch) -> Option<Times> {
    let applied = clock.apply(batch);
    // A row on which the expression fails is refused by the steps; here it has no time.
    if applied.errors.is_empty() {
        return applied.batch.column(0).as_primitive_opt::<TimestampMicrosecondType>().cloned();
    }
    let mut failed = applied.errors.iter().map(|e| e.row).peekable();
    let good = applied.batch.column(0).as_primitive_opt::<TimestampMicrosecondType>()?;
    let mut good = good.iter();
    let times = (0..batch.num_rows()).map(|row| {
        if failed.peek() == Some(&row) {
            failed.next();
            return None;
        }
        good.next().flatten()
    });
    Some(times.collect())
}

/// The watermark as rows pass.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    /// What is closed whatever the rows say.
    pub(super) closed: i64,
    /// How the rows of this stretch move it.
    pub(super) moving: Option<Moving>,
}

#[derive(Debug, Clone)]
pub(super) struct Moving {
    /// Latest event time of the stretch's partition so far.
    pub(super) latest: i64,
    /// The least of the other partitions.
    pub(super) others: i64,
    pub(super) delay: i64,
}

impl Watch {
    fn closed(closed: i64) -> Self {
        Self { closed, moving: None }
    }

    fn pass(clocks: &mut Clocks, partition: u32, latest: i64, last: bool) -> Self {
        let (before, others) = clocks.around(partition);
        let watch =
            Self { closed: clocks.watermark(), moving: Some(Moving { latest: before, others, delay: clocks.delay() }) };
        clocks.observe(partition, latest);
        if last {
            clocks.end(partition);
        }
        watch
    }
}

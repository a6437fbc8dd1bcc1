//! What happens between two rounds: refusals are counted, rows leave, windows close, state is relieved.

use std::time::Instant;

use super::emit::{Handing, NEVER_LATE, Next};
use super::operator::{BEGINNING, END, Emit, Late};
use super::tree::Target;
use super::worker::{Haul, Refusal};
use super::{Flow, in_order};
use crate::error::Error;
use crate::read::{BadRecord, RecordError};

impl Flow<'_> {
    /// Takes in what the workers brought back.
    pub(super) fn settle(&mut self, mut hauls: Vec<Haul>) -> Result<(), Error> {
        let refused = in_order(&mut hauls);
        let stop_at = if self.options.skip { None } else { refused.first().map(|r| (r.leaf, r.order)) };
        for haul in &mut hauls {
            self.progress.totals.records += haul.records;
            self.count_late(haul.late);
            self.progress.ahead += haul.ahead;
        }
        self.write_outputs(&mut hauls, stop_at)?;
        self.refuse(refused)?;
        self.keep_left_out(&mut hauls)?;
        self.observe(&hauls);
        Ok(())
    }

    fn count_late(&mut self, late: Late) {
        self.progress.late += late.wholly;
        self.progress.partly_late += late.partly;
        self.progress.timeless += late.timeless;
    }

    /// Writes rows that go straight to the sink, in order; those before a record that ends the run still leave.
    fn write_outputs(&mut self, hauls: &mut [Haul], stop_at: Option<(usize, u64)>) -> Result<(), Error> {
        let mut outputs: Vec<_> = hauls.iter_mut().flat_map(|haul| std::mem::take(&mut haul.outputs)).collect();
        outputs.sort_by_key(|output| (output.leaf, output.order));
        for output in outputs {
            if stop_at.is_some_and(|stop| (output.leaf, output.order) >= stop) || self.out.satisfied() {
                break;
            }
            self.out.write(output.encoded)?;
        }
        self.progress.totals.rows = self.out.rows;
        if stop_at.is_some() { self.out.flush() } else { Ok(()) }
    }

    fn refuse(&mut self, refused: Vec<Refusal>) -> Result<(), Error> {
        for one in refused {
            let at = self.leaves[one.leaf].source.locate(one.place);
            let bad = BadRecord { at, error: one.error };
            if !self.options.skip {
                return Err(bad.into());
            }
            self.progress.totals.skipped += 1;
            self.watcher.refused(&bad, &one.payload)?;
        }
        Ok(())
    }

    fn keep_left_out(&mut self, hauls: &mut [Haul]) -> Result<(), Error> {
        let mut kept: Vec<_> = hauls.iter_mut().flat_map(|haul| std::mem::take(&mut haul.kept)).collect();
        kept.sort_by_key(|k| (k.leaf, k.order, k.place));
        for one in kept {
            let at = self.leaves[one.leaf].source.locate(one.place);
            self.watcher.left_out(Some(&at), one.why, &one.row)?;
        }
        Ok(())
    }

    /// Moves the clocks of the leaves.
    fn observe(&mut self, hauls: &[Haul]) {
        for seen in hauls.iter().flat_map(|haul| &haul.seen) {
            let leaf = &mut self.leaves[seen.leaf];
            leaf.idle.retain(|(partition, _)| *partition != seen.partition);
            if leaf.turns.is_none() {
                leaf.clocks.observe(seen.partition, seen.latest);
                if seen.last {
                    leaf.clocks.end(seen.partition);
                }
            }
        }
        for (number, leaf) in self.leaves.iter_mut().enumerate() {
            if let Some(turns) = &leaf.turns {
                leaf.clocks = turns.clocks().0;
            }
            leaf.ended = self.workers.iter().all(|worker| worker.lanes[number].ended);
            if let Some(patience) = self.options.idle {
                let now = Instant::now();
                let idle = leaf.source.idle();
                leaf.idle.retain(|(partition, _)| idle.contains(partition));
                for partition in idle {
                    if !leaf.idle.iter().any(|(known, _)| *known == partition) {
                        leaf.idle.push((partition, now));
                    }
                }
                let quiet = leaf.idle.iter().filter(|(_, since)| now.duration_since(*since) >= patience);
                leaf.clocks.set_idle(&quiet.map(|(partition, _)| *partition).collect::<Vec<_>>());
            }
        }
    }

    /// The watermark of every leaf: on input that ends, nothing is final before its end unless a delay was asked for.
    fn watermarks(&mut self) -> Vec<i64> {
        let waits = self.bounded && self.options.delay.is_none();
        let of = |leaf: &mut super::LeafState| match (leaf.ended, waits) {
            (true, _) => END,
            (false, true) => BEGINNING,
            (false, false) => leaf.clocks.watermark(),
        };
        self.leaves.iter_mut().map(of).collect()
    }

    /// Lets every stage emit what has become final, those that feed others first.
    pub(super) fn advance(&mut self) -> Result<(), Error> {
        let times = self.watermarks();
        self.progress.watermark = times.iter().copied().min().unwrap_or(BEGINNING);
        self.advance_to(&times)
    }

    fn advance_to(&mut self, times: &[i64]) -> Result<(), Error> {
        let due = !self.bounded && self.emitted.elapsed() >= self.options.emit_every;
        let changes = due && self.caught_up();
        for number in 0..self.tree.stages.len() {
            let watermark = self.tree.watermark_into(number, times);
            self.exchange(number)?;
            if watermark > self.tree.stages[number].closed {
                self.advance_stage(number, watermark)?;
            }
            if changes && self.tree.stages[number].unwindowed {
                self.emit_from(number, |operator, emit| operator.changes(emit))?;
            }
        }
        if changes {
            self.emitted = Instant::now();
        }
        self.progress.totals.rows = self.out.rows;
        Ok(())
    }

    fn exchange(&mut self, number: usize) -> Result<(), Error> {
        let operator = &mut self.tree.stages[number].operator;
        self.pool.install(|| operator.exchange())?;
        let (late, rows) = operator.take_late();
        self.count_late(late);
        if self.watcher.keeps_late() {
            rows.iter().try_for_each(|row| self.watcher.left_out(None, "late", row))?;
        }
        Ok(())
    }

    /// Advances one stage; what was out before a restart is made again and thrown away.
    fn advance_stage(&mut self, number: usize, watermark: i64) -> Result<(), Error> {
        let mark = self.mark(number);
        let closed = self.tree.stages[number].closed;
        if closed < mark {
            self.out.muted = true;
            let to = watermark.min(mark);
            let made = self.emit_from(number, |operator, emit| operator.advance(to, emit));
            self.out.muted = false;
            made?;
            self.tree.stages[number].closed = to;
        }
        if watermark > mark {
            self.emit_from(number, |operator, emit| operator.advance(watermark, emit))?;
            self.tree.stages[number].closed = watermark;
        }
        Ok(())
    }

    /// Lets a stage emit, and hands its rows on.
    fn emit_from(
        &mut self,
        number: usize,
        emitting: impl FnOnce(&mut dyn super::operator::Operator, &mut Emit<'_>) -> Result<(), Error> + Send,
    ) -> Result<(), Error> {
        let (before, behind) = self.tree.stages.split_at_mut(number + 1);
        let Some(stage) = before.last_mut() else { return Ok(()) };
        let next = match stage.target {
            Target::Sink => Next::Sink(&mut self.out),
            Target::Stage(target, input) => {
                let Some(next) = behind.get_mut(target - number - 1) else { return Ok(()) };
                Next::Stage(next.operator.as_mut(), input, NEVER_LATE, &mut self.handed)
            }
        };
        let mut handing = Handing { executors: &self.executors[number], next, failed: vec![], failures: 0 };
        let operator = stage.operator.as_mut();
        self.pool.install(|| emitting(operator, &mut |jobs| handing.run(jobs)))?;
        let (failed, failures) = (handing.failed.pop(), handing.failures);
        self.result_rows_failed(failed, failures)
    }

    fn result_rows_failed(&mut self, first: Option<RecordError>, count: u64) -> Result<(), Error> {
        match first {
            Some(error) if !self.options.skip => Err(Error::Row(error)),
            _ => {
                self.progress.totals.skipped += count;
                Ok(())
            }
        }
    }

    /// The end of the input, or of what is wanted of it.
    pub(super) fn complete(&mut self) -> Result<(), Error> {
        if !self.out.satisfied() {
            let times = vec![END; self.leaves.len()];
            self.advance_to(&times)?;
        }
        self.publish()?;
        self.finish_checkpoints()
    }

    /// A stop was asked for: input that ends is cut short there and what came so far is emitted, unless a checkpoint lets
    /// another run go on; a live run keeps what is open.
    pub(super) fn interrupted(&mut self) -> Result<(), Error> {
        if self.checkpoints.is_some() || !self.bounded {
            self.publish()?;
            return self.last_checkpoint();
        }
        self.complete()
    }

    /// Spills when state takes more memory than it may.
    pub(super) fn relieve(&mut self) -> Result<(), Error> {
        let held = |flow: &Self| flow.tree.stages.iter().map(|stage| stage.operator.memory()).sum::<usize>();
        let memory = held(self);
        self.progress.state = memory as u64;
        let Some(most) = self.options.memory else { return Ok(()) };
        if memory < most / 2 {
            return Ok(());
        }
        let directory = self.options.spill.clone();
        for stage in &mut self.tree.stages {
            let operator = &mut stage.operator;
            self.pool.install(|| operator.spill(&directory))?;
        }
        self.progress.spills += 1;
        self.progress.state = held(self) as u64;
        Ok(())
    }
}

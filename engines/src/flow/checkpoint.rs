//! Taking checkpoints between rounds, and going on from one.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Flow;
use super::operator::BEGINNING;
use super::tree::Target;
use crate::connect::sink::Standing;
use crate::error::Error;
use crate::state::checkpoint::{Directory, LeafManifest, Manifest, RunEntry, StageManifest};
use crate::state::run::{Run, RunWriter, StateError};

pub use crate::state::checkpoint::Identity;

/// Runs of a stage after which the next checkpoint writes its whole state.
const MOST_RUNS: usize = 16;

/// Where and how often checkpoints are taken.
#[derive(Debug, Clone)]
pub struct CheckpointOptions {
    /// The directory.
    pub directory: PathBuf,
    /// Time between two.
    pub interval: Duration,
    /// Whose state it is.
    pub identity: Identity,
}

/// The checkpoints of a run.
pub(super) struct Checkpoints {
    /// With the thread that writes, while it does.
    directory: Option<Directory>,
    options: CheckpointOptions,
    /// Number of the next one.
    next: u64,
    taken: Instant,
    /// Runs on disk, by stage.
    runs: Vec<Vec<RunEntry>>,
    writing: Option<JoinHandle<(Directory, Result<Manifest, StateError>)>>,
}

/// What an earlier run left of a transactional output.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// Watermark of every stage up to which its rows are out.
    pub(super) marks: Vec<i64>,
    /// Positions that must be reached before views are emitted again.
    pub(super) positions: Vec<serde_json::Value>,
}

impl Flow<'_> {
    /// Goes to where the last checkpoint and the output's last transaction stand. Says whether the query had been finished.
    ///
    /// # Errors
    /// The checkpoint belongs to something else, is damaged, or does not fit the output.
    pub fn resume(&mut self, options: Option<CheckpointOptions>) -> Result<bool, Error> {
        let standing = self.out.sink.standing()?;
        let mut finished = false;
        let mut found = false;
        if let Some(options) = options {
            let directory = open(&options)?;
            let loaded = newest(&directory, &options)?;
            let mut checkpoints = Checkpoints {
                next: directory.numbers()?.first().map_or(1, |number| number + 1),
                directory: Some(directory),
                taken: Instant::now(),
                runs: vec![vec![]; self.tree.stages.len()],
                writing: None,
                options,
            };
            if let Some((manifest, runs)) = loaded {
                found = true;
                finished = manifest.finished;
                self.take_up(&manifest, runs)?;
                checkpoints.runs = manifest.stages.into_iter().map(|stage| stage.runs).collect();
            }
            self.checkpoints = Some(checkpoints);
        }
        match standing {
            Some(standing) => self.stand(standing, found)?,
            // What becomes visible must never rest on positions that no checkpoint goes back to.
            None if !found && self.out.sink.transactional() => self.first_checkpoint()?,
            None => {}
        }
        Ok(finished)
    }

    /// The checkpoint of a run that has read nothing yet.
    fn first_checkpoint(&mut self) -> Result<(), Error> {
        self.take_checkpoint(false)?;
        self.checkpoints.as_mut().map_or(Ok(()), Checkpoints::collect)
    }

    fn take_up(&mut self, manifest: &Manifest, runs: Vec<Vec<crate::state::run::RunFile>>) -> Result<(), Error> {
        let other = |what: &str| Error::checkpoint(format!("the checkpoint has other {what}"), ANEW);
        if manifest.leaves.len() != self.leaves.len() || manifest.stages.len() != self.tree.stages.len() {
            return Err(other("steps than the query"));
        }
        for (leaf, saved) in self.leaves.iter_mut().zip(&manifest.leaves) {
            leaf.source.seek(&saved.position)?;
            let delay = leaf.clocks.delay();
            leaf.clocks = saved.clocks.clone();
            leaf.clocks.set_delay(delay);
            leaf.ended = saved.ended;
        }
        for ((stage, saved), runs) in self.tree.stages.iter_mut().zip(&manifest.stages).zip(runs) {
            stage.closed = saved.closed;
            runs.iter().try_for_each(|run| stage.operator.restore(run, saved.closed))?;
        }
        self.out.sink.resume(&manifest.sink)?;
        self.out.left = manifest.left;
        self.out.rows = manifest.rows;
        self.progress.totals.records = manifest.records;
        self.progress.totals.rows = manifest.rows;
        Ok(())
    }

    /// Takes note of what is out already.
    fn stand(&mut self, standing: Standing, found: bool) -> Result<(), Error> {
        if self.tree.stages.is_empty() {
            for (leaf, position) in self.leaves.iter_mut().zip(&standing.positions) {
                leaf.source.seek(position)?;
            }
            return Ok(());
        }
        if !found {
            return Err(Error::checkpoint(
                "the output goes on from an earlier run whose checkpoint is not there",
                "name its directory with --checkpoint, or begin anew with another --group-id",
            ));
        }
        self.resumed = Resumed { marks: standing.marks, positions: standing.positions };
        Ok(())
    }

    /// The watermark up to which the rows of a stage are out already.
    pub(super) fn mark(&self, stage: usize) -> i64 {
        match self.tree.stages[stage].target {
            Target::Sink => self.resumed.marks.get(stage).copied().unwrap_or(BEGINNING),
            Target::Stage(..) => BEGINNING,
        }
    }

    /// Whether everything that an earlier run had read has been read again.
    pub(super) fn caught_up(&mut self) -> bool {
        let mut pairs = self.leaves.iter().zip(&self.resumed.positions);
        if pairs.all(|(leaf, position)| leaf.source.reached(position)) {
            self.resumed.positions.clear();
        }
        self.resumed.positions.is_empty()
    }

    /// Makes what was written visible: at once, or with the positions it rests on.
    pub(super) fn publish(&mut self) -> Result<(), Error> {
        if !self.out.sink.transactional() {
            return self.out.flush();
        }
        if !std::mem::take(&mut self.out.dirty) {
            return Ok(());
        }
        let positions = self.leaves.iter().map(|leaf| leaf.source.position()).collect();
        let marks = self.tree.stages.iter().map(|stage| stage.closed).collect();
        self.out.sink.transact(&Standing { positions, marks })
    }

    /// Takes a checkpoint when one is due and the last one has been written.
    pub(super) fn checkpoint(&mut self) -> Result<(), Error> {
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        if checkpoints.writing.as_ref().is_some_and(JoinHandle::is_finished) {
            checkpoints.collect()?;
            self.progress.checkpoints += 1;
        }
        let due = checkpoints.taken.elapsed() >= checkpoints.options.interval;
        if due && checkpoints.writing.is_none() { self.take_checkpoint(false) } else { Ok(()) }
    }

    /// Freezes the state and lets a thread write it.
    fn take_checkpoint(&mut self, finished: bool) -> Result<(), Error> {
        let begun = Instant::now();
        let sink = self.out.sink.commit()?;
        let frozen_at = Instant::now();
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        let Some(directory) = checkpoints.directory.take() else { return Ok(()) };
        let number = checkpoints.next;
        let mut manifest = Manifest::new(number, checkpoints.options.identity.clone());
        let leaves = self.leaves.iter().map(|leaf| LeafManifest {
            position: leaf.source.position(),
            clocks: leaf.clocks.clone(),
            ended: leaf.ended,
        });
        manifest.leaves = leaves.collect();
        (manifest.sink, manifest.left, manifest.finished) = (sink, self.out.left, finished);
        (manifest.records, manifest.rows) = (self.progress.totals.records, self.out.rows);
        let mut frozen: Vec<Box<dyn Run>> = Vec::new();
        for (stage, runs) in self.tree.stages.iter_mut().zip(&checkpoints.runs) {
            let whole = runs.is_empty() || runs.len() >= MOST_RUNS;
            let (whole, run) = stage.operator.freeze(whole);
            frozen.push(run);
            let runs = if whole { vec![] } else { runs.clone() };
            manifest.stages.push(StageManifest { closed: stage.closed, runs });
        }
        checkpoints.next += 1;
        checkpoints.taken = begun;
        self.progress.checkpoint_pause = u64::try_from(frozen_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        checkpoints.writing = Some(std::thread::spawn(move || {
            let written = write(&directory, manifest, frozen);
            (directory, written)
        }));
        Ok(())
    }

    /// The checkpoint of a run that is stopped before its end.
    pub(super) fn last_checkpoint(&mut self) -> Result<(), Error> {
        self.final_checkpoint(false)
    }

    /// The checkpoint of a run that has come to its end.
    pub(super) fn finish_checkpoints(&mut self) -> Result<(), Error> {
        self.final_checkpoint(true)
    }

    fn final_checkpoint(&mut self, finished: bool) -> Result<(), Error> {
        for _ in 0..2 {
            let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
            if checkpoints.writing.is_some() {
                checkpoints.collect()?;
                self.progress.checkpoints += 1;
            } else {
                self.take_checkpoint(finished)?;
            }
        }
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        if checkpoints.writing.is_some() {
            checkpoints.collect()?;
            self.progress.checkpoints += 1;
            return Ok(());
        }
        self.take_checkpoint(finished)?;
        if let Some(checkpoints) = &mut self.checkpoints { checkpoints.collect() } else { Ok(()) }
    }
}

impl Checkpoints {
    /// Waits for the thread that writes.
    fn collect(&mut self) -> Result<(), Error> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let joined = writing.join();
        let (directory, written) =
            joined.map_err(|_| Error::source("the checkpoint writer has panicked", "report this as a bug"))?;
        self.directory = Some(directory);
        self.runs = written?.stages.into_iter().map(|stage| stage.runs).collect();
        Ok(())
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        // The lock must outlive the thread that writes below it.
        if let Some(writing) = self.writing.take() {
            drop(writing.join());
        }
    }
}

const ANEW: &str = "name another directory with --checkpoint, or remove this one to begin anew";

fn open(options: &CheckpointOptions) -> Result<Directory, Error> {
    Directory::open(&options.directory).map_err(|error| match error {
        StateError::Io { what: "locked", .. } => Error::checkpoint(
            format!("the checkpoint directory {} is in use", options.directory.display()),
            "stop the other freshet that uses it, or name another directory",
        ),
        other => other.into(),
    })
}

type Loaded = (Manifest, Vec<Vec<crate::state::run::RunFile>>);

/// The newest checkpoint that is whole. An older one is taken, with a word about it, when the newest is damaged.
fn newest(directory: &Directory, options: &CheckpointOptions) -> Result<Option<Loaded>, Error> {
    let mut damaged = None;
    for number in directory.numbers()? {
        match directory.load(number) {
            Ok((manifest, runs)) => {
                if let Some(error) = damaged {
                    eprintln!("{error}; going on from the checkpoint before it");
                }
                same(&manifest.identity, &options.identity)?;
                return Ok(Some((manifest, runs)));
            }
            Err(error) => {
                damaged.get_or_insert(error);
            }
        }
    }
    damaged.map_or(Ok(None), |error| Err(error.into()))
}

/// Compares what a checkpoint belongs to with what this run is.
fn same(saved: &Identity, own: &Identity) -> Result<(), Error> {
    let differs = |what: &str, saved: &str, own: &str| {
        Err(Error::checkpoint(
            format!("the checkpoint belongs to another {what}: it has {saved}, this run has {own}"),
            ANEW,
        ))
    };
    if saved.query != own.query {
        return differs("query", &saved.query, &own.query);
    }
    if saved.inputs != own.inputs {
        let names = |of: &Identity| of.inputs.iter().map(|(n, i)| format!("{n} = {i}")).collect::<Vec<_>>().join(", ");
        return differs("source", &names(saved), &names(own));
    }
    if saved.output != own.output { differs("output", &saved.output, &own.output) } else { Ok(()) }
}

fn write(directory: &Directory, mut manifest: Manifest, frozen: Vec<Box<dyn Run>>) -> Result<Manifest, StateError> {
    for (number, run) in frozen.into_iter().enumerate() {
        let path = directory.run(manifest.number, number);
        let mut out = RunWriter::create(&path)?;
        run.write(&mut out)?;
        let entries = out.entries();
        let bytes = out.finish(true)?;
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        manifest.stages[number].runs.push(RunEntry { file, bytes, entries });
    }
    directory.store(&manifest)?;
    Ok(manifest)
}

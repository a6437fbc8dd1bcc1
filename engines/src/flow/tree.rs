//! A plan as leaves that read and stages that keep state, in the order in which rows pass them.

use std::sync::Arc;

use crate::error::Error;
use crate::join::{IntervalJoin, LookupTable};
use crate::plan::{self, Node, Plan, Window};
use crate::sql::Transform;
use crate::window::{PaneAggregate, SessionAggregate};

use super::operator::{BEGINNING, END, Operator};
use super::steps::Steps;

/// Where rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Out.
    Sink,
    /// Into a stage, by its number, as this input of it.
    Stage(usize, usize),
}

/// Reads an input.
pub(super) struct Leaf {
    /// Index in [`Plan::inputs`].
    pub(super) input: usize,
    pub(super) clock: Option<Box<Transform>>,
    pub(super) steps: Steps,
    pub(super) target: Target,
}

/// Keeps state.
pub(super) struct Stage {
    pub(super) operator: Box<dyn Operator>,
    pub(super) steps: Steps,
    pub(super) target: Target,
    /// How its output's event time follows its own.
    pub(super) time: OutputTime,
    /// Whether its groups last for all time.
    pub(super) unwindowed: bool,
    /// The watermark it has been advanced to.
    pub(super) closed: i64,
}

/// How the event time of what a stage emits follows its watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputTime {
    /// It is at most this far behind.
    Behind(i64),
    /// It may be any, until all has been emitted.
    Any,
}

impl OutputTime {
    /// The watermark of the output.
    pub(super) fn of(self, watermark: i64) -> i64 {
        match (watermark, self) {
            (END, _) => END,
            (BEGINNING, _) | (_, Self::Any) => BEGINNING,
            (time, Self::Behind(hold)) => time.saturating_sub(hold).max(BEGINNING + 1),
        }
    }
}

/// The tree, taken apart.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) leaves: Vec<Leaf>,
    /// Stages, each behind all that feed it.
    pub(super) stages: Vec<Stage>,
}

/// What operators are made with.
pub(super) struct Making<'a> {
    pub(super) workers: usize,
    /// The input ends: rows without an event time form a window of their own.
    pub(super) bounded: bool,
    pub(super) table: &'a mut dyn FnMut(&plan::Lookup) -> Result<Arc<LookupTable>, Error>,
}

impl Tree {
    /// Takes a plan apart.
    ///
    /// # Errors
    /// A table cannot be read, or an aggregate is not there for the type of its argument.
    pub(super) fn new(plan: &Plan, making: &mut Making<'_>) -> Result<Self, Error> {
        let mut tree = Self::default();
        tree.node(&plan.root, Target::Sink, &Steps::default(), making)?;
        // Parents were added before what feeds them.
        let last = tree.stages.len().saturating_sub(1);
        tree.stages.reverse();
        let turned = |target: &mut Target| {
            if let Target::Stage(number, _) = target {
                *number = last - *number;
            }
        };
        tree.leaves.iter_mut().for_each(|leaf| turned(&mut leaf.target));
        tree.stages.iter_mut().for_each(|stage| turned(&mut stage.target));
        Ok(tree)
    }

    fn node(&mut self, node: &Node, target: Target, after: &Steps, making: &mut Making<'_>) -> Result<(), Error> {
        match node {
            Node::Source { input, clock, steps } => {
                let steps = Steps::new(steps, &mut *making.table)?.then(after);
                self.leaves.push(Leaf { input: *input, clock: clock.clone(), steps, target });
                Ok(())
            }
            Node::Aggregate { input, aggregate, steps } => {
                let steps = Steps::new(steps, &mut *making.table)?.then(after);
                let (operator, time) = aggregate_operator(aggregate, making)?;
                let unwindowed = aggregate.window == Window::None;
                let number = self.stages.len();
                self.stages.push(Stage { operator, steps, target, time, unwindowed, closed: BEGINNING });
                self.node(input, Target::Stage(number, 0), &Steps::default(), making)
            }
            Node::Join { left, right, join, steps } => {
                let steps = Steps::new(steps, &mut *making.table)?.then(after);
                let operator = Box::new(IntervalJoin::new(join.clone(), making.workers, making.bounded)?);
                let time = OutputTime::Behind(join.upper.max(join.lower.saturating_neg()).max(0));
                let number = self.stages.len();
                self.stages.push(Stage { operator, steps, target, time, unwindowed: false, closed: BEGINNING });
                self.node(left, Target::Stage(number, 0), &Steps::default(), making)?;
                self.node(right, Target::Stage(number, 1), &Steps::default(), making)
            }
            Node::Union { inputs, steps } => {
                let steps = Steps::new(steps, &mut *making.table)?.then(after);
                inputs.iter().try_for_each(|input| self.node(input, target, &steps, making))
            }
        }
    }

    /// The watermark of a stage's input: the least of all that feed it, leaves by `of_leaf`.
    pub(super) fn watermark_into(&self, stage: usize, of_leaf: &[i64]) -> i64 {
        let into = |target: Target| matches!(target, Target::Stage(number, _) if number == stage);
        let leaves = self.leaves.iter().zip(of_leaf).filter(|(leaf, _)| into(leaf.target)).map(|(_, time)| *time);
        let stages = self.stages.iter().filter(|stage| into(stage.target)).map(|stage| stage.time.of(stage.closed));
        leaves.chain(stages).min().unwrap_or(END)
    }
}

fn aggregate_operator(
    aggregate: &plan::Aggregate,
    making: &Making<'_>,
) -> Result<(Box<dyn Operator>, OutputTime), Error> {
    let (workers, bounded) = (making.workers, making.bounded);
    Ok(match aggregate.window {
        Window::Session { .. } => {
            (Box::new(SessionAggregate::new(aggregate.clone(), workers, bounded)?), OutputTime::Any)
        }
        Window::None => (Box::new(PaneAggregate::new(aggregate.clone(), workers, bounded)?), OutputTime::Any),
        Window::Tumble { size, .. } | Window::Hop { size, .. } => {
            (Box::new(PaneAggregate::new(aggregate.clone(), workers, bounded)?), OutputTime::Behind(size))
        }
    })
}

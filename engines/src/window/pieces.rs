//! Frozen pieces of state: what a checkpoint takes, and how they become fewer again.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::pane::{Active, PaneKey, Piece};
use super::slots::Slots;
use crate::agg::Accumulators;

/// Pieces that are held apart: with more of them they are joined.
const MOST: usize = 8;

/// Pieces in the order in which they were frozen.
#[derive(Default)]
pub(super) struct Pieces {
    list: Vec<Arc<Piece>>,
    /// So many of them are in a checkpoint.
    written: usize,
    joining: Option<Joining>,
}

/// Pieces that a thread makes one of.
struct Joining {
    of: Vec<Arc<Piece>>,
    thread: JoinHandle<Piece>,
}

impl Pieces {
    /// Adds a piece that is in no checkpoint yet.
    pub(super) fn push(&mut self, piece: Piece) {
        self.list.push(Arc::new(piece));
    }

    /// Adds a piece of the checkpoint that is taken up; before all others.
    pub(super) fn push_written(&mut self, piece: Piece) {
        self.list.push(Arc::new(piece));
        self.written = self.list.len();
    }

    /// The pieces for a checkpoint, all or those that are in none; then all are in one.
    pub(super) fn take(&mut self, all: bool) -> Vec<Arc<Piece>> {
        let from = if all { 0 } else { self.written };
        self.written = self.list.len();
        self.list[from..].to_vec()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Piece>> {
        self.list.iter()
    }

    /// Forgets pieces of which no pane is wanted.
    pub(super) fn forget(&mut self, over: impl Fn(&PaneKey) -> bool) {
        let keep: Vec<bool> = self.list.iter().map(|piece| !piece.panes.keys().all(&over)).collect();
        self.written = keep[..self.written].iter().filter(|keep| **keep).count();
        let mut keep = keep.into_iter();
        self.list.retain(|_| keep.next().unwrap_or(true));
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Goes over to new key numbers.
    pub(super) fn renumber(&mut self, new: &[u32]) {
        for piece in &mut self.list {
            let renumbered = |(pane, slots): (&PaneKey, &Slots)| (*pane, slots.renumbered(new));
            let panes = piece.panes.iter().map(renumbered).collect();
            *piece = Arc::new(Piece { panes, groups: Arc::clone(&piece.groups) });
        }
    }

    /// Bytes held, about.
    pub(super) fn memory(&self) -> usize {
        self.list.iter().map(|piece| piece.memory()).sum()
    }

    /// Puts a joined piece in the place of its parts once it is there, and starts to join when there are many, all of them
    /// in a checkpoint. Never waits.
    pub(super) fn join(&mut self, fresh: &Accumulators) {
        if self.joining.as_ref().is_some_and(|joining| joining.thread.is_finished())
            && let Some(Joining { of, thread }) = self.joining.take()
            && let Ok(joined) = thread.join()
        {
            self.replace(&of, joined);
        }
        if self.joining.is_none() && self.list.len() > MOST && self.written == self.list.len() {
            let (of, groups) = (self.list.clone(), fresh.fresh());
            let parts = of.clone();
            self.joining = Some(Joining { of, thread: std::thread::spawn(move || joined(&parts, groups)) });
        }
    }

    /// Unless its parts have changed meanwhile.
    fn replace(&mut self, of: &[Arc<Piece>], joined: Piece) {
        let there = self.written >= of.len() && self.list.iter().zip(of).all(|(own, part)| Arc::ptr_eq(own, part));
        if there {
            self.list.splice(..of.len(), [Arc::new(joined)]);
            self.written -= of.len() - 1;
        }
    }
}

/// One piece of several.
fn joined(parts: &[Arc<Piece>], groups: Accumulators) -> Piece {
    let mut whole = Active::new(groups);
    for part in parts {
        for (pane, slots) in &part.panes {
            let pairs: Vec<(u32, u32)> = slots.iter().collect();
            let to: Vec<u32> = pairs.iter().map(|(key, _)| whole.slot(*pane, *key)).collect();
            let from: Vec<u32> = pairs.iter().map(|(_, slot)| *slot).collect();
            whole.groups().merge(&to, &part.groups, &from);
        }
    }
    whole.freeze()
}

//! Inserting blocks: several at once, each until ClickHouse has acknowledged it.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::IoSlice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;

use super::block::{Block, Encoder};
use super::column::Unfit;
use super::config::ClickHouseArgs;
use super::http::{Connection, Response};
use super::table::{TableColumn, Target, refused, unreachable_error};
use crate::connect::Uri;
use crate::error::Error;

/// A ClickHouse table that a query's rows go to.
#[derive(Debug)]
pub struct ClickHouse {
    target: Target,
    args: ClickHouseArgs,
    table: Vec<TableColumn>,
    output: Arc<Schema>,
    insert_path: String,
    sorting_key: String,
}

impl ClickHouse {
    /// Looks at the table and checks that the query's columns fit it.
    ///
    /// # Errors
    /// The table cannot be reached or does not fit; the message names the column and both types.
    pub fn open(uri: &Uri, args: &ClickHouseArgs, output: Arc<Schema>) -> Result<Self, Error> {
        let target = Target::new(uri)?;
        let table = target.describe()?;
        let columns = target.map(&output, &table, args.insert_format)?;
        let insert_path = target.insert_path(columns.iter().map(|column| column.name.as_str()), args.insert_format);
        let sorting_key = if args.unordered { String::new() } else { target.sorting_key() };
        Ok(Self { target, args: args.clone(), table, output, insert_path, sorting_key })
    }

    /// An encoder for one worker.
    ///
    /// # Errors
    /// None once [`ClickHouse::open`] has succeeded.
    pub fn writer<R: Send + 'static>(&self, inserts: &Arc<Inserts<R>>) -> Result<Writer<R>, Error> {
        let columns = self.target.map(&self.output, &self.table, self.args.insert_format)?;
        Ok(Writer {
            encoder: Encoder::new(self.args.insert_format, columns, &self.sorting_key),
            inserts: Arc::clone(inserts),
            max_rows: self.args.max_rows as usize,
        })
    }

    /// Starts the threads that insert. `acknowledged` is called with what was handed in beside a block, once ClickHouse
    /// has the block; the calls come in any order.
    pub fn start<R: Send + 'static>(&self, acknowledged: impl Fn(R) + Send + Sync + 'static) -> Arc<Inserts<R>> {
        let senders = usize::from(self.args.inserts);
        let shared = Arc::new(Inserts {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                spare: Vec::new(),
                open: 0,
                failed: None,
                closed: false,
            }),
            changed: Condvar::new(),
            room: senders + 1,
            threads: Mutex::new(Vec::new()),
        });
        let acknowledged = Arc::new(acknowledged);
        let run = RandomState::new().hash_one(std::process::id());
        for number in 0..senders {
            let (inserts, acknowledged) = (Arc::clone(&shared), Arc::clone(&acknowledged));
            let mut sender = Sender {
                connection: Connection::new(&self.target.host),
                host: self.target.host.clone(),
                headers: self.target.headers.clone(),
                path: self.insert_path.clone(),
                retry_for: Duration::from_secs(self.args.retry_for),
                token: format!("{run:016x}-{number}"),
                sent: 0,
            };
            let thread = thread::spawn(move || sender.run(&inserts, acknowledged.as_ref()));
            lock(&shared.threads).push(thread);
        }
        shared
    }
}

/// Encodes a worker's rows and hands full blocks over.
#[derive(Debug)]
pub struct Writer<R> {
    encoder: Encoder,
    inserts: Arc<Inserts<R>>,
    max_rows: usize,
}

impl<R: Send + 'static> Writer<R> {
    /// Appends a batch to the block.
    ///
    /// # Errors
    /// A value does not fit its column.
    pub fn append(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        self.encoder.append(batch).map_err(|unfit: Unfit| {
            Error::sink(unfit.to_string(), "filter such rows out in the query, or widen the table's column")
        })
    }

    /// Rows in the block so far.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.encoder.rows()
    }

    /// Whether the block has as many rows as an insert should have.
    #[must_use]
    pub fn full(&self) -> bool {
        self.encoder.rows() >= self.max_rows
    }

    /// Waits until ClickHouse has every block handed over.
    ///
    /// # Errors
    /// An insert has failed for good; [`Inserts::close`] says how.
    pub fn settle(&self) -> Result<(), Error> {
        while !self.inserts.settle(LONGEST_PAUSE)? {}
        Ok(())
    }

    /// Hands the block over, with what is to be reported when it is acknowledged; waits while too many are in flight.
    ///
    /// # Errors
    /// An insert has failed for good; [`Inserts::close`] says how.
    pub fn flush(&mut self, receipt: R) -> Result<(), Error> {
        let spare = self.inserts.spare()?;
        let block = self.encoder.finish(spare);
        self.inserts.push(block, receipt);
        Ok(())
    }
}

/// Blocks on their way to ClickHouse, each with a receipt for its acknowledgement.
#[derive(Debug)]
pub struct Inserts<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
    /// Blocks that may be open at once: one per thread and one that waits.
    room: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State<R> {
    waiting: VecDeque<(Block, R)>,
    spare: Vec<Block>,
    /// Blocks handed in and not acknowledged yet.
    open: usize,
    failed: Option<Error>,
    closed: bool,
}

impl<R> Inserts<R> {
    /// Waits for room, and takes the memory of an acknowledged block when there is one.
    fn spare(&self) -> Result<Option<Block>, Error> {
        let mut state = lock(&self.state);
        while state.open >= self.room && state.failed.is_none() {
            state = self.wait(state);
        }
        if state.failed.is_some() { Err(failed()) } else { Ok(state.spare.pop()) }
    }

    fn push(&self, block: Block, receipt: R) {
        let mut state = lock(&self.state);
        state.open += 1;
        state.waiting.push_back((block, receipt));
        self.changed.notify_all();
    }

    /// Waits up to `limit` until every block handed in is acknowledged; says whether that is so.
    ///
    /// # Errors
    /// An insert has failed for good; [`Inserts::close`] says how.
    pub fn settle(&self, limit: Duration) -> Result<bool, Error> {
        let deadline = Instant::now() + limit;
        let mut state = lock(&self.state);
        loop {
            if state.failed.is_some() {
                return Err(failed());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.open == 0 || left.is_zero() {
                return Ok(state.open == 0);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the threads; blocks that wait are dropped.
    ///
    /// # Errors
    /// What failed an insert for good.
    pub fn close(&self) -> Result<(), Error> {
        lock(&self.state).closed = true;
        self.changed.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // A sender that panicked has failed its block; there is nothing more to learn from it.
            drop(thread.join());
        }
        lock(&self.state).failed.take().map_or(Ok(()), Err)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<R>>) -> MutexGuard<'a, State<R>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// The next block to send; `None` when there is nothing more to do.
    fn next(&self) -> Option<(Block, R)> {
        let mut state = lock(&self.state);
        loop {
            if state.closed || state.failed.is_some() {
                return None;
            }
            if let Some(next) = state.waiting.pop_front() {
                return Some(next);
            }
            state = self.wait(state);
        }
    }

    fn done(&self, outcome: Result<Block, Error>) {
        let mut state = lock(&self.state);
        match outcome {
            Ok(block) => {
                state.open -= 1;
                state.spare.push(block);
            }
            Err(error) => state.failed = state.failed.take().or(Some(error)),
        }
        self.changed.notify_all();
    }

    fn closed(&self) -> bool {
        let state = lock(&self.state);
        state.closed || state.failed.is_some()
    }
}

fn failed() -> Error {
    Error::sink("an insert has failed", "")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection and the thread that uses it.
struct Sender {
    connection: Connection,
    host: String,
    headers: String,
    path: String,
    retry_for: Duration,
    token: String,
    sent: u64,
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Sender {
    fn run<R>(&mut self, inserts: &Inserts<R>, acknowledged: &(impl Fn(R) + ?Sized)) {
        while let Some((block, receipt)) = inserts.next() {
            let outcome = self.insert(&block, inserts);
            if outcome.is_ok() {
                acknowledged(receipt);
            }
            inserts.done(outcome.map(|()| block));
        }
    }

    /// Sends the block until ClickHouse has it: the same bytes under the same token every time.
    fn insert<R>(&mut self, block: &Block, inserts: &Inserts<R>) -> Result<(), Error> {
        self.sent += 1;
        let path = format!("{}{}-{}", self.path, self.token, self.sent);
        let slices: Vec<IoSlice> = block.slices();
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let error = match self.connection.post(&path, &self.headers, &slices) {
                Ok(response) if response.status == 200 && response.exception.is_none() => return Ok(()),
                Ok(response) if !worth_retrying(&response) => return Err(refused("an insert", &response)),
                Ok(response) => refused("an insert", &response),
                Err(error) => unreachable_error(&self.host, &error),
            };
            if started.elapsed() + pause > self.retry_for || inserts.closed() {
                return Err(error);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Whether the same insert may succeed later: the server is overloaded, restarting or cut off from its peers.
fn worth_retrying(response: &Response) -> bool {
    match response.exception {
        // TIMEOUT_EXCEEDED, TOO_MANY_SIMULTANEOUS_QUERIES, SOCKET_TIMEOUT, NETWORK_ERROR, ABORTED, MEMORY_LIMIT_EXCEEDED,
        // TABLE_IS_READ_ONLY, TOO_MANY_PARTS, TOO_FEW_LIVE_REPLICAS, UNKNOWN_STATUS_OF_INSERT, CANNOT_SCHEDULE_TASK,
        // KEEPER_EXCEPTION.
        Some(159 | 202 | 209 | 210 | 236 | 241 | 242 | 252 | 285 | 319 | 439 | 999) => true,
        Some(_) => false,
        None => matches!(response.status, 408 | 429 | 502..=504),
    }
}

#[cfg(test)]
mod tests;

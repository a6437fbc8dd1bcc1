//! A compiled query as the steps that run it: what the SQL front hands to the flow.
//!
//! A [`Plan`] is a tree of [`Node`]s. Leaves read inputs; what stands directly above a leaf runs on the workers, in
//! parallel, over decoded batches. Aggregates and interval joins keep state; what stands above them runs over their
//! output. Every instant and length of time is in microseconds. Columns are named by their index in the batch that
//! reaches a node; an expression has become a column of a [`Step::Transform`] before a node reads it.

use arrow::datatypes::{DataType, SchemaRef};

use crate::read::ReadPlan;
use crate::sql::Transform;

/// A compiled query.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Streams and tables that are read, in order of their first naming; a stream read twice is there twice.
    pub inputs: Vec<Input>,
    /// What makes the rows.
    pub root: Node,
    /// Schema of the rows that reach the sink. Strings are `Dictionary(Int32, Utf8)`.
    pub output: SchemaRef,
    /// Output columns that name a row for good: those of the topmost GROUP BY with its window. Empty when rows are only
    /// appended, or when the SELECT leaves one of them out.
    pub upsert_key: Vec<usize>,
    /// The most rows that are wanted.
    pub limit: Option<u64>,
}

impl Plan {
    /// Whether rows depend on rows before them: an aggregate or a join of streams.
    #[must_use]
    pub fn keeps_state(&self) -> bool {
        fn keeps(node: &Node) -> bool {
            match node {
                Node::Source { .. } => false,
                Node::Aggregate { .. } | Node::Join { .. } => true,
                Node::Union { inputs, .. } => inputs.iter().any(keeps),
            }
        }
        keeps(&self.root)
    }
}

/// A stream or a table.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its name in [`crate::sql::SourceSchema`].
    pub name: String,
    /// How it is read.
    pub role: Role,
    /// The leaves the query reads of a record.
    pub reads: ReadPlan,
}

/// How an input is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Record by record, as they come.
    Stream,
    /// Whole, before the first record of a stream.
    Table,
}

/// What makes rows.
#[derive(Debug, Clone)]
pub enum Node {
    /// The records of an input.
    Source {
        /// Index in [`Plan::inputs`].
        input: usize,
        /// Event time of every decoded row, filtered or not: one column of `Timestamp(Microsecond)`. None when nothing above
        /// keeps time.
        clock: Option<Box<Transform>>,
        /// What happens to decoded batches, on the workers.
        steps: Vec<Step>,
    },
    /// Groups.
    Aggregate {
        /// Where rows come from.
        input: Box<Node>,
        /// The grouping.
        aggregate: Aggregate,
        /// What happens to its output: HAVING, the SELECT's expressions.
        steps: Vec<Step>,
    },
    /// Pairs of rows of two streams that lie close in time.
    Join {
        /// Left rows.
        left: Box<Node>,
        /// Right rows.
        right: Box<Node>,
        /// What pairs them.
        join: IntervalJoin,
        /// What happens to the pairs.
        steps: Vec<Step>,
    },
    /// The rows of several nodes of one schema (UNION ALL).
    Union {
        /// The nodes.
        inputs: Vec<Node>,
        /// What happens to their rows.
        steps: Vec<Step>,
    },
}

/// What happens to a batch on its own.
#[derive(Debug, Clone)]
pub enum Step {
    /// Filter and project.
    Transform(Box<Transform>),
    /// Add the columns of a table.
    Lookup(Lookup),
}

/// A grouping.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// The window of the GROUP BY.
    pub window: Window,
    /// Schema of the rows that reach it.
    pub input: SchemaRef,
    /// Event time, `Timestamp(Microsecond)`; there when there is a window.
    pub time: Option<usize>,
    /// Columns of the GROUP BY without the window, in its order.
    pub keys: Vec<usize>,
    /// Aggregates, without repetition.
    pub calls: Vec<Call>,
    /// Positions of rows in their source (`UInt64`), when a call depends on their order.
    pub position: Option<usize>,
    /// With a window: `window_start`, `window_end`, both nullable timestamps. Then the keys, then the calls. Rows of one
    /// window are in the order of the keys, nulls last.
    pub schema: SchemaRef,
}

/// A window of a GROUP BY. Windows begin at multiples of their slide from 2000-01-03, moved by `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// None: one group per key, for all time.
    None,
    /// `TUMBLE(ts, size[, offset])`.
    Tumble {
        /// Length.
        size: i64,
        /// Shift of every window's start.
        offset: i64,
    },
    /// `HOP(ts, slide, size[, offset])`: a row is in every window that covers it.
    Hop {
        /// Distance between the starts of two windows.
        slide: i64,
        /// Length.
        size: i64,
        /// Shift of every window's start.
        offset: i64,
    },
    /// `SESSION(ts, gap)`: rows whose distance is at most `gap`. It starts with its first row and ends with its last.
    Session {
        /// The gap.
        gap: i64,
    },
}

/// One aggregate of a grouping.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What is computed.
    pub function: Function,
    /// Argument columns.
    pub args: Vec<usize>,
    /// `FILTER (WHERE …)`: a boolean column; rows that are not true do not count.
    pub filter: Option<usize>,
    /// DISTINCT: of count, sum, avg, string_agg and array_agg; it makes no difference to the others and is off there.
    pub distinct: bool,
    /// Type of the result.
    pub data_type: DataType,
}

/// What an aggregate computes. Nulls do not count, except in `count(*)`, `first`, `last` and `array_agg`.
#[derive(Debug, Clone, PartialEq)]
pub enum Function {
    /// `count(*)`: no argument; `count(x)`: one. `Int64`, never null.
    Count,
    /// Integers: exact, `Decimal128(38, 0)`. Doubles: the exact sum, rounded once.
    Sum,
    /// The exact sum divided by the count, a double.
    Avg,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Of the row with the lowest position.
    First,
    /// Of the row with the highest position.
    Last,
    /// `any_value`: the first that is not null.
    AnyValue,
    /// `arg_min(value, by)`: the value where `by` is smallest, of the row with the lowest position among equals.
    ArgMin,
    /// `arg_max(value, by)`.
    ArgMax,
    /// Population variance.
    VarPop,
    /// Sample variance, null below two values.
    VarSamp,
    /// Population standard deviation.
    StddevPop,
    /// Sample standard deviation, null below two values.
    StddevSamp,
    /// Whether all are true.
    BoolAnd,
    /// Whether one is true.
    BoolOr,
    /// `approx_distinct`: an estimate of the number of distinct values, `Int64`.
    ApproxDistinct,
    /// `approx_percentile(x, q)`: an estimate within 0.5 % of a value of rank `q`, a double.
    ApproxPercentile(f64),
    /// `string_agg(x, separator)`, in the order of positions.
    StringAgg(String),
    /// `array_agg(x)`, in the order of positions.
    ArrayAgg,
}

/// Pairs `left` and `right` where the keys are equal (null equals nothing) and `lower ≤ right time − left time ≤ upper`.
#[derive(Debug, Clone)]
pub struct IntervalJoin {
    /// Which rows without a partner stay.
    pub kind: JoinKind,
    /// Schema of the left rows.
    pub left: SchemaRef,
    /// Schema of the right rows.
    pub right: SchemaRef,
    /// Key columns of the left rows; may be empty.
    pub left_keys: Vec<usize>,
    /// Key columns of the right rows, of the same types.
    pub right_keys: Vec<usize>,
    /// Event time of the left rows.
    pub left_time: usize,
    /// Event time of the right rows.
    pub right_time: usize,
    /// Least distance.
    pub lower: i64,
    /// Greatest distance.
    pub upper: i64,
    /// Positions of the left rows (`UInt64`).
    pub left_position: usize,
    /// Positions of the right rows.
    pub right_position: usize,
    /// What else must hold for a pair, over `schema`: a transform with one boolean output.
    pub condition: Option<Box<Transform>>,
    /// The left rows' columns, then the right rows'; the columns of a side that may have no partner are nullable.
    pub schema: SchemaRef,
}

/// Which rows without a partner a join keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// None.
    Inner,
    /// Left ones.
    Left,
    /// Right ones.
    Right,
    /// All.
    Full,
}

/// A join with a table that is held whole.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// Index of the table in [`Plan::inputs`].
    pub table: usize,
    /// What happens to the table's decoded rows first.
    pub prepare: Option<Box<Transform>>,
    /// Whether rows without a match stay (LEFT) or go (INNER).
    pub keep: bool,
    /// Equal columns: of the stream, of the prepared table. Null equals nothing.
    pub keys: Vec<(usize, usize)>,
    /// ASOF: of the table's rows with equal keys, the one closest in this.
    pub closest: Option<Closest>,
    /// The stream's columns, then the prepared table's.
    pub schema: SchemaRef,
}

/// The inequality of an ASOF join: `stream >= table` and its like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closest {
    /// The stream's column.
    pub stream: usize,
    /// The prepared table's column.
    pub table: usize,
    /// Of the comparison, read from the stream's side.
    pub comparison: Comparison,
}

/// A comparison that has a closest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `stream >= table`: the last that is not later.
    NotBefore,
    /// `stream > table`.
    After,
    /// `stream <= table`: the first that is not earlier.
    NotAfter,
    /// `stream < table`.
    Before,
}

/// Name of the column that [`ReadPlan::position`] adds: the place of the row's record in its source (`UInt64`, never null),
/// ascending within a partition and unique over the source. The rows of one unnested record share it.
pub const POSITION: &str = "\u{0}position";

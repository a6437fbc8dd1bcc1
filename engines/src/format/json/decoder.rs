//! The decoder: one pass over a record, reading the members the query names.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::columns::{Column, Taken};
use super::cursor::{Cursor, Fault};
use super::infer::JsonSchema;
use super::layout::Layouts;
use super::word::ROOM;
use crate::read::{Decoder, ReadPlan, RecordError};

/// Longest text of a value in a message.
const SHOWN: usize = 60;

/// Decodes JSON records into the columns of a [`ReadPlan`].
#[derive(Debug)]
pub struct JsonDecoder {
    nodes: Vec<Node>,
    state: State,
    schema: SchemaRef,
    /// Path of every column, for messages.
    paths: Vec<String>,
    types: Vec<DataType>,
    unnest: bool,
    /// What records before looked like; none when a record is not always one row, or a member goes to two places.
    pub(super) layouts: Option<Layouts>,
    /// A record with room behind it.
    padded: Vec<u8>,
}

/// A column whose type JSON values are not decoded into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is of type {data_type}, which JSON values are not read as")]
pub struct Unreadable {
    /// Path of the column.
    pub path: String,
    /// Its type.
    pub data_type: DataType,
}

/// The members of an object that are read.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) members: Vec<(Vec<u8>, Target)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Column(usize),
    Object(usize),
    /// The list that is unnested; its elements are read as this.
    List(Element),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Object(usize),
    Column(usize),
    /// Nothing of the elements is read, only how many there are.
    Nothing,
}

#[derive(Debug)]
struct State {
    columns: Vec<Column>,
    /// Columns of the record, and those of the unnested list's element.
    of_record: Vec<usize>,
    of_element: Vec<usize>,
    /// The record in which an object was last entered, so that a second one of the same name does not count.
    entered: Vec<u64>,
    /// The member found last in an object: members mostly come in the same order.
    hints: Vec<usize>,
    record: u64,
    listed: u64,
    elements: usize,
    rows: usize,
    scratch: Vec<u8>,
}

/// Why a record stops.
enum Stop {
    Fault(Fault),
    Misfit { column: Option<usize>, node: &'static str, from: usize, to: usize },
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl JsonDecoder {
    /// A decoder for the leaves of `plan`.
    ///
    /// # Errors
    /// A leaf's type is one JSON values are not read as.
    pub fn new(plan: &ReadPlan, schema: &JsonSchema) -> Result<Self, Unreadable> {
        let unnest = plan.unnest.as_deref();
        let mut nodes = vec![Node::default()];
        let element = unnest.map(|path| add_list(&mut nodes, path, plan));
        let mut columns = Vec::with_capacity(plan.columns.len());
        for (index, column) in plan.columns.iter().enumerate() {
            let full: Vec<String> = match (column.of_element, unnest) {
                (true, Some(list)) => list.iter().chain(&column.path).cloned().collect(),
                _ => column.path.clone(),
            };
            let any = schema.takes_any(&full);
            columns.push(Column::new(&column.data_type, any).ok_or_else(|| Unreadable {
                path: column.display_path(unnest),
                data_type: column.data_type.clone(),
            })?);
            match (column.of_element, element) {
                (true, Some(Element::Object(node))) => add_leaf(&mut nodes, node, &column.path, index),
                (true, _) => {}
                (false, _) => add_leaf(&mut nodes, 0, &column.path, index),
            }
        }
        let group = |of_element: bool| {
            plan.columns
                .iter()
                .enumerate()
                .filter(move |(_, c)| c.of_element == of_element)
                .map(|(i, _)| i)
                .collect::<Vec<_>>()
        };
        let state = State {
            columns,
            of_record: group(false),
            of_element: group(true),
            entered: vec![0; nodes.len()],
            hints: vec![0; nodes.len()],
            record: 0,
            listed: 0,
            elements: 0,
            rows: 0,
            scratch: Vec::new(),
        };
        let paths = plan.columns.iter().map(|c| c.display_path(unnest)).collect();
        let types = plan.columns.iter().map(|c| c.data_type.clone()).collect();
        let plain = unnest.is_none() && nodes.iter().all(Node::is_plain);
        Ok(Self {
            nodes,
            state,
            schema: plan.schema(),
            paths,
            types,
            unnest: unnest.is_some(),
            layouts: plain.then(Layouts::default),
            padded: Vec::new(),
        })
    }

    /// Appends the record of the line that begins at `at` as one row, when it is laid out like one before it, and says where
    /// the next line begins. Nothing else is done otherwise: the line is for [`JsonDecoder::decode_anew`]. A line is looked at
    /// only where `text` goes on for [`JsonDecoder::MARGIN`] bytes behind it.
    #[inline]
    pub fn follow(&mut self, text: &[u8], at: usize) -> Option<usize> {
        let state = &mut self.state;
        let layouts = self.layouts.as_mut()?;
        let end = layouts.read(text, at, &mut state.columns, state.rows, &mut state.scratch)?;
        state.rows += 1;
        Some(end + 1)
    }

    /// Bytes behind a line that let [`JsonDecoder::follow`] read it.
    pub const MARGIN: usize = ROOM;

    /// As [`Decoder::decode`], whatever the records before looked like.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode_anew(&mut self, payload: &[u8]) -> Result<usize, RecordError> {
        let rows = self.parse(payload)?;
        if let Some(layouts) = &mut self.layouts {
            layouts.learn(&self.nodes, self.state.columns.len(), payload);
        }
        Ok(rows)
    }

    fn describe(&self, record: &[u8], stop: &Stop) -> RecordError {
        match *stop {
            Stop::Fault(Fault { what, at }) => {
                RecordError::Malformed { format: "JSON", reason: format!("{what}, at byte {}", at + 1) }
            }
            Stop::Misfit { column, node, from, to } => {
                let text = String::from_utf8_lossy(&record[from..to]);
                let mut shown: String = text.chars().take(SHOWN).collect();
                if shown.len() < text.len() {
                    shown.push('…');
                }
                let (field, expected) = match column {
                    Some(index) => (self.paths[index].clone(), sql_name(&self.types[index])),
                    None => ("of a record".to_owned(), node.to_owned()),
                };
                RecordError::Misfit { field, text: shown, expected }
            }
        }
    }
}

/// The path to the unnested list, and how its elements are read.
fn add_list(nodes: &mut Vec<Node>, path: &[String], plan: &ReadPlan) -> Element {
    let whole = plan.columns.iter().position(|c| c.of_element && c.path.is_empty());
    let element = match whole {
        Some(column) => Element::Column(column),
        None if plan.columns.iter().any(|c| c.of_element) => {
            nodes.push(Node::default());
            Element::Object(nodes.len() - 1)
        }
        None => Element::Nothing,
    };
    if let Some((last, parents)) = path.split_last() {
        let node = parents.iter().fold(0, |node, name| child(nodes, node, name));
        nodes[node].members.push((last.as_bytes().to_vec(), Target::List(element)));
    }
    element
}

fn add_leaf(nodes: &mut Vec<Node>, root: usize, path: &[String], column: usize) {
    if let Some((last, parents)) = path.split_last() {
        let node = parents.iter().fold(root, |node, name| child(nodes, node, name));
        nodes[node].members.push((last.as_bytes().to_vec(), Target::Column(column)));
    }
}

fn child(nodes: &mut Vec<Node>, node: usize, name: &str) -> usize {
    let known = nodes[node].members.iter().find_map(|(key, target)| match target {
        Target::Object(child) if key == name.as_bytes() => Some(*child),
        _ => None,
    });
    known.unwrap_or_else(|| {
        nodes.push(Node::default());
        let child = nodes.len() - 1;
        nodes[node].members.push((name.as_bytes().to_vec(), Target::Object(child)));
        child
    })
}

impl Node {
    /// Whether every member has a name of its own.
    fn is_plain(&self) -> bool {
        let members = &self.members;
        (1..members.len()).all(|at| members[..at].iter().all(|(name, _)| *name != members[at].0))
    }

    /// The member of this name, looked for first behind the one found last.
    #[inline]
    fn find(&self, key: &[u8], hint: &mut usize) -> Option<Target> {
        let count = self.members.len();
        for step in 0..count {
            let at = *hint + step;
            let at = if at >= count { at - count } else { at };
            let (name, target) = &self.members[at];
            if name == key {
                *hint = if at + 1 == count { 0 } else { at + 1 };
                return Some(*target);
            }
        }
        None
    }
}

impl State {
    /// Reads an object into the columns of a node. `row` is the row being filled.
    fn object(&mut self, nodes: &[Node], node: usize, cursor: &mut Cursor, row: usize) -> Result<(), Stop> {
        if cursor.null()? {
            return Ok(());
        }
        if cursor.peek() != b'{' {
            let (from, to) = cursor.skip()?;
            return Err(Stop::Misfit { column: None, node: "an object", from, to });
        }
        cursor.at += 1;
        if cursor.peek() == b'}' {
            cursor.at += 1;
            return Ok(());
        }
        loop {
            let key = cursor.key()?;
            let target = if key.escaped {
                self.scratch.clear();
                cursor.unescape(key, &mut self.scratch)?;
                nodes[node].find(&self.scratch, &mut self.hints[node])
            } else {
                nodes[node].find(&cursor.bytes[key.from..key.to], &mut self.hints[node])
            };
            match target {
                None => {
                    cursor.skip()?;
                }
                Some(target) => self.member(nodes, target, cursor, row)?,
            }
            match cursor.peek() {
                b',' => cursor.at += 1,
                b'}' => {
                    cursor.at += 1;
                    return Ok(());
                }
                _ => return Err(Stop::Fault(Fault { what: "expected , or }", at: cursor.at })),
            }
        }
    }

    fn member(&mut self, nodes: &[Node], target: Target, cursor: &mut Cursor, row: usize) -> Result<(), Stop> {
        match target {
            Target::Column(column) => self.value(column, cursor, row),
            Target::Object(child) => {
                // Within an unnested list the same object is entered once per element.
                let visit = self.record << 24 | (row as u64 & 0xff_ffff);
                if std::mem::replace(&mut self.entered[child], visit) == visit {
                    cursor.skip()?;
                    return Ok(());
                }
                self.object(nodes, child, cursor, row)
            }
            Target::List(element) => {
                if std::mem::replace(&mut self.listed, self.record) == self.record {
                    cursor.skip()?;
                    return Ok(());
                }
                self.list(nodes, element, cursor)
            }
        }
    }

    #[inline]
    fn value(&mut self, column: usize, cursor: &mut Cursor, row: usize) -> Result<(), Stop> {
        if self.columns[column].len() > row {
            cursor.skip()?;
            return Ok(());
        }
        match self.columns[column].read(cursor, &mut self.scratch)? {
            Taken::Yes => Ok(()),
            Taken::Misfit => {
                let (from, to) = cursor.skip()?;
                Err(Stop::Misfit { column: Some(column), node: "", from, to })
            }
        }
    }

    /// Reads the unnested list: a row per element.
    fn list(&mut self, nodes: &[Node], element: Element, cursor: &mut Cursor) -> Result<(), Stop> {
        if cursor.null()? {
            return Ok(());
        }
        if cursor.peek() != b'[' {
            let (from, to) = cursor.skip()?;
            return Err(Stop::Misfit { column: None, node: "a list", from, to });
        }
        cursor.at += 1;
        if cursor.peek() == b']' {
            cursor.at += 1;
            return Ok(());
        }
        loop {
            let row = self.rows + self.elements;
            match element {
                Element::Object(node) => self.object(nodes, node, cursor, row)?,
                Element::Column(column) => self.value(column, cursor, row)?,
                Element::Nothing => {
                    cursor.skip()?;
                }
            }
            fill(&mut self.columns, &self.of_element, row);
            self.elements += 1;
            match cursor.peek() {
                b',' => cursor.at += 1,
                b']' => {
                    cursor.at += 1;
                    return Ok(());
                }
                _ => return Err(Stop::Fault(Fault { what: "expected , or ]", at: cursor.at })),
            }
        }
    }
}

/// Null for every column of a group that has no value for `row` yet.
#[inline]
fn fill(columns: &mut [Column], group: &[usize], row: usize) {
    for &index in group {
        if columns[index].len() == row {
            columns[index].push_null();
        }
    }
}

impl JsonDecoder {
    fn record(&mut self, payload: &[u8]) -> Result<(), Stop> {
        if let Err(error) = std::str::from_utf8(payload) {
            return Err(Stop::Fault(Fault { what: "not UTF-8", at: error.valid_up_to() }));
        }
        let mut cursor = Cursor::new(payload);
        if cursor.peek() != b'{' {
            return Err(Stop::Fault(Fault { what: "a record is an object in braces", at: cursor.at }));
        }
        let row = self.state.rows;
        self.state.object(&self.nodes, 0, &mut cursor, row)?;
        cursor.end()?;
        Ok(())
    }
}

impl JsonDecoder {
    fn parse(&mut self, payload: &[u8]) -> Result<usize, RecordError> {
        self.state.record += 1;
        self.state.elements = 0;
        let before = self.state.rows;
        if let Err(stop) = self.record(payload) {
            self.state.columns.iter_mut().for_each(|c| c.truncate(before));
            return Err(self.describe(payload, &stop));
        }
        let state = &mut self.state;
        fill(&mut state.columns, &state.of_record, before);
        let rows = if self.unnest { state.elements } else { 1 };
        if rows != 1 {
            for &index in &state.of_record {
                if rows == 0 {
                    state.columns[index].truncate(before);
                } else {
                    state.columns[index].repeat_last(before + rows);
                }
            }
        }
        state.rows += rows;
        Ok(rows)
    }

    /// As [`JsonDecoder::follow`], of a record on its own.
    fn follow_alone(&mut self, payload: &[u8]) -> bool {
        if self.layouts.is_none() {
            return false;
        }
        let mut padded = std::mem::take(&mut self.padded);
        padded.clear();
        padded.extend_from_slice(payload);
        padded.push(b'\n');
        padded.resize(padded.len() + ROOM, 0);
        let before = self.state.rows;
        let followed = self.follow(&padded, 0);
        self.padded = padded;
        match followed {
            Some(end) if end == payload.len() + 1 => true,
            Some(_) => {
                // The record goes on behind a line break.
                self.state.rows = before;
                self.state.columns.iter_mut().for_each(|c| c.truncate(before));
                false
            }
            None => false,
        }
    }
}

impl Decoder for JsonDecoder {
    fn decode(&mut self, payload: &[u8]) -> Result<usize, RecordError> {
        if self.follow_alone(payload) { Ok(1) } else { self.decode_anew(payload) }
    }

    fn rows(&self) -> usize {
        self.state.rows
    }

    fn take(&mut self) -> RecordBatch {
        let rows = std::mem::take(&mut self.state.rows);
        let arrays = self.state.columns.iter_mut().map(Column::take).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .expect("every column has a value per row, of the type its plan says")
    }
}

/// A type as SQL writes it.
pub(in crate::format) fn sql_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Int64 => "BIGINT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Timestamp(..) => "TIMESTAMP".into(),
        DataType::Dictionary(..) => "VARCHAR".into(),
        DataType::List(item) => format!("a list of {}", sql_name(item.data_type())),
        other => other.to_string(),
    }
}

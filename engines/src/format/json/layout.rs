//! The layout of a record: the text between its values, and what each value is read into.
//!
//! Records of one source mostly differ in nothing but their values. A record is compared with the text between the values of
//! one that the general parser has read; at the first difference it is left to the general parser, which says what it is.

use super::columns::Column;
use super::cursor::{Cursor, Fault, Parsed};
use super::decoder::{Node, Target};
use super::word::{self, ROOM};

/// Most values of a record whose layout is kept.
const VALUES: usize = 512;
/// Layouts that are kept.
const KEPT: usize = 4;
/// Records after which it is judged whether layouts help, and the least share of them that must have been read by one.
const JUDGED: u32 = 256;
const SHARE: u32 = 4;
/// Records that pass without a trial when layouts do not help.
const REST: u32 = 8192;

/// The layouts of the records before.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    kept: Vec<Layout>,
    /// The one that has fitted last.
    last: usize,
    /// The one that gives way to the next new one.
    next: usize,
    tried: u32,
    fitted: u32,
    /// Records that are not tried any more.
    rest: u32,
    /// Records of no known layout that pass before one is learnt from, and that number after the last.
    wait: u32,
    waited: u32,
}

/// One layout.
#[derive(Debug)]
struct Layout {
    parts: Vec<Part>,
    tail: Literal,
    /// All text between values.
    text: Vec<u8>,
    /// Columns that the record has no value for.
    absent: Vec<usize>,
}

#[derive(Debug)]
struct Part {
    before: Literal,
    value: Value,
}

/// What a value is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Column(usize),
    PassString,
    PassNumber,
    Pass,
}

/// Text that must be there.
#[derive(Debug, Clone, Copy)]
struct Literal {
    /// Its first 16 bytes, and which of them there are.
    word: u128,
    mask: u128,
    from: usize,
    length: usize,
}

impl Layouts {
    /// Reads the record at `at` as one row, when its layout is known and a line break follows it; says where that is.
    /// Otherwise the columns are as they were.
    #[inline]
    pub(super) fn read(
        &mut self,
        text: &[u8],
        at: usize,
        columns: &mut [Column],
        row: usize,
        scratch: &mut Vec<u8>,
    ) -> Option<usize> {
        if self.rest > 0 || self.kept.is_empty() {
            self.rest = self.rest.saturating_sub(1);
            return None;
        }
        self.tried += 1;
        let count = self.kept.len();
        for step in 0..count {
            let index = (self.last + step) % count;
            let end = self.kept[index].read(text, at, columns, scratch);
            if let Some(end) = end.filter(|end| text.get(*end) == Some(&b'\n')) {
                self.last = index;
                self.fitted += 1;
                return Some(end);
            }
            columns.iter_mut().for_each(|column| column.truncate(row));
        }
        if self.tried >= JUDGED {
            if self.fitted < self.tried / SHARE {
                self.rest = REST;
            }
            (self.tried, self.fitted) = (0, 0);
        }
        None
    }

    /// Takes note of a record that the general parser has read.
    pub(super) fn learn(&mut self, nodes: &[Node], columns: usize, record: &[u8]) {
        if self.rest > 0 {
            return;
        }
        if self.wait > 0 {
            self.wait -= 1;
            return;
        }
        // New layouts are worth less and less.
        self.waited = if self.kept.len() < KEPT { 0 } else { (self.waited * 2 + 1).min(REST) };
        self.wait = self.waited;
        let Some(layout) = Layout::of(nodes, columns, record) else { return };
        if self.kept.len() < KEPT {
            self.kept.push(layout);
            self.last = self.kept.len() - 1;
        } else {
            self.kept[self.next] = layout;
            self.last = self.next;
            self.next = (self.next + 1) % KEPT;
        }
    }
}

impl Layout {
    fn of(nodes: &[Node], columns: usize, record: &[u8]) -> Option<Self> {
        let mut learner = Learner {
            nodes,
            cursor: Cursor::new(record),
            from: 0,
            layout: Self { parts: vec![], tail: Literal::new(b"", 0), text: vec![], absent: vec![] },
            given: vec![false; columns],
            entered: vec![false; nodes.len()],
        };
        learner.cursor.peek();
        if !learner.object(0).ok()? {
            return None;
        }
        let mut layout = learner.layout;
        layout.tail = Literal::new(&record[learner.from..], layout.text.len());
        layout.text.extend_from_slice(&record[learner.from..]);
        layout.absent = (0..columns).filter(|column| !learner.given[*column]).collect();
        Some(layout)
    }

    #[inline]
    fn read(&self, text: &[u8], at: usize, columns: &mut [Column], scratch: &mut Vec<u8>) -> Option<usize> {
        let mut at = at;
        for part in &self.parts {
            at = part.before.pass(text, at, &self.text)?;
            at = match part.value {
                Value::Column(column) => columns[column].quick(text, at, scratch)?,
                Value::PassString if text[at] == b'"' => match word::pass_string(text, at + 1) {
                    Some(quote) => quote + 1,
                    None => pass(text, at)?,
                },
                Value::PassNumber => match word::pass_number(text, at) {
                    Some(end) => end,
                    None => pass(text, at)?,
                },
                Value::PassString | Value::Pass => pass(text, at)?,
            };
        }
        at = self.tail.pass(text, at, &self.text)?;
        for column in &self.absent {
            columns[*column].push_null();
        }
        Some(at)
    }
}

/// Passes any value with the general parser.
#[inline(never)]
fn pass(text: &[u8], at: usize) -> Option<usize> {
    let mut cursor = Cursor { bytes: line(text, at), at };
    let (_, end) = cursor.skip().ok()?;
    std::str::from_utf8(&text[at..end]).ok()?;
    Some(end)
}

/// The text up to the end of the line that `at` is in.
pub(super) fn line(text: &[u8], at: usize) -> &[u8] {
    &text[..memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |length| at + length)]
}

impl Literal {
    /// `text` as it will stand at `from` among all text.
    fn new(text: &[u8], from: usize) -> Self {
        let mut first = [0; 16];
        let length = text.len().min(16);
        first[..length].copy_from_slice(&text[..length]);
        let mask = if length == 16 { u128::MAX } else { (1 << (8 * length)) - 1 };
        Self { word: u128::from_le_bytes(first), mask, from, length: text.len() }
    }

    /// Passes the text when it stands at `at`, with room for a value behind it.
    #[inline(always)]
    fn pass(&self, text: &[u8], at: usize, all: &[u8]) -> Option<usize> {
        let end = at + self.length;
        if text.len() < end + ROOM {
            return None;
        }
        let found = text[at..at + 16].first_chunk().map(|chunk| u128::from_le_bytes(*chunk))?;
        let same = found & self.mask == self.word
            && (self.length <= 16 || text[at + 16..end] == all[self.from + 16..self.from + self.length]);
        same.then_some(end)
    }
}

struct Learner<'a> {
    nodes: &'a [Node],
    cursor: Cursor<'a>,
    /// Behind the last value.
    from: usize,
    layout: Layout,
    /// Columns that have their value.
    given: Vec<bool>,
    /// Objects that were entered.
    entered: Vec<bool>,
}

impl Learner<'_> {
    /// Goes through an object that is read; false when its layout cannot be followed.
    fn object(&mut self, node: usize) -> Parsed<bool> {
        if self.cursor.null()? {
            return Ok(true);
        }
        self.cursor.expect(b'{', "expected {")?;
        if self.cursor.peek() == b'}' {
            self.cursor.at += 1;
            return Ok(true);
        }
        loop {
            let key = self.cursor.key()?;
            let mut name = Vec::new();
            self.cursor.unescape(key, &mut name)?;
            let target = self.nodes[node].members.iter().find(|(member, _)| *member == name).map(|(_, target)| *target);
            let next = self.cursor.peek();
            match target {
                Some(Target::List(_)) => return Ok(false),
                Some(Target::Column(column)) if !self.given[column] => {
                    self.given[column] = true;
                    self.value(Value::Column(column))?;
                }
                Some(Target::Object(child)) if !self.entered[child] => {
                    self.entered[child] = true;
                    if !self.object(child)? {
                        return Ok(false);
                    }
                }
                _ => self.value(match next {
                    b'"' => Value::PassString,
                    b'-' | b'0'..=b'9' => Value::PassNumber,
                    _ => Value::Pass,
                })?,
            }
            match self.cursor.peek() {
                b',' => self.cursor.at += 1,
                b'}' => {
                    self.cursor.at += 1;
                    return Ok(self.layout.parts.len() <= VALUES);
                }
                _ => return Err(Fault { what: "expected , or }", at: self.cursor.at }),
            }
        }
    }

    fn value(&mut self, value: Value) -> Parsed<()> {
        let before = &self.cursor.bytes[self.from..self.cursor.at];
        let literal = Literal::new(before, self.layout.text.len());
        self.layout.text.extend_from_slice(before);
        self.layout.parts.push(Part { before: literal, value });
        self.cursor.skip()?;
        self.from = self.cursor.at;
        Ok(())
    }
}

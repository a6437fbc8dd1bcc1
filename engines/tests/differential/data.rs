//! Generated rows, written as people write JSON: members in any order, absent or null, with and without escapes.

use std::fmt::Write as _;

use super::random::Random;

/// Microseconds that a row may come behind the rows before it.
pub(crate) const DISORDER: i64 = 20_000_000;

const TEXTS: &[&str] =
    &["a", "b", "c", "", "null", "ü", "日本", "🐧", "it's", "say \"hi\"", "x y", "A", "back\\slash", "a\tb"];

/// Columns of the first stream, for DuckDB.
pub(crate) const EVENTS: &str = "{id: 'BIGINT', k: 'VARCHAR', g: 'BIGINT', v: 'BIGINT', big: 'BIGINT', d: 'DOUBLE', \
     b: 'BOOLEAN', p: 'BIGINT', ts: 'TIMESTAMP'}";
/// Those of the second stream.
pub(crate) const OTHER: &str = "{oid: 'BIGINT', k: 'VARCHAR', w: 'BIGINT', ts: 'TIMESTAMP'}";
/// Those of the table.
pub(crate) const NAMES: &str = "{k: 'VARCHAR', name: 'VARCHAR', ts: 'TIMESTAMP'}";

/// NDJSON of two streams and a table.
pub(crate) struct Data {
    pub(crate) events: String,
    pub(crate) other: String,
    pub(crate) names: String,
}

pub(crate) fn data(random: &mut Random) -> Data {
    let rows = match random.below(40) {
        0 => 20_000 + random.below(20_000),
        1 => 0,
        2 => 1,
        _ => 20 + random.below(180),
    };
    // Around a year that is before the epoch, around it, or far behind it.
    let begin = random.pick(&[-2_208_988_800_000_000, -100_000_000, 946_684_790_000_000, 1_772_323_199_000_000]);
    let step = random.pick(&[50_000, 1_000_000, 7_000_000]);
    let keys = 1 + random.below(TEXTS.len());
    let mut data = Data { events: events(random, rows, begin, step, keys), other: String::new(), names: String::new() };
    let others = rows.clamp(1, 300);
    for id in 0..others {
        let mut row = Row::new(random);
        row.number("oid", Some(id as i64));
        row.text("k", keys);
        let w = row.random.below(100) as i64 - 50;
        if id == 0 {
            // So that the field is there at all.
            row.number("w", Some(w));
        } else {
            row.sparse("w", w);
        }
        row.time("ts", begin + id as i64 * step);
        row.end(&mut data.other);
    }
    for id in 0..1 + random.below(30) {
        let mut row = Row::new(random);
        row.text("k", keys);
        let name = format!("n{id}");
        row.member("name", &quoted(&name));
        // No two alike: as of which row would be anyone's guess.
        row.member("ts", &quoted(&timestamp(begin + id as i64 * step * 5 + id as i64)));
        row.end(&mut data.names);
    }
    data
}

fn events(random: &mut Random, rows: usize, begin: i64, step: i64, keys: usize) -> String {
    let mut out = String::new();
    let mut time = begin;
    for id in 0..rows as i64 {
        let mut row = Row::new(random);
        let pause = if row.random.once_in(25) { step * 40 } else { 0 };
        time += row.random.below(2 * step as usize) as i64 + pause;
        row.number("id", Some(id));
        row.text("k", keys);
        let g = row.random.below(5) as i64 - 2;
        row.sparse("g", g);
        let v = row.random.below(2_000) as i64 - 1_000;
        row.sparse("v", v);
        let big = row.random.pick(&[i64::MAX, i64::MIN, i64::MAX - 1, 1 << 53, -(1 << 53) - 1, 0]);
        row.sparse("big", big);
        // Of such numbers every sum is exact.
        let d = (row.random.below(4_000) as f64 - 2_000.0) / 4.0;
        if !row.random.once_in(10) {
            row.member("d", &format!("{d:?}"));
        }
        let b = row.random.pick(&["true", "false", "null"]);
        row.member("b", b);
        row.number("p", Some(id * 7_919 % 100_003));
        row.time("ts", time);
        row.end(&mut out);
    }
    out
}

/// One object.
struct Row<'a> {
    random: &'a mut Random,
    members: Vec<String>,
}

impl<'a> Row<'a> {
    fn new(random: &'a mut Random) -> Self {
        Self { random, members: Vec::new() }
    }

    fn member(&mut self, name: &str, value: &str) {
        let blank = if self.random.once_in(12) { " " } else { "" };
        self.members.push(format!("\"{name}\":{blank}{value}"));
    }

    /// Nothing is absent or null.
    fn number(&mut self, name: &str, value: Option<i64>) {
        match value {
            Some(value) => self.member(name, &value.to_string()),
            None if self.random.once_in(2) => self.member(name, "null"),
            None => {}
        }
    }

    /// A number that is missing now and then.
    fn sparse(&mut self, name: &str, value: i64) {
        let value = (!self.random.once_in(10)).then_some(value);
        self.number(name, value);
    }

    fn text(&mut self, name: &str, keys: usize) {
        let text = TEXTS[self.random.below(keys)];
        match self.random.below(12) {
            0 => self.number(name, None),
            1 => {
                let mut escaped = String::from("\"");
                text.encode_utf16().for_each(|unit| write!(escaped, "\\u{unit:04x}").expect("text"));
                self.member(name, &(escaped + "\""));
            }
            _ => self.member(name, &quoted(text)),
        }
    }

    fn time(&mut self, name: &str, at: i64) {
        if self.random.once_in(30) {
            return self.number(name, None);
        }
        let early = if self.random.once_in(2) { self.random.below(DISORDER as usize) as i64 } else { 0 };
        let text = timestamp(at - early);
        let text = if self.random.once_in(20) { text.replace(' ', "T") + "Z" } else { text };
        self.member(name, &quoted(&text));
    }

    fn end(mut self, out: &mut String) {
        if self.random.once_in(10) {
            let by = self.random.below(self.members.len());
            self.members.rotate_left(by);
        }
        out.push('{');
        out.push_str(&self.members.join(","));
        out.push_str("}\n");
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text")
}

/// An instant as text, with as many digits of a second as it has.
fn timestamp(micros: i64) -> String {
    let (days, within) = (micros.div_euclid(86_400_000_000), micros.rem_euclid(86_400_000_000));
    // From days to a date, by the calendar's 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let (date, month) = (in_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + i64::from(month <= 2);
    let (seconds, fraction) = (within / 1_000_000, within % 1_000_000);
    let mut out =
        format!("{year:04}-{month:02}-{date:02} {:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if fraction > 0 {
        let digits = format!("{fraction:06}");
        write!(out, ".{}", digits.trim_end_matches('0')).expect("text");
    }
    out
}

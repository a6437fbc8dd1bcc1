//! Just enough SQL lexing to split an `INSERT` from its data, to find a `FORMAT` clause and to cut a script into
//! statements. Everything else is the engine's to parse.

use std::ops::Range;

/// A token's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Quoted,
    Symbol(u8),
}

/// A token and where it stands.
#[derive(Debug, Clone)]
struct Token {
    kind: Kind,
    range: Range<usize>,
}

/// Tokens of SQL text, comments and white space skipped. Stops at an unfinished string or comment.
struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn word(&self, token: &Token, keyword: &str) -> bool {
        token.kind == Kind::Word && self.text[token.range.clone()].eq_ignore_ascii_case(keyword.as_bytes())
    }

    /// Skips white space and comments; false at the end or inside an unfinished comment.
    fn advance(&mut self) -> bool {
        loop {
            let rest = &self.text[self.at..];
            let Some(&first) = rest.first() else { return false };
            if first.is_ascii_whitespace() || first == 0x0b {
                self.at += 1;
            } else if rest.starts_with(b"--") || rest.starts_with(b"#!") || rest.starts_with(b"# ") {
                match rest.iter().position(|&b| b == b'\n') {
                    Some(end) => self.at += end + 1,
                    None => return false,
                }
            } else if rest.starts_with(b"/*") {
                match rest.windows(2).position(|pair| pair == b"*/") {
                    Some(end) => self.at += end + 2,
                    None => return false,
                }
            } else {
                return true;
            }
        }
    }

    /// Where the quoted text that starts at `self.at` ends, if it does.
    fn quoted(&self, quote: u8) -> Option<usize> {
        let mut at = self.at + 1;
        while let Some(&byte) = self.text.get(at) {
            match byte {
                b'\\' => at += 2,
                _ if byte == quote => return Some(at + 1),
                _ => at += 1,
            }
        }
        None
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        if !self.advance() {
            return None;
        }
        let start = self.at;
        let first = self.text[start];
        let (kind, end) = match first {
            b'\'' | b'"' | b'`' => (Kind::Quoted, self.quoted(first)?),
            _ if is_word(first) => {
                let length = self.text[start..].iter().position(|&b| !is_word(b));
                (Kind::Word, length.map_or(self.text.len(), |length| start + length))
            }
            _ => (Kind::Symbol(first), start + 1),
        };
        self.at = end;
        Some(Token { kind, range: start..end })
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// What the text is, as far as the HTTP side must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement {
    /// An insert whose data follows the statement.
    Insert(InsertHead),
    /// An insert that names its values or is still open at the end of the text: more text could still decide it.
    Open,
    /// Anything the engine takes as one text.
    Query,
}

/// An insert up to its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InsertHead {
    /// The statement without its `FORMAT` clause.
    pub(super) head: Vec<u8>,
    /// The data's format; `Values` when the statement names none.
    pub(super) format: String,
    /// Where in the text the data starts.
    pub(super) data: usize,
    /// Whether the clause that introduces the data was in the text.
    pub(super) explicit: bool,
}

/// Classifies `text`, which may be cut or may carry binary data after an insert's head.
pub(super) fn classify(text: &[u8]) -> Statement {
    let mut tokens = Tokens::new(text);
    let Some(first) = tokens.next() else {
        return Statement::Open;
    };
    if !tokens.word(&first, "INSERT") {
        return if first.range.end == text.len() && first.kind == Kind::Word {
            Statement::Open
        } else {
            Statement::Query
        };
    }
    let mut depth = 0usize;
    let mut named = false;
    let mut previous_dot = false;
    while let Some(token) = tokens.next() {
        match token.kind {
            Kind::Symbol(b'(') if !named && depth == 0 => return Statement::Query,
            Kind::Symbol(open @ (b'(' | b'[' | b'{')) => {
                named |= open == b'{';
                depth += 1;
            }
            Kind::Symbol(b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            Kind::Word if depth == 0 && !previous_dot => {
                if ["INTO", "TABLE", "FUNCTION"].iter().any(|word| tokens.word(&token, word)) && !named {
                    continue;
                }
                if !named {
                    named = true;
                } else if tokens.word(&token, "VALUES") {
                    return explicit(text, &token, "Values", token.range.end, &[]);
                } else if tokens.word(&token, "FORMAT") {
                    return format_clause(text, &mut tokens, &token);
                } else if ["SELECT", "WITH", "FROM", "WATCH"].iter().any(|word| tokens.word(&token, word)) {
                    return Statement::Query;
                }
            }
            Kind::Quoted if !named => named = true,
            _ => {}
        }
        previous_dot = token.kind == Kind::Symbol(b'.');
    }
    Statement::Open
}

fn explicit(text: &[u8], keyword: &Token, format: &str, data: usize, settings: &[u8]) -> Statement {
    let mut head = text[..keyword.range.start].trim_ascii_end().to_vec();
    if !settings.is_empty() {
        head.push(b' ');
        head.extend_from_slice(settings.trim_ascii());
    }
    Statement::Insert(InsertHead { head, format: format.to_owned(), data, explicit: true })
}

/// Reads `FORMAT name [SETTINGS …]` and finds where the data starts.
fn format_clause(text: &[u8], tokens: &mut Tokens<'_>, keyword: &Token) -> Statement {
    let Some(name) = tokens.next().filter(|name| name.kind == Kind::Word && name.range.end < text.len()) else {
        return Statement::Open;
    };
    let format = String::from_utf8_lossy(&text[name.range.clone()]).into_owned();
    if format.eq_ignore_ascii_case("VALUES") {
        return explicit(text, keyword, "Values", name.range.end, &[]);
    }
    let after = &text[name.range.end..];
    if let Some(length) = settings_clause(after) {
        let data = data_start(text, name.range.end + length);
        return explicit(text, keyword, &format, data, &after[..length]);
    }
    explicit(text, keyword, &format, data_start(text, name.range.end), &[])
}

/// The length of a `SETTINGS a = 1, b = 'x'` clause that starts `text`, if one does.
fn settings_clause(text: &[u8]) -> Option<usize> {
    let mut tokens = Tokens::new(text);
    let first = tokens.next()?;
    if !tokens.word(&first, "SETTINGS") {
        return None;
    }
    let mut end;
    loop {
        tokens.next().filter(|name| name.kind == Kind::Word)?;
        tokens.next().filter(|equals| equals.kind == Kind::Symbol(b'='))?;
        end = tokens.next().filter(|value| !matches!(value.kind, Kind::Symbol(_)))?.range.end;
        let mut ahead = Tokens { text, at: end };
        match ahead.next() {
            Some(comma) if comma.kind == Kind::Symbol(b',') => tokens.at = comma.range.end,
            _ => return Some(end),
        }
    }
}

/// Data starts after the first line end behind the clause or, when something else follows, at that.
fn data_start(text: &[u8], mut at: usize) -> usize {
    let is = |at: usize, set: &[u8]| text.get(at).is_some_and(|byte| set.contains(byte));
    while is(at, b" \t\x0c") {
        at += 1;
    }
    if is(at, b";") {
        at += 1;
    }
    if is(at, b"\r") {
        at += 1;
    }
    if is(at, b"\n") {
        at += 1;
    }
    at
}

/// An insert whose text ends before its data is introduced takes values.
pub(super) fn implied_insert(text: &[u8]) -> Option<InsertHead> {
    let mut tokens = Tokens::new(text);
    let first = tokens.next()?;
    if !tokens.word(&first, "INSERT") {
        return None;
    }
    // A `FORMAT name` that is the very end of the text.
    let all: Vec<Token> = Tokens::new(text).collect();
    if let [.., keyword, name] = all.as_slice()
        && tokens.word(keyword, "FORMAT")
        && name.kind == Kind::Word
    {
        let format = String::from_utf8_lossy(&text[name.range.clone()]).into_owned();
        let head = text[..keyword.range.start].to_vec();
        return Some(InsertHead { head, format, data: text.len(), explicit: true });
    }
    Some(InsertHead { head: text.to_vec(), format: "Values".to_owned(), data: text.len(), explicit: false })
}

/// The output format that a query's own `FORMAT` clause names.
pub(super) fn output_format(text: &[u8]) -> Option<String> {
    let tokens = Tokens::new(text);
    let probe = Tokens::new(text);
    let all: Vec<Token> = tokens.collect();
    let at = all.iter().rposition(|token| probe.word(token, "FORMAT"))?;
    let name = all.get(at + 1).filter(|name| name.kind == Kind::Word)?;
    let ends = match all.get(at + 2) {
        None => true,
        Some(next) => next.kind == Kind::Symbol(b';') || probe.word(next, "SETTINGS") || probe.word(next, "INTO"),
    };
    ends.then(|| String::from_utf8_lossy(&text[name.range.clone()]).into_owned())
}

/// Whether the text reads rows that an insert would send (`… SELECT … FROM input(…) FORMAT …`).
pub(super) fn reads_input(text: &[u8]) -> bool {
    let probe = Tokens::new(text);
    let all: Vec<Token> = Tokens::new(text).collect();
    all.first().is_some_and(|first| probe.word(first, "INSERT"))
        && all.windows(3).any(|window| {
            probe.word(&window[0], "FROM") && probe.word(&window[1], "input") && window[2].kind == Kind::Symbol(b'(')
        })
}

/// Whether the statement's first word is one that can change data.
pub(super) fn may_write(text: &[u8]) -> bool {
    const READS: [&str; 10] = ["SELECT", "WITH", "FROM", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS", "SET", "USE"];
    let mut tokens = Tokens::new(text);
    tokens.next().is_some_and(|first| first.kind == Kind::Word && !READS.iter().any(|word| tokens.word(&first, word)))
}

/// Cuts a script at its semicolons; statements without text are left out.
pub(super) fn split_script(text: &str) -> Vec<&str> {
    let mut statements = Vec::new();
    let mut start = None;
    let mut end = 0;
    let mut tokens = Tokens::new(text.as_bytes());
    for token in tokens.by_ref() {
        if token.kind == Kind::Symbol(b';') {
            if let Some(start) = start.take() {
                statements.push(text[start..token.range.start].trim_end());
            }
        } else {
            start.get_or_insert(token.range.start);
        }
        end = token.range.end;
    }
    if tokens.advance() {
        // An unfinished string belongs to the last statement, whose error names it.
        start.get_or_insert(tokens.at);
        end = text.len();
    }
    if let Some(start) = start {
        statements.push(text[start..end].trim_end());
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(text: &str) -> (String, String, String) {
        match classify(text.as_bytes()) {
            Statement::Insert(found) => {
                let data = text[found.data..].to_owned();
                (String::from_utf8(found.head).expect("the head is text").trim().to_owned(), found.format, data)
            }
            other => panic!("{text:?} is {other:?}"),
        }
    }

    fn parts(head: &str, format: &str, data: &str) -> (String, String, String) {
        (head.to_owned(), format.to_owned(), data.to_owned())
    }

    #[test]
    fn inserts_are_split_from_their_data() {
        assert_eq!(insert("INSERT INTO t FORMAT TSV\n1\t2\n"), parts("INSERT INTO t", "TSV", "1\t2\n"));
        assert_eq!(
            insert("insert into a.b (x, `y)`) format Native\n\0\u{1}"),
            parts("insert into a.b (x, `y)`)", "Native", "\0\u{1}")
        );
        assert_eq!(
            insert("INSERT INTO t VALUES (1, 'FORMAT x')"),
            parts("INSERT INTO t", "Values", " (1, 'FORMAT x')")
        );
        assert_eq!(insert("INSERT INTO format FORMAT CSV 1,2"), parts("INSERT INTO format", "CSV", "1,2"));
        assert_eq!(insert("INSERT INTO t.values VALUES (1)"), parts("INSERT INTO t.values", "Values", " (1)"));
        assert_eq!(
            insert("INSERT INTO {d:Identifier}.{t:Identifier} (a) FORMAT TSV\n1"),
            parts("INSERT INTO {d:Identifier}.{t:Identifier} (a)", "TSV", "1")
        );
        assert_eq!(
            insert("/* FORMAT */ INSERT INTO FUNCTION null('x UInt8') SETTINGS a=1 FORMAT CSV\n1"),
            parts("/* FORMAT */ INSERT INTO FUNCTION null('x UInt8') SETTINGS a=1", "CSV", "1")
        );
        assert_eq!(
            insert("INSERT INTO t FORMAT TSV SETTINGS a = 1, b = 'x'\n1\n"),
            parts("INSERT INTO t SETTINGS a = 1, b = 'x'", "TSV", "1\n")
        );
    }

    #[test]
    fn the_rest_is_for_the_engine() {
        for text in
            ["SELECT 1", "INSERT INTO t SELECT 1 FORMAT Null", "INSERT INTO t WITH 1 AS x SELECT x", "(SELECT 1)"]
        {
            assert_eq!(classify(text.as_bytes()), Statement::Query, "{text}");
        }
        for text in
            ["", "  ", "INSE", "INSERT INTO", "INSERT INTO t (a", "INSERT INTO t FORMAT", "INSERT INTO t FORMAT TS"]
        {
            assert_eq!(classify(text.as_bytes()), Statement::Open, "{text}");
        }
    }

    #[test]
    fn output_formats_are_found() {
        assert_eq!(output_format(b"SELECT 1 FORMAT JSON"), Some("JSON".to_owned()));
        assert_eq!(output_format(b"SELECT 1 format CSV settings max_threads=1;"), Some("CSV".to_owned()));
        assert_eq!(output_format(b"SELECT 'FORMAT JSON'"), None);
        assert_eq!(output_format(b"SELECT format FROM t"), None);
        assert_eq!(output_format(b"SELECT 1 -- FORMAT JSON"), None);
    }

    #[test]
    fn scripts_are_cut_outside_strings_and_comments() {
        let script = "-- a;b\nCREATE TABLE t (a String DEFAULT ';'); /* ; */ SELECT 1;\n;\n  SELECT 'x' ";
        assert_eq!(split_script(script), ["CREATE TABLE t (a String DEFAULT ';')", "SELECT 1", "SELECT 'x'"]);
        assert_eq!(split_script("SELECT 1; SELECT 'open"), ["SELECT 1", "SELECT 'open"]);
        assert_eq!(split_script("'open"), ["'open"]);
        assert!(split_script(" -- nothing\n").is_empty());
    }

    #[test]
    fn input_function_is_seen() {
        assert!(reads_input(b"INSERT INTO t SELECT a FROM input('a UInt8') FORMAT CSV"));
        assert!(!reads_input(b"SELECT a FROM input('a UInt8')"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text: Vec<u8>, sql in "(INSERT|INTO|t|FORMAT|VALUES|'|\"|\\(|\\)|;| |--|/\\*|SETTINGS|=|,|\\\\)*") {
            for text in [text.as_slice(), sql.as_bytes()] {
                let _ = (classify(text), implied_insert(text), output_format(text), reads_input(text));
            }
            let _ = split_script(&sql);
        }
    }
}

//! One case: a SQL file whose comments name its inputs, its options and its answer.
//!
//! ```sql
//! -- What the case pins.
//! -- options: --watermark-delay 1s
//! -- input: events
//! --| {"k":"a"}
//! --\ {"k":"b"}\r
//! -- table: names
//! --| {"k":"a","name":"A"}
//! -- expect
//! --| {"k":"a","n":1}
//! SELECT …
//! ```
//!
//! `--|` holds a line as it is; `--\` one with Rust's escapes, for bytes that an editor would change, and `\c` at its end
//! leaves its newline out. The answer is `-- expect`, or `-- error: CODE` with a text of the message below it.
//! `-- files only` says that the inputs are no messages of a topic.

/// What is read and how it is named in the query.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) table: bool,
    pub(crate) bytes: Vec<u8>,
}

/// What the query must answer.
pub(crate) enum Expected {
    Rows(String),
    Error { code: String, text: String },
}

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) query: String,
    pub(crate) options: Vec<String>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) expected: Expected,
    pub(crate) files_only: bool,
}

impl Case {
    /// Reads a case; says what is wrong with its file.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let (mut inputs, mut options, mut query) = (Vec::<Input>::new(), Vec::new(), String::new());
        let (mut expected, mut files_only) = (None, false);
        for (number, line) in text.lines().enumerate() {
            let wrong = |what: &str| format!("{name}.sql:{}: {what}: {line}", number + 1);
            if let Some(bytes) = content(line).map_err(wrong)? {
                match (&mut expected, inputs.last_mut()) {
                    (Some(Expected::Rows(rows)), _) => rows.push_str(std::str::from_utf8(&bytes).expect("text")),
                    (Some(Expected::Error { text, .. }), _) => {
                        text.push_str(String::from_utf8_lossy(&bytes).trim_end());
                    }
                    (None, Some(input)) => input.bytes.extend(bytes),
                    (None, None) => return Err(wrong("a line of no input")),
                }
            } else if let Some(comment) = line.strip_prefix("-- ") {
                let (word, rest) = comment.split_once(": ").unwrap_or((comment, ""));
                let input = |table| Input { name: rest.to_owned(), table, bytes: Vec::new() };
                match word {
                    "options" => options = words(rest),
                    "input" => inputs.push(input(false)),
                    "table" => inputs.push(input(true)),
                    "files only" => files_only = true,
                    "expect" => expected = Some(Expected::Rows(String::new())),
                    "error" => expected = Some(Expected::Error { code: rest.to_owned(), text: String::new() }),
                    _ => {}
                }
            } else {
                query.push_str(line);
                query.push('\n');
            }
        }
        let expected = expected.ok_or_else(|| format!("{name}.sql has no answer"))?;
        match inputs.first() {
            Some(input) if !input.table => {}
            _ => return Err(format!("{name}.sql: its first input is no stream")),
        }
        Ok(Self { name: name.to_owned(), query, options, inputs, expected, files_only })
    }
}

/// The bytes that a line of an input or an answer stands for.
fn content(line: &str) -> Result<Option<Vec<u8>>, &'static str> {
    if let Some(plain) = line.strip_prefix("--| ").or_else(|| (line == "--|").then_some("")) {
        return Ok(Some(format!("{plain}\n").into_bytes()));
    }
    line.strip_prefix("--\\ ").map(unescape).transpose()
}

fn unescape(text: &str) -> Result<Vec<u8>, &'static str> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first().ok_or("an escape ends early")?;
        rest = after;
        match escape {
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'\\' => out.push(b'\\'),
            b'c' if rest.is_empty() => return Ok(out),
            b'x' => {
                let digits = rest.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
                out.push(digits.and_then(|hex| u8::from_str_radix(hex, 16).ok()).ok_or("\\x wants two digits")?);
                rest = &rest[2..];
            }
            _ => return Err("an unknown escape"),
        }
    }
    out.push(b'\n');
    Ok(out)
}

/// The words of an option line; `'…'` keeps blanks.
fn words(text: &str) -> Vec<String> {
    let parts = text.split('\'').enumerate();
    parts
        .flat_map(|(part, text)| {
            let plain = part % 2 == 0;
            let words: Vec<&str> = if plain { text.split_whitespace().collect() } else { vec![text] };
            words.into_iter().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

//! Strict reading of TOML: every key accounted for, every problem collected with its place.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, Range};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Place, Problem, Problems};
use crate::words::{Word, closest, with_article};

/// The schema this version reads.
const SCHEMA: i64 = 1;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A file being read and what is wrong with it so far.
pub(crate) struct Document<'t> {
    file: &'t str,
    text: &'t str,
    problems: RefCell<Vec<Problem>>,
}

impl<'t> Document<'t> {
    pub(crate) fn new(file: &'t str, text: &'t str) -> Self {
        Self { file, text, problems: RefCell::default() }
    }

    /// Parses the text; syntax errors become problems.
    pub(crate) fn parse(&self) -> Spanned<DeTable<'t>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            self.report("syntax", error.span().unwrap_or(0..0), error.message().replace('\n', "; "), None);
        }
        table
    }

    pub(crate) fn report(&self, code: &'static str, span: Range<usize>, message: String, hint: Option<String>) {
        let place = Some(Place::of(self.text, span));
        self.problems.borrow_mut().push(Problem { code, file: self.file.to_owned(), message, hint, place });
    }

    /// Whether anything is wrong so far.
    pub(crate) fn is_sound(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// What was found, in order of place.
    pub(crate) fn problems(self) -> Problems {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| problem.place.as_ref().map(|place| (place.line, place.column)));
        Problems(problems)
    }
}

/// A table of a document. Its reader asks for each key once and then calls [`Table::finish`].
pub(crate) struct Table<'d, 't> {
    pub(crate) doc: &'d Document<'t>,
    path: String,
    in_list: bool,
    table: &'d DeTable<'t>,
    span: Range<usize>,
    asked: RefCell<Vec<&'static str>>,
    open: Cell<bool>,
}

impl<'d, 't> Table<'d, 't> {
    pub(crate) fn root(doc: &'d Document<'t>, table: &'d Spanned<DeTable<'t>>) -> Self {
        Self::new(doc, String::new(), table.get_ref(), 0..0)
    }

    fn new(doc: &'d Document<'t>, path: String, table: &'d DeTable<'t>, span: Range<usize>) -> Self {
        Self { doc, path, in_list: false, table, span, asked: RefCell::default(), open: Cell::new(false) }
    }

    /// Where the table stands: its header or its braces.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Refuses a schema newer than this version's.
    pub(crate) fn schema(&self) {
        if let Some(schema) = self.int("schema")
            && !(1..=SCHEMA).contains(&*schema)
        {
            let message = format!("schema {} is not one this version reads (1 to {SCHEMA})", *schema);
            let hint = "use the version of the suite that this file was written for".to_owned();
            self.doc.report("newer_schema", schema.span, message, Some(hint));
        }
    }

    fn get(&self, key: &'static str) -> Option<(&'d DeValue<'t>, Range<usize>)> {
        self.asked.borrow_mut().push(key);
        self.table.get(key).map(|value| (value.get_ref(), value.span()))
    }

    /// A value of any type, if the key is there.
    pub(crate) fn any(&self, key: &'static str) -> Option<(&'d DeValue<'t>, Range<usize>)> {
        self.get(key)
    }

    fn named(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(crate) fn missing(&self, key: &str) {
        let place = self.header().map_or("the file".to_owned(), |header| format!("`{header}`"));
        self.doc.report("missing_key", self.span(), format!("{place} has no `{key}`"), None);
    }

    fn wrong_type(&self, key: &str, wanted: &str, got: &DeValue<'_>, span: Range<usize>) {
        let message = format!("`{}` is {wanted}, not {}", self.named(key), with_article(got.type_str()));
        self.doc.report("wrong_type", span, message, None);
    }

    fn required<T>(&self, key: &'static str, found: Option<At<T>>) -> Option<At<T>> {
        if found.is_none() && !self.table.contains_key(key) {
            self.missing(key);
        }
        found
    }

    /// Text, if the key is there.
    pub(crate) fn maybe_text(&self, key: &'static str) -> Option<At<String>> {
        let (value, span) = self.get(key)?;
        match value.as_str() {
            Some(text) => Some(At { value: text.to_owned(), span }),
            None => {
                self.wrong_type(key, "text", value, span);
                None
            }
        }
    }

    /// Text that is there and says something.
    pub(crate) fn text(&self, key: &'static str) -> Option<At<String>> {
        let text = self.required(key, self.maybe_text(key))?;
        if text.trim().is_empty() {
            self.doc.report("empty", text.span, format!("`{}` is empty", self.named(key)), None);
            return None;
        }
        Some(text)
    }

    /// A date written as one, as text; `None` if the value is of another type.
    pub(crate) fn maybe_date(&self, key: &'static str) -> Option<At<String>> {
        let (value, span) = self.get(key)?;
        value.as_datetime().map(|date| At { value: date.to_string(), span })
    }

    /// A whole number, required.
    pub(crate) fn int(&self, key: &'static str) -> Option<At<i64>> {
        self.required(key, self.maybe_int(key))
    }

    /// A whole number, if the key is there.
    pub(crate) fn maybe_int(&self, key: &'static str) -> Option<At<i64>> {
        let (value, span) = self.get(key)?;
        let parsed = value.as_integer().and_then(|it| i64::from_str_radix(it.as_str(), it.radix()).ok());
        if parsed.is_none() {
            self.wrong_type(key, "a whole number", value, span.clone());
        }
        parsed.map(|value| At { value, span })
    }

    /// A number, required.
    pub(crate) fn number(&self, key: &'static str) -> Option<At<f64>> {
        let found = self.get(key).and_then(|(value, span)| {
            let parsed = number(value);
            if parsed.is_none() {
                self.wrong_type(key, "a number", value, span.clone());
            }
            parsed.map(|value| At { value, span })
        });
        self.required(key, found)
    }

    /// `true` or `false`, required.
    pub(crate) fn flag(&self, key: &'static str) -> Option<At<bool>> {
        self.required(key, self.maybe_flag(key))
    }

    /// `true` or `false`, if the key is there.
    pub(crate) fn maybe_flag(&self, key: &'static str) -> Option<At<bool>> {
        let (value, span) = self.get(key)?;
        if value.as_bool().is_none() {
            self.wrong_type(key, "true or false", value, span.clone());
        }
        value.as_bool().map(|value| At { value, span })
    }

    /// A word of a closed vocabulary, required.
    pub(crate) fn word<W: Word>(&self, key: &'static str) -> Option<At<W>> {
        let text = self.text(key)?;
        self.as_word(&text)
    }

    /// `text` as a word of a closed vocabulary.
    pub(crate) fn as_word<W: Word>(&self, text: &At<String>) -> Option<At<W>> {
        match crate::words::parse::<W>(text) {
            Ok(value) => Some(At { value, span: text.span.clone() }),
            Err(error) => {
                let hint = crate::error::Coded::hint(&error);
                self.doc.report("unknown_word", text.span.clone(), error.to_string(), hint);
                None
            }
        }
    }

    /// Text that parses as `T`, required.
    pub(crate) fn parsed<T: FromStr<Err: crate::error::Coded>>(&self, key: &'static str) -> Option<At<T>> {
        let text = self.text(key)?;
        match text.parse() {
            Ok(value) => Some(At { value, span: text.span }),
            Err(error) => {
                self.doc.report(crate::error::Coded::code(&error), text.span, error.to_string(), None);
                None
            }
        }
    }

    /// A size such as `16GiB`, required.
    pub(crate) fn size(&self, key: &'static str) -> Option<At<u64>> {
        let text = self.text(key)?;
        let size = crate::units::parse_bytes(&text).filter(|size| *size > 0);
        if size.is_none() {
            let message = format!("`{}` is not a size: write it as `16GiB` or `512MiB`", *text);
            self.doc.report("bad_size", text.span.clone(), message, None);
        }
        size.map(|value| At { value, span: text.span })
    }

    /// A list of texts; empty if the key is not there.
    pub(crate) fn texts(&self, key: &'static str) -> Vec<At<String>> {
        let Some((value, span)) = self.get(key) else { return Vec::new() };
        let Some(list) = value.as_array() else {
            self.wrong_type(key, "a list", value, span);
            return Vec::new();
        };
        let text = |item: &Spanned<DeValue<'t>>| match item.get_ref().as_str() {
            Some(text) => Some(At { value: text.to_owned(), span: item.span() }),
            None => {
                self.wrong_type(key, "a list of texts", item.get_ref(), item.span());
                None
            }
        };
        list.iter().filter_map(text).collect()
    }

    /// A list of texts that is there and not empty.
    pub(crate) fn some_texts(&self, key: &'static str) -> Vec<At<String>> {
        let texts = self.texts(key);
        match self.table.get(key) {
            None => self.missing(key),
            Some(value) if value.get_ref().as_array().is_some_and(|list| list.is_empty()) => {
                self.doc.report("empty", value.span(), format!("`{}` is empty", self.named(key)), None);
            }
            Some(_) => {}
        }
        texts
    }

    /// A table, if the key is there.
    pub(crate) fn maybe_table(&self, key: &'static str) -> Option<Table<'d, 't>> {
        let (value, span) = self.get(key)?;
        let Some(table) = value.as_table() else {
            self.wrong_type(key, "a table", value, span);
            return None;
        };
        Some(Table::new(self.doc, self.named(key), table, self.span_of(key, span)))
    }

    /// A table, required.
    pub(crate) fn table(&self, key: &'static str) -> Option<Table<'d, 't>> {
        let table = self.maybe_table(key);
        if table.is_none() && !self.table.contains_key(key) {
            self.missing(key);
        }
        table
    }

    /// A list of tables; empty if the key is not there.
    pub(crate) fn tables(&self, key: &'static str) -> Vec<Table<'d, 't>> {
        let Some((value, span)) = self.get(key) else { return Vec::new() };
        let Some(list) = value.as_array() else {
            self.wrong_type(key, "a list of tables", value, span);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in list {
            match item.get_ref().as_table() {
                Some(table) => {
                    let table = Table::new(self.doc, self.named(key), table, item.span());
                    tables.push(Table { in_list: true, ..table });
                }
                None => self.wrong_type(key, "a list of tables", item.get_ref(), item.span()),
            }
        }
        tables
    }

    /// Every key and value of a table whose keys are free.
    pub(crate) fn free(&self) -> Vec<(At<String>, &'d DeValue<'t>, Range<usize>)> {
        self.open.set(true);
        let entry = |(key, value): (&'d Spanned<_>, &'d Spanned<DeValue<'t>>)| {
            let name: &std::borrow::Cow<'_, str> = key.get_ref();
            (At { value: name.to_string(), span: key.span() }, value.get_ref(), value.span())
        };
        self.table.iter().map(entry).collect()
    }

    /// Every key and value of a table of texts with free keys.
    pub(crate) fn free_texts(&self) -> Vec<(At<String>, At<String>)> {
        let text = |(key, value, span): (At<String>, &DeValue<'_>, Range<usize>)| match value.as_str() {
            Some(text) => Some((key, At { value: text.to_owned(), span })),
            None => {
                self.wrong_type(&key, "text", value, span);
                None
            }
        };
        self.free().into_iter().filter_map(text).collect()
    }

    /// Reports every key that was not asked for.
    pub(crate) fn finish(self) {
        if self.open.get() {
            return;
        }
        let asked = self.asked.borrow();
        for (key, _) in self.table {
            let name: &str = key.get_ref();
            if !asked.contains(&name) {
                let hint = closest(name, asked.iter().copied()).map(|near| format!("did you mean `{near}`?"));
                let place = self.header().map_or(String::new(), |header| format!(" in `{header}`"));
                self.doc.report("unknown_key", key.span(), format!("unknown key `{name}`{place}"), hint);
            }
        }
    }

    /// How the table's header is written; the root has none.
    fn header(&self) -> Option<String> {
        let path = &self.path;
        (!path.is_empty()).then(|| if self.in_list { format!("[[{path}]]") } else { format!("[{path}]") })
    }

    /// A table written as a header has the span of the header; one made by its children has none of its own.
    fn span_of(&self, key: &'static str, span: Range<usize>) -> Range<usize> {
        if span.is_empty() { self.table.get_key_value(key).map_or(span, |(key, _)| key.span()) } else { span }
    }
}

/// A whole or fractional number.
pub(crate) fn number(value: &DeValue<'_>) -> Option<f64> {
    let whole = || value.as_integer().and_then(|it| i64::from_str_radix(it.as_str(), it.radix()).ok());
    value.as_float().and_then(|it| it.as_str().parse().ok()).or_else(|| whole().map(|whole| whole as f64))
}

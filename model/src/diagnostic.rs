//! Problems in files people write: all of them at once, each with file, line, column and a caret.

use std::fmt;
use std::ops::Range;

use crate::error::Coded;

/// One thing wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Stable identifier such as `unknown_key`.
    pub code: &'static str,
    /// The file, as its reader named it.
    pub file: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Where it is, unless it is about the file as a whole.
    pub place: Option<Place>,
}

/// A stretch of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The text of the line.
    pub text: String,
    /// How many characters are meant, at least 1.
    pub width: usize,
}

impl Place {
    /// The place of a span of bytes in `text`; the first line of it, if it has several.
    #[must_use]
    pub fn of(text: &str, span: Range<usize>) -> Self {
        let start = floor_boundary(text, span.start);
        let end = floor_boundary(text, span.end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            text: text[line_start..line_end].trim_end_matches('\r').to_owned(),
            width: text[start..end.min(line_end)].chars().count().max(1),
        }
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error[{}]: {}", self.code, self.message)?;
        let gutter = self.place.as_ref().map_or(1, |place| place.line.to_string().len());
        match &self.place {
            None => write!(f, "{:gutter$}--> {}", "", self.file)?,
            Some(Place { line, column, text, width }) => {
                let text = text.replace('\t', " ");
                writeln!(f, "{:gutter$}--> {}:{line}:{column}", "", self.file)?;
                writeln!(f, "{:gutter$} |", "")?;
                writeln!(f, "{line} | {text}")?;
                write!(f, "{:gutter$} | {:indent$}{}", "", "", "^".repeat(*width), indent = column - 1)?;
            }
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n{:gutter$} = help: {hint}", "")?;
        }
        Ok(())
    }
}

/// Everything wrong in one or more files; never empty when it is an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// `value` if nothing is wrong.
    ///
    /// # Errors
    /// The problems, if there are any.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.0 {
            write!(f, "{problem}\n\n")?;
        }
        match self.0.len() {
            1 => f.write_str("1 problem"),
            count => write!(f, "{count} problems"),
        }
    }
}

impl std::error::Error for Problems {}

impl Coded for Problems {
    fn code(&self) -> &'static str {
        "invalid_file"
    }

    fn refused(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_stands_under_what_is_meant() {
        let text = "schema = 1\nname = \"Größe\" # é\ncpu = 4\n";
        let at = text.find("\"Größe\"").unwrap();
        let problem = Problem {
            code: "bad_name",
            file: "x/entrant.toml".into(),
            message: "no".into(),
            hint: Some("try again".into()),
            place: Some(Place::of(text, at..at + "\"Größe\"".len())),
        };
        let lines = [
            "error[bad_name]: no",
            " --> x/entrant.toml:2:8",
            "  |",
            "2 | name = \"Größe\" # é",
            "  |        ^^^^^^^",
            "  = help: try again",
        ];
        assert_eq!(problem.to_string(), lines.join("\n"));
    }

    #[test]
    fn a_place_beyond_the_end_is_the_end() {
        let place = Place::of("a\n", 5..9);
        assert_eq!((place.line, place.column, place.width), (2, 1, 1));
    }
}

//! ClickHouse's exceptions: their text, code and HTTP status.

use axum::http::StatusCode;

/// Version of the engine, written at the end of every exception. Set once, when the engine has booted.
static VERSION: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Error codes raised by the HTTP side itself; their names are ClickHouse's.
pub(super) mod codes {
    pub(crate) const BAD_ARGUMENTS: (u32, &str) = (36, "BAD_ARGUMENTS");
    pub(crate) const NOT_IMPLEMENTED: (u32, &str) = (48, "NOT_IMPLEMENTED");
    pub(crate) const SYNTAX_ERROR: (u32, &str) = (62, "SYNTAX_ERROR");
    pub(crate) const CANNOT_READ_ALL_DATA: (u32, &str) = (33, "CANNOT_READ_ALL_DATA");
    pub(crate) const CANNOT_DECOMPRESS: (u32, &str) = (271, "CANNOT_DECOMPRESS");
    pub(crate) const READONLY: (u32, &str) = (164, "READONLY");
    pub(crate) const SESSION_NOT_FOUND: (u32, &str) = (372, "SESSION_NOT_FOUND");
    pub(crate) const SESSION_IS_LOCKED: (u32, &str) = (373, "SESSION_IS_LOCKED");
    pub(crate) const INVALID_SESSION_TIMEOUT: (u32, &str) = (374, "INVALID_SESSION_TIMEOUT");
    pub(crate) const AUTHENTICATION_FAILED: (u32, &str) = (516, "AUTHENTICATION_FAILED");
    pub(crate) const STD_EXCEPTION: (u32, &str) = (1001, "STD_EXCEPTION");
}

/// A failure as ClickHouse reports it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Exception {
    /// ClickHouse's error code.
    pub code: u32,
    /// `Code: <code>. DB::Exception: <message>. (<NAME>) (version <version>)`, without a line end.
    pub text: String,
}

impl Exception {
    /// An exception raised outside the engine.
    pub(super) fn new((code, name): (u32, &str), message: impl std::fmt::Display) -> Self {
        let version = VERSION.get().map_or("unknown", String::as_str);
        Self { code, text: format!("Code: {code}. DB::Exception: {message}. ({name}) (version {version})") }
    }

    /// Reads the engine's own text. The engine nests prefixes and suffixes of the same exception and leaves the version
    /// out of some; the text kept has each once.
    pub(super) fn from_engine(raw: &str) -> Self {
        let mut message = raw.trim();
        let mut code = None;
        while let Some((number, rest)) = split_prefix(message) {
            code.get_or_insert(number);
            message = rest;
        }
        let Some(code) = code else {
            return Self::new(codes::STD_EXCEPTION, message.trim_end_matches('.'));
        };
        let mut name = None;
        while let Some((inner, rest)) = split_suffix(message) {
            if !inner.starts_with("version ") {
                name.get_or_insert(inner);
            }
            message = rest;
        }
        Self::new((code, name.unwrap_or("UNKNOWN")), message.trim_end_matches('.'))
    }

    /// Makes the engine's version known to every later exception.
    pub(super) fn set_version(version: &str) {
        VERSION.get_or_init(|| version.to_owned());
    }

    /// The HTTP status ClickHouse answers this exception with.
    pub(super) fn status(&self) -> StatusCode {
        match self.code {
            194 => StatusCode::UNAUTHORIZED,
            192 | 193 | 497 | 512 | 516 => StatusCode::FORBIDDEN,
            6
            | 8
            | 15
            | 25..=27
            | 36..=38
            | 41
            | 44
            | 53
            | 62
            | 72
            | 117
            | 123
            | 167
            | 168
            | 223
            | 321
            | 376
            | 427
            | 441
            | 675
            | 676 => StatusCode::BAD_REQUEST,
            46 | 47 | 50 | 56 | 60 | 63 | 73 | 78 | 81 | 115 | 152 | 336 | 511 => StatusCode::NOT_FOUND,
            159 => StatusCode::REQUEST_TIMEOUT,
            229 => StatusCode::PAYLOAD_TOO_LARGE,
            48 => StatusCode::NOT_IMPLEMENTED,
            76 | 209 | 439 => StatusCode::SERVICE_UNAVAILABLE,
            381 => StatusCode::LENGTH_REQUIRED,
            779 => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// `Code: 60. DB::Exception: rest` → `(60, rest)`.
fn split_prefix(text: &str) -> Option<(u32, &str)> {
    let (number, rest) = text.strip_prefix("Code: ")?.split_once(". DB::Exception: ")?;
    Some((number.parse().ok()?, rest))
}

/// `rest (INNER)` → `(INNER, rest)` when the inner is an error name or a version.
fn split_suffix(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_end_matches('.');
    let (rest, inner) = text.strip_suffix(')')?.rsplit_once(" (")?;
    let named = !inner.is_empty() && inner.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    (inner.starts_with("version ") || (named && rest.ends_with('.'))).then_some((inner, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_engine_text_is_written_once() {
        let nested = "Code: 115. DB::Exception: Code: 115. DB::Exception: Unknown setting 'foo'. (UNKNOWN_SETTING) \
                      (version 26.7.2.1). (UNKNOWN_SETTING)";
        let parsed = Exception::from_engine(nested);
        assert_eq!(parsed.code, 115);
        assert!(
            parsed.text.starts_with("Code: 115. DB::Exception: Unknown setting 'foo'. (UNKNOWN_SETTING) (version ")
        );
        assert_eq!(parsed.text.matches("Code: ").count(), 1);
        assert_eq!(parsed.text.matches("UNKNOWN_SETTING").count(), 1);
        assert_eq!(parsed.status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn a_parenthesis_of_the_message_stays() {
        let raw = "Code: 62. DB::Exception: Syntax error: failed at position 7 (1): 1 (x). (SYNTAX_ERROR)";
        let parsed = Exception::from_engine(raw);
        assert!(parsed.text.contains("position 7 (1): 1 (x). (SYNTAX_ERROR) (version "), "{}", parsed.text);
        assert_eq!(parsed.status(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn text_without_a_code_is_a_standard_exception() {
        let parsed = Exception::from_engine("Unexpected null connection");
        assert_eq!(parsed.code, 1001);
        assert_eq!(parsed.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}

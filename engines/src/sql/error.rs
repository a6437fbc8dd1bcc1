//! Why a query is refused.

/// Why a query is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// The text is not SQL.
    #[error("the query cannot be parsed: {reason}")]
    Syntax {
        /// The parser's words, with line and column.
        reason: String,
    },
    /// Valid SQL that this engine does not run.
    #[error("{what} is not supported")]
    NotSupported {
        /// The part of the query.
        what: String,
        /// What to write instead.
        hint: String,
    },
    /// A name the source does not have.
    #[error("there is no {kind} {name}")]
    Unknown {
        /// `column`, `function`, `stream`.
        kind: &'static str,
        /// The name as resolved.
        name: String,
        /// Names there are.
        hint: String,
    },
    /// Types that do not go together.
    #[error("{reason}")]
    Type {
        /// Which expression and types.
        reason: String,
    },
}

impl SqlError {
    /// A refusal of valid SQL.
    pub fn not_supported(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::NotSupported { what: what.into(), hint: hint.into() }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "SYNTAX_ERROR",
            Self::NotSupported { .. } => "NOT_SUPPORTED",
            Self::Unknown { .. } => "UNKNOWN_NAME",
            Self::Type { .. } => "TYPE_ERROR",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Syntax { .. } => "check the query near that place".into(),
            Self::NotSupported { hint, .. } | Self::Unknown { hint, .. } => hint.clone(),
            Self::Type { .. } => "CAST one side to the type you mean".into(),
        }
    }
}

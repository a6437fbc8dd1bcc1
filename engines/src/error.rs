//! Every error a run can end with: a stable code, a message that says what and where, and a hint that says what to do.

use serde_json::{Map, Value, json};

use crate::read::{BadRecord, Position, RecordError};
use crate::sql::SqlError;
use crate::state::run::StateError;

/// What ends a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The query was refused.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// An argument or a URI cannot be used.
    #[error("{message}")]
    Usage {
        /// What is wrong with which argument.
        message: String,
        /// What to write instead.
        hint: String,
    },
    /// The source cannot be opened or read.
    #[error("{message}")]
    Source {
        /// What failed on which source.
        message: String,
        /// What to check.
        hint: String,
    },
    /// A record was refused and bad records end the run.
    #[error(transparent)]
    BadRecord(#[from] BadRecord),
    /// An expression failed on a row of the result.
    #[error("a row of the result: {0}")]
    Row(RecordError),
    /// A checkpoint cannot be resumed by this run.
    #[error("{message}")]
    Checkpoint {
        /// What differs.
        message: String,
        /// What to do.
        hint: String,
    },
    /// The sink cannot be opened or written.
    #[error("{message}")]
    Sink {
        /// What failed on which sink.
        message: String,
        /// What to check.
        hint: String,
    },
    /// State cannot be kept on disk, or not be read back.
    #[error(transparent)]
    State(#[from] StateError),
    /// The reader of standard output went away: the run ends quietly.
    #[error("the reader of the output is gone")]
    OutputClosed,
}

impl Error {
    /// An argument or URI that cannot be used.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: hint.into() }
    }

    /// A source that cannot be opened or read.
    pub fn source(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Source { message: message.into(), hint: hint.into() }
    }

    /// A checkpoint that this run cannot resume.
    pub fn checkpoint(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Checkpoint { message: message.into(), hint: hint.into() }
    }

    /// A sink that cannot be opened or written.
    pub fn sink(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Sink { message: message.into(), hint: hint.into() }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Sql(e) => e.code(),
            Self::Usage { .. } => "USAGE",
            Self::Source { .. } => "SOURCE_ERROR",
            Self::BadRecord(BadRecord { error, .. }) | Self::Row(error) => match error {
                RecordError::Malformed { .. } | RecordError::Misfit { .. } => "SOURCE_ERROR",
                RecordError::Eval { code, .. } => code,
            },
            Self::Checkpoint { .. } => "CHECKPOINT",
            Self::Sink { .. } => "SINK_ERROR",
            Self::State(_) => "STATE_ERROR",
            Self::OutputClosed => "OUTPUT_CLOSED",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Sql(e) => e.hint(),
            Self::Usage { hint, .. }
            | Self::Source { hint, .. }
            | Self::Sink { hint, .. }
            | Self::Checkpoint { hint, .. } => hint.clone(),
            Self::Row(_) => {
                "change the expression, or leave such rows out with --bad-records skip".into()
            }
            Self::BadRecord(bad) => match &bad.error {
                RecordError::Malformed { .. } => {
                    "correct the record, or count and leave it out with --bad-records skip".into()
                }
                RecordError::Misfit { .. } => {
                    "correct the record, say the field's type with --columns, or leave such records out with --bad-records skip"
                        .into()
                }
                RecordError::Eval { .. } => {
                    "exclude such rows with WHERE or CASE, or leave them out with --bad-records skip".into()
                }
            },
            Self::State(StateError::Io { .. }) => "check the directory, its permissions and the space on its disk".into(),
            Self::State(StateError::Damaged { .. }) => {
                "remove the checkpoint directory to begin anew, or bring the file back".into()
            }
            Self::OutputClosed => String::new(),
        }
    }

    /// Exit code of the process: 2 for a refused query or argument, 1 for a failed run, 0 when only the reader went away.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Sql(_) | Self::Usage { .. } | Self::Checkpoint { .. } => 2,
            Self::Source { .. } | Self::BadRecord(_) | Self::Row(_) | Self::Sink { .. } | Self::State(_) => 1,
            Self::OutputClosed => 0,
        }
    }

    /// The error for a reader: message, code and hint on lines of their own.
    #[must_use]
    pub fn to_text(&self) -> String {
        let hint = self.hint();
        let mut text = format!("error[{}]: {self}", self.code());
        if !hint.is_empty() {
            text.push_str("\n  hint: ");
            text.push_str(&hint);
        }
        text
    }

    /// The error for a program: `{"error":{"code","message","hint"}}`, with the record's position when there is one.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut body = Map::new();
        body.insert("code".into(), json!(self.code()));
        body.insert("message".into(), json!(self.to_string()));
        body.insert("hint".into(), json!(self.hint()));
        if let Self::BadRecord(bad) = self {
            match &bad.at {
                Position::Line { file, line } => {
                    body.insert("file".into(), json!(**file));
                    body.insert("line".into(), json!(line));
                }
                Position::Offset { topic, partition, offset } => {
                    body.insert("topic".into(), json!(**topic));
                    body.insert("partition".into(), json!(partition));
                    body.insert("offset".into(), json!(offset));
                }
            }
        }
        let mut outer = Map::new();
        outer.insert("error".into(), Value::Object(body));
        Value::Object(outer).to_string()
    }
}

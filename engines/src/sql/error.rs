//! Why a query is refused.

use arrow::datatypes::{DataType, Fields};
use datafusion_common::{Column, DataFusionError, SchemaError};

use super::catalog::closest;
use super::parse::Table;

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
        /// `column`, `field`, `list`, `function`.
        kind: &'static str,
        /// The name as resolved.
        name: String,
        /// Names there are.
        hint: String,
    },
    /// A name that stands for two things.
    #[error("the name {name} is ambiguous")]
    Ambiguous {
        /// The name.
        name: String,
        /// How to tell them apart.
        hint: String,
    },
    /// A query that means nothing, whatever the engine.
    #[error("{reason}")]
    Invalid {
        /// What stands where it may not.
        reason: String,
        /// What to write instead.
        hint: String,
    },
    /// Types that do not go together.
    #[error("{reason}")]
    Type {
        /// Which expression and types.
        reason: String,
        /// What to write instead.
        hint: String,
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
            Self::Ambiguous { .. } => "AMBIGUOUS_NAME",
            Self::Invalid { .. } => "INVALID_QUERY",
            Self::Type { .. } => "TYPE_ERROR",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Syntax { .. } => "check the query near that place".into(),
            Self::NotSupported { hint, .. }
            | Self::Unknown { hint, .. }
            | Self::Ambiguous { hint, .. }
            | Self::Invalid { hint, .. }
            | Self::Type { hint, .. } => hint.clone(),
        }
    }
}

/// A planner's error in this crate's terms.
pub(super) fn from_planner(error: &DataFusionError) -> SqlError {
    match error.find_root() {
        DataFusionError::SchemaError(schema, _) => from_schema(schema),
        DataFusionError::NotImplemented(text) if text.starts_with("Unsupported SQL type") => {
            let name = first_line(text).trim_start_matches("Unsupported SQL type").trim().to_owned();
            SqlError::not_supported(
                format!("the type {name}"),
                "types: BIGINT, INT, DOUBLE, BOOLEAN, VARCHAR, TIMESTAMP, DATE",
            )
        }
        DataFusionError::NotImplemented(text) => {
            SqlError::not_supported(format!("this part of the query ({})", first_line(text)), super::refuse::SUPPORTED)
        }
        DataFusionError::Plan(text) if text.starts_with("Projections require unique expression names") => {
            SqlError::Ambiguous { name: repeated_name(text), hint: "give one of them another name with AS".into() }
        }
        DataFusionError::Plan(text) | DataFusionError::Execution(text) => type_error(text),
        other => type_error(&other.strip_backtrace()),
    }
}

fn type_error(text: &str) -> SqlError {
    if let Some(error) = invalid(text) {
        return error;
    }
    // Which part of which library noticed it says nothing about the query.
    let text =
        ["Arrow error: ", "Parser error: ", "Cast error: "].iter().fold(text, |text, of| text.trim_start_matches(of));
    let text = text.split(". No function matches").next().unwrap_or(text);
    let hint = if text.starts_with("Cannot access field") {
        "only a record has fields"
    } else if text.contains("non-boolean predicate") {
        "compare it with a value"
    } else if text.starts_with("Function '") || text.contains("does not support zero arguments") {
        "check the number and the types of its arguments"
    } else if text.contains("type interval") {
        "write INTERVAL '5 seconds'; units: microseconds, milliseconds, seconds, minutes, hours, days, weeks"
    } else if text.contains("temporal operation") {
        "write the length of time as one INTERVAL"
    } else {
        "CAST one side to the type you mean"
    };
    SqlError::Type { reason: first_line(text), hint: hint.into() }
}

/// What the planner says of groups, as a reader would.
fn invalid(text: &str) -> Option<SqlError> {
    let invalid = |reason: String, hint: &str| Some(SqlError::Invalid { reason, hint: hint.into() });
    if text.contains("must appear in the GROUP BY clause") {
        let clause = if text.contains("in HAVING") || text.starts_with("HAVING") { "HAVING" } else { "SELECT" };
        let name = text.split('"').nth(1).filter(|_| text.starts_with("Column in"));
        let name = name.map_or_else(|| "a column".to_owned(), str::to_owned);
        return invalid(
            format!("{clause} names {name}, which is neither in GROUP BY nor in an aggregate"),
            "add it to GROUP BY, or write first(…) of it; a window is written the same in SELECT and in GROUP BY",
        );
    }
    if text.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        return invalid("WHERE holds an aggregate".into(), "WHERE filters rows; write HAVING to filter groups");
    }
    if text.starts_with("Aggregate function calls cannot be nested") {
        return invalid(
            "an aggregate stands inside of an aggregate".into(),
            "aggregate twice: SELECT sum(n) FROM (SELECT count(*) AS n FROM … GROUP BY …) AS x",
        );
    }
    if text.starts_with("Cannot find column with position") {
        let reason = format!("GROUP BY: {}", first_line(text).replace("Cannot find", "there is no"));
        return invalid(reason, "write the column instead of its number");
    }
    if text.contains("have different number of columns") {
        return invalid("the parts of UNION ALL have different numbers of columns".into(), "select as many in each");
    }
    None
}

/// Names the fields there are where a record has none of the name.
pub(super) fn with_fields(error: SqlError, tables: &[Table]) -> SqlError {
    let SqlError::Type { reason, .. } = &error else { return error };
    let Some(name) = reason.strip_prefix("Field ").and_then(|rest| rest.strip_suffix(" not found in struct")) else {
        return error;
    };
    let mut fields = Vec::new();
    for table in tables {
        inner_fields(table.schema.fields(), &mut fields);
    }
    let hint = match closest(name, fields.iter().map(String::as_str)) {
        Some(found) => format!("did you mean {found}?"),
        None => format!("there are: {}", fields.join(", ")),
    };
    SqlError::Unknown { kind: "field", name: name.to_owned(), hint }
}

/// Names of the fields of records inside of records.
fn inner_fields(fields: &Fields, names: &mut Vec<String>) {
    for field in fields {
        if let DataType::Struct(inner) = field.data_type() {
            names.extend(inner.iter().map(|field| field.name().clone()));
            inner_fields(inner, names);
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("").trim_end_matches(['.', ' ']).to_owned()
}

/// The output name that two expressions have: what stands behind AS, or the column.
fn repeated_name(text: &str) -> String {
    let expression = text.split('"').nth(1).unwrap_or("");
    let name = expression.rsplit(" AS ").next().unwrap_or(expression);
    name.rsplit('.').next().unwrap_or(name).to_owned()
}

fn from_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let known = |c: &Column| match &field.relation {
                Some(_) => c.flat_name(),
                None => c.name().to_owned(),
            };
            let wanted = known(field);
            let same: Vec<String> = valid_fields.iter().filter(|c| c.relation == field.relation).map(known).collect();
            let all: Vec<String> = if same.is_empty() { valid_fields.iter().map(known).collect() } else { same };
            let hint = match closest(&wanted, all.iter().map(String::as_str)) {
                Some(found) if found.eq_ignore_ascii_case(&wanted) => {
                    format!("names in double quotes keep their case: {found}")
                }
                Some(found) => format!("did you mean {found}?"),
                None => format!("there are: {}", all.join(", ")),
            };
            SqlError::Unknown { kind: "column", name: field.flat_name(), hint }
        }
        SchemaError::AmbiguousReference { field } => SqlError::Ambiguous {
            name: field.name().to_owned(),
            hint: "qualify it with the stream's name or the alias of UNNEST".into(),
        },
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            SqlError::Ambiguous { name: name.clone(), hint: "give one of them another name with AS".into() }
        }
    }
}

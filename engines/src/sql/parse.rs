//! From text to a syntax tree that only holds what this engine runs.
//!
//! Every use of a stream or table in a FROM becomes a table of its own, so that the planner keeps them apart; `UNNEST(list) AS
//! e` becomes a table of the list's elements beside its stream.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use datafusion_sql::sqlparser::ast::{Expr, Ident, LimitClause, Query, Statement, Value};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};

use super::sources::Sources;
use super::{SourceSchema, SqlError, names, refuse, rewrite};
use crate::plan::Role;

/// A query in the form the planner takes.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) query: Query,
    pub(super) tables: Vec<Table>,
    pub(super) limit: Option<u64>,
}

/// A table the planner sees.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// Unique.
    pub(super) name: String,
    pub(super) schema: SchemaRef,
    pub(super) of: Of,
}

/// What a table stands for.
#[derive(Debug, Clone)]
pub(super) enum Of {
    /// One use of the source of this index.
    Source(usize),
    /// The elements of a list of the table of this index.
    Elements {
        /// The table.
        table: usize,
        /// Path of the list from the record's root.
        list: Vec<String>,
        /// Path of every column from the element; empty when the element itself is the column.
        paths: Vec<Vec<String>>,
    },
}

/// Prefix of names that no query can write by accident.
pub(super) const OWN: &str = "\u{0}";

pub(super) fn parse(sql: &str, sources: &[(SourceSchema, Role)]) -> Result<Parsed, SqlError> {
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location().map_err(|e| syntax(e.into()))?;
    if tokens.len() > refuse::MAX_TOKENS {
        let what = format!("a query of more than {} words and signs", refuse::MAX_TOKENS);
        return Err(SqlError::not_supported(what, "shorten it"));
    }
    let (tokens, asof) = plain_joins(tokens);
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens);
    let mut statements = parser.parse_statements().map_err(syntax)?;
    let statement = match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => statement,
        (None, _) => return Err(SqlError::Syntax { reason: "there is no statement".into() }),
        (Some(_), false) => return Err(SqlError::not_supported("more than one statement", "run one query at a time")),
    };
    let Statement::Query(query) = statement else {
        return Err(SqlError::not_supported("a statement other than SELECT", refuse::SUPPORTED));
    };
    let mut query = *query;
    refuse::depth(&query)?;
    let limit = take_limit(&mut query)?;
    let mut taking = Sources::new(sources, asof);
    taking.query(&mut query, &[])?;
    let tables = taking.tables;
    names::resolve_case(&mut query, &tables);
    refuse::expressions(&query)?;
    rewrite::rewrite(&mut query);
    Ok(Parsed { query, tables, limit })
}

pub(super) fn syntax(error: ParserError) -> SqlError {
    let reason = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        ParserError::RecursionLimitExceeded => "the query is nested too deeply".into(),
    };
    SqlError::Syntax { reason }
}

/// Makes plain joins of ASOF joins and says which they are, counted from the beginning; `MATCH_CONDITION (…) ON …` becomes a
/// part of the ON.
fn plain_joins(tokens: Vec<TokenWithSpan>) -> (Vec<TokenWithSpan>, HashSet<usize>) {
    let mut tokens: Vec<TokenWithSpan> =
        tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let is = |token: &TokenWithSpan, words: &[&str]| match &token.token {
        Token::Word(w) => w.quote_style.is_none() && words.iter().any(|word| w.value.eq_ignore_ascii_case(word)),
        _ => false,
    };
    let (mut asof, mut joins) = (HashSet::new(), 0_usize);
    let mut kept = vec![true; tokens.len()];
    for at in 0..tokens.len() {
        let behind = || tokens[at + 1..].iter().find(|token| !is(token, &["left", "right", "full", "inner", "outer"]));
        if is(&tokens[at], &["asof"]) && behind().is_some_and(|token| is(token, &["join"])) {
            asof.insert(joins);
            kept[at] = false;
        }
        joins += usize::from(is(&tokens[at], &["join"]));
        if is(&tokens[at], &["match_condition"]) && asof.contains(&(joins.saturating_sub(1))) {
            tokens[at].token = keyword("ON", Keyword::ON);
            if let Some(end) = closing(&tokens, at + 1)
                && let Some(next) = tokens.get_mut(end + 1).filter(|next| is(next, &["on"]))
            {
                next.token = keyword("AND", Keyword::AND);
            }
        }
    }
    let plain = tokens.into_iter().zip(kept).filter_map(|(token, kept)| kept.then_some(token));
    (plain.collect(), asof)
}

fn keyword(text: &str, keyword: Keyword) -> Token {
    Token::Word(Word { value: text.into(), quote_style: None, keyword })
}

/// Where the parenthesis that opens at `from` is closed.
fn closing(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return (at > from).then_some(at);
        }
    }
    None
}

fn take_limit(query: &mut Query) -> Result<Option<u64>, SqlError> {
    match query.limit_clause.take() {
        None => Ok(None),
        Some(LimitClause::LimitOffset { limit: None, offset: None, .. }) => Ok(None),
        Some(LimitClause::LimitOffset { limit: Some(Expr::Value(value)), offset: None, limit_by })
            if limit_by.is_empty() =>
        {
            match value.value {
                Value::Number(text, _) => text.parse().map(Some).map_err(|_| {
                    SqlError::not_supported(format!("LIMIT {text}"), "write LIMIT with a whole number of rows")
                }),
                _ => Err(SqlError::not_supported("LIMIT of an expression", "write LIMIT with a whole number of rows")),
            }
        }
        Some(_) => Err(SqlError::not_supported(
            "OFFSET, LIMIT BY or LIMIT of an expression",
            "write LIMIT with a whole number of rows",
        )),
    }
}

pub(super) fn normal(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() }
}

/// The path as the schema spells it, when it leads to a list.
pub(super) fn list_path(parts: &[&Ident], fields: &Fields) -> Option<Vec<String>> {
    let (first, rest) = parts.split_first()?;
    let wanted = normal(first);
    let field = fields
        .iter()
        .find(|f| *f.name() == wanted)
        .or_else(|| fields.iter().find(|f| first.quote_style.is_none() && f.name().eq_ignore_ascii_case(&wanted)))?;
    match (field.data_type(), rest.is_empty()) {
        (DataType::List(_), true) => Some(vec![field.name().clone()]),
        (DataType::Struct(inner), false) => {
            let mut path = vec![field.name().clone()];
            path.extend(list_path(rest, inner)?);
            Some(path)
        }
        _ => None,
    }
}

/// Columns of the elements of a list, and the path of each from the element.
pub(super) fn element_schema(
    list: &Field,
    alias: &str,
    names: &[String],
) -> Result<(SchemaRef, Vec<Vec<String>>), SqlError> {
    let DataType::List(item) = list.data_type() else {
        return Err(SqlError::Unknown { kind: "list", name: list.name().clone(), hint: String::new() });
    };
    let (mut fields, mut paths) = (Vec::new(), Vec::new());
    match item.data_type() {
        DataType::Struct(inner) => {
            for field in inner {
                let nullable = field.is_nullable() || item.is_nullable();
                fields.push(Field::new(field.name(), field.data_type().clone(), nullable));
                paths.push(vec![field.name().clone()]);
            }
        }
        other => {
            fields.push(Field::new(alias, other.clone(), item.is_nullable()));
            paths.push(vec![]);
        }
    }
    if names.len() > fields.len() {
        let what = format!("{} names for the {} fields of an element", names.len(), fields.len());
        return Err(SqlError::not_supported(what, "name at most as many columns as an element has"));
    }
    for (field, name) in fields.iter_mut().zip(names) {
        field.set_name(name.clone());
    }
    Ok((Arc::new(Schema::new(fields)), paths))
}

/// The field at a path of records.
pub(super) fn field_at<'a>(fields: &'a Fields, path: &[String]) -> Option<&'a Field> {
    let (first, rest) = path.split_first()?;
    let field = fields.iter().find(|f| f.name() == first)?;
    match (rest.is_empty(), field.data_type()) {
        (true, _) => Some(field),
        (false, DataType::Struct(inner)) => field_at(inner, rest),
        _ => None,
    }
}

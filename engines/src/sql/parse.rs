//! From text to a syntax tree that only holds what this engine runs.
//!
//! `FROM stream, UNNEST(list) AS e` becomes `FROM stream, e`: the planner resolves `e.field` as a column of a second table,
//! and the decoder does the unnesting.

use std::collections::HashMap;
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Fields};
use datafusion_sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, LimitClause, ObjectName, Query, Select, SetExpr, Statement, TableAlias,
    TableFactor, Value, visit_expressions_mut,
};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Tokenizer;

use super::{SourceSchema, SqlError, refuse};

/// A query in the form the planner takes.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) query: Query,
    /// Name the query gives to the stream.
    pub(super) stream: String,
    pub(super) unnest: Option<Unnest>,
    pub(super) limit: Option<u64>,
}

/// `UNNEST(path) AS alias(columns)`.
#[derive(Debug)]
pub(super) struct Unnest {
    pub(super) alias: String,
    pub(super) columns: Vec<String>,
    /// Path of the list from the record's root, as the schema spells it.
    pub(super) path: Vec<String>,
}

pub(super) fn parse(sql: &str, source: &SourceSchema) -> Result<Parsed, SqlError> {
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location().map_err(|e| syntax(e.into()))?;
    if tokens.len() > refuse::MAX_TOKENS {
        let what = format!("a query of more than {} words and signs", refuse::MAX_TOKENS);
        return Err(SqlError::not_supported(what, "shorten it"));
    }
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
    refuse::query(&query)?;
    let limit = take_limit(&mut query)?;
    let select = select_of(&mut query)?;
    refuse::select(select)?;
    let (stream, unnest) = take_sources(select, source)?;
    resolve_case(&mut query, source, &stream, unnest.as_ref());
    refuse::expressions(&query)?;
    Ok(Parsed { query, stream, unnest, limit })
}

fn syntax(error: ParserError) -> SqlError {
    let reason = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        ParserError::RecursionLimitExceeded => "the query is nested too deeply".into(),
    };
    SqlError::Syntax { reason }
}

fn select_of(query: &mut Query) -> Result<&mut Select, SqlError> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Ok(select),
        _ => Err(SqlError::not_supported("a query without SELECT", refuse::SUPPORTED)),
    }
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

/// Replaces the FROM clause by plain table names and says what they stand for.
fn take_sources(select: &mut Select, source: &SourceSchema) -> Result<(String, Option<Unnest>), SqlError> {
    let mut factors = Vec::new();
    for table in select.from.drain(..) {
        factors.push(table.relation);
        for join in table.joins {
            match (&join.join_operator, &join.relation) {
                (JoinOperator::CrossJoin(JoinConstraint::None), TableFactor::UNNEST { .. }) => {
                    factors.push(join.relation)
                }
                _ => {
                    return Err(SqlError::not_supported(
                        "JOIN",
                        "joins are not yet part of the stateless engine; UNNEST a list with FROM stream, UNNEST(list) AS e",
                    ));
                }
            }
        }
    }
    factors.iter().try_for_each(refuse::stream)?;
    let mut factors = factors.into_iter();
    let stream = match factors.next() {
        Some(TableFactor::Table { name, alias, args: None, .. }) => stream_name(&name, alias)?,
        Some(TableFactor::Derived { .. }) => {
            return Err(SqlError::not_supported("a derived table in FROM", refuse::SUPPORTED));
        }
        Some(_) => {
            return Err(SqlError::not_supported(
                "FROM without a stream's name first",
                "write FROM stream, then UNNEST(list) AS e",
            ));
        }
        None => return Err(SqlError::not_supported("a query without FROM", refuse::SUPPORTED)),
    };
    let unnest = match factors.next() {
        None => None,
        Some(TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality: false, .. }) => {
            Some(unnest_clause(alias, &array_exprs, &stream, source)?)
        }
        Some(TableFactor::UNNEST { .. }) => {
            return Err(SqlError::not_supported(
                "UNNEST WITH ORDINALITY or WITH OFFSET",
                "read a sequence field of the element instead",
            ));
        }
        Some(_) => {
            return Err(SqlError::not_supported(
                "a second stream or table in FROM",
                "joins are not yet part of the stateless engine",
            ));
        }
    };
    if factors.next().is_some() {
        return Err(SqlError::not_supported("more than one UNNEST", "unnest one list per query"));
    }
    if unnest.as_ref().is_some_and(|u| u.alias == stream) {
        return Err(SqlError::Ambiguous { name: stream, hint: "give the unnested list another alias".into() });
    }
    let names = std::iter::once(stream.clone()).chain(unnest.as_ref().map(|u| u.alias.clone()));
    select.from = plain_from(names)?;
    Ok((stream, unnest))
}

fn plain_from(
    names: impl Iterator<Item = String>,
) -> Result<Vec<datafusion_sql::sqlparser::ast::TableWithJoins>, SqlError> {
    let list: Vec<String> = names.map(|n| format!("\"{}\"", n.replace('"', "\"\""))).collect();
    let text = format!("SELECT 1 FROM {}", list.join(", "));
    let mut statements = Parser::parse_sql(&GenericDialect {}, &text).map_err(syntax)?;
    match statements.pop() {
        Some(Statement::Query(query)) => match *query.body {
            SetExpr::Select(select) => Ok(select.from),
            _ => Ok(vec![]),
        },
        _ => Ok(vec![]),
    }
}

fn normal(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() }
}

fn stream_name(name: &ObjectName, alias: Option<TableAlias>) -> Result<String, SqlError> {
    if let Some(alias) = alias {
        return if alias.columns.is_empty() {
            Ok(normal(&alias.name))
        } else {
            Err(SqlError::not_supported("renaming a stream's columns in FROM", "rename them with AS in SELECT"))
        };
    }
    match name.0.as_slice() {
        [part] => part
            .as_ident()
            .map(normal)
            .ok_or_else(|| SqlError::not_supported("a table function in FROM", refuse::SUPPORTED)),
        _ => Err(SqlError::not_supported(
            format!("the qualified stream name {name}"),
            "write the stream's name in double quotes when it holds a dot or a dash",
        )),
    }
}

fn unnest_clause(
    alias: Option<TableAlias>,
    arrays: &[Expr],
    stream: &str,
    source: &SourceSchema,
) -> Result<Unnest, SqlError> {
    let parts: Vec<&Ident> = match arrays {
        [Expr::Identifier(ident)] => vec![ident],
        [Expr::CompoundIdentifier(idents)] => idents.iter().collect(),
        _ => {
            return Err(SqlError::not_supported(
                "UNNEST of an expression",
                "UNNEST a list field of the record: UNNEST(events) AS e",
            ));
        }
    };
    let fields = source.schema.fields();
    let path = match (list_path(&parts, fields), parts.split_first()) {
        (Some(path), _) => path,
        (None, Some((first, rest))) if normal(first) == stream && !rest.is_empty() => {
            list_path(rest, fields).ok_or_else(|| no_list(rest, source))?
        }
        _ => return Err(no_list(&parts, source)),
    };
    let columns = alias.iter().flat_map(|a| a.columns.iter().map(|c| normal(&c.name))).collect();
    let alias = alias.map_or_else(|| "unnest".to_owned(), |a| normal(&a.name));
    Ok(Unnest { alias, columns, path })
}

/// The path as the schema spells it, when it leads to a list.
fn list_path(parts: &[&Ident], fields: &Fields) -> Option<Vec<String>> {
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

fn no_list(parts: &[&Ident], source: &SourceSchema) -> SqlError {
    let name = parts.iter().map(|p| p.value.as_str()).collect::<Vec<_>>().join(".");
    let lists: Vec<&str> = source
        .schema
        .fields()
        .iter()
        .filter(|f| matches!(f.data_type(), DataType::List(_)))
        .map(|f| f.name().as_str())
        .collect();
    let hint = if lists.is_empty() {
        format!("{} has no list", source.name)
    } else {
        format!("its lists: {}", lists.join(", "))
    };
    SqlError::Unknown { kind: "list", name, hint }
}

/// Spells unquoted names as the schema does when they differ only in case.
fn resolve_case(query: &mut Query, source: &SourceSchema, stream: &str, unnest: Option<&Unnest>) {
    let mut names: HashMap<String, Vec<String>> = HashMap::new();
    let mut add = |name: &str| {
        let spellings = names.entry(name.to_ascii_lowercase()).or_default();
        if !spellings.iter().any(|s| s == name) {
            spellings.push(name.to_owned());
        }
    };
    add(stream);
    unnest.iter().for_each(|u| {
        add(&u.alias);
        u.columns.iter().for_each(|c| add(c));
    });
    all_names(source.schema.fields(), &mut add);
    let _ = visit_expressions_mut(query, |expr| {
        let idents: &mut [Ident] = match expr {
            Expr::Identifier(ident) => std::slice::from_mut(ident),
            Expr::CompoundIdentifier(idents) => idents,
            _ => return ControlFlow::<()>::Continue(()),
        };
        for ident in idents.iter_mut().filter(|i| i.quote_style.is_none()) {
            let lower = ident.value.to_ascii_lowercase();
            if let Some([only]) = names.get(&lower).map(Vec::as_slice)
                && *only != lower
            {
                *ident = Ident::with_quote('"', only);
            }
        }
        ControlFlow::Continue(())
    });
}

fn all_names(fields: &Fields, add: &mut impl FnMut(&str)) {
    for field in fields {
        add(field.name());
        let mut inner = field.data_type();
        while let DataType::List(item) = inner {
            inner = item.data_type();
        }
        if let DataType::Struct(fields) = inner {
            all_names(fields, add);
        }
    }
}

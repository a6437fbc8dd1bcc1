//! The FROM clauses of a query: streams, tables, lists, joins.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Query, Select, SetExpr, SetOperator,
    SetQuantifier, TableAlias, TableFactor,
};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::parser::Parser;

use super::parse::{OWN, Of, Table, element_schema, field_at, list_path, normal, syntax};
use super::{SourceSchema, SqlError, functions, outputs, refuse};
use crate::plan::Role;

/// A name that stands for a query, and the names of its columns.
pub(super) type Cte = (String, Vec<String>);

/// Columns under the names an alias gives them.
fn renamed(mut columns: Vec<String>, alias: Option<&TableAlias>) -> Vec<String> {
    let names = alias.iter().flat_map(|alias| &alias.columns);
    for (column, name) in columns.iter_mut().zip(names) {
        *column = normal(&name.name);
    }
    columns
}

/// Walks a query and gives every use of a source a table.
pub(super) struct Sources<'a> {
    sources: &'a [(SourceSchema, Role)],
    pub(super) tables: Vec<Table>,
    /// Joins that are ASOF, by their number in the text.
    asof: HashSet<usize>,
    joins: usize,
}

impl<'a> Sources<'a> {
    pub(super) fn new(sources: &'a [(SourceSchema, Role)], asof: HashSet<usize>) -> Self {
        Self { sources, tables: vec![], asof, joins: 0 }
    }

    /// A query in which the names of `ctes` stand for queries. Yields the names of its columns, where it gives them names.
    pub(super) fn query(&mut self, query: &mut Query, ctes: &[Cte]) -> Result<Vec<String>, SqlError> {
        refuse::query(query)?;
        let mut ctes = ctes.to_vec();
        if let Some(with) = &mut query.with {
            if with.recursive {
                return Err(SqlError::not_supported("WITH RECURSIVE", refuse::SUPPORTED));
            }
            for cte in &mut with.cte_tables {
                let columns = self.query(&mut cte.query, &ctes)?;
                ctes.push((normal(&cte.alias.name), renamed(columns, Some(&cte.alias))));
            }
        }
        self.body(&mut query.body, &ctes)
    }

    fn body(&mut self, body: &mut SetExpr, ctes: &[Cte]) -> Result<Vec<String>, SqlError> {
        match body {
            SetExpr::Select(select) => self.select(select, ctes),
            SetExpr::Query(query) => self.query(query, ctes),
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right } => {
                let columns = self.body(left, ctes)?;
                self.body(right, ctes)?;
                Ok(columns)
            }
            SetExpr::SetOperation { .. } => {
                Err(SqlError::not_supported("UNION without ALL, EXCEPT or INTERSECT", "write UNION ALL"))
            }
            SetExpr::Values(_) => Err(SqlError::not_supported("VALUES", refuse::SUPPORTED)),
            _ => Err(SqlError::not_supported("a statement other than SELECT", refuse::SUPPORTED)),
        }
    }

    fn select(&mut self, select: &mut Select, ctes: &[Cte]) -> Result<Vec<String>, SqlError> {
        refuse::select(select)?;
        // One chain of joins: a comma is a join like any other.
        let mut from = std::mem::take(&mut select.from).into_iter();
        let Some(mut statement) = from.next() else {
            return Err(SqlError::not_supported("a query without FROM", refuse::SUPPORTED));
        };
        let (mut streams, mut columns) = (Vec::new(), Vec::new());
        columns.extend(self.factor(&mut statement.relation, ctes, &mut streams)?);
        self.joined(&mut statement.joins, ctes, &mut streams, &mut columns)?;
        for mut table in from {
            let mut factor = table.relation;
            columns.extend(self.factor(&mut factor, ctes, &mut streams)?);
            let cross = JoinOperator::CrossJoin(JoinConstraint::None);
            statement.joins.push(Join { relation: factor, global: false, join_operator: cross });
            self.joined(&mut table.joins, ctes, &mut streams, &mut columns)?;
            statement.joins.extend(table.joins);
        }
        select.from = vec![statement];
        outputs::name(select);
        outputs::windows(select, &columns)?;
        Ok(outputs::names(select, &columns))
    }

    /// Joins, each counted by its word in the text.
    fn joined(
        &mut self,
        joins: &mut [Join],
        ctes: &[Cte],
        streams: &mut Vec<(String, usize)>,
        columns: &mut Vec<String>,
    ) -> Result<(), SqlError> {
        for join in joins {
            let number = self.joins;
            self.joins += 1;
            columns.extend(self.factor(&mut join.relation, ctes, streams)?);
            join_operator(&mut join.join_operator, self.asof.contains(&number))?;
        }
        Ok(())
    }

    /// A table of a FROM clause, and the names of its columns. `streams` are the tables before it, with the names they have
    /// here.
    fn factor(
        &mut self,
        factor: &mut TableFactor,
        ctes: &[Cte],
        streams: &mut Vec<(String, usize)>,
    ) -> Result<Vec<String>, SqlError> {
        refuse::stream(factor)?;
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let given = table_name(name)?;
                if let Some((_, columns)) = ctes.iter().rev().find(|(cte, _)| *cte == given) {
                    return Ok(renamed(columns.clone(), alias.as_ref()));
                }
                let source = self.source(&given)?;
                if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
                    return Err(SqlError::not_supported(
                        "renaming a stream's columns in FROM",
                        "rename them with AS in SELECT",
                    ));
                }
                let called = alias.as_ref().map_or(given, |alias| normal(&alias.name));
                let table = self.tables.len();
                let unique = format!("{OWN}{table}");
                self.tables.push(Table {
                    name: unique.clone(),
                    schema: self.sources[source].0.schema.clone(),
                    of: Of::Source(source),
                });
                streams.push((called.clone(), table));
                *name = ObjectName::from(vec![Ident::with_quote('"', unique)]);
                *alias = Some(alias_of(&called));
                Ok(self.columns(table))
            }
            TableFactor::Derived { lateral: false, subquery, alias, .. } => {
                Ok(renamed(self.query(subquery, ctes)?, alias.as_ref()))
            }
            TableFactor::Derived { .. } => Err(SqlError::not_supported("LATERAL", refuse::SUPPORTED)),
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality: false, .. } => {
                let table = self.unnest(alias.take(), array_exprs, streams)?;
                *factor = table;
                Ok(self.columns(self.tables.len() - 1))
            }
            TableFactor::UNNEST { .. } => Err(SqlError::not_supported(
                "UNNEST WITH ORDINALITY or WITH OFFSET",
                "read a sequence field of the element instead",
            )),
            TableFactor::NestedJoin { .. } => {
                Err(SqlError::not_supported("a join in parentheses", "write the joins one behind the other"))
            }
            _ => Err(SqlError::not_supported("a table function in FROM", refuse::SUPPORTED)),
        }
    }

    fn columns(&self, table: usize) -> Vec<String> {
        self.tables[table].schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Index of the source of a name. With one stream, the query may call it anything.
    fn source(&self, name: &str) -> Result<usize, SqlError> {
        let spelled = |wanted: &str| self.sources.iter().position(|(source, _)| source.name == wanted);
        let folded = || self.sources.iter().position(|(source, _)| source.name.eq_ignore_ascii_case(name));
        if let Some(found) = spelled(name).or_else(folded) {
            return Ok(found);
        }
        if self.sources.len() == 1 {
            return Ok(0);
        }
        let names: Vec<&str> = self.sources.iter().map(|(source, _)| source.name.as_str()).collect();
        let hint = format!("there are: {}; name others with --stream or --table", names.join(", "));
        Err(SqlError::Unknown { kind: "stream or table", name: name.to_owned(), hint })
    }

    fn unnest(
        &mut self,
        alias: Option<TableAlias>,
        arrays: &[Expr],
        streams: &[(String, usize)],
    ) -> Result<TableFactor, SqlError> {
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
        if streams.is_empty() {
            return Err(SqlError::not_supported(
                "FROM without a stream's name first",
                "write FROM stream, then UNNEST(list) AS e",
            ));
        }
        let unnested =
            |table: usize| self.tables.iter().any(|t| matches!(&t.of, Of::Elements { table: of, .. } if *of == table));
        let (table, list) = match self.find_list(&parts, streams) {
            Err(_) if streams.iter().all(|(_, table)| unnested(*table)) => return Err(twice()),
            found => found?,
        };
        let names: Vec<String> = alias.iter().flat_map(|a| a.columns.iter().map(|c| normal(&c.name))).collect();
        let called = alias.map_or_else(|| "unnest".to_owned(), |a| normal(&a.name));
        if streams.iter().any(|(name, _)| *name == called) {
            return Err(SqlError::Ambiguous { name: called, hint: "give the unnested list another alias".into() });
        }
        if unnested(table) {
            return Err(twice());
        }
        let schema = self.tables[table].schema.clone();
        let Some(field) = field_at(schema.fields(), &list) else {
            return Err(SqlError::Unknown { kind: "list", name: list.join("."), hint: String::new() });
        };
        let (elements, paths) = element_schema(field, &called, &names)?;
        if let [only] = list.as_slice() {
            // The list itself is not among the record's columns: `*` means its elements.
            let rest: Vec<_> = schema.fields().iter().filter(|f| f.name() != only).cloned().collect();
            self.tables[table].schema = Arc::new(Schema::new(rest));
        }
        let unique = format!("{OWN}{}", self.tables.len());
        self.tables.push(Table { name: unique.clone(), schema: elements, of: Of::Elements { table, list, paths } });
        let mut plain = plain_from()?.relation;
        if let TableFactor::Table { name, alias, .. } = &mut plain {
            *name = ObjectName::from(vec![Ident::with_quote('"', unique)]);
            *alias = Some(alias_of(&called));
        }
        Ok(plain)
    }

    fn find_list(&self, parts: &[&Ident], streams: &[(String, usize)]) -> Result<(usize, Vec<String>), SqlError> {
        let fields = |table: usize| self.tables[table].schema.fields();
        if let Some(found) = streams.iter().find_map(|(_, table)| Some((*table, list_path(parts, fields(*table))?))) {
            return Ok(found);
        }
        let qualified = parts.split_first().and_then(|(first, rest)| {
            let (_, table) = streams.iter().find(|(name, _)| *name == normal(first))?;
            (!rest.is_empty()).then_some((*table, rest))
        });
        let (table, rest) = qualified.unwrap_or((streams[0].1, parts));
        if let Some(path) = list_path(rest, fields(table)) {
            return Ok((table, path));
        }
        let name = rest.iter().map(|p| p.value.as_str()).collect::<Vec<_>>().join(".");
        let lists = fields(table).iter().filter(|f| matches!(f.data_type(), DataType::List(_)));
        let lists: Vec<&str> = lists.map(|f| f.name().as_str()).collect();
        let hint = match (&self.tables[table].of, lists.is_empty()) {
            (Of::Source(source), true) => format!("{} has no list", self.sources[*source].0.name),
            _ => format!("its lists: {}", lists.join(", ")),
        };
        Err(SqlError::Unknown { kind: "list", name, hint })
    }
}

fn twice() -> SqlError {
    SqlError::not_supported("more than one UNNEST of a stream", "unnest one of its lists")
}

fn table_name(name: &ObjectName) -> Result<String, SqlError> {
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

fn alias_of(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: Ident::with_quote('"', name), columns: vec![], at: None }
}

fn plain_from() -> Result<datafusion_sql::sqlparser::ast::TableWithJoins, SqlError> {
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql("x").map_err(syntax)?;
    parser.parse_table_and_joins().map_err(syntax)
}

/// Keeps the joins there are, and marks ASOF ones.
fn join_operator(operator: &mut JoinOperator, asof: bool) -> Result<(), SqlError> {
    let constraint = match operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c)
        | JoinOperator::Right(c)
        | JoinOperator::RightOuter(c)
        | JoinOperator::FullOuter(c)
        | JoinOperator::CrossJoin(c) => c,
        _ => {
            return Err(SqlError::not_supported(
                "this kind of join",
                "write JOIN, LEFT JOIN, RIGHT JOIN, FULL JOIN or ASOF JOIN with ON",
            ));
        }
    };
    if asof {
        let JoinConstraint::On(condition) = constraint else {
            return Err(SqlError::not_supported(
                "an ASOF JOIN without ON",
                "write ASOF JOIN t ON a.k = t.k AND a.ts >= t.ts",
            ));
        };
        let marker = call(functions::ASOF, None)?;
        let own = std::mem::replace(condition, marker.clone());
        *condition = Expr::BinaryOp {
            left: Box::new(marker),
            op: BinaryOperator::And,
            right: Box::new(Expr::Nested(Box::new(own))),
        };
    }
    Ok(())
}

/// A call of a function of our own.
pub(super) fn call(name: &str, argument: Option<&Expr>) -> Result<Expr, SqlError> {
    let text = argument.map_or_else(|| format!("{name}()"), |argument| format!("{name}({argument})"));
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(&text).map_err(syntax)?;
    parser.parse_expr().map_err(syntax)
}

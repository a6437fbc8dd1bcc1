//! The FROM clauses of a query: streams, tables, lists, and the window a SELECT groups by.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Query,
    Select, SelectItem, SetExpr, SetOperator, SetQuantifier, TableAlias, TableFactor, VisitMut as _, VisitorMut,
    visit_expressions,
};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::parser::Parser;

use super::parse::{OWN, Of, Table, element_schema, field_at, list_path, normal, syntax};
use super::{SourceSchema, SqlError, functions, refuse};
use crate::plan::Role;

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

    /// A query in which the names of `ctes` stand for queries.
    pub(super) fn query(&mut self, query: &mut Query, ctes: &[String]) -> Result<(), SqlError> {
        refuse::query(query)?;
        let mut ctes = ctes.to_vec();
        if let Some(with) = &mut query.with {
            if with.recursive {
                return Err(SqlError::not_supported("WITH RECURSIVE", refuse::SUPPORTED));
            }
            for cte in &mut with.cte_tables {
                self.query(&mut cte.query, &ctes)?;
                ctes.push(normal(&cte.alias.name));
            }
        }
        self.body(&mut query.body, &ctes)
    }

    fn body(&mut self, body: &mut SetExpr, ctes: &[String]) -> Result<(), SqlError> {
        match body {
            SetExpr::Select(select) => self.select(select, ctes),
            SetExpr::Query(query) => self.query(query, ctes),
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right } => {
                self.body(left, ctes)?;
                self.body(right, ctes)
            }
            SetExpr::SetOperation { .. } => {
                Err(SqlError::not_supported("UNION without ALL, EXCEPT or INTERSECT", "write UNION ALL"))
            }
            SetExpr::Values(_) => Err(SqlError::not_supported("VALUES", refuse::SUPPORTED)),
            _ => Err(SqlError::not_supported("a statement other than SELECT", refuse::SUPPORTED)),
        }
    }

    fn select(&mut self, select: &mut Select, ctes: &[String]) -> Result<(), SqlError> {
        refuse::select(select)?;
        if select.from.is_empty() {
            return Err(SqlError::not_supported("a query without FROM", refuse::SUPPORTED));
        }
        // One chain of joins: a comma is a join like any other.
        let mut from = std::mem::take(&mut select.from).into_iter();
        let mut chain = from.next().map(|t| (t.relation, t.joins)).into_iter();
        let Some((mut first, mut joins)) = chain.next() else { return Ok(()) };
        for table in from {
            let cross = JoinOperator::CrossJoin(JoinConstraint::None);
            joins.push(Join { relation: table.relation, global: false, join_operator: cross });
            joins.extend(table.joins);
        }
        let mut streams = Vec::new();
        self.factor(&mut first, ctes, &mut streams)?;
        for join in &mut joins {
            let explicit = !matches!(join.join_operator, JoinOperator::CrossJoin(_));
            let number = self.joins;
            if explicit {
                self.joins += 1;
            }
            self.factor(&mut join.relation, ctes, &mut streams)?;
            join_operator(&mut join.join_operator, explicit && self.asof.contains(&number))?;
        }
        let mut statement = plain_from()?;
        statement.relation = first;
        statement.joins = joins;
        select.from = vec![statement];
        windows(select)
    }

    /// A table of a FROM clause. `streams` are the tables before it, with the names they have here.
    fn factor(
        &mut self,
        factor: &mut TableFactor,
        ctes: &[String],
        streams: &mut Vec<(String, usize)>,
    ) -> Result<(), SqlError> {
        refuse::stream(factor)?;
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let given = table_name(name)?;
                if ctes.contains(&given) {
                    return Ok(());
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
                Ok(())
            }
            TableFactor::Derived { lateral: false, subquery, .. } => self.query(subquery, ctes),
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality: false, .. } => {
                let table = self.unnest(alias.take(), array_exprs, streams)?;
                *factor = table;
                Ok(())
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
        streams: &mut Vec<(String, usize)>,
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
        let (table, list) = self.find_list(&parts, streams)?;
        let names: Vec<String> = alias.iter().flat_map(|a| a.columns.iter().map(|c| normal(&c.name))).collect();
        let called = alias.map_or_else(|| "unnest".to_owned(), |a| normal(&a.name));
        if streams.iter().any(|(name, _)| *name == called) {
            return Err(SqlError::Ambiguous { name: called, hint: "give the unnested list another alias".into() });
        }
        if self.tables.iter().any(|t| matches!(&t.of, Of::Elements { table: of, .. } if *of == table)) {
            return Err(SqlError::not_supported("more than one UNNEST", "unnest one list per query"));
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
fn call(name: &str, argument: Option<&Expr>) -> Result<Expr, SqlError> {
    let text = argument.map_or_else(|| format!("{name}()"), |argument| format!("{name}({argument})"));
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(&text).map_err(syntax)?;
    parser.parse_expr().map_err(syntax)
}

fn is_window(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if functions::WINDOWS.contains(&call.name.to_string().to_ascii_lowercase().as_str()))
}

/// Replaces `window_start` and `window_end` by what they are of the SELECT's window.
fn windows(select: &mut Select) -> Result<(), SqlError> {
    let mut window = None;
    let mut look = |expr: &Expr| {
        let _ = visit_expressions(expr, |expr| {
            if is_window(expr) && window.is_none() {
                window = Some(expr.clone());
            }
            ControlFlow::<()>::Continue(())
        });
    };
    if let GroupByExpr::Expressions(expressions, _) = &select.group_by {
        expressions.iter().for_each(&mut look);
    }
    for item in &select.projection {
        if let SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr) = item {
            look(expr);
        }
    }
    let Some(window) = window else { return Ok(()) };
    let end = call(functions::WINDOW_END, Some(&window))?;
    struct Bounds {
        start: Expr,
        end: Expr,
    }
    impl VisitorMut for Bounds {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let name = match &*expr {
                Expr::Identifier(ident) if ident.quote_style.is_none() => ident.value.to_ascii_lowercase(),
                Expr::Function(call) if matches!(&call.args, FunctionArguments::List(list) if list.args.len() <= 1) => {
                    call.name.to_string().to_ascii_lowercase()
                }
                _ => return ControlFlow::Continue(()),
            };
            match name.as_str() {
                "window_start" => *expr = self.start.clone(),
                "window_end" if *expr != self.end => *expr = self.end.clone(),
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut bounds = Bounds { start: window, end };
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(Expr::Identifier(ident))
                if ident.quote_style.is_none()
                    && ["window_start", "window_end"].contains(&ident.value.to_ascii_lowercase().as_str()) =>
            {
                let alias = Ident::new(ident.value.to_ascii_lowercase());
                let expr = if alias.value == "window_start" { bounds.start.clone() } else { bounds.end.clone() };
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
            _ => {
                let _ = item.visit(&mut bounds);
            }
        }
    }
    let _ = select.having.visit(&mut bounds);
    Ok(())
}

//! What valid SQL this engine does not run, refused by name before planning.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Distinct, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Query,
    Select, SelectItem, TableFactor, Value, Visit, Visitor, visit_expressions,
};

use super::{SqlError, aggregates, catalog, functions, rewrite};

/// The queries there are.
pub(super) const SUPPORTED: &str = "supported: SELECT … FROM stream [JOIN …][, UNNEST(list) AS e] [WHERE …] [GROUP BY …] [HAVING …] [LIMIT n], WITH, UNION ALL";

fn refuse<T>(what: &str) -> Result<T, SqlError> {
    Err(SqlError::not_supported(what, SUPPORTED))
}

/// Clauses around the SELECT.
pub(super) fn query(query: &Query) -> Result<(), SqlError> {
    if query.order_by.is_some() {
        return Err(SqlError::not_supported("ORDER BY", "rows leave in the order of the source; sort the output"));
    }
    if query.fetch.is_some() {
        return Err(SqlError::not_supported("FETCH", "write LIMIT n"));
    }
    if !query.locks.is_empty() || query.for_clause.is_some() {
        return refuse("FOR …");
    }
    if query.settings.is_some() || query.format_clause.is_some() || !query.pipe_operators.is_empty() {
        return refuse("SETTINGS, FORMAT or a pipe operator");
    }
    if query.limit_clause.is_some() {
        return Err(SqlError::not_supported("LIMIT inside of a query", "write LIMIT at the end of the whole query"));
    }
    Ok(())
}

/// Clauses of the SELECT.
pub(super) fn select(select: &Select) -> Result<(), SqlError> {
    if !matches!(&select.distinct, None | Some(Distinct::All | Distinct::Distinct)) {
        return Err(SqlError::not_supported("DISTINCT ON", "GROUP BY the columns and take first(…) of the others"));
    }
    match &select.group_by {
        GroupByExpr::All(_) => return Err(SqlError::not_supported("GROUP BY ALL", "name the columns")),
        GroupByExpr::Expressions(_, modifiers) if !modifiers.is_empty() => {
            return refuse("WITH ROLLUP, CUBE or TOTALS");
        }
        GroupByExpr::Expressions(..) => {}
    }
    if select.qualify.is_some() || !select.named_window.is_empty() {
        return refuse("WINDOW or QUALIFY");
    }
    if select.prewhere.is_some() {
        return Err(SqlError::not_supported("PREWHERE", "write WHERE"));
    }
    if select.top.is_some() {
        return Err(SqlError::not_supported("TOP", "write LIMIT n"));
    }
    if !select.lateral_views.is_empty() {
        return Err(SqlError::not_supported("LATERAL VIEW", "write FROM stream, UNNEST(list) AS e"));
    }
    let other = select.into.is_some()
        || select.exclude.is_some()
        || !select.connect_by.is_empty()
        || !select.cluster_by.is_empty()
        || !select.distribute_by.is_empty()
        || !select.sort_by.is_empty()
        || select.value_table_mode.is_some()
        || select.projection.iter().any(|item| matches!(item, SelectItem::ExprWithAliases { .. }));
    if other { refuse("a clause of this SELECT") } else { Ok(()) }
}

/// What may stand behind a stream's name.
pub(super) fn stream(factor: &TableFactor) -> Result<(), SqlError> {
    let TableFactor::Table { with_hints, version, with_ordinality, partitions, json_path, sample, index_hints, .. } =
        factor
    else {
        return Ok(());
    };
    let plain = with_hints.is_empty()
        && version.is_none()
        && !with_ordinality
        && partitions.is_empty()
        && json_path.is_none()
        && sample.is_none()
        && index_hints.is_empty();
    if plain { Ok(()) } else { refuse("a clause behind the stream's name, such as TABLESAMPLE") }
}

/// Deepest nesting of an expression: what walks expressions is recursive and runs on threads with ordinary stacks.
const MAX_DEPTH: usize = 500;

/// Most tokens of a query.
pub(super) const MAX_TOKENS: usize = 20_000;

/// How deep expressions are nested.
pub(super) fn depth(query: &Query) -> Result<(), SqlError> {
    match query.visit(&mut Depth(0)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(SqlError::not_supported(
            format!("an expression nested more than {MAX_DEPTH} deep"),
            "write x IN (…) for many comparisons of one value",
        )),
    }
}

struct Depth(usize);

impl Visitor for Depth {
    type Break = ();

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.0 += 1;
        if self.0 > MAX_DEPTH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.0 -= 1;
        ControlFlow::Continue(())
    }
}

/// Calls and subqueries anywhere in the query.
pub(super) fn expressions(query: &Query) -> Result<(), SqlError> {
    match visit_expressions(query, |expr| match expression(expr) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn expression(expr: &Expr) -> Result<(), SqlError> {
    match expr {
        Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } | Expr::AnyOp { .. } | Expr::AllOp { .. } => {
            refuse("a subquery in an expression")
        }
        Expr::Function(call) => function(call),
        Expr::Interval(interval) if interval.leading_field.is_none() && is_bare(&interval.value) => {
            Err(SqlError::not_supported(format!("{expr}, without a unit,"), "write the unit: INTERVAL '5 seconds'"))
        }
        Expr::Value(value) if matches!(&value.value, Value::Number(text, _) if rewrite::is_wide(text) && text.len() > rewrite::DIGITS) => {
            Err(SqlError::not_supported(format!("the number {expr}"), "write it with a decimal point, as a DOUBLE"))
        }
        Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => {
            Err(SqlError::not_supported(format!("the parameter {expr}"), "write the value itself"))
        }
        Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.starts_with('@') => {
            Err(SqlError::not_supported(format!("the variable {expr}"), "write the value itself"))
        }
        _ => Ok(()),
    }
}

/// Whether a length of time is a number without a unit.
fn is_bare(length: &Expr) -> bool {
    match length {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => !text.contains(|c: char| c.is_alphabetic() || c == ':'),
            _ => true,
        },
        _ => false,
    }
}

/// Aggregates of other engines, and what to write instead.
const OTHERS: &[(&[&str], &str)] = &[
    (&["median", "approx_median"], "write approx_percentile(x, 0.5)"),
    (
        &["quantile", "quantile_cont", "quantile_disc", "percentile_cont", "percentile_disc", "approx_quantile"],
        "write approx_percentile(x, 0.99)",
    ),
    (&["first_value"], "write first(x)"),
    (&["last_value"], "write last(x)"),
    (&["min_by", "argmin"], "write arg_min(x, by)"),
    (&["max_by", "argmax"], "write arg_max(x, by)"),
    (&["group_concat", "listagg"], "write string_agg(x, ', ')"),
    (&["list", "collect_list", "array_concat_agg"], "write array_agg(x)"),
    (&["every"], "write bool_and(x)"),
    (&["some"], "write bool_or(x)"),
    (&["count_if", "countif"], "write count(*) FILTER (WHERE …)"),
    (&["sum_if", "sumif"], "write sum(x) FILTER (WHERE …)"),
    (
        &[
            "mode",
            "corr",
            "covar",
            "covar_pop",
            "covar_samp",
            "kurtosis",
            "skewness",
            "entropy",
            "histogram",
            "bit_and",
            "bit_or",
            "bit_xor",
            "product",
            "regr_slope",
            "regr_intercept",
            "regr_r2",
            "mad",
        ],
        "the aggregates: count, sum, avg, min, max, first, last, any_value, arg_min, arg_max, stddev, var, bool_and, bool_or, \
         approx_distinct, approx_percentile, string_agg, array_agg",
    ),
];

fn function(call: &Function) -> Result<(), SqlError> {
    let name = call.name.to_string().to_ascii_lowercase();
    if call.over.is_some() {
        return refuse("OVER");
    }
    if name == "unnest" {
        return Err(SqlError::not_supported("UNNEST in SELECT or WHERE", "write FROM stream, UNNEST(list) AS e"));
    }
    if let Some((_, hint)) = OTHERS.iter().find(|(names, _)| names.contains(&name.as_str())) {
        return Err(SqlError::not_supported(format!("the aggregate {name}"), *hint));
    }
    let aggregate = aggregates::NAMES.contains(&name.as_str());
    if aggregate {
        stars(call, &name)?;
    }
    let list = match &call.args {
        FunctionArguments::List(list) => list.clauses.is_empty() && (aggregate || list.duplicate_treatment.is_none()),
        FunctionArguments::None => true,
        FunctionArguments::Subquery(_) => false,
    };
    let plain = list
        && (aggregate || call.filter.is_none())
        && call.null_treatment.is_none()
        && call.within_group.is_empty()
        && matches!(call.parameters, FunctionArguments::None);
    let known = aggregate || catalog::function(&name).is_some() || functions::marker(&name).is_some();
    match known {
        true if plain => Ok(()),
        true if aggregate => Err(SqlError::not_supported(
            format!("{name} with ORDER BY, WITHIN GROUP or IGNORE NULLS"),
            "rows are taken in the order of the source; write only the arguments, DISTINCT and FILTER",
        )),
        true => Err(SqlError::not_supported(
            format!("{name} with DISTINCT, FILTER or another clause"),
            "write only its arguments",
        )),
        false if catalog::is_impure(&name) => Err(SqlError::not_supported(
            format!("the function {name}"),
            "its result would depend on when the query runs",
        )),
        false if name == "window_start" => {
            Err(SqlError::not_supported("window_start of something", "write window_start or window_start()"))
        }
        false => Err(SqlError::Unknown { kind: "function", hint: catalog::closest_function(&name), name }),
    }
}

/// A star is an argument of `count` alone.
fn stars(call: &Function, name: &str) -> Result<(), SqlError> {
    let FunctionArguments::List(list) = &call.args else { return Ok(()) };
    let star = |arg: &FunctionArg| {
        matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::QualifiedWildcard(_)))
    };
    if !list.args.iter().any(star) {
        return Ok(());
    }
    if name == "count" && list.args.len() == 1 {
        return match list.duplicate_treatment {
            Some(DuplicateTreatment::Distinct) => Err(SqlError::not_supported(
                "count(DISTINCT *)",
                "count the rows of SELECT DISTINCT in a derived table",
            )),
            _ => Ok(()),
        };
    }
    Err(SqlError::not_supported(format!("{name}(*)"), "name the column"))
}

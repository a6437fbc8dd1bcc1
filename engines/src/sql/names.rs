//! Spelling: unquoted names that differ from a field only in case are taken to mean it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Fields};
use datafusion_sql::sqlparser::ast::{Expr, Ident, Query, SelectItem, SetExpr, visit_expressions_mut};

use super::parse::{Table, normal};

/// Spells unquoted names as the schemas do when they differ only in case.
pub(super) fn resolve_case(query: &mut Query, tables: &[Table]) {
    let mut names: HashMap<String, Vec<String>> = HashMap::new();
    let mut add = |name: &str| {
        let spellings = names.entry(name.to_ascii_lowercase()).or_default();
        if !spellings.iter().any(|s| s == name) {
            spellings.push(name.to_owned());
        }
    };
    tables.iter().for_each(|table| all_names(table.schema.fields(), &mut add));
    aliases(query, &mut add);
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

/// Names that the query itself gives.
fn aliases(query: &Query, add: &mut impl FnMut(&str)) {
    for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
        add(&normal(&cte.alias.name));
        cte.alias.columns.iter().for_each(|column| add(&normal(&column.name)));
        aliases(&cte.query, add);
    }
    of_body(&query.body, add);
}

fn of_body(body: &SetExpr, add: &mut impl FnMut(&str)) {
    use datafusion_sql::sqlparser::ast::TableFactor;
    match body {
        SetExpr::Select(select) => {
            for item in &select.projection {
                if let SelectItem::ExprWithAlias { alias, .. } = item {
                    add(&normal(alias));
                }
            }
            let factors = select
                .from
                .iter()
                .flat_map(|t| std::iter::once(&t.relation).chain(t.joins.iter().map(|j| &j.relation)));
            for factor in factors {
                match factor {
                    TableFactor::Table { alias: Some(alias), .. } => add(&normal(&alias.name)),
                    TableFactor::Derived { subquery, alias, .. } => {
                        alias.iter().for_each(|alias| add(&normal(&alias.name)));
                        aliases(subquery, add);
                    }
                    _ => {}
                }
            }
        }
        SetExpr::Query(query) => aliases(query, add),
        SetExpr::SetOperation { left, right, .. } => {
            of_body(left, add);
            of_body(right, add);
        }
        _ => {}
    }
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

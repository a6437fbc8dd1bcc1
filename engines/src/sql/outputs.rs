//! The outputs of a SELECT: how they are called, and the window's bounds among them.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, FunctionArguments, GroupByExpr, Ident, Select, SelectItem, VisitMut as _, VisitorMut, visit_expressions,
};

use super::parse::normal;
use super::sources::call;
use super::{SqlError, functions};

/// Start of the SELECT's window.
const START: &str = "window_start";

/// Gives an output that is computed its text as its name.
pub(super) fn name(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        {
            let text = bound(expr).map_or_else(|| expr.to_string(), str::to_owned);
            let alias = Ident::with_quote('"', text);
            let expr = std::mem::replace(expr, Expr::Identifier(alias.clone()));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

/// Names of the outputs over a FROM of these columns, as far as they are plain names.
pub(super) fn names(select: &Select, columns: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => names.push(normal(ident)),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => names.extend(parts.last().map(normal)),
            SelectItem::ExprWithAlias { alias, .. } => names.push(normal(alias)),
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => names.extend(columns.iter().cloned()),
            _ => {}
        }
    }
    names
}

fn is_window(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if functions::WINDOWS.contains(&call.name.to_string().to_ascii_lowercase().as_str()))
}

/// The bound of the SELECT's window that a name, or a call without an argument, stands for.
fn bound(expr: &Expr) -> Option<&'static str> {
    let name = match expr {
        Expr::Identifier(ident) if ident.quote_style.is_none() => ident.value.clone(),
        Expr::Function(call) => match &call.args {
            FunctionArguments::List(list) if !list.args.is_empty() => return None,
            FunctionArguments::Subquery(_) => return None,
            _ => call.name.to_string(),
        },
        _ => return None,
    };
    [START, functions::WINDOW_END].into_iter().find(|bound| name.eq_ignore_ascii_case(bound))
}

/// Replaces `window_start` and `window_end` by what they are of the SELECT's window; a column of FROM of such a name is what
/// it is. As calls without an argument they always mean the window.
pub(super) fn windows(select: &mut Select, columns: &[String]) -> Result<(), SqlError> {
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
    let mut bounds = Bounds { window: None, columns, inside: 0, lacking: false };
    if let Some(start) = window {
        let end = call(functions::WINDOW_END, Some(&start))?;
        bounds.window = Some((start, end));
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && let Some(name) = bounds.bound(expr)
            && bounds.window.is_some()
        {
            let alias = Ident::new(name);
            let expr = std::mem::replace(expr, Expr::Identifier(alias.clone()));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
        let _ = item.visit(&mut bounds);
    }
    if bounds.window.is_some() {
        let _ = select.having.visit(&mut bounds);
    }
    if bounds.lacking {
        return Err(SqlError::not_supported(
            "window_start or window_end of a query without a window",
            "GROUP BY TUMBLE(ts, INTERVAL '5 seconds'), HOP(…) or SESSION(…)",
        ));
    }
    Ok(())
}

/// Puts the bounds of a window where they are named.
struct Bounds<'a> {
    /// Its start and its end.
    window: Option<(Expr, Expr)>,
    /// Columns of FROM.
    columns: &'a [String],
    /// So deep in the window's own arguments.
    inside: usize,
    /// A bound is named, and there is no window.
    lacking: bool,
}

impl Bounds<'_> {
    fn bound(&self, expr: &Expr) -> Option<&'static str> {
        bound(expr).filter(|name| !matches!(expr, Expr::Identifier(_)) || !self.columns.iter().any(|c| c == name))
    }
}

impl VisitorMut for Bounds<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.inside += usize::from(is_window(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if is_window(expr) {
            self.inside -= 1;
        }
        if self.inside > 0 {
            return ControlFlow::Continue(());
        }
        match (self.bound(expr), &self.window) {
            (Some(START), Some((start, _))) => *expr = start.clone(),
            (Some(_), Some((_, end))) => *expr = end.clone(),
            (Some(_), None) => self.lacking = true,
            (None, _) => {}
        }
        ControlFlow::Continue(())
    }
}

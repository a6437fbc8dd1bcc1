//! What a query says in other words for the planner: `count(*)`, instants in microseconds, integers of any size, names of fields.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Select,
    SelectItem, TimezoneInfo, TypedString, Value, VisitMut as _, VisitorMut,
};

/// Digits of the widest integer.
pub(super) const DIGITS: usize = 38;

/// Rewrites a query.
pub(super) fn rewrite(query: &mut Query) {
    let _ = query.visit(&mut Rewriting);
}

struct Rewriting;

impl VisitorMut for Rewriting {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            // A field is called what it is called in its record.
            if let SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(_)) = item
                && let Expr::CompoundIdentifier(parts) = &*expr
                && let Some(alias) = parts.last().cloned()
            {
                let expr = expr.clone();
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("count") => {
                if let FunctionArguments::List(list) = &mut call.args
                    && matches!(list.args.as_slice(), [] | [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)])
                {
                    // Rows are counted as a constant is.
                    let one = Expr::value(Value::Number("1".into(), false));
                    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(one))];
                }
            }
            Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) => {
                if let DataType::Timestamp(precision @ None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
                | DataType::Datetime(precision @ None) = data_type
                {
                    *precision = Some(6);
                }
            }
            Expr::Value(value) => {
                if let Value::Number(text, _) = &value.value
                    && is_wide(text)
                {
                    let text = Expr::value(Value::SingleQuotedString(text.clone()));
                    *expr = Expr::Cast {
                        kind: CastKind::Cast,
                        expr: Box::new(text),
                        data_type: DataType::Decimal(ExactNumberInfo::PrecisionAndScale(DIGITS as u64, 0)),
                        array: false,
                        format: None,
                    };
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Whether a number is an integer that no 64 bits hold.
pub(super) fn is_wide(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u64>().is_err()
}

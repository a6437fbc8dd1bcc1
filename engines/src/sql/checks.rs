//! What the planner would let pass: constants that overflow, and columns of a UNION that are not alike.

use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, LogicalPlan, Operator};

use super::{SqlError, refused};

/// Columns of a UNION before the planner has made them alike.
pub(super) fn unions(plan: &LogicalPlan) -> Result<(), SqlError> {
    each(plan, &mut |plan| {
        let LogicalPlan::Union(union) = plan else { return Ok(()) };
        let Some((first, others)) = union.inputs.split_first() else { return Ok(()) };
        for other in others {
            for (number, (a, b)) in first.schema().fields().iter().zip(other.schema().fields()).enumerate() {
                if kind(a.data_type()) != kind(b.data_type()) && !a.data_type().is_null() && !b.data_type().is_null() {
                    let (a, b) = (a.data_type(), b.data_type());
                    let reason = format!("column {} of UNION ALL is {a} and {b}", number + 1);
                    return Err(SqlError::Type { reason, hint: "CAST one of them to the type of the other".into() });
                }
            }
        }
        Ok(())
    })
}

/// Types that are alike.
fn kind(data_type: &DataType) -> DataType {
    match data_type {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        number if number.is_numeric() => DataType::Float64,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => DataType::Date32,
        other => other.clone(),
    }
}

/// Integer arithmetic of constants, which is done while planning.
pub(super) fn constants(plan: &LogicalPlan) -> Result<(), SqlError> {
    each(plan, &mut |plan| {
        let mut refusal = None;
        let walked = plan.apply_expressions(|expr| {
            expr.apply(|node| match value(node) {
                Err(error) => {
                    refusal = Some(error);
                    Ok(TreeNodeRecursion::Stop)
                }
                Ok(Some(_)) => Ok(TreeNodeRecursion::Jump),
                Ok(None) => Ok(TreeNodeRecursion::Continue),
            })
        });
        walked.map_err(refused)?;
        refusal.map_or(Ok(()), Err)
    })
}

/// The value of an integer expression of constants.
fn value(expr: &Expr) -> Result<Option<i64>, SqlError> {
    let (left, op, right) = match expr {
        Expr::Literal(ScalarValue::Int64(value), _) => return Ok(*value),
        Expr::Alias(alias) => return value(&alias.expr),
        Expr::Negative(inner) => (Some(0), Operator::Minus, value(inner)?),
        Expr::BinaryExpr(binary) => (value(&binary.left)?, binary.op, value(&binary.right)?),
        _ => return Ok(None),
    };
    let (Some(left), Some(right)) = (left, right) else { return Ok(None) };
    let result = match op {
        Operator::Plus => left.checked_add(right),
        Operator::Minus => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => left.checked_div(right),
        Operator::Modulo => left.checked_rem(right),
        _ => return Ok(None),
    };
    result.map(Some).ok_or_else(|| {
        let divides = matches!(op, Operator::Divide | Operator::Modulo) && right == 0;
        let (why, hint) = if divides {
            ("divides by zero", "write another divisor")
        } else {
            ("is out of the range of BIGINT", "CAST one of its numbers AS DOUBLE or AS DECIMAL(38, 0)")
        };
        SqlError::Type { reason: format!("{expr} {why}"), hint: hint.into() }
    })
}

fn each(plan: &LogicalPlan, check: &mut impl FnMut(&LogicalPlan) -> Result<(), SqlError>) -> Result<(), SqlError> {
    let mut refusal = None;
    let walked = plan.apply(|node| match check(node) {
        Ok(()) => Ok(TreeNodeRecursion::Continue),
        Err(error) => {
            refusal = Some(error);
            Ok(TreeNodeRecursion::Stop)
        }
    });
    walked.map_err(refused)?;
    refusal.map_or(Ok(()), Err)
}

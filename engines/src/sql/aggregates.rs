//! Aggregates as the planner sees them: names, arguments and types.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion_common::{Result, ScalarValue, not_impl_err, plan_err};
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility};

use super::SqlError;
use crate::plan::Function;

/// All names.
pub(super) const NAMES: [&str; 25] = [
    "count",
    "sum",
    "avg",
    "mean",
    "min",
    "max",
    "first",
    "last",
    "any_value",
    "arg_min",
    "arg_max",
    "var",
    "var_samp",
    "var_pop",
    "variance",
    "stddev",
    "stddev_samp",
    "stddev_pop",
    "bool_and",
    "bool_or",
    "approx_distinct",
    "approx_count_distinct",
    "approx_percentile",
    "string_agg",
    "array_agg",
];

/// An aggregate by its lower-case name.
pub(super) fn aggregate(name: &str) -> Option<Arc<AggregateUDF>> {
    let name = NAMES.iter().find(|known| **known == name)?;
    Some(Arc::new(AggregateUDF::from(Aggregate { name, signature: Signature::variadic_any(Volatility::Immutable) })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Aggregate {
    name: &'static str,
    signature: Signature,
}

/// The types aggregates work on: integers of 64 bits, doubles, microseconds, plain text.
pub(super) fn normal_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::Null => DataType::Int64,
        other => other.clone(),
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let wanted = match self.name {
            "arg_min" | "arg_max" | "approx_percentile" | "string_agg" => 2,
            _ => 1,
        };
        if arguments.len() != wanted {
            return plan_err!("Function '{}' takes {wanted} argument{}", self.name, if wanted == 1 { "" } else { "s" });
        }
        let first = normal_type(&arguments[0]);
        let number = matches!(first, DataType::Int64 | DataType::Float64 | DataType::Decimal128(..));
        Ok(match self.name {
            "count" | "approx_distinct" | "approx_count_distinct" => DataType::Int64,
            "sum" => match first {
                DataType::Int64 => DataType::Decimal128(38, 0),
                DataType::Decimal128(_, scale) => DataType::Decimal128(38, scale),
                DataType::Float64 => DataType::Float64,
                other => return plan_err!("Function 'sum' takes a number, not {other}"),
            },
            "min" | "max" | "first" | "last" | "any_value" | "arg_min" | "arg_max" => first,
            "bool_and" | "bool_or" if first == DataType::Boolean => DataType::Boolean,
            "bool_and" | "bool_or" => return plan_err!("Function '{}' takes a boolean, not {first}", self.name),
            "string_agg" if first == DataType::Utf8 => DataType::Utf8,
            "string_agg" => return plan_err!("Function 'string_agg' takes text, not {first}"),
            "array_agg" => DataType::List(Field::new("item", first, true).into()),
            _ if number => DataType::Float64,
            name => return plan_err!("Function '{name}' takes a number, not {first}"),
        })
    }

    fn is_nullable(&self) -> bool {
        !matches!(self.name, "count" | "approx_distinct" | "approx_count_distinct")
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        not_impl_err!("{} is not computed by the planner", self.name)
    }
}

/// What a call computes; the arguments that are part of that are taken out of `args`.
pub(super) fn function(name: &str, args: &mut Vec<Expr>) -> Result<Function, SqlError> {
    Ok(match name {
        "count" => {
            // A constant that is not null counts rows.
            if matches!(args.as_slice(), [Expr::Literal(value, _)] if !value.is_null()) {
                args.clear();
            }
            Function::Count
        }
        "sum" => Function::Sum,
        "avg" | "mean" => Function::Avg,
        "min" => Function::Min,
        "max" => Function::Max,
        "first" => Function::First,
        "last" => Function::Last,
        "any_value" => Function::AnyValue,
        "arg_min" => Function::ArgMin,
        "arg_max" => Function::ArgMax,
        "var_pop" => Function::VarPop,
        "stddev_pop" => Function::StddevPop,
        "stddev" | "stddev_samp" => Function::StddevSamp,
        "bool_and" => Function::BoolAnd,
        "bool_or" => Function::BoolOr,
        "approx_distinct" | "approx_count_distinct" => Function::ApproxDistinct,
        "approx_percentile" => Function::ApproxPercentile(rank(args.pop())?),
        "string_agg" => match args.pop() {
            Some(Expr::Literal(ScalarValue::Utf8(Some(separator)), _)) => Function::StringAgg(separator),
            _ => {
                return Err(SqlError::not_supported(
                    "string_agg with a separator that is computed",
                    "write the separator as text: string_agg(name, ', ')",
                ));
            }
        },
        "array_agg" => Function::ArrayAgg,
        _ => Function::VarSamp,
    })
}

fn rank(argument: Option<Expr>) -> Result<f64, SqlError> {
    let value = match argument {
        Some(Expr::Literal(value, _)) => match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(value)) => value,
            _ => None,
        },
        _ => None,
    };
    value.filter(|rank| (0.0..=1.0).contains(rank)).ok_or_else(|| {
        SqlError::not_supported(
            "approx_percentile with a rank that is not a number from 0 to 1",
            "write approx_percentile(x, 0.99)",
        )
    })
}

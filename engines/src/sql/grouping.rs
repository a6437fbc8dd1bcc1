//! GROUP BY: windows, keys, aggregates.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion_expr::logical_plan::Aggregate as Grouping;
use datafusion_expr::{Cast, Expr, ExprSchemable, LogicalPlan};

use super::aggregates::{function, normal_type};
use super::relation::{Base, Named, Relation, column};
use super::steps::{Builder, as_micros};
use super::{SqlError, functions, refuse};
use crate::plan::{Aggregate, Call, Function, Node, Window};
use crate::read::decoded_type;

/// What a grouping reads of its input, as named columns.
#[derive(Default)]
struct Reads(Vec<(String, Expr)>);

impl Reads {
    /// The column of an expression.
    fn add(&mut self, expr: Expr) -> usize {
        if let Some(known) = self.0.iter().position(|(_, known)| *known == expr) {
            return known;
        }
        self.0.push((format!("{}", self.0.len()), expr));
        self.0.len() - 1
    }
}

/// A window and the event time it is of.
struct Windowed {
    window: Window,
    time: Expr,
}

/// What a GROUP BY groups by.
struct Groups {
    windowed: Option<Windowed>,
    /// Columns read, without the window.
    keys: Vec<usize>,
    /// For every expression, its key; none for the window.
    order: Vec<Option<usize>>,
}

impl Groups {
    fn new(grouping: &Grouping, input: &Relation, reads: &mut Reads) -> Result<Self, SqlError> {
        let mut groups = Self { windowed: None, keys: vec![], order: vec![] };
        for expr in &grouping.group_expr {
            match expr.clone().unalias() {
                Expr::GroupingSet(_) => {
                    return Err(SqlError::not_supported("GROUPING SETS, ROLLUP or CUBE", refuse::SUPPORTED));
                }
                Expr::ScalarFunction(call) if functions::WINDOWS.contains(&call.name()) => {
                    if groups.windowed.is_some() {
                        return Err(SqlError::not_supported("two windows in one GROUP BY", "group by one window"));
                    }
                    groups.windowed = Some(window(&call, input, grouping.input.schema())?);
                    groups.order.push(None);
                }
                other => {
                    groups.keys.push(reads.add(input.resolve(other)?));
                    groups.order.push(Some(groups.keys.len() - 1));
                }
            }
        }
        Ok(groups)
    }
}

impl Builder<'_> {
    /// The relation of a GROUP BY.
    pub(super) fn aggregate(&mut self, grouping: &Grouping) -> Result<Relation, SqlError> {
        let input = self.relation(&grouping.input)?;
        let mut reads = Reads::default();
        let groups = Groups::new(grouping, &input, &mut reads)?;
        let Groups { windowed, keys, order } = groups;
        let time = windowed.as_ref().map(|w| reads.add(w.time.clone()));
        let clock = windowed.as_ref().map(|w| w.time.clone());
        let mut calls: Vec<Call> = Vec::new();
        let mut results = Vec::new();
        for expr in &grouping.aggr_expr {
            let Expr::AggregateFunction(aggregate) = expr.clone().unalias() else {
                return Err(SqlError::not_supported(format!("the aggregate {expr}"), refuse::SUPPORTED));
            };
            let call = call(&aggregate, &input, grouping.input.schema(), &mut reads)?;
            results.push(calls.iter().position(|known| *known == call).unwrap_or_else(|| {
                calls.push(call);
                calls.len() - 1
            }));
        }
        let position = match calls.iter().find(|call| depends_on_order(call)) {
            Some(call) => Some(reads.add(self.position(&input).ok_or_else(|| without_order(call))?)),
            None => None,
        };
        let made = self.make(input, reads.0, clock)?;
        let keys_of = keys
            .iter()
            .enumerate()
            .map(|(number, at)| made.schema.field(*at).clone().with_name(format!("key {number}")));
        let mut fields: Vec<Field> = Vec::new();
        if windowed.is_some() {
            let time = DataType::Timestamp(TimeUnit::Microsecond, None);
            fields.push(Field::new("window_start", time.clone(), true));
            fields.push(Field::new("window_end", time, true));
        }
        fields.extend(keys_of);
        fields.extend(calls.iter().enumerate().map(|(number, call)| {
            Field::new(format!("call {number}"), call.data_type.clone(), call.function != Function::Count)
        }));
        let schema = Arc::new(Schema::new(fields));
        let window = windowed.map_or(Window::None, |w| w.window);
        let input = made.schema.clone();
        let aggregate = Aggregate { window, input, time, keys, calls, position, schema: schema.clone() };
        let name = self.unique("a");
        let of_group = |group: &Option<usize>| match group {
            None => column(&name, "window_start"),
            Some(number) => column(&name, format!("key {number}")),
        };
        let exprs = order.iter().map(of_group);
        let exprs = exprs.chain(results.iter().map(|number| column(&name, format!("call {number}"))));
        let columns = exprs.zip(grouping.schema.iter()).map(|(expr, (qualifier, field))| Named {
            qualifier: qualifier.cloned(),
            name: field.name().clone(),
            expr,
        });
        let node = Node::Aggregate { input: Box::new(made.node), aggregate, steps: vec![] };
        self.key = order.iter().map(of_group).collect();
        let base = Base::Made { node: Box::new(node), name: name.clone(), fields: schema };
        Ok(Relation { columns: columns.collect(), filters: vec![], base })
    }

    /// SELECT DISTINCT: a grouping by all columns.
    pub(super) fn distinct(&mut self, input: &LogicalPlan) -> Result<Relation, SqlError> {
        let inner = self.relation(input)?;
        let reads: Vec<(String, Expr)> =
            inner.columns.iter().enumerate().map(|(number, own)| (number.to_string(), own.expr.clone())).collect();
        let named: Vec<Named> = inner.columns.clone();
        let made = self.make(inner, reads, None)?;
        let fields = made.schema.fields().iter().enumerate();
        let fields: Vec<Field> =
            fields.map(|(number, field)| field.as_ref().clone().with_name(format!("key {number}"))).collect();
        let schema = Arc::new(Schema::new(fields));
        let aggregate = Aggregate {
            window: Window::None,
            input: made.schema.clone(),
            time: None,
            keys: (0..named.len()).collect(),
            calls: vec![],
            position: None,
            schema: schema.clone(),
        };
        let name = self.unique("a");
        let columns: Vec<Named> = named
            .into_iter()
            .enumerate()
            .map(|(number, own)| Named { expr: column(&name, format!("key {number}")), ..own })
            .collect();
        self.key = columns.iter().map(|own| own.expr.clone()).collect();
        let node = Node::Aggregate { input: Box::new(made.node), aggregate, steps: vec![] };
        Ok(Relation { columns, filters: vec![], base: Base::Made { node: Box::new(node), name, fields: schema } })
    }
}

fn without_order(call: &Call) -> SqlError {
    SqlError::not_supported(
        format!("{} over what an aggregate, a join of streams or a UNION yields", call.function.name()),
        "it depends on the order of rows: use it on the stream itself",
    )
}

fn depends_on_order(call: &Call) -> bool {
    matches!(
        call.function,
        Function::First
            | Function::Last
            | Function::AnyValue
            | Function::ArgMin
            | Function::ArgMax
            | Function::StringAgg(_)
            | Function::ArrayAgg
    )
}

fn call(
    aggregate: &AggregateFunction,
    input: &Relation,
    schema: &DFSchema,
    reads: &mut Reads,
) -> Result<Call, SqlError> {
    let params = &aggregate.params;
    let name = aggregate.func.name();
    if !params.order_by.is_empty() || params.null_treatment.is_some() {
        return Err(SqlError::not_supported(
            format!("{name} with ORDER BY or IGNORE NULLS"),
            "rows are taken in the order of the source",
        ));
    }
    let mut args = params.args.clone();
    let function = function(name, &mut args)?;
    let sets = matches!(
        function,
        Function::Count | Function::Sum | Function::Avg | Function::StringAgg(_) | Function::ArrayAgg
    );
    let variance = matches!(
        function,
        Function::VarPop
            | Function::VarSamp
            | Function::StddevPop
            | Function::StddevSamp
            | Function::ApproxPercentile(_)
    );
    if params.distinct && variance {
        return Err(SqlError::not_supported(
            format!("{name}(DISTINCT …)"),
            "leave DISTINCT out, or use a derived table",
        ));
    }
    let mut argument = |expr: Expr| -> Result<usize, SqlError> {
        let resolved = input.resolve(expr)?;
        Ok(reads.add(resolved))
    };
    let types =
        params.args.iter().map(|arg| arg.get_type(schema).map_err(super::refused)).collect::<Result<Vec<_>, _>>()?;
    let mut columns = Vec::with_capacity(args.len());
    for (expr, data_type) in args.into_iter().zip(&types) {
        let wanted = normal_type(data_type);
        let expr = if wanted == *data_type {
            expr
        } else {
            Expr::Cast(Cast::new_from_field(Box::new(expr), Field::new("", wanted, true).into()))
        };
        columns.push(argument(expr)?);
    }
    let filter = params.filter.as_ref().map(|filter| argument(*filter.clone())).transpose()?;
    let data_type = aggregate.func.return_type(&types).map_err(super::refused)?;
    Ok(Call { function, args: columns, filter, distinct: params.distinct && sets, data_type: decoded_type(&data_type) })
}

/// A window function of a GROUP BY.
fn window(call: &ScalarFunction, input: &Relation, schema: &DFSchema) -> Result<Windowed, SqlError> {
    let name = call.name().to_ascii_uppercase();
    let form = match name.as_str() {
        "TUMBLE" => "TUMBLE(ts, INTERVAL '5 seconds'[, offset])",
        "HOP" => "HOP(ts, INTERVAL '5 seconds', INTERVAL '20 seconds'[, offset]): slide, then size",
        _ => "SESSION(ts, INTERVAL '30 seconds')",
    };
    let (least, most) = match name.as_str() {
        "TUMBLE" => (2, 3),
        "HOP" => (3, 4),
        _ => (2, 2),
    };
    let wrong =
        || SqlError::Type { reason: format!("{name} does not take {} arguments", call.args.len()), hint: form.into() };
    let Some((time, lengths)) = call.args.split_first().filter(|_| (least..=most).contains(&call.args.len())) else {
        return Err(wrong());
    };
    let time_type = time.get_type(schema).map_err(super::refused)?;
    if !matches!(time_type, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64) {
        return Err(SqlError::Type {
            reason: format!("{name} takes a timestamp, not {time_type}"),
            hint: "name the event time first; CAST text AS TIMESTAMP, to_timestamp_millis(x) of milliseconds".into(),
        });
    }
    let mut micros_of = Vec::with_capacity(lengths.len());
    for length in lengths {
        micros_of.push(interval(length, &name)?);
    }
    let positive = |at: usize, what: &str| -> Result<i64, SqlError> {
        let length = micros_of.get(at).copied().unwrap_or(0);
        if length > 0 {
            return Ok(length);
        }
        Err(SqlError::not_supported(
            format!("{name} with a {what} of zero or less"),
            "write a length of time above zero",
        ))
    };
    let offset = |at: usize| micros_of.get(at).copied().unwrap_or(0);
    let window = match name.as_str() {
        "TUMBLE" => Window::Tumble { size: positive(0, "size")?, offset: offset(1) },
        "HOP" => {
            let (slide, size) = (positive(0, "slide")?, positive(1, "size")?);
            // A row is in this many windows.
            if size / slide > 100_000 {
                return Err(SqlError::not_supported(
                    "HOP whose size is more than 100,000 slides",
                    "use a longer slide",
                ));
            }
            Window::Hop { slide, size, offset: offset(2) }
        }
        _ => Window::Session { gap: positive(0, "gap")? },
    };
    Ok(Windowed { window, time: as_micros(input.resolve(time.clone())?, &time_type) })
}

fn interval(expr: &Expr, of: &str) -> Result<i64, SqlError> {
    match expr {
        Expr::Literal(value, _) => micros(value).map_err(|why| match why {
            NotALength::Calendar => SqlError::not_supported(
                format!("{of} with a length in months or years"),
                "a month is not a fixed length of time; write days",
            ),
            NotALength::Other if is_length(value) => SqlError::not_supported(
                format!("{of} with a length that is no whole number of microseconds, or more than 290,000 years"),
                "write INTERVAL '5 seconds'",
            ),
            NotALength::Other => SqlError::Type {
                reason: format!("{of} takes lengths of time, not {value}"),
                hint: "write INTERVAL '5 seconds'".into(),
            },
        }),
        Expr::Negative(inner) => interval(inner, of).map(i64::saturating_neg),
        other => Err(SqlError::not_supported(
            format!("{of} with a length that is computed: {other}"),
            "write INTERVAL '5 seconds'",
        )),
    }
}

/// Why a value is no length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotALength {
    /// It counts months.
    Calendar,
    /// It is something else, or too long.
    Other,
}

/// A length of time in microseconds.
pub(super) fn micros(value: &ScalarValue) -> Result<i64, NotALength> {
    const DAY: i128 = 86_400_000_000;
    let fits = |micros: i128| i64::try_from(micros).map_err(|_| NotALength::Other);
    match value {
        ScalarValue::IntervalMonthDayNano(Some(v)) if v.months == 0 && v.nanoseconds % 1_000 == 0 => {
            fits(i128::from(v.days) * DAY + i128::from(v.nanoseconds / 1_000))
        }
        ScalarValue::IntervalMonthDayNano(Some(v)) if v.months != 0 => Err(NotALength::Calendar),
        ScalarValue::IntervalYearMonth(Some(_)) => Err(NotALength::Calendar),
        ScalarValue::IntervalDayTime(Some(v)) => fits(i128::from(v.days) * DAY + i128::from(v.milliseconds) * 1_000),
        ScalarValue::DurationSecond(Some(v)) => fits(i128::from(*v) * 1_000_000),
        ScalarValue::DurationMillisecond(Some(v)) => fits(i128::from(*v) * 1_000),
        ScalarValue::DurationMicrosecond(Some(v)) => Ok(*v),
        ScalarValue::DurationNanosecond(Some(v)) if v % 1_000 == 0 => Ok(v / 1_000),
        _ => Err(NotALength::Other),
    }
}

fn is_length(value: &ScalarValue) -> bool {
    matches!(value.data_type(), DataType::Interval(_) | DataType::Duration(_))
}

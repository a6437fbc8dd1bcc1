//! Filter and outputs of one step, as expressions over flat columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

use super::steps::as_time;
use super::{SqlError, Transform, functions, refused};
use crate::read::{ReadColumn, ReadPlan, decoded_type};

/// Filter and outputs over flat columns.
#[derive(Debug)]
pub(super) struct Planned {
    /// The flat columns as they are decoded.
    pub(super) reads: ReadPlan,
    /// The flat columns with strings as plain `Utf8`: what the expressions are typed against.
    pub(super) flat: DFSchema,
    pub(super) filter: Option<Expr>,
    /// Name and expression of every output column.
    pub(super) outputs: Vec<(String, Expr)>,
}

impl Planned {
    /// Over the columns of a batch that no decoder made.
    pub(super) fn over(fields: &Schema, filter: Option<Expr>, outputs: Vec<(String, Expr)>) -> Result<Self, SqlError> {
        let columns = fields.fields().iter().map(|field| ReadColumn {
            name: field.name().clone(),
            path: vec![field.name().clone()],
            of_element: false,
            data_type: field.data_type().clone(),
            nullable: field.is_nullable(),
        });
        let reads = ReadPlan { columns: columns.collect(), unnest: None, position: false };
        let plain: Vec<Field> = fields
            .fields()
            .iter()
            .map(|field| Field::new(field.name(), plain_type(field.data_type()), field.is_nullable()))
            .collect();
        let flat = DFSchema::try_from(Schema::new(plain)).map_err(refused)?;
        Ok(Self { reads, flat, filter, outputs })
    }

    /// The step itself.
    pub(super) fn transform(mut self) -> Result<Transform, SqlError> {
        self.check()?;
        let mut fields = Vec::with_capacity(self.outputs.len());
        for (name, expr) in &self.outputs {
            let (_, field) = expr.to_field(&self.flat).map_err(refused)?;
            fields.push(Field::new(name, decoded_type(field.data_type()), field.is_nullable()));
        }
        Transform::new(&self, Arc::new(Schema::new(fields))).map_err(refused)
    }

    /// The step itself, under a schema of the same types whose columns may be null where its own may not.
    pub(super) fn transform_into(mut self, schema: SchemaRef) -> Result<Transform, SqlError> {
        self.check()?;
        Transform::new(&self, schema).map_err(refused)
    }

    fn check(&mut self) -> Result<(), SqlError> {
        self.filter.iter().chain(self.outputs.iter().map(|(_, expr)| expr)).try_for_each(computed)?;
        self.check_integers().map_err(refused)
    }

    /// Negation becomes a checked subtraction, so that the smallest integer is an error and not itself. Instants leave in
    /// microseconds.
    fn check_integers(&mut self) -> Result<(), DataFusionError> {
        let flat = &self.flat;
        let checked = |expr: Expr| -> Result<Expr, DataFusionError> {
            expr.transform_up(|node| match node {
                Expr::Negative(inner) if inner.get_type(flat)?.is_integer() => {
                    let zero = ScalarValue::new_zero(&inner.get_type(flat)?)?;
                    let zero = Box::new(Expr::Literal(zero, None));
                    Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(zero, Operator::Minus, inner))))
                }
                other => Ok(Transformed::no(other)),
            })
            .map(|t| t.data)
        };
        self.filter = self.filter.take().map(checked).transpose()?;
        for (_, expr) in &mut self.outputs {
            *expr = checked(std::mem::take(expr))?;
            if let DataType::Timestamp(TimeUnit::Nanosecond | TimeUnit::Second, None) = expr.get_type(flat)? {
                *expr = as_time(std::mem::take(expr));
            }
        }
        Ok(())
    }
}

/// The type the planner sees for a decoded one.
pub(super) fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        DataType::List(item) => {
            DataType::List(Field::new(item.name(), plain_type(item.data_type()), item.is_nullable()).into())
        }
        other => other.clone(),
    }
}

/// Refuses what only stands for a part of a plan.
fn computed(expr: &Expr) -> Result<(), SqlError> {
    let mut found = None;
    let walked = expr.apply(|node| {
        if let Expr::ScalarFunction(call) = node
            && functions::marker(call.name()).is_some()
        {
            found = Some(call.name().to_owned());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(refused)?;
    match found.as_deref() {
        None => Ok(()),
        Some(functions::ASOF) => Err(SqlError::not_supported(
            format!("the function {}", functions::ASOF),
            "write stream ASOF JOIN table ON stream.key = table.key AND stream.ts >= table.ts",
        )),
        Some(name) => Err(SqlError::not_supported(
            format!("{} elsewhere than as a column of GROUP BY and what is selected of it", name.to_ascii_uppercase()),
            "write SELECT TUMBLE(ts, INTERVAL '5 seconds') AS w, … GROUP BY TUMBLE(ts, INTERVAL '5 seconds')",
        )),
    }
}

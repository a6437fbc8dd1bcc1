//! Expressions compiled for evaluation over flat batches.
//!
//! A part of an expression that depends on one string column only is evaluated once per dictionary value; what remains is
//! evaluated by DataFusion's physical expressions over numbers, flags and the results of such parts. A column named as it
//! is passes through untouched.

use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, DataFusionError, Result, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{ColumnarValue, Expr, ExprSchemable, Operator};
use datafusion_physical_expr::expressions::BinaryExpr;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};

use super::dictionary::Derived;
use crate::read::{ReadPlan, decoded_type, string_type};

/// Named expressions over the columns of a [`ReadPlan`].
#[derive(Debug, Clone)]
pub(super) struct Program {
    roots: Vec<Root>,
    derived: Vec<Derived>,
    slots: Vec<Slot>,
    residual: SchemaRef,
    /// Schema of the flat columns with strings as plain `Utf8`.
    flat: SchemaRef,
    /// The expressions for a reader.
    texts: Vec<String>,
}

#[derive(Debug, Clone)]
struct Root {
    name: String,
    way: Way,
    /// The whole expression over plain columns: for single rows, where a vectorised evaluation has failed.
    plain: Arc<dyn PhysicalExpr>,
    /// Type of the result.
    data_type: DataType,
}

#[derive(Debug, Clone)]
enum Way {
    Column(usize),
    Derived(usize),
    Residual(Arc<dyn PhysicalExpr>),
}

/// A column of the batch the residual expressions see.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Column(usize),
    Derived(usize),
}

/// An expression that failed, by the name of its output.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) name: String,
    pub(super) error: DataFusionError,
}

impl Program {
    pub(super) fn compile(exprs: &[(String, Expr)], flat: &DFSchema, reads: &ReadPlan) -> Result<Self> {
        let mut split = Split { flat, reads, parts: Vec::new() };
        let rests = exprs.iter().map(|(_, e)| split.split(e.clone())).collect::<Result<Vec<_>>>()?;
        let parts = split.parts;
        let (slots, residual) = residual_schema(&rests, flat, &parts)?;
        let mut roots = Vec::with_capacity(exprs.len());
        for ((name, expr), rest) in exprs.iter().zip(&rests) {
            let way = match slot_of(rest, flat) {
                Some(Slot::Column(index)) => Way::Column(index),
                Some(Slot::Derived(index)) => Way::Derived(index),
                None => Way::Residual(physical(rest, &residual)?),
            };
            let data_type = decoded_type(&expr.get_type(flat)?);
            roots.push(Root { name: name.clone(), way, plain: physical(expr, flat)?, data_type });
        }
        let derived = parts.iter().map(|p| p.compile(flat)).collect::<Result<Vec<_>>>()?;
        let residual = Arc::new(residual.as_arrow().clone());
        let texts = exprs.iter().map(|(_, expr)| expr.to_string().replace('\u{0}', "")).collect();
        Ok(Self { roots, derived, slots, residual, flat: Arc::new(flat.as_arrow().clone()), texts })
    }

    /// The expressions as they were planned.
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Which flat columns the expressions read.
    pub(super) fn reads(&self) -> Vec<bool> {
        let mut read = vec![false; self.flat.fields().len()];
        for root in &self.roots {
            if let Way::Column(index) = root.way {
                read[index] = true;
            }
        }
        for slot in &self.slots {
            if let Slot::Column(index) = slot {
                read[*index] = true;
            }
        }
        for derived in &self.derived {
            read[derived.column()] = true;
        }
        read
    }

    /// Evaluates every expression over the flat columns, of which only the read ones need to be there.
    pub(super) fn evaluate(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>, Failure> {
        let fail = |name: &str| {
            let name = name.to_owned();
            move |error| Failure { name, error }
        };
        let mut derived = Vec::with_capacity(self.derived.len());
        let whole = self.roots.first().map_or("", |r| r.name.as_str());
        for (index, part) in self.derived.iter_mut().enumerate() {
            let name =
                self.roots.iter().find(|r| matches!(r.way, Way::Derived(k) if k == index)).map_or(whole, |r| &r.name);
            derived.push(part.evaluate(&columns[part.column()]).map_err(fail(name))?);
        }
        let batch = self.residual_batch(columns, &derived, rows).map_err(fail(whole))?;
        let mut results = Vec::with_capacity(self.roots.len());
        for root in &self.roots {
            let result = match &root.way {
                Way::Column(index) => columns[*index].clone(),
                Way::Derived(index) => derived[*index].clone(),
                Way::Residual(expr) => {
                    expr.evaluate(&batch).and_then(|v| finish(v, rows, &root.data_type)).map_err(fail(&root.name))?
                }
            };
            results.push(result);
        }
        Ok(results)
    }

    /// Evaluates every expression over plain columns, one row at a time being the purpose.
    pub(super) fn evaluate_plain(&self, columns: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>, Failure> {
        let fail = |name: &str| {
            let name = name.to_owned();
            move |error| Failure { name, error }
        };
        let plain = columns
            .iter()
            .zip(self.flat.fields())
            .map(|(column, field)| Ok(cast(column, field.data_type())?))
            .collect::<Result<Vec<_>>>()
            .and_then(|plain| batch_of(&self.flat, plain, rows))
            .map_err(fail(""))?;
        self.roots
            .iter()
            .map(|r| r.plain.evaluate(&plain).and_then(|v| finish(v, rows, &r.data_type)).map_err(fail(&r.name)))
            .collect()
    }

    fn residual_batch(&self, columns: &[ArrayRef], derived: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
        let mut arrays = Vec::with_capacity(self.slots.len());
        for (slot, field) in self.slots.iter().zip(self.residual.fields()) {
            let array = match slot {
                Slot::Column(index) => &columns[*index],
                Slot::Derived(index) => &derived[*index],
            };
            arrays.push(if array.data_type() == field.data_type() {
                array.clone()
            } else {
                cast(array, field.data_type())?
            });
        }
        batch_of(&self.residual, arrays, rows)
    }
}

fn batch_of(schema: &SchemaRef, arrays: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?)
}

/// The result as an array of its decoded type.
fn finish(value: ColumnarValue, rows: usize, data_type: &DataType) -> Result<ArrayRef> {
    match value {
        ColumnarValue::Scalar(ScalarValue::Utf8(Some(text))) if *data_type == string_type() => {
            let keys = Int32Array::from(vec![0; rows]);
            let values = Arc::new(StringArray::from(vec![text]));
            Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys, values)?))
        }
        value => {
            let array = value.into_array(rows)?;
            if array.data_type() == data_type { Ok(array) } else { Ok(cast(&array, data_type)?) }
        }
    }
}

fn physical(expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    let plain = create_physical_expr(expr, schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
    let checked = plain.transform_up(|node| {
        Ok(match node.downcast_ref::<BinaryExpr>() {
            Some(binary) if matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply) => {
                Transformed::yes(Arc::new(binary.clone().with_fail_on_overflow(true)) as Arc<dyn PhysicalExpr>)
            }
            _ => Transformed::no(node),
        })
    })?;
    Ok(checked.data)
}

/// Schema of the batch the residual expressions see: the columns they name, in order of the first naming.
fn residual_schema(rests: &[Expr], flat: &DFSchema, parts: &[Part]) -> Result<(Vec<Slot>, DFSchema)> {
    let (mut slots, mut fields) = (Vec::new(), Vec::<Field>::new());
    for rest in rests.iter().filter(|r| slot_of(r, flat).is_none()) {
        let mut names: Vec<&Column> = rest.column_refs().into_iter().collect();
        names.sort();
        for column in names {
            if fields.iter().any(|f| f.name() == column.name()) {
                continue;
            }
            match slot_of(&Expr::Column(column.clone()), flat) {
                Some(Slot::Column(index)) => {
                    slots.push(Slot::Column(index));
                    fields.push(flat.field(index).as_ref().clone());
                }
                Some(Slot::Derived(index)) => {
                    slots.push(Slot::Derived(index));
                    fields.push(Field::new(column.name(), parts[index].expr.get_type(flat)?, true));
                }
                None => {}
            }
        }
    }
    Ok((slots, DFSchema::try_from(Schema::new(fields))?))
}

/// The column an expression is, if it is nothing more.
fn slot_of(expr: &Expr, flat: &DFSchema) -> Option<Slot> {
    let Expr::Column(column) = expr else { return None };
    match column.name().strip_prefix(PART).and_then(|digits| digits.parse().ok()) {
        Some(index) => Some(Slot::Derived(index)),
        None => flat.index_of_column_by_name(None, column.name()).map(Slot::Column),
    }
}

/// A name no flat column has begins with this.
const PART: &str = "\u{0}part ";

/// Takes the parts that depend on one string column out of expressions.
struct Split<'a> {
    flat: &'a DFSchema,
    reads: &'a ReadPlan,
    parts: Vec<Part>,
}

/// A part of an expression that depends on one string column only.
struct Part {
    column: usize,
    expr: Expr,
}

impl Split<'_> {
    fn split(&mut self, expr: Expr) -> Result<Expr> {
        let split = expr.transform_down(|node| match self.string_column(&node) {
            None => Ok(Transformed::no(node)),
            Some(column) => {
                let index = self.parts.iter().position(|p| p.expr == node).unwrap_or_else(|| {
                    self.parts.push(Part { column, expr: node });
                    self.parts.len() - 1
                });
                let name = Column::from_name(format!("{PART}{index}"));
                Ok(Transformed::new(Expr::Column(name), true, TreeNodeRecursion::Jump))
            }
        })?;
        Ok(split.data)
    }

    /// The string column that is all an expression depends on, unless it is just that column.
    fn string_column(&self, expr: &Expr) -> Option<usize> {
        if matches!(expr, Expr::Column(_)) {
            return None;
        }
        let mut names = expr.column_refs().into_iter();
        let (only, None) = (names.next()?, names.next()) else { return None };
        let index = self.flat.index_of_column_by_name(None, only.name())?;
        self.reads.columns.get(index).is_some_and(|c| c.data_type == string_type()).then_some(index)
    }
}

impl Part {
    fn compile(&self, flat: &DFSchema) -> Result<Derived> {
        let field = flat.field(self.column).as_ref().clone().with_nullable(true);
        let schema = Schema::new(vec![field]);
        let expr = physical(&self.expr, &DFSchema::try_from(schema.clone())?)?;
        let result = match self.expr.get_type(flat)? {
            DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
            other => other,
        };
        Ok(Derived::new(self.column, expr, Arc::new(schema), result))
    }
}

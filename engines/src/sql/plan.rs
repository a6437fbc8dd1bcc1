//! From a syntax tree to expressions over the flat columns a decoder yields.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, DataFusionError, ScalarValue};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion_optimizer::analyzer::Analyzer;
use datafusion_optimizer::simplify_expressions::SimplifyExpressions;
use datafusion_optimizer::{Optimizer, OptimizerContext};
use datafusion_sql::planner::{ParserOptions, SqlToRel};
use datafusion_sql::sqlparser::ast::Statement;

use super::catalog::Catalog;
use super::parse::{Parsed, Unnest};
use super::{SourceSchema, SqlError};
use crate::read::{ReadColumn, ReadPlan, decoded_type};

/// A query as expressions over flat columns.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) reads: ReadPlan,
    /// The flat columns with strings as plain `Utf8`: what the expressions are typed against.
    pub(super) flat: DFSchema,
    pub(super) filter: Option<Expr>,
    /// Name and expression of every output column.
    pub(super) outputs: Vec<(String, Expr)>,
}

pub(super) fn plan(parsed: Parsed, source: &SourceSchema) -> Result<Planned, SqlError> {
    let tables = Tables::new(&parsed, source)?;
    let mut list = vec![(tables.stream.clone(), tables.record.clone())];
    if let Some((alias, element)) = &tables.element {
        list.push((alias.clone(), element.schema.clone()));
    }
    let catalog = Catalog::new(list);
    let statement = Statement::Query(Box::new(parsed.query));
    let options = ParserOptions::new().with_map_string_types_to_utf8view(false);
    let plan = SqlToRel::new_with_options(&catalog, options).sql_statement_to_plan(statement).map_err(refused)?;
    let plan = Analyzer::new().execute_and_check(plan, &ConfigOptions::default(), |_, _| {}).map_err(refused)?;
    let plan = Optimizer::with_rules(vec![Arc::new(SimplifyExpressions::new())])
        .optimize(plan, &OptimizerContext::new(), |_, _| {})
        .map_err(refused)?;
    flatten(&plan, &tables)
}

/// The planner's view of the sources.
struct Tables {
    stream: String,
    record: Arc<Schema>,
    element: Option<(String, Element)>,
    unnest: Option<Vec<String>>,
}

struct Element {
    schema: Arc<Schema>,
    /// Path of every column from the element; empty when the element itself is the column.
    paths: Vec<Vec<String>>,
}

impl Tables {
    fn new(parsed: &Parsed, source: &SourceSchema) -> Result<Self, SqlError> {
        let mut record = source.schema.clone();
        let mut element = None;
        if let Some(unnest) = &parsed.unnest {
            element = Some((unnest.alias.clone(), Element::new(unnest, source)?));
            if let [list] = unnest.path.as_slice() {
                // The list itself is not among the record's columns: `*` means its elements.
                let rest: Vec<_> = record.fields().iter().filter(|f| f.name() != list).cloned().collect();
                record = Arc::new(Schema::new(rest));
            }
        }
        let unnest = parsed.unnest.as_ref().map(|u| u.path.clone());
        Ok(Self { stream: parsed.stream.clone(), record, element, unnest })
    }
}

impl Element {
    fn new(unnest: &Unnest, source: &SourceSchema) -> Result<Self, SqlError> {
        let list = field_at(source.schema.fields(), &unnest.path);
        let Some(DataType::List(item)) = list.map(Field::data_type) else {
            return Err(SqlError::Unknown { kind: "list", name: unnest.path.join("."), hint: String::new() });
        };
        let (mut fields, mut paths) = (Vec::new(), Vec::new());
        match item.data_type() {
            DataType::Struct(inner) => {
                for field in inner {
                    fields.push(Field::new(
                        field.name(),
                        field.data_type().clone(),
                        field.is_nullable() || item.is_nullable(),
                    ));
                    paths.push(vec![field.name().clone()]);
                }
            }
            other => {
                fields.push(Field::new(&unnest.alias, other.clone(), item.is_nullable()));
                paths.push(vec![]);
            }
        }
        if unnest.columns.len() > fields.len() {
            let what = format!("{} names for the {} fields of an element", unnest.columns.len(), fields.len());
            return Err(SqlError::not_supported(what, "name at most as many columns as an element has"));
        }
        for (field, name) in fields.iter_mut().zip(&unnest.columns) {
            field.set_name(name.clone());
        }
        Ok(Self { schema: Arc::new(Schema::new(fields)), paths })
    }
}

fn field_at<'a>(fields: &'a Fields, path: &[String]) -> Option<&'a Field> {
    let (first, rest) = path.split_first()?;
    let field = fields.iter().find(|f| f.name() == first)?;
    match (rest.is_empty(), field.data_type()) {
        (true, _) => Some(field),
        (false, DataType::Struct(inner)) => field_at(inner, rest),
        _ => None,
    }
}

/// Takes filter and outputs out of the plan and names the leaves they read.
fn flatten(plan: &LogicalPlan, tables: &Tables) -> Result<Planned, SqlError> {
    let LogicalPlan::Projection(projection) = plan else { return Err(unexpected(plan)) };
    let (filter, source) = match projection.input.as_ref() {
        LogicalPlan::Filter(filter) => (Some(&filter.predicate), filter.input.as_ref()),
        other => (None, other),
    };
    match source {
        LogicalPlan::TableScan(_) | LogicalPlan::Join(_) => {}
        other => return Err(unexpected(other)),
    }
    let mut leaves = Leaves { tables, columns: Vec::new(), source_types: Vec::new() };
    let filter = filter.map(|f| leaves.flatten(f.clone())).transpose()?;
    let mut outputs: Vec<(String, Expr)> = Vec::new();
    for (expr, field) in projection.expr.iter().zip(projection.schema.fields()) {
        if outputs.iter().any(|(name, _)| name == field.name()) {
            let hint = "give one of them another name with AS".into();
            return Err(SqlError::Ambiguous { name: field.name().clone(), hint });
        }
        outputs.push((field.name().clone(), leaves.flatten(expr.clone().unalias())?));
    }
    let fields: Vec<Field> = leaves
        .columns
        .iter()
        .zip(&leaves.source_types)
        .map(|(column, source)| Field::new(&column.name, source.clone(), column.nullable))
        .collect();
    let flat = DFSchema::try_from(Schema::new(fields)).map_err(refused)?;
    let mut planned = Planned {
        reads: ReadPlan { columns: leaves.columns, unnest: tables.unnest.clone(), position: false },
        flat,
        filter,
        outputs,
    };
    planned.check_integers().map_err(refused)?;
    Ok(planned)
}

impl Planned {
    /// Negation becomes a checked subtraction, so that the smallest integer is an error and not itself.
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
        }
        Ok(())
    }
}

fn unexpected(plan: &LogicalPlan) -> SqlError {
    SqlError::not_supported(format!("a query that plans as {}", plan.display()), super::refuse::SUPPORTED)
}

/// The leaves read so far.
struct Leaves<'a> {
    tables: &'a Tables,
    columns: Vec<ReadColumn>,
    source_types: Vec<DataType>,
}

impl Leaves<'_> {
    /// Replaces columns and field accesses by flat columns.
    fn flatten(&mut self, expr: Expr) -> Result<Expr, SqlError> {
        let mut refusal = None;
        let flat = expr.transform_down(|node| match leaf_of(&node) {
            None => Ok(Transformed::no(node)),
            Some((column, fields)) => match self.leaf(column, &fields) {
                Ok(name) => Ok(Transformed::new(Expr::Column(Column::from_name(name)), true, TreeNodeRecursion::Jump)),
                Err(error) => {
                    refusal = Some(error);
                    Ok(Transformed::new(node, false, TreeNodeRecursion::Stop))
                }
            },
        });
        match refusal {
            Some(error) => Err(error),
            None => flat.map(|t| t.data).map_err(refused),
        }
    }

    /// Name of the flat column that holds a leaf.
    fn leaf(&mut self, column: &Column, fields: &[String]) -> Result<String, SqlError> {
        let of_element = match (&column.relation, &self.tables.element) {
            (Some(relation), Some((alias, _))) => relation.table() == alias,
            _ => false,
        };
        let (mut path, root, shown) = match &self.tables.element {
            Some((alias, element)) if of_element => {
                let index = element.schema.index_of(&column.name).map_err(|e| refused(e.into()))?;
                (element.paths[index].clone(), element.schema.field(index), format!("{alias}.{}", column.name))
            }
            _ => {
                let field = self.tables.record.field_with_name(&column.name).map_err(|e| refused(e.into()))?;
                (vec![column.name.clone()], field, column.name.clone())
            }
        };
        path.extend_from_slice(fields);
        if !of_element && self.tables.unnest.as_ref() == Some(&path) {
            return Err(SqlError::not_supported(
                format!("reading {shown} both whole and unnested"),
                "read its elements",
            ));
        }
        if let Some(known) = self.columns.iter().find(|c| c.of_element == of_element && c.path == path) {
            return Ok(known.name.clone());
        }
        let (mut data_type, mut nullable) = (root.data_type(), root.is_nullable());
        for name in fields {
            let DataType::Struct(inner) = data_type else { return Err(no_field(&shown, name, &[])) };
            let Some(field) = inner.iter().find(|f| f.name() == name) else {
                return Err(no_field(&shown, name, inner));
            };
            data_type = field.data_type();
            nullable |= field.is_nullable();
        }
        let mut name =
            std::iter::once(shown.as_str()).chain(fields.iter().map(String::as_str)).collect::<Vec<_>>().join(".");
        check_leaf(&name, data_type)?;
        while self.columns.iter().any(|c| c.name == name) {
            name.push('\'');
        }
        let data_type = data_type.clone();
        self.columns.push(ReadColumn {
            name: name.clone(),
            path,
            of_element,
            data_type: decoded_type(&data_type),
            nullable,
        });
        self.source_types.push(data_type);
        Ok(name)
    }
}

/// A column, or a chain of field accesses down from a column.
fn leaf_of(expr: &Expr) -> Option<(&Column, Vec<String>)> {
    match expr {
        Expr::Column(column) => Some((column, vec![])),
        Expr::ScalarFunction(call) if call.name() == "get_field" => {
            let (base, names) = call.args.split_first()?;
            let (column, mut path) = leaf_of(base)?;
            for name in names {
                match name {
                    Expr::Literal(ScalarValue::Utf8(Some(name)), _) => path.push(name.clone()),
                    _ => return None,
                }
            }
            Some((column, path))
        }
        _ => None,
    }
}

fn check_leaf(name: &str, data_type: &DataType) -> Result<(), SqlError> {
    match data_type {
        DataType::Struct(fields) => {
            let some = fields.iter().take(3).map(|f| format!("{name}.{}", f.name())).collect::<Vec<_>>().join(", ");
            Err(SqlError::not_supported(
                format!("reading the record {name} as a whole"),
                format!("name its fields: {some}"),
            ))
        }
        DataType::List(item) if item.data_type().is_nested() => Err(SqlError::not_supported(
            format!("reading the list of records {name} as a whole"),
            format!("unnest it: FROM stream, UNNEST({name}) AS e"),
        )),
        DataType::Map(..) | DataType::Union(..) => {
            Err(SqlError::not_supported(format!("reading {name}, a map or a union"), "leave it out of the query"))
        }
        _ => Ok(()),
    }
}

fn no_field(of: &str, name: &str, fields: &[Arc<Field>]) -> SqlError {
    let have = fields.iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", ");
    let hint = if have.is_empty() { format!("{of} has no fields") } else { format!("{of} has {have}") };
    SqlError::Unknown { kind: "field", name: format!("{of}.{name}"), hint }
}

/// The planner's error in this crate's terms.
pub(super) fn refused(error: DataFusionError) -> SqlError {
    super::error::from_planner(&error)
}

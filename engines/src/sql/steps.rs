//! From relations to nodes that compute what is needed of them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion_common::Column;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{Cast, Expr};

use super::leaves::{Leaves, leaf_of};
use super::parse::{Of, Table};
use super::planned::Planned;
use super::relation::{Base, Relation};
use super::{SourceSchema, SqlError, Transform, refused};
use crate::plan::{Input, Node, Role, Step};

/// Builds the nodes of a query.
pub(super) struct Builder<'a> {
    pub(super) sources: &'a [(SourceSchema, Role)],
    pub(super) tables: &'a [Table],
    pub(super) inputs: Vec<Input>,
    /// Columns of the last GROUP BY, which name its rows.
    pub(super) key: Vec<Expr>,
    names: usize,
    /// The side of a join that is a table is being made.
    pub(super) preparing: bool,
}

/// A node, the schema of its rows, and the columns that a GROUP BY names them with.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) node: Node,
    pub(super) schema: SchemaRef,
}

impl<'a> Builder<'a> {
    pub(super) fn new(sources: &'a [(SourceSchema, Role)], tables: &'a [Table]) -> Self {
        Self { sources, tables, inputs: vec![], key: vec![], names: 0, preparing: false }
    }

    /// A name that no query can write.
    pub(super) fn unique(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{}{kind}{}", super::parse::OWN, self.names)
    }

    /// A node whose columns are these expressions over a relation's base; `clock` is the event time of its rows, where
    /// something above keeps time.
    pub(super) fn make(
        &mut self,
        relation: Relation,
        outputs: Vec<(String, Expr)>,
        clock: Option<Expr>,
    ) -> Result<Made, SqlError> {
        let filter = conjunction(relation.filters);
        match relation.base {
            Base::Source { record, elements } => self.make_source((record, elements), filter, outputs, clock),
            Base::Made { mut node, name, fields } => {
                let flat = |expr: Expr| unqualified(expr, &name);
                let filter = filter.map(flat).transpose()?;
                let outputs =
                    outputs.into_iter().map(|(n, e)| Ok((n, flat(e)?))).collect::<Result<Vec<_>, SqlError>>()?;
                let transform = Planned::over(&fields, filter, outputs)?.transform()?;
                let schema = transform.output_schema();
                push(&mut node, Step::Transform(Box::new(transform)));
                Ok(Made { node: *node, schema })
            }
            Base::Join(joined) => self.make_join(*joined, filter, outputs, clock),
            Base::Union { name, inputs } => self.make_union(&name, inputs, (filter, outputs, clock)),
        }
    }

    fn make_source(
        &mut self,
        (record, elements): (usize, Option<(usize, String)>),
        filter: Option<Expr>,
        outputs: Vec<(String, Expr)>,
        clock: Option<Expr>,
    ) -> Result<Made, SqlError> {
        let elements = elements.as_ref().map(|(table, called)| (&self.tables[*table], called.as_str()));
        let mut leaves = Leaves::new(&self.tables[record], elements);
        let filter = filter.map(|f| leaves.flatten(f)).transpose()?;
        let mut flat_outputs: Vec<(String, Expr)> = Vec::with_capacity(outputs.len());
        for (name, expr) in outputs {
            flat_outputs.push((name, leaves.flatten(expr)?));
        }
        let clock = clock.map(|c| leaves.flatten(c)).transpose()?;
        let (reads, flat) = leaves.finish()?;
        let step = |filter: Option<Expr>, outputs: Vec<(String, Expr)>| {
            Planned { reads: reads.clone(), flat: flat.clone(), filter, outputs }.transform()
        };
        let clock = clock.map(|c| step(None, vec![("clock".into(), c)])).transpose()?.map(Box::new);
        let transform = step(filter, flat_outputs)?;
        let schema = transform.output_schema();
        let input = self.inputs.len();
        let Of::Source(source) = &self.tables[record].of else {
            return Err(SqlError::not_supported("a list without its stream", "write FROM stream, UNNEST(list) AS e"));
        };
        let (source, role) = &self.sources[*source];
        if *role == Role::Table && !self.preparing {
            return Err(SqlError::not_supported(
                format!("reading the table {} as a stream", source.name),
                "join a stream with it, or read it with --from or --stream",
            ));
        }
        self.inputs.push(Input { name: source.name.clone(), role: *role, reads: reads.clone() });
        Ok(Made { node: Node::Source { input, clock, steps: vec![Step::Transform(Box::new(transform))] }, schema })
    }

    fn make_union(
        &mut self,
        name: &str,
        inputs: Vec<Relation>,
        (filter, outputs, clock): (Option<Expr>, Vec<(String, Expr)>, Option<Expr>),
    ) -> Result<Made, SqlError> {
        let mut nodes = Vec::with_capacity(inputs.len());
        let mut schema: Option<SchemaRef> = None;
        for mut input in inputs {
            let own = |expr: Expr| by_number(expr, name, &input);
            let outputs =
                outputs.iter().map(|(n, e)| Ok((n.clone(), own(e.clone())?))).collect::<Result<_, SqlError>>()?;
            let clock = clock.clone().map(own).transpose()?;
            if let Some(filter) = &filter {
                let own = own(filter.clone())?;
                input.filters.push(own);
            }
            let made = self.make(input, outputs, clock)?;
            schema = Some(match schema {
                None => made.schema.clone(),
                Some(known) => common(&known, &made.schema)?,
            });
            nodes.push((made.node, made.schema));
        }
        let schema = schema.unwrap_or_else(|| Arc::new(Schema::empty()));
        // The inputs' rows are alike but for what may be null: one more step makes one schema of them.
        for (node, own) in &mut nodes {
            if *own != schema {
                push(node, Step::Transform(Box::new(same_schema(own, &schema)?)));
            }
        }
        let nodes = nodes.into_iter().map(|(node, _)| node).collect();
        Ok(Made { node: Node::Union { inputs: nodes, steps: vec![] }, schema })
    }
}

/// Passes all columns of a schema under that of all inputs.
fn same_schema(own: &SchemaRef, all: &SchemaRef) -> Result<Transform, SqlError> {
    let columns = own.fields().iter().map(|field| Expr::Column(Column::from_name(field.name())));
    let outputs = all.fields().iter().map(|field| field.name().clone()).zip(columns).collect();
    Planned::over(own, None, outputs)?.transform_into(all.clone())
}

/// One schema for the rows of both.
fn common(a: &SchemaRef, b: &SchemaRef) -> Result<SchemaRef, SqlError> {
    let mut fields = Vec::with_capacity(a.fields().len());
    for (a, b) in a.fields().iter().zip(b.fields()) {
        if a.data_type() != b.data_type() {
            let reason = format!("UNION ALL: column {} is {} and {}", a.name(), a.data_type(), b.data_type());
            return Err(SqlError::Type { reason, hint: "CAST one of them to the type of the other".into() });
        }
        fields.push(Field::new(a.name(), a.data_type().clone(), a.is_nullable() || b.is_nullable()));
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// Appends a step to a node.
pub(super) fn push(node: &mut Node, step: Step) {
    match node {
        Node::Source { steps, .. }
        | Node::Aggregate { steps, .. }
        | Node::Join { steps, .. }
        | Node::Union { steps, .. } => {
            steps.push(step);
        }
    }
}

/// Columns of a relation without its name.
pub(super) fn unqualified(expr: Expr, relation: &str) -> Result<Expr, SqlError> {
    let plain = expr.transform_up(|node| match node {
        Expr::Column(column) if column.relation.as_ref().is_some_and(|r| r.table() == relation) => {
            Ok(Transformed::yes(Expr::Column(Column::from_name(column.name))))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(plain.map_err(refused)?.data)
}

/// Columns by number as the expressions of a relation's columns.
pub(super) fn by_number(expr: Expr, name: &str, relation: &Relation) -> Result<Expr, SqlError> {
    let found = expr.transform_down(|node| match &node {
        Expr::Column(column) if column.relation.as_ref().is_some_and(|r| r.table() == name) => {
            let own = column.name.parse::<usize>().ok().and_then(|number| relation.columns.get(number));
            match own {
                Some(own) => Ok(Transformed::new(own.expr.clone(), true, TreeNodeRecursion::Jump)),
                None => Ok(Transformed::no(node)),
            }
        }
        _ => Ok(Transformed::no(node)),
    });
    Ok(found.map_err(refused)?.data)
}

/// The columns of a relation, with the fields that are read of them, in expressions; each replaced by a name in `wanted`.
pub(super) fn gather(expr: Expr, relation: &str, wanted: &mut Vec<(String, Expr)>) -> Result<Expr, SqlError> {
    let replaced = expr.transform_down(|node| match leaf_of(&node) {
        Some((column, _)) if column.relation.as_ref().is_some_and(|r| r.table() == relation) => {
            let name = match wanted.iter().find(|(_, known)| *known == node) {
                Some((name, _)) => name.clone(),
                None => {
                    let name = format!("{relation}.{}", wanted.len());
                    wanted.push((name.clone(), node.clone()));
                    name
                }
            };
            Ok(Transformed::new(Expr::Column(Column::from_name(name)), true, TreeNodeRecursion::Jump))
        }
        _ => Ok(Transformed::no(node)),
    });
    Ok(replaced.map_err(refused)?.data)
}

/// An expression as a timestamp in microseconds.
pub(super) fn as_time(expr: Expr) -> Expr {
    let wanted = Field::new("", DataType::Timestamp(TimeUnit::Microsecond, None), true);
    Expr::Cast(Cast::new_from_field(Box::new(expr), wanted.into()))
}

/// An expression of a type as a timestamp in microseconds.
pub(super) fn as_micros(expr: Expr, data_type: &DataType) -> Expr {
    if *data_type == DataType::Timestamp(TimeUnit::Microsecond, None) { expr } else { as_time(expr) }
}

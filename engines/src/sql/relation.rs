//! A logical plan as relations: columns given by expressions over what a relation is made of.
//!
//! A projection or a filter over a relation is a relation again; nothing is computed until what is needed of it is known. Then
//! [`super::steps::Builder`] makes a node that computes just that.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, TableReference};
use datafusion_expr::utils::split_conjunction_owned;
use datafusion_expr::{Distinct, Expr, JoinType, LogicalPlan};

use super::parse::Of;
use super::steps::Builder;
use super::{SqlError, functions, refuse, refused};
use crate::plan::{JoinKind, Node, POSITION, Role};

/// Rows by columns.
#[derive(Debug)]
pub(super) struct Relation {
    pub(super) base: Base,
    /// What must hold of a row.
    pub(super) filters: Vec<Expr>,
    pub(super) columns: Vec<Named>,
}

/// A column as the plan above names it.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) qualifier: Option<TableReference>,
    pub(super) name: String,
    /// Over the base.
    pub(super) expr: Expr,
}

/// What a relation is made of.
#[derive(Debug)]
pub(super) enum Base {
    /// A use of a source: the table of the record, and that of the unnested elements with its alias.
    Source { record: usize, elements: Option<(usize, String)> },
    /// The rows of a node, whose columns are those of the relation `name`.
    Made { node: Box<Node>, name: String, fields: arrow::datatypes::SchemaRef },
    /// Two relations side by side: `left` and `right` are the names of their columns, by number.
    Join(Box<Joined>),
    /// Relations one behind the other; columns by number, of the relation `name`.
    Union { name: String, inputs: Vec<Relation> },
}

/// Two relations and what pairs them.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) name: String,
    pub(super) left: Relation,
    pub(super) right: Relation,
    pub(super) kind: JoinKind,
    pub(super) conditions: Vec<Expr>,
    pub(super) asof: bool,
    /// The sides were exchanged: the left one's columns have the right one's name.
    pub(super) flipped: bool,
    /// Types of the columns of both sides.
    pub(super) types: DFSchema,
}

impl Joined {
    /// Names of the columns of both sides.
    pub(super) fn sides(&self) -> [String; 2] {
        let [first, second] = if self.flipped { ["r", "l"] } else { ["l", "r"] };
        [format!("{}{first}", self.name), format!("{}{second}", self.name)]
    }
}

/// A column of a base.
pub(super) fn column(relation: &str, name: impl Into<String>) -> Expr {
    Expr::Column(Column::new(Some(TableReference::bare(relation)), name))
}

impl Relation {
    /// An expression over the relation's columns as one over its base.
    pub(super) fn resolve(&self, expr: Expr) -> Result<Expr, SqlError> {
        let resolved = expr.transform_down(|node| match &node {
            Expr::Column(wanted) => {
                let found = self.columns.iter().find(|own| own.matches(wanted));
                match found {
                    Some(own) => Ok(Transformed::new(own.expr.clone(), true, TreeNodeRecursion::Jump)),
                    None => Ok(Transformed::no(node)),
                }
            }
            _ => Ok(Transformed::no(node)),
        });
        let resolved = resolved.map_err(refused)?.data;
        // The end of a window that has become a column is the column beside it.
        let ended = resolved.transform_up(|node| {
            let end = match &node {
                Expr::ScalarFunction(call) if call.name() == functions::WINDOW_END => match call.args.first() {
                    Some(Expr::Column(start)) if start.name == "window_start" => {
                        Some(Expr::Column(Column::new(start.relation.clone(), "window_end")))
                    }
                    _ => None,
                },
                _ => None,
            };
            Ok(end.map_or(Transformed::no(node), Transformed::yes))
        });
        Ok(ended.map_err(refused)?.data)
    }
}

impl Named {
    fn matches(&self, wanted: &Column) -> bool {
        self.name == wanted.name && (wanted.relation.is_none() || self.qualifier == wanted.relation)
    }
}

/// The types of a join's columns, by their numbers.
fn types_of(columns: &[Named], schema: &DFSchema) -> Result<DFSchema, SqlError> {
    let field = |(named, field): (&Named, &FieldRef)| match &named.expr {
        Expr::Column(own) => (own.relation.clone(), Arc::new(field.as_ref().clone().with_name(own.name.clone()))),
        _ => (None, Arc::clone(field)),
    };
    let fields = columns.iter().zip(schema.fields()).map(field).collect();
    DFSchema::new_with_metadata(fields, std::collections::HashMap::new()).map_err(refused)
}

impl Builder<'_> {
    /// The relation of a plan.
    pub(super) fn relation(&mut self, plan: &LogicalPlan) -> Result<Relation, SqlError> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan.table_name.table(), plan),
            LogicalPlan::SubqueryAlias(alias) => {
                let mut inner = self.relation(&alias.input)?;
                for (own, (qualifier, field)) in inner.columns.iter_mut().zip(alias.schema.iter()) {
                    (own.qualifier, own.name) = (qualifier.cloned(), field.name().clone());
                }
                if let Base::Source { elements: Some((_, called)), .. } = &mut inner.base
                    && called.is_empty()
                {
                    *called = alias.alias.table().to_owned();
                }
                Ok(inner)
            }
            LogicalPlan::Projection(projection) => {
                let inner = self.relation(&projection.input)?;
                let mut columns = Vec::with_capacity(projection.expr.len());
                for (expr, (qualifier, field)) in projection.expr.iter().zip(projection.schema.iter()) {
                    let expr = inner.resolve(expr.clone().unalias())?;
                    columns.push(Named { qualifier: qualifier.cloned(), name: field.name().clone(), expr });
                }
                Ok(Relation { columns, ..inner })
            }
            LogicalPlan::Filter(filter) => {
                let mut inner = self.relation(&filter.input)?;
                let own = inner.resolve(filter.predicate.clone())?;
                match &mut inner.base {
                    // What is asked of pairs pairs them.
                    Base::Join(joined) if joined.kind == JoinKind::Inner => {
                        joined.conditions.extend(split_conjunction_owned(own));
                    }
                    _ => inner.filters.push(own),
                }
                Ok(inner)
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input),
            LogicalPlan::Union(union) => {
                let inputs = union.inputs.iter().map(|input| self.relation(input)).collect::<Result<Vec<_>, _>>()?;
                let name = self.unique("u");
                let columns = union.schema.iter().enumerate().map(|(number, (qualifier, field))| Named {
                    qualifier: qualifier.cloned(),
                    name: field.name().clone(),
                    expr: column(&name, number.to_string()),
                });
                Ok(Relation { columns: columns.collect(), filters: vec![], base: Base::Union { name, inputs } })
            }
            other => {
                Err(SqlError::not_supported(format!("a query that plans as {}", other.display()), refuse::SUPPORTED))
            }
        }
    }

    fn scan(&mut self, name: &str, plan: &LogicalPlan) -> Result<Relation, SqlError> {
        let found = self.tables.iter().position(|table| table.name == name);
        let Some(table) = found else {
            return Err(SqlError::Unknown { kind: "stream or table", name: name.to_owned(), hint: String::new() });
        };
        let columns = plan.schema().iter().map(|(qualifier, field)| Named {
            qualifier: qualifier.cloned(),
            name: field.name().clone(),
            expr: column(name, field.name()),
        });
        let base = match &self.tables[table].of {
            Of::Source(_) => Base::Source { record: table, elements: None },
            // Until it is joined with its stream, a list is a relation without a record.
            Of::Elements { table: record, .. } => {
                Base::Source { record: *record, elements: Some((table, String::new())) }
            }
        };
        Ok(Relation { columns: columns.collect(), filters: vec![], base })
    }

    fn join(&mut self, join: &datafusion_expr::logical_plan::Join) -> Result<Relation, SqlError> {
        let mut left = self.relation(&join.left)?;
        let mut right = self.relation(&join.right)?;
        if let (Base::Source { record, elements }, Base::Source { record: of, elements: Some(list) }) =
            (&mut left.base, &right.base)
            && elements.is_none()
            && record == of
        {
            if join.join_type != JoinType::Inner {
                return Err(SqlError::not_supported(
                    "an outer join with UNNEST",
                    "write FROM stream, UNNEST(list) AS e: a record whose list is empty yields no row",
                ));
            }
            *elements = Some(list.clone());
            left.columns.append(&mut right.columns);
            left.filters.append(&mut right.filters);
            let on = join.on.iter().map(|(l, r)| l.clone().eq(r.clone()));
            for condition in on.chain(join.filter.clone()) {
                let own = left.resolve(condition)?;
                left.filters.push(own);
            }
            return Ok(left);
        }
        if matches!((&left.base, &right.base), (Base::Join(_), Base::Source { elements: Some(_), .. })) {
            return Err(SqlError::not_supported(
                "UNNEST behind a join",
                "write UNNEST directly behind its stream: FROM stream, UNNEST(list) AS e JOIN …",
            ));
        }
        let kind = match join.join_type {
            JoinType::Inner => JoinKind::Inner,
            JoinType::Left => JoinKind::Left,
            JoinType::Right => JoinKind::Right,
            JoinType::Full => JoinKind::Full,
            other => return Err(SqlError::not_supported(format!("a {other} join"), refuse::SUPPORTED)),
        };
        let name = self.unique("j");
        let numbered = |side: &str, of: &Relation| {
            let columns = of.columns.iter().enumerate().map(|(number, own)| Named {
                expr: column(&format!("{name}{side}"), number.to_string()),
                ..own.clone()
            });
            columns.collect::<Vec<_>>()
        };
        let columns = [numbered("l", &left), numbered("r", &right)].concat();
        let types = types_of(&columns, &join.schema)?;
        let joined =
            Joined { name: name.clone(), left, right, kind, conditions: vec![], asof: false, flipped: false, types };
        let mut relation = Relation { base: Base::Join(Box::new(joined)), filters: vec![], columns };
        let mut conditions: Vec<Expr> = Vec::new();
        for (l, r) in &join.on {
            conditions.push(relation.resolve(l.clone().eq(r.clone()))?);
        }
        for condition in join.filter.iter().flat_map(|filter| split_conjunction_owned(filter.clone())) {
            conditions.push(relation.resolve(condition)?);
        }
        if let Base::Join(joined) = &mut relation.base {
            let count = conditions.len();
            conditions.retain(|c| !matches!(c, Expr::ScalarFunction(call) if call.name() == functions::ASOF));
            joined.asof = conditions.len() < count;
            joined.conditions = conditions;
        }
        Ok(relation)
    }

    /// The position of a relation's rows, where they have one.
    pub(super) fn position(&self, relation: &Relation) -> Option<Expr> {
        match &relation.base {
            Base::Source { record, .. } => Some(column(&self.tables[*record].name, POSITION)),
            Base::Join(joined) if self.is_table(&joined.right) => {
                self.position(&joined.left).map(|_| column(&joined.sides()[0], POSITION))
            }
            _ => None,
        }
    }

    /// Whether a relation is a table that is held whole.
    pub(super) fn is_table(&self, relation: &Relation) -> bool {
        match &relation.base {
            Base::Source { record, .. } => match &self.tables[*record].of {
                Of::Source(source) => self.sources[*source].1 == Role::Table,
                Of::Elements { .. } => false,
            },
            _ => false,
        }
    }
}

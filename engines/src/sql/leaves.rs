//! The leaves of a record that expressions read, as flat columns.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, ScalarValue};
use datafusion_expr::Expr;
use std::sync::Arc;

use super::parse::{Of, Table};
use super::{SqlError, refused};
use crate::plan::POSITION;
use crate::read::{ReadColumn, ReadPlan, decoded_type};

/// The leaves read so far of one use of a source.
pub(super) struct Leaves<'a> {
    record: &'a Table,
    /// The table of the elements of its unnested list, and how the query calls it.
    elements: Option<(&'a Table, &'a str)>,
    columns: Vec<ReadColumn>,
    source_types: Vec<DataType>,
    position: bool,
}

impl<'a> Leaves<'a> {
    pub(super) fn new(record: &'a Table, elements: Option<(&'a Table, &'a str)>) -> Self {
        Self { record, elements, columns: vec![], source_types: vec![], position: false }
    }

    /// What is read, and the flat columns with strings as plain text.
    pub(super) fn finish(self) -> Result<(ReadPlan, DFSchema), SqlError> {
        let fields = self.columns.iter().zip(&self.source_types);
        let mut fields: Vec<Field> =
            fields.map(|(column, source)| Field::new(&column.name, source.clone(), column.nullable)).collect();
        if self.position {
            fields.push(Field::new(POSITION, DataType::UInt64, false));
        }
        let flat = DFSchema::try_from(Schema::new(fields)).map_err(refused)?;
        let unnest = self.list().map(<[String]>::to_vec);
        Ok((ReadPlan { columns: self.columns, unnest, position: self.position }, flat))
    }

    fn list(&self) -> Option<&'a [String]> {
        match &self.elements?.0.of {
            Of::Elements { list, .. } => Some(list),
            Of::Source(_) => None,
        }
    }

    /// Replaces columns and field accesses by flat columns.
    pub(super) fn flatten(&mut self, expr: Expr) -> Result<Expr, SqlError> {
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
        if column.name == POSITION {
            self.position = true;
            return Ok(POSITION.to_owned());
        }
        let relation = column.relation.as_ref().map(|relation| relation.table());
        let element = self.elements.filter(|(table, _)| relation == Some(table.name.as_str()));
        let of_element = element.is_some();
        let schema: &SchemaRef = element.map_or(&self.record.schema, |(table, _)| &table.schema);
        let index = schema.index_of(&column.name).map_err(|e| refused(e.into()))?;
        let root = schema.field(index);
        let (mut path, shown) = match element {
            Some((Table { of: Of::Elements { paths, .. }, .. }, alias)) => {
                (paths[index].clone(), format!("{alias}.{}", column.name))
            }
            _ => (vec![column.name.clone()], column.name.clone()),
        };
        path.extend_from_slice(fields);
        if !of_element && self.list() == Some(path.as_slice()) {
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
pub(super) fn leaf_of(expr: &Expr) -> Option<(&Column, Vec<String>)> {
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

//! Two streams and a table that queries of every kind can be asked of.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use freshet::plan::Role;
use freshet::sql::{Query, SourceSchema, SqlError};

/// `orders` and `payments` are streams, `merchants` is a table.
pub(crate) fn shop() -> Vec<(SourceSchema, Role)> {
    let time = || DataType::Timestamp(TimeUnit::Microsecond, None);
    let item = Fields::from(vec![
        Field::new("sku", DataType::Utf8, true),
        Field::new("pieces", DataType::Int64, true),
        Field::new("price", DataType::Float64, true),
    ]);
    let address =
        Fields::from(vec![Field::new("city", DataType::Utf8, true), Field::new("zip", DataType::Int64, true)]);
    let list = DataType::List(Arc::new(Field::new("item", DataType::Struct(item), true)));
    let orders = vec![
        Field::new("id", DataType::Int64, true),
        Field::new("merchant", DataType::Utf8, true),
        Field::new("amount", DataType::Int64, true),
        Field::new("price", DataType::Float64, true),
        Field::new("paid", DataType::Boolean, true),
        Field::new("ts", time(), true),
        Field::new("address", DataType::Struct(address), true),
        Field::new("items", list, true),
    ];
    let payments = vec![
        Field::new("order_id", DataType::Int64, true),
        Field::new("merchant", DataType::Utf8, true),
        Field::new("sum", DataType::Int64, true),
        Field::new("ts", time(), true),
    ];
    let merchants = vec![
        Field::new("merchant", DataType::Utf8, true),
        Field::new("name", DataType::Utf8, true),
        Field::new("rate", DataType::Float64, true),
        Field::new("since", time(), true),
    ];
    [("orders", orders, Role::Stream), ("payments", payments, Role::Stream), ("merchants", merchants, Role::Table)]
        .into_iter()
        .map(|(name, fields, role)| (SourceSchema { name: name.into(), schema: Arc::new(Schema::new(fields)) }, role))
        .collect()
}

/// A query of the shop.
pub(crate) fn compile(sql: &str) -> Result<Query, SqlError> {
    Query::compile_all(sql, &shop())
}

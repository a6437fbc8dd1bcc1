//! Declared columns: `name TYPE, name TYPE`.

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion_sql::sqlparser::ast::{ArrayElemTypeDef, DataType as SqlType, Statement};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::parser::Parser;

use super::SqlError;

/// Names and types as in `CREATE TABLE`: BIGINT, DOUBLE, BOOLEAN, VARCHAR, TIMESTAMP, and arrays of these. An unquoted name
/// keeps its case. The order is kept; an empty text declares nothing.
///
/// # Errors
/// The text is no list of columns, or a type is not one of these.
pub fn column_types(text: &str) -> Result<Vec<(String, DataType)>, SqlError> {
    if text.trim().is_empty() {
        return Ok(vec![]);
    }
    let statement = format!("CREATE TABLE t ({text})");
    let parsed = Parser::parse_sql(&GenericDialect {}, &statement)
        .map_err(|e| SqlError::Syntax { reason: format!("--columns: {e}") })?;
    let [Statement::CreateTable(table)] = parsed.as_slice() else {
        return Err(SqlError::Syntax { reason: "--columns: write NAME TYPE, NAME TYPE".into() });
    };
    table.columns.iter().map(|c| Ok((c.name.value.clone(), arrow_type(&c.data_type)?))).collect()
}

fn arrow_type(sql: &SqlType) -> Result<DataType, SqlError> {
    Ok(match sql {
        SqlType::TinyInt(_) | SqlType::SmallInt(_) | SqlType::Int(_) | SqlType::Integer(_) | SqlType::BigInt(_) => {
            DataType::Int64
        }
        SqlType::Double(_) | SqlType::DoublePrecision | SqlType::Float(_) | SqlType::Real | SqlType::Float64 => {
            DataType::Float64
        }
        SqlType::Bool | SqlType::Boolean => DataType::Boolean,
        SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Text | SqlType::String(_) => DataType::Utf8,
        SqlType::Timestamp(..) | SqlType::Datetime(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
        SqlType::Array(ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item)) => {
            DataType::List(Field::new("item", arrow_type(item)?, true).into())
        }
        other => {
            return Err(SqlError::not_supported(
                format!("the type {other} in --columns"),
                "write BIGINT, DOUBLE, BOOLEAN, VARCHAR, TIMESTAMP or an array of one, such as VARCHAR[]",
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_declared_as_in_create_table() {
        let columns = column_types("userId bigint, \"a b\" DOUBLE, tags VARCHAR[], ts TIMESTAMP").unwrap();
        assert_eq!(columns[0], ("userId".into(), DataType::Int64));
        assert_eq!(columns[1].0, "a b");
        assert!(matches!(columns[2].1, DataType::List(_)));
        assert!(column_types(" ").unwrap().is_empty());
        assert_eq!(column_types("a BLOB").unwrap_err().code(), "NOT_SUPPORTED");
        assert_eq!(column_types("a").unwrap_err().code(), "SYNTAX_ERROR");
        assert_eq!(column_types("1 2 3").unwrap_err().code(), "SYNTAX_ERROR");
    }
}

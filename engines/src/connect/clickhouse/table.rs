//! The target table: what it is, and which of the query's columns goes where.

use std::io::IoSlice;

use arrow::datatypes::Schema;

use super::block::InsertFormat;
use super::column::Column;
use super::http::{Connection, Response, base64, encode};
use super::types::Type;
use crate::connect::Uri;
use crate::error::Error;

/// Where inserts go and how they are sent.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// `host:port`.
    pub(crate) host: String,
    /// Complete header lines of every request.
    pub(crate) headers: String,
    database: String,
    table: String,
    parameters: Vec<(String, String)>,
}

/// A column of the table that can be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableColumn {
    name: String,
    text: String,
}

impl Target {
    /// Takes the address apart.
    ///
    /// # Errors
    /// It does not name one host, a database and a table.
    pub(crate) fn new(uri: &Uri) -> Result<Self, Error> {
        let wanted = "write clickhouse://user:password@host:port/database/table";
        let [host] = &uri.hosts[..] else {
            return Err(Error::usage(format!("{uri} names {} hosts, not one", uri.hosts.len()), wanted));
        };
        let (database, table) = uri.path.split_once('/').unwrap_or(("default", &uri.path));
        if table.is_empty() || table.contains('/') || database.is_empty() {
            return Err(Error::usage(format!("{uri} does not name a database and a table"), wanted));
        }
        let host = if host.contains(':') { host.clone() } else { format!("{host}:8123") };
        let mut headers = String::from("User-Agent: freshet\r\n");
        if let Some(user) = &uri.user {
            let password = uri.password.as_deref().unwrap_or("");
            let credentials = base64(format!("{user}:{password}").as_bytes());
            headers.push_str(&format!("Authorization: Basic {credentials}\r\n"));
        }
        Ok(Self { host, headers, database: database.into(), table: table.into(), parameters: uri.parameters.clone() })
    }

    /// `database`.`table`, quoted.
    fn quoted(&self) -> String {
        format!("{}.{}", quote(&self.database), quote(&self.table))
    }

    /// The request path of an insert of these columns; the deduplication token is added to it.
    pub(crate) fn insert_path<'a>(&self, columns: impl Iterator<Item = &'a str>, format: InsertFormat) -> String {
        let columns: Vec<String> = columns.map(quote).collect();
        let insert = format!("INSERT INTO {} ({}) FORMAT {}", self.quoted(), columns.join(", "), format.name());
        let mut path = format!("/?query={}&async_insert=0", encode(&insert));
        for (key, value) in &self.parameters {
            path.push_str(&format!("&{}={}", encode(key), encode(value)));
        }
        path.push_str("&insert_deduplication_token=");
        path
    }

    /// Asks for the table's columns.
    ///
    /// # Errors
    /// ClickHouse cannot be reached, refuses the user, or has no such table.
    pub(crate) fn describe(&self) -> Result<Vec<TableColumn>, Error> {
        let query = format!("DESCRIBE TABLE {} FORMAT JSONCompactEachRow", self.quoted());
        let mut connection = Connection::new(&self.host);
        let response = connection
            .post("/", &self.headers, &[IoSlice::new(query.as_bytes())])
            .map_err(|error| unreachable_error(&self.host, &error))?;
        if response.status != 200 || response.exception.is_some() {
            return Err(refused(&self.quoted(), &response));
        }
        parse_columns(&response.body).ok_or_else(|| {
            Error::sink(format!("{} did not describe the table as ClickHouse does", self.host), "check the address")
        })
    }

    /// The table's sorting key as ClickHouse prints it; empty where it has none or does not say.
    pub(crate) fn sorting_key(&self) -> String {
        let literal = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
        let query = format!(
            "SELECT sorting_key FROM system.tables WHERE database = {} AND name = {} FORMAT TabSeparatedRaw",
            literal(&self.database),
            literal(&self.table)
        );
        match Connection::new(&self.host).post("/", &self.headers, &[IoSlice::new(query.as_bytes())]) {
            Ok(response) if response.status == 200 && response.exception.is_none() => response.body.trim().to_owned(),
            _ => String::new(),
        }
    }

    /// Maps the query's columns to the table's by name.
    ///
    /// # Errors
    /// The table lacks one of them, or its type cannot take the query's.
    pub(crate) fn map(
        &self,
        output: &Schema,
        table: &[TableColumn],
        format: InsertFormat,
    ) -> Result<Vec<Column>, Error> {
        output
            .fields()
            .iter()
            .map(|field| {
                let found = table.iter().find(|column| column.name == *field.name());
                let Some(column) = found else {
                    let names: Vec<&str> = table.iter().map(|column| column.name.as_str()).collect();
                    return Err(Error::sink(
                        format!("table {} has no column {} that can be written", self.quoted(), field.name()),
                        format!("it has {}; rename with AS", names.join(", ")),
                    ));
                };
                let data_type = Type::parse(&column.text);
                match data_type.filter(|to| Column::accepts(field.data_type(), to)) {
                    Some(to) => Ok(Column::new(&column.name, &to, format == InsertFormat::Rowbinary)),
                    None => Err(Error::sink(
                        format!(
                            "column {} is {} in the query and {} in table {}",
                            field.name(),
                            sql_name(field.data_type()),
                            column.text,
                            self.quoted()
                        ),
                        "CAST it in the query, or change the table",
                    )),
                }
            })
            .collect()
    }
}

/// The columns of a DESCRIBE that an insert may name.
fn parse_columns(body: &str) -> Option<Vec<TableColumn>> {
    let mut columns = Vec::new();
    for line in body.lines().filter(|line| !line.is_empty()) {
        let row: Vec<String> = serde_json::from_str(line).ok()?;
        let [name, text, default, ..] = &row[..] else { return None };
        if !matches!(default.as_str(), "MATERIALIZED" | "ALIAS") {
            columns.push(TableColumn { name: name.clone(), text: text.clone() });
        }
    }
    Some(columns)
}

fn quote(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

fn sql_name(data_type: &arrow::datatypes::DataType) -> String {
    use arrow::datatypes::DataType;
    match data_type {
        DataType::Utf8 => "a string".into(),
        DataType::Dictionary(_, value) => sql_name(value),
        DataType::List(item) => format!("a list of {}", sql_name(item.data_type())),
        DataType::Timestamp(..) => "a timestamp".into(),
        other => other.to_string(),
    }
}

/// A server that cannot be reached.
pub(crate) fn unreachable_error(host: &str, error: &std::io::Error) -> Error {
    Error::sink(
        format!("ClickHouse at {host} cannot be reached: {error}"),
        "check the address and that the HTTP interface listens there",
    )
}

/// ClickHouse's refusal.
pub(crate) fn refused(what: &str, response: &Response) -> Error {
    let text = response.body.trim();
    let text: String = text.chars().take(1_000).collect();
    let hint = match response.exception {
        Some(60 | 81) => "create the table first",
        Some(192..=194 | 516) => "check user and password: clickhouse://user:password@host:port/database/table",
        Some(497) => "grant the user INSERT and SHOW COLUMNS on the table",
        _ => "",
    };
    let code =
        response.exception.map_or_else(|| format!("HTTP status {}", response.status), |code| format!("code {code}"));
    Error::sink(format!("ClickHouse refused {what} ({code}): {text}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};

    fn target() -> Target {
        Target::new(&Uri::parse_sink("clickhouse://me:pw@h/d/t?max_threads=1").unwrap()).unwrap()
    }

    #[test]
    fn an_address_names_host_database_and_table() {
        let target = target();
        assert_eq!((target.host.as_str(), target.quoted().as_str()), ("h:8123", "`d`.`t`"));
        assert!(target.headers.contains("Basic bWU6cHc="));
        assert_eq!(
            target.insert_path(["a", "b`c"].into_iter(), InsertFormat::Native),
            "/?query=INSERT%20INTO%20%60d%60.%60t%60%20%28%60a%60%2C%20%60b%5C%60c%60%29%20FORMAT%20Native\
             &async_insert=0&max_threads=1&insert_deduplication_token="
        );
        for wrong in ["clickhouse://h/", "clickhouse://a,b/d/t", "clickhouse://h/d/t/x"] {
            assert!(Target::new(&Uri::parse_sink(wrong).unwrap()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn columns_are_mapped_by_name_and_refused_by_name() {
        let table = parse_columns(
            "[\"s\",\"LowCardinality(String)\",\"\",\"\",\"\",\"\",\"\"]\n[\"n\",\"UInt16\",\"DEFAULT\",\"1\"]\n\
             [\"ts\",\"DateTime64(6)\",\"MATERIALIZED\",\"now64(6)\"]\n",
        )
        .unwrap();
        let map = |fields: Vec<Field>| target().map(&Schema::new(fields), &table, InsertFormat::Native);
        let columns =
            map(vec![Field::new("n", DataType::Int64, false), Field::new("s", DataType::Utf8, true)]).unwrap();
        assert_eq!((columns[0].name.as_str(), columns[1].text.as_str()), ("n", "LowCardinality(String)"));
        assert_eq!(
            map(vec![Field::new("s", DataType::Int64, false)]).unwrap_err().to_string(),
            "column s is Int64 in the query and LowCardinality(String) in table `d`.`t`"
        );
        assert_eq!(
            map(vec![Field::new("ts", DataType::Int64, false)]).unwrap_err().to_string(),
            "table `d`.`t` has no column ts that can be written"
        );
    }
}

//! What the planner may name: the stream, the unnested list and the scalar functions.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, TableReference, plan_err};
use datafusion_expr::planner::{ContextProvider, ExprPlanner};
use datafusion_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, Volatility, WindowUDF};
use datafusion_functions::core::planner::CoreFunctionPlanner;
use datafusion_functions::datetime::planner::DatetimeFunctionPlanner;
use datafusion_functions::unicode::planner::UnicodeFunctionPlanner;

use super::{aggregates, functions};

/// Functions that need more of a query engine than there is here, or say nothing about a record.
const LEFT_OUT: &[&str] =
    &["version", "input_file_name", "file_row_index", "arrow_metadata", "with_metadata", "arrow_field"];

static FUNCTIONS: LazyLock<BTreeMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let mut all = BTreeMap::new();
    for function in datafusion_functions::all_default_functions() {
        let pure = function.signature().volatility == Volatility::Immutable;
        if !pure || LEFT_OUT.contains(&function.name()) {
            continue;
        }
        for name in std::iter::once(function.name()).chain(function.aliases().iter().map(String::as_str)) {
            all.insert(name.to_owned(), function.clone());
        }
    }
    all
});

/// A scalar function by its lower-case name.
pub(super) fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    FUNCTIONS.get(name).cloned()
}

/// Whether there is a function of this name whose result depends on more than its arguments.
pub(super) fn is_impure(name: &str) -> bool {
    datafusion_functions::all_default_functions().iter().any(|f| {
        (f.name() == name || f.aliases().iter().any(|a| a == name)) && f.signature().volatility != Volatility::Immutable
    })
}

/// A hint that names the functions spelled most like `name`.
pub(super) fn closest_function(name: &str) -> String {
    let known = FUNCTIONS.keys().map(String::as_str).chain(aggregates::NAMES).chain(functions::WINDOWS);
    closest(name, known).map_or_else(
        || "scalar functions on text, numbers and timestamps, and the usual aggregates, are supported".to_owned(),
        |found| format!("did you mean {found}?"),
    )
}

/// The candidate spelled most like `name`, when one is close.
pub(super) fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_ascii_lowercase();
    let near = candidates.map(|c| (distance(&lower, &c.to_ascii_lowercase()), c));
    let near = near.min_by_key(|(distance, c)| (*distance, c.len().abs_diff(name.len())))?;
    (near.0 <= (name.len() + 1) / 3).then_some(near.1)
}

/// Edit distance between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let next = (corner + usize::from(ca != *cb)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}

/// The tables of one query.
pub(super) struct Catalog {
    tables: Vec<(String, Arc<dyn TableSource>)>,
    planners: Vec<Arc<dyn ExprPlanner>>,
    options: ConfigOptions,
}

struct Table(SchemaRef);

impl TableSource for Table {
    fn schema(&self) -> SchemaRef {
        self.0.clone()
    }
}

impl Catalog {
    pub(super) fn new(tables: impl IntoIterator<Item = (String, SchemaRef)>) -> Self {
        let tables =
            tables.into_iter().map(|(name, schema)| (name, Arc::new(Table(schema)) as Arc<dyn TableSource>)).collect();
        let planners: Vec<Arc<dyn ExprPlanner>> = vec![
            Arc::new(CoreFunctionPlanner::default()),
            Arc::new(DatetimeFunctionPlanner),
            Arc::new(UnicodeFunctionPlanner),
        ];
        Self { tables, planners, options: ConfigOptions::default() }
    }
}

impl ContextProvider for Catalog {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        match self.tables.iter().find(|(table, _)| table == name.table()) {
            Some((_, source)) => Ok(source.clone()),
            None => plan_err!("there is no stream {name}"),
        }
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        function(name).or_else(|| functions::marker(name))
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        aggregates::aggregate(name)
    }

    fn get_window_meta(&self, _name: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        FUNCTIONS.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        vec![]
    }

    fn udaf_names(&self) -> Vec<String> {
        aggregates::NAMES.iter().map(|name| (*name).to_owned()).collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        vec![]
    }
}

//! SQL: from a query text and the schemas of its sources to a plan of vectorised steps.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::DataFusionError;
use datafusion_common::config::ConfigOptions;
use datafusion_optimizer::analyzer::Analyzer;
use datafusion_optimizer::simplify_expressions::SimplifyExpressions;
use datafusion_optimizer::{Optimizer, OptimizerContext};
use datafusion_sql::planner::{ParserOptions, SqlToRel};
use datafusion_sql::sqlparser::ast::Statement;

mod aggregates;
mod catalog;
mod checks;
mod columns;
mod conditions;
mod dictionary;
mod error;
mod explain;
mod functions;
mod grouping;
mod join;
mod leaves;
mod names;
mod outputs;
mod parse;
mod planned;
mod program;
mod refuse;
mod relation;
mod rewrite;
mod select;
mod sources;
mod steps;
mod transform;

pub use columns::column_types;
pub use error::SqlError;
pub use transform::{Applied, RowError, Transform};

use crate::plan::{Node, Plan, Role, Step};
use crate::read::ReadPlan;

/// What a source offers to a query.
#[derive(Debug, Clone)]
pub struct SourceSchema {
    /// The stream's own name, for messages. With one source, the query may call it anything.
    pub name: String,
    /// The record as Arrow types: records are structs, lists are lists, strings are `Utf8`.
    pub schema: SchemaRef,
}

/// A compiled query.
#[derive(Debug, Clone)]
pub struct Query {
    plan: Plan,
    explain: String,
}

impl Query {
    /// Compiles a query against its only source.
    ///
    /// # Errors
    /// The query cannot be parsed, names what the source does not have, or asks for what is not supported.
    pub fn compile(sql: &str, source: &SourceSchema) -> Result<Self, SqlError> {
        Self::compile_all(sql, &[(source.clone(), Role::Stream)])
    }

    /// Compiles a query against its sources. With one source, the query may call it anything.
    ///
    /// # Errors
    /// As [`Query::compile`].
    pub fn compile_all(sql: &str, sources: &[(SourceSchema, Role)]) -> Result<Self, SqlError> {
        // Parser and planner are recursive: a query is refused for its depth on a stack that holds any query.
        const STACK: usize = 512 << 20;
        let failed = || SqlError::not_supported("this query (the planner fails on it)", "write it in another way");
        std::thread::scope(|scope| {
            let planner =
                std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || Self::plan_of(sql, sources));
            planner.map_err(|_| failed())?.join().unwrap_or_else(|_| Err(failed()))
        })
    }

    fn plan_of(sql: &str, sources: &[(SourceSchema, Role)]) -> Result<Self, SqlError> {
        let parsed = parse::parse(sql, sources)?;
        let list = parsed.tables.iter().map(|table| (table.name.clone(), table.schema.clone()));
        let catalog = catalog::Catalog::new(list);
        let statement = Statement::Query(Box::new(parsed.query));
        let options = ParserOptions::new().with_map_string_types_to_utf8view(false);
        let plan = SqlToRel::new_with_options(&catalog, options).sql_statement_to_plan(statement);
        let plan = plan.map_err(|error| error::with_fields(refused(error), &parsed.tables))?;
        checks::unions(&plan)?;
        let plan = Analyzer::new().execute_and_check(plan, &ConfigOptions::default(), |_, _| {}).map_err(refused)?;
        checks::constants(&plan)?;
        let plan = Optimizer::with_rules(vec![Arc::new(SimplifyExpressions::new())])
            .optimize(plan, &OptimizerContext::new(), |_, _| {})
            .map_err(refused)?;
        let mut builder = steps::Builder::new(sources, &parsed.tables);
        let relation = builder.relation(&plan)?;
        let mut outputs = Vec::with_capacity(relation.columns.len());
        for column in &relation.columns {
            if outputs.iter().any(|(name, _)| *name == column.name) {
                let hint = "give one of them another name with AS".into();
                return Err(SqlError::Ambiguous { name: column.name.clone(), hint });
            }
            outputs.push((column.name.clone(), column.expr.clone()));
        }
        let key = std::mem::take(&mut builder.key);
        let upsert_key: Option<Vec<usize>> =
            key.iter().map(|part| outputs.iter().position(|(_, expr)| names_part(expr, part))).collect();
        let made = builder.make(relation, outputs, None)?;
        let upsert_key =
            if matches!(made.node, Node::Aggregate { .. }) { upsert_key.unwrap_or_default() } else { vec![] };
        let plan =
            Plan { inputs: builder.inputs, root: made.node, output: made.schema, upsert_key, limit: parsed.limit };
        let explain = explain::explain(&plan);
        Ok(Self { plan, explain })
    }

    /// How the query runs.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The step of a query that only filters and projects its one stream; `None` for any other.
    fn only_step(&self) -> Option<&Transform> {
        match &self.plan.root {
            Node::Source { steps, .. } => match steps.as_slice() {
                [Step::Transform(transform)] => Some(transform),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the query only filters and projects its one stream.
    #[must_use]
    pub fn is_stateless(&self) -> bool {
        self.only_step().is_some()
    }

    /// The leaves of a record that the query reads of its first input.
    #[must_use]
    pub fn reads(&self) -> &ReadPlan {
        static NOTHING: ReadPlan = ReadPlan { columns: vec![], unnest: None, position: false };
        self.plan.inputs.first().map_or(&NOTHING, |input| &input.reads)
    }

    /// Schema of the rows. Strings are `Dictionary(Int32, Utf8)`, also inside lists; the values of a dictionary are never
    /// null but may repeat.
    #[must_use]
    pub fn output_schema(&self) -> SchemaRef {
        self.plan.output.clone()
    }

    /// The most rows the query wants, over all workers.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.plan.limit
    }

    /// The transform of a stateless query for one worker; it keeps caches, so each worker has its own.
    #[must_use]
    pub fn worker(&self) -> Option<Transform> {
        self.only_step().cloned()
    }

    /// What the query reads, keeps and writes, for a reader.
    #[must_use]
    pub fn explain(&self) -> &str {
        &self.explain
    }
}

/// Whether an output names a part of a group's key: itself, or for a window's start its end.
fn names_part(output: &datafusion_expr::Expr, part: &datafusion_expr::Expr) -> bool {
    use datafusion_expr::Expr;
    match (output, part) {
        (Expr::Column(output), Expr::Column(part)) => {
            let name = |name: &str| if name == "window_end" { "window_start".to_owned() } else { name.to_owned() };
            output.relation == part.relation && name(&output.name) == name(&part.name)
        }
        _ => false,
    }
}

/// The planner's error in this crate's terms.
fn refused(error: DataFusionError) -> SqlError {
    error::from_planner(&error)
}

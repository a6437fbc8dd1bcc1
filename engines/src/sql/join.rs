//! Joins of streams, and of a stream with a table.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{BinaryExpr, Expr};

use super::conditions::{Bounds, Conditions, Reads, bounds, closest, reads};
use super::planned::Planned;
use super::relation::{Joined, column};
use super::steps::{Builder, Made, by_number, gather, push};
use super::{SqlError, refused};
use crate::plan::{Closest, Comparison, IntervalJoin, JoinKind, Lookup, Node, POSITION, Step};

/// What the step above asks of a join.
pub(super) type Asked = (Option<Expr>, Vec<(String, Expr)>, Option<Expr>);

impl Builder<'_> {
    pub(super) fn make_join(
        &mut self,
        mut joined: Joined,
        filter: Option<Expr>,
        outputs: Vec<(String, Expr)>,
        clock: Option<Expr>,
    ) -> Result<Made, SqlError> {
        if self.is_table(&joined.left) && !self.is_table(&joined.right) {
            joined = swapped(joined)?;
        }
        let asked = (filter, outputs, clock);
        match (self.is_table(&joined.left), self.is_table(&joined.right)) {
            (false, true) => self.make_lookup(joined, asked),
            (false, false) if joined.asof => {
                Err(SqlError::not_supported("an ASOF join of two streams", "read the right side with --table"))
            }
            (false, false) => self.make_interval(joined, asked),
            (true, _) => {
                Err(SqlError::not_supported("a query of tables only", "read one of them with --from or --stream"))
            }
        }
    }

    fn make_interval(&mut self, joined: Joined, (mut filter, mut outputs, _): Asked) -> Result<Made, SqlError> {
        let sides = joined.sides();
        let mut sorted = Conditions::sort(joined.conditions.clone(), &sides);
        let Bounds { left_time, right_time, lower, upper } = bounds(&mut sorted, &joined)?;
        let (kind, mut left, mut right) = (joined.kind, joined.left, joined.right);
        let mut residual = sorted.other;
        // A condition on the side whose rows may go is a filter of that side.
        let keeps = |kind: JoinKind, of: JoinKind| kind == JoinKind::Full || kind == of;
        for (conditions, own, side, keeps) in [
            (sorted.left, &mut left, &sides[0], keeps(kind, JoinKind::Left)),
            (sorted.right, &mut right, &sides[1], keeps(kind, JoinKind::Right)),
        ] {
            for condition in conditions {
                if keeps {
                    residual.push(condition);
                } else {
                    let own_filter = by_number(condition, side, own)?;
                    own.filters.push(own_filter);
                }
            }
        }
        let mut wanted = [vec![], vec![]];
        let residual = conjunction(residual).map(|r| self.both(r, &sides, &mut wanted)).transpose()?;
        filter = filter.map(|f| self.both(f, &sides, &mut wanted)).transpose()?;
        for (_, expr) in &mut outputs {
            *expr = self.both(std::mem::take(expr), &sides, &mut wanted)?;
        }
        let [mut wanted_left, mut wanted_right] = wanted;
        let (keys_left, keys_right): (Vec<Expr>, Vec<Expr>) = sorted.keys.into_iter().unzip();
        let left_keys = add(&mut wanted_left, &sides[0], keys_left);
        let right_keys = add(&mut wanted_right, &sides[1], keys_right);
        let left_at = add(&mut wanted_left, &sides[0], vec![left_time.clone(), column(&sides[0], POSITION)]);
        let right_at = add(&mut wanted_right, &sides[1], vec![right_time.clone(), column(&sides[1], POSITION)]);
        let made_left = self.side(left, &sides[0], wanted_left, Some(left_time))?;
        let made_right = self.side(right, &sides[1], wanted_right, Some(right_time))?;
        let schema = side_by_side(&made_left.schema, &made_right.schema, kind);
        let condition = residual
            .map(|r| Planned::over(&schema, None, vec![("condition".into(), r)])?.transform())
            .transpose()?
            .map(Box::new);
        let join = IntervalJoin {
            kind,
            left: made_left.schema.clone(),
            right: made_right.schema.clone(),
            left_keys,
            right_keys,
            left_time: left_at[0],
            right_time: right_at[0],
            lower,
            upper,
            left_position: left_at[1],
            right_position: right_at[1],
            condition,
            schema: schema.clone(),
        };
        check_keys(&join)?;
        let transform = Planned::over(&schema, filter, outputs)?.transform()?;
        let schema = transform.output_schema();
        let (left, right) = (Box::new(made_left.node), Box::new(made_right.node));
        Ok(Made { node: Node::Join { left, right, join, steps: vec![Step::Transform(Box::new(transform))] }, schema })
    }

    fn make_lookup(&mut self, mut joined: Joined, (mut filter, mut outputs, clock): Asked) -> Result<Made, SqlError> {
        let sides = joined.sides();
        let keep = match joined.kind {
            JoinKind::Inner => false,
            JoinKind::Left => true,
            JoinKind::Right | JoinKind::Full => {
                return Err(SqlError::not_supported(
                    "a join that keeps rows of a table",
                    "write stream LEFT JOIN table, or read both sides as streams",
                ));
            }
        };
        let Matching { keys, closest, other } = matching(&mut joined, &sides, keep)?;
        let (stream, table) = (joined.left, joined.right);
        let mut wanted = [vec![], vec![]];
        filter = conjunction(filter.into_iter().chain(other));
        filter = filter.map(|f| self.both(f, &sides, &mut wanted)).transpose()?;
        for (_, expr) in &mut outputs {
            *expr = self.both(std::mem::take(expr), &sides, &mut wanted)?;
        }
        let [mut wanted_stream, mut wanted_table] = wanted;
        let (keys_stream, keys_table): (Vec<Expr>, Vec<Expr>) = keys.into_iter().unzip();
        let stream_keys = add(&mut wanted_stream, &sides[0], keys_stream);
        let table_keys = add(&mut wanted_table, &sides[1], keys_table);
        let closest = closest.map(|(l, comparison, r)| Closest {
            stream: add(&mut wanted_stream, &sides[0], vec![l])[0],
            table: add(&mut wanted_table, &sides[1], vec![r])[0],
            comparison,
        });
        if clock.as_ref().is_some_and(|clock| reads(clock, &sides) != Reads::Left) {
            return Err(SqlError::not_supported(
                "an event time that comes from a table",
                "take the event time from the stream",
            ));
        }
        let made = self.side(stream, &sides[0], wanted_stream, clock)?;
        self.preparing = true;
        let prepared = self.side(table, &sides[1], wanted_table, None);
        self.preparing = false;
        let prepared = prepared?;
        let Node::Source { input, steps, .. } = prepared.node else {
            return Err(SqlError::not_supported("a table that is computed", "join with the table itself"));
        };
        let prepare = steps.into_iter().find_map(|step| match step {
            Step::Transform(transform) => Some(transform),
            Step::Lookup(_) => None,
        });
        let schema = side_by_side(&made.schema, &prepared.schema, JoinKind::Left);
        let keys = stream_keys.into_iter().zip(table_keys).collect();
        let lookup = Lookup { table: input, prepare, keep, keys, closest, schema: schema.clone() };
        let mut node = made.node;
        push(&mut node, Step::Lookup(lookup));
        let transform = Planned::over(&schema, filter, outputs)?.transform()?;
        let schema = transform.output_schema();
        push(&mut node, Step::Transform(Box::new(transform)));
        Ok(Made { node, schema })
    }

    /// Names what an expression reads of both sides.
    fn both(&self, expr: Expr, sides: &[String; 2], wanted: &mut [Vec<(String, Expr)>; 2]) -> Result<Expr, SqlError> {
        let [left, right] = wanted;
        gather(gather(expr, &sides[0], left)?, &sides[1], right)
    }

    /// A node of one side.
    fn side(
        &mut self,
        relation: super::relation::Relation,
        name: &str,
        wanted: Vec<(String, Expr)>,
        clock: Option<Expr>,
    ) -> Result<Made, SqlError> {
        let position = self.position(&relation);
        let mut outputs = Vec::with_capacity(wanted.len());
        for (output, expr) in wanted {
            let is_position = matches!(&expr, Expr::Column(c) if c.name == POSITION);
            let expr = if is_position {
                position.clone().ok_or_else(|| {
                    SqlError::not_supported(
                        "a join of what an aggregate or a join yields",
                        "join the streams themselves",
                    )
                })?
            } else {
                by_number(expr, name, &relation)?
            };
            outputs.push((output, expr));
        }
        let clock = clock.map(|clock| by_number(clock, name, &relation)).transpose()?;
        self.make(relation, outputs, clock)
    }
}

/// Adds expressions to what is wanted of a side, and says their columns.
fn add(wanted: &mut Vec<(String, Expr)>, side: &str, exprs: Vec<Expr>) -> Vec<usize> {
    let mut at = Vec::with_capacity(exprs.len());
    for expr in exprs {
        let known = wanted.iter().position(|(_, known)| *known == expr);
        at.push(known.unwrap_or_else(|| {
            wanted.push((format!("{side}.{}", wanted.len()), expr));
            wanted.len() - 1
        }));
    }
    at
}

/// The columns of both sides; those of a side that may have no partner may be null.
fn side_by_side(left: &SchemaRef, right: &SchemaRef, kind: JoinKind) -> SchemaRef {
    let open = |field: &Arc<Field>, may_lack: bool| {
        if may_lack { Arc::new(field.as_ref().clone().with_nullable(true)) } else { Arc::clone(field) }
    };
    let lacks_left = matches!(kind, JoinKind::Right | JoinKind::Full);
    let lacks_right = matches!(kind, JoinKind::Left | JoinKind::Full);
    let left = left.fields().iter().map(|field| open(field, lacks_left));
    let right = right.fields().iter().map(|field| open(field, lacks_right));
    Arc::new(Schema::new(left.chain(right).collect::<Vec<_>>()))
}

fn check_keys(join: &IntervalJoin) -> Result<(), SqlError> {
    for (l, r) in join.left_keys.iter().zip(&join.right_keys) {
        let (l, r) = (join.left.field(*l).data_type(), join.right.field(*r).data_type());
        if l != r {
            let reason = format!("the join compares {l} with {r}");
            return Err(SqlError::Type { reason, hint: "CAST one side to the type of the other".into() });
        }
    }
    Ok(())
}

/// What finds the rows of a table for a row of a stream.
struct Matching {
    keys: Vec<(Expr, Expr)>,
    closest: Option<(Expr, Comparison, Expr)>,
    /// What is asked of what was found.
    other: Vec<Expr>,
}

/// Sorts the conditions of a join with a table; those of one side become that side's filters.
fn matching(joined: &mut Joined, sides: &[String; 2], keep: bool) -> Result<Matching, SqlError> {
    let mut sorted = Conditions::sort(std::mem::take(&mut joined.conditions), sides);
    let closest = if joined.asof { Some(closest(&mut sorted)?) } else { None };
    let (mut keys, mut other) = (sorted.keys, sorted.other);
    let compared = sorted.compared.into_iter();
    other.extend(compared.map(|(l, op, r)| Expr::BinaryExpr(BinaryExpr::new(Box::new(l), op, Box::new(r)))));
    if keys.is_empty() && closest.is_none() {
        return Err(SqlError::not_supported(
            "a join with a table without an equality",
            "write ON stream.key = table.key",
        ));
    }
    for condition in sorted.right {
        let own = by_number(condition, &sides[1], &joined.right)?;
        joined.right.filters.push(own);
    }
    if keep {
        if let Some(condition) = conjunction(sorted.left) {
            match keys.first_mut() {
                // A row that does not fulfil it has no key, and null equals nothing.
                Some((key, _)) => *key = only_if(condition, std::mem::take(key))?,
                None => other.push(condition),
            }
        }
    } else {
        for condition in sorted.left {
            let own = by_number(condition, &sides[0], &joined.left)?;
            joined.left.filters.push(own);
        }
    }
    if (keep || closest.is_some()) && !other.is_empty() {
        return Err(SqlError::not_supported(
            "a LEFT or ASOF JOIN with a table whose ON compares both sides in another way besides",
            "filter with WHERE, or in a derived table",
        ));
    }
    Ok(Matching { keys, closest, other })
}

/// An expression where a condition holds, null elsewhere.
fn only_if(condition: Expr, expr: Expr) -> Result<Expr, SqlError> {
    datafusion_expr::when(condition, expr).end().map_err(refused)
}

/// A join with its sides exchanged.
fn swapped(joined: Joined) -> Result<Joined, SqlError> {
    let kind = match joined.kind {
        JoinKind::Inner => JoinKind::Inner,
        JoinKind::Right => JoinKind::Left,
        JoinKind::Left => JoinKind::Right,
        JoinKind::Full => JoinKind::Full,
    };
    if joined.asof {
        return Err(SqlError::not_supported("a table in front of an ASOF JOIN", "write stream ASOF JOIN table"));
    }
    // The columns keep their names: what was the left side's is now the right side's.
    let (left, right) = (joined.right, joined.left);
    Ok(Joined { left, right, kind, flipped: !joined.flipped, ..joined })
}

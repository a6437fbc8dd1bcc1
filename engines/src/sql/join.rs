//! Joins: what of their conditions pairs rows, and what is asked of the pairs.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

use super::SqlError;
use super::grouping::micros;
use super::planned::Planned;
use super::relation::{Joined, column};
use super::steps::{Builder, Made, as_time, by_number, gather, push};
use crate::plan::{Closest, Comparison, IntervalJoin, JoinKind, Lookup, Node, POSITION, Step};

/// Which side's columns an expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    Left,
    Right,
    Both,
}

/// Conditions of a join, sorted.
#[derive(Debug, Default)]
struct Conditions {
    /// Equal expressions, left and right.
    keys: Vec<(Expr, Expr)>,
    /// Comparisons of a left expression with a right one.
    compared: Vec<(Expr, Operator, Expr)>,
    /// Of one side only.
    left: Vec<Expr>,
    right: Vec<Expr>,
    other: Vec<Expr>,
}

fn reads(expr: &Expr, [left, right]: &[String; 2]) -> Reads {
    let of = |name: &str| expr.column_refs().iter().any(|c| c.relation.as_ref().is_some_and(|r| r.table() == name));
    match (of(left), of(right)) {
        (false, false) => Reads::Nothing,
        (true, false) => Reads::Left,
        (false, true) => Reads::Right,
        (true, true) => Reads::Both,
    }
}

impl Conditions {
    fn sort(conditions: Vec<Expr>, sides: &[String; 2]) -> Self {
        let mut sorted = Self::default();
        for condition in conditions {
            match condition {
                Expr::Between(between) if !between.negated => {
                    sorted.comparison(*between.expr.clone(), Operator::GtEq, *between.low, sides);
                    sorted.comparison(*between.expr, Operator::LtEq, *between.high, sides);
                }
                Expr::BinaryExpr(BinaryExpr { left, op, right })
                    if matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq) =>
                {
                    sorted.comparison(*left, op, *right, sides);
                }
                other => sorted.single(other, sides),
            }
        }
        sorted
    }

    fn single(&mut self, condition: Expr, sides: &[String; 2]) {
        match reads(&condition, sides) {
            Reads::Left => self.left.push(condition),
            Reads::Right => self.right.push(condition),
            Reads::Nothing | Reads::Both => self.other.push(condition),
        }
    }

    fn comparison(&mut self, a: Expr, op: Operator, b: Expr, sides: &[String; 2]) {
        let (left, op, right) = match (reads(&a, sides), reads(&b, sides)) {
            (Reads::Left, Reads::Right) => (a, op, b),
            (Reads::Right, Reads::Left) => (b, op.swap().unwrap_or(op), a),
            // A difference of both sides' times compared with a length of time.
            (Reads::Both, Reads::Nothing) | (Reads::Nothing, Reads::Both) => {
                return match difference(&a, op, &b, sides) {
                    Some((left, op, right)) => self.compared.push((left, op, right)),
                    None => self.other.push(Expr::BinaryExpr(BinaryExpr::new(Box::new(a), op, Box::new(b)))),
                };
            }
            _ => {
                let whole = Expr::BinaryExpr(BinaryExpr::new(Box::new(a), op, Box::new(b)));
                return self.single(whole, sides);
            }
        };
        if op == Operator::Eq { self.keys.push((left, right)) } else { self.compared.push((left, op, right)) }
    }
}

/// `x − y <= interval` as `x <= y + interval`, with the left side's expression first.
fn difference(a: &Expr, op: Operator, b: &Expr, sides: &[String; 2]) -> Option<(Expr, Operator, Expr)> {
    let (minus, op, interval) = match (strip(a), strip(b)) {
        (Expr::BinaryExpr(minus), interval) => (minus, op, interval),
        (interval, Expr::BinaryExpr(minus)) => (minus, op.swap()?, interval),
        _ => return None,
    };
    if minus.op != Operator::Minus || !matches!(interval, Expr::Literal(..)) {
        return None;
    }
    let sum = Expr::BinaryExpr(BinaryExpr::new(minus.right.clone(), Operator::Plus, Box::new(interval.clone())));
    match (reads(&minus.left, sides), reads(&minus.right, sides)) {
        (Reads::Left, Reads::Right) => Some((*minus.left.clone(), op, sum)),
        (Reads::Right, Reads::Left) => Some((sum, op.swap()?, *minus.left.clone())),
        _ => None,
    }
}

/// An expression without casts around it.
fn strip(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => strip(&cast.expr),
        Expr::Alias(alias) => strip(&alias.expr),
        other => other,
    }
}

/// A time plus or minus lengths of time: the time, and the sum in microseconds.
fn linear(expr: &Expr) -> Option<(Expr, i64)> {
    if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = strip(expr) {
        let literal = |e: &Expr| match strip(e) {
            Expr::Literal(value, _) => micros(value).ok(),
            _ => None,
        };
        match op {
            Operator::Plus => {
                if let Some(by) = literal(right) {
                    let (core, sum) = linear(left)?;
                    return Some((core, sum.checked_add(by)?));
                }
                if let Some(by) = literal(left) {
                    let (core, sum) = linear(right)?;
                    return Some((core, sum.checked_add(by)?));
                }
            }
            Operator::Minus => {
                if let Some(by) = literal(right) {
                    let (core, sum) = linear(left)?;
                    return Some((core, sum.checked_sub(by)?));
                }
            }
            _ => {}
        }
    }
    Some((expr.clone(), 0))
}

/// The band that comparisons of times make: `lower ≤ right − left ≤ upper`.
#[derive(Debug, Default)]
struct Band {
    times: Option<(Expr, Expr)>,
    lower: Option<i64>,
    upper: Option<i64>,
}

impl Band {
    /// Takes a comparison that is one of the band; gives back one that is not.
    fn take(&mut self, (left, op, right): (Expr, Operator, Expr), joined: &Joined) -> Option<(Expr, Operator, Expr)> {
        let is_time =
            |expr: &Expr| matches!(expr.get_type(&joined.types), Ok(DataType::Timestamp(..) | DataType::Date32));
        let found = linear(&left).zip(linear(&right)).filter(|((l, _), (r, _))| is_time(l) && is_time(r));
        let Some(((l, by_left), (r, by_right))) = found else { return Some((left, op, right)) };
        if self.times.as_ref().is_some_and(|known| *known != (l.clone(), r.clone())) {
            return Some((left, op, right));
        }
        // left + a op right + b
        let distance = by_left.saturating_sub(by_right);
        match op {
            Operator::LtEq => self.lower = Some(self.lower.map_or(distance, |known| known.max(distance))),
            Operator::Lt => {
                let distance = distance.saturating_add(1);
                self.lower = Some(self.lower.map_or(distance, |known| known.max(distance)));
            }
            Operator::GtEq => self.upper = Some(self.upper.map_or(distance, |known| known.min(distance))),
            Operator::Gt => {
                let distance = distance.saturating_sub(1);
                self.upper = Some(self.upper.map_or(distance, |known| known.min(distance)));
            }
            _ => {
                (self.lower, self.upper) = (Some(distance), Some(distance));
            }
        }
        self.times = Some((l, r));
        None
    }
}

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
        let mut band = Band::default();
        for compared in std::mem::take(&mut sorted.compared) {
            if let Some((l, op, r)) = band.take(compared, &joined) {
                sorted.other.push(Expr::BinaryExpr(BinaryExpr::new(Box::new(l), op, Box::new(r))));
            }
        }
        if band.times.is_none() {
            let keys = std::mem::take(&mut sorted.keys);
            sorted.keys = keys
                .into_iter()
                .filter_map(|(l, r)| band.take((l, Operator::Eq, r), &joined))
                .map(|(l, _, r)| (l, r))
                .collect();
        }
        let (Some((left_time, right_time)), Some(lower), Some(upper)) = (band.times, band.lower, band.upper) else {
            return Err(SqlError::not_supported(
                "a join of two streams without both bounds on the distance of their event times",
                "write ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '5 seconds' AND a.ts + INTERVAL '5 seconds'",
            ));
        };
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
        let left_at = add(&mut wanted_left, &sides[0], vec![as_time(left_time.clone()), column(&sides[0], POSITION)]);
        let right_at =
            add(&mut wanted_right, &sides[1], vec![as_time(right_time.clone()), column(&sides[1], POSITION)]);
        let made_left = self.side(left, &sides[0], wanted_left, Some(as_time(left_time)))?;
        let made_right = self.side(right, &sides[1], wanted_right, Some(as_time(right_time)))?;
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

    fn make_lookup(&mut self, joined: Joined, (mut filter, mut outputs, clock): Asked) -> Result<Made, SqlError> {
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
        let mut sorted = Conditions::sort(joined.conditions.clone(), &sides);
        let closest = if joined.asof { Some(closest(&mut sorted)?) } else { None };
        let compared = sorted.compared.into_iter();
        sorted.other.extend(compared.map(|(l, op, r)| Expr::BinaryExpr(BinaryExpr::new(Box::new(l), op, Box::new(r)))));
        if sorted.keys.is_empty() && closest.is_none() {
            return Err(SqlError::not_supported(
                "a join with a table without an equality",
                "write ON stream.key = table.key",
            ));
        }
        let (mut stream, mut table) = (joined.left, joined.right);
        for condition in sorted.right {
            let own = by_number(condition, &sides[1], &table)?;
            table.filters.push(own);
        }
        if keep {
            sorted.other.append(&mut sorted.left);
        }
        for condition in sorted.left {
            let own = by_number(condition, &sides[0], &stream)?;
            stream.filters.push(own);
        }
        if keep && !sorted.other.is_empty() {
            return Err(SqlError::not_supported(
                "a LEFT JOIN with a table whose ON has more than equalities and conditions on the table",
                "filter with WHERE, or in a derived table",
            ));
        }
        let mut wanted = [vec![], vec![]];
        filter = conjunction(filter.into_iter().chain(sorted.other));
        filter = filter.map(|f| self.both(f, &sides, &mut wanted)).transpose()?;
        for (_, expr) in &mut outputs {
            *expr = self.both(std::mem::take(expr), &sides, &mut wanted)?;
        }
        let [mut wanted_stream, mut wanted_table] = wanted;
        let (keys_stream, keys_table): (Vec<Expr>, Vec<Expr>) = sorted.keys.into_iter().unzip();
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
        let prepared = self.side(table, &sides[1], wanted_table, None)?;
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

/// The inequality of an ASOF join.
fn closest(sorted: &mut Conditions) -> Result<(Expr, Comparison, Expr), SqlError> {
    let refused = || {
        SqlError::not_supported(
            "an ASOF JOIN without exactly one inequality between the stream and the table",
            "write ASOF JOIN t ON a.k = t.k AND a.ts >= t.ts",
        )
    };
    if sorted.compared.len() != 1 {
        return Err(refused());
    }
    let (left, op, right) = sorted.compared.pop().ok_or_else(refused)?;
    let comparison = match op {
        Operator::GtEq => Comparison::NotBefore,
        Operator::Gt => Comparison::After,
        Operator::LtEq => Comparison::NotAfter,
        _ => Comparison::Before,
    };
    Ok((left, comparison, right))
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

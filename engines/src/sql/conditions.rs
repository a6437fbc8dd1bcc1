//! Conditions of a join: what pairs rows, and what is asked of the pairs.

use arrow::datatypes::DataType;
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

use super::grouping::micros;
use super::relation::Joined;
use super::steps::as_micros;
use super::{SqlError, refused};
use crate::plan::Comparison;

/// Which side's columns an expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    Nothing,
    Left,
    Right,
    Both,
}

/// Conditions of a join, sorted.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// Equal expressions, left and right.
    pub(super) keys: Vec<(Expr, Expr)>,
    /// Comparisons of a left expression with a right one.
    pub(super) compared: Vec<(Expr, Operator, Expr)>,
    /// Of one side only.
    pub(super) left: Vec<Expr>,
    pub(super) right: Vec<Expr>,
    pub(super) other: Vec<Expr>,
}

pub(super) fn reads(expr: &Expr, [left, right]: &[String; 2]) -> Reads {
    let of = |name: &str| expr.column_refs().iter().any(|c| c.relation.as_ref().is_some_and(|r| r.table() == name));
    match (of(left), of(right)) {
        (false, false) => Reads::Nothing,
        (true, false) => Reads::Left,
        (false, true) => Reads::Right,
        (true, true) => Reads::Both,
    }
}

impl Conditions {
    pub(super) fn sort(conditions: Vec<Expr>, sides: &[String; 2]) -> Self {
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

/// The event times of both sides, and how far apart they may be.
pub(super) struct Bounds {
    pub(super) left_time: Expr,
    pub(super) right_time: Expr,
    pub(super) lower: i64,
    pub(super) upper: i64,
}

/// Takes the comparisons of event times out of a join's conditions.
pub(super) fn bounds(sorted: &mut Conditions, joined: &Joined) -> Result<Bounds, SqlError> {
    let mut band = Band::default();
    for compared in std::mem::take(&mut sorted.compared) {
        if let Some((l, op, r)) = band.take(compared, joined) {
            sorted.other.push(Expr::BinaryExpr(BinaryExpr::new(Box::new(l), op, Box::new(r))));
        }
    }
    if band.times.is_none() {
        let keys = std::mem::take(&mut sorted.keys);
        sorted.keys = keys
            .into_iter()
            .filter_map(|(l, r)| band.take((l, Operator::Eq, r), joined))
            .map(|(l, _, r)| (l, r))
            .collect();
    }
    let (Some((left, right)), Some(lower), Some(upper)) = (band.times, band.lower, band.upper) else {
        return Err(SqlError::not_supported(
            "a join of two streams without both bounds on the distance of their event times",
            "write ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '5 seconds' AND a.ts + INTERVAL '5 seconds'",
        ));
    };
    if lower > upper {
        return Err(SqlError::not_supported(
            "a join whose bounds no two event times can meet",
            "BETWEEN takes the earlier bound first",
        ));
    }
    let micros = |time: Expr| -> Result<Expr, SqlError> {
        let data_type = time.get_type(&joined.types).map_err(refused)?;
        Ok(as_micros(time, &data_type))
    };
    Ok(Bounds { left_time: micros(left)?, right_time: micros(right)?, lower, upper })
}

/// The inequality of an ASOF join.
pub(super) fn closest(sorted: &mut Conditions) -> Result<(Expr, Comparison, Expr), SqlError> {
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

//! From a writer schema and a read plan to a program that walks one datum.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::columns::{Layout, Leaf, Store};
use super::schema::{Avro, Logical, RecordField};
use crate::read::ReadPlan;

/// One step of a program. Lanes are indices into [`super::columns::Columns`].
#[derive(Debug, PartialEq)]
pub(crate) enum Op {
    /// A value that is always there.
    Value(Value),
    /// A value that is always there in a column that may be null.
    Present { valid: usize, value: Value },
    /// A union of null and a value.
    Nullable { null: u8, valid: usize, value: Value },
    /// A union of null and something larger: its steps, and the leaves that are null without it.
    Optional { null: u8, steps: Box<[Op]>, leaves: Box<[Leaf]> },
    /// A list of strings without nulls.
    TextList { ends: usize, text: usize },
    /// Any other list.
    List { ends: usize, floor: usize, item: Box<[Op]> },
    /// The mark of a list that is there in a column that may be null.
    Mark { valid: usize },
    /// The list that is unnested.
    Unnest { floor: usize, item: Box<[Op]> },
    /// A variable-length integer nobody reads.
    SkipVarint,
    /// So many bytes nobody reads.
    SkipBytes(usize),
    /// A string or bytes nobody reads.
    SkipText,
    /// A union nobody reads.
    SkipUnion(Box<[Box<[Op]>]>),
    /// An array or map nobody reads.
    SkipItems { floor: usize, item: Box<[Op]> },
}

/// One value and the lane it goes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Int(usize),
    Long(usize),
    IntAsLong(usize),
    Float(usize),
    Double(usize),
    FloatAsDouble(usize),
    Boolean(usize),
    Text(usize),
    /// An enum: the lane, and which of the program's symbol tables.
    Symbol(usize, usize),
}

/// The steps that read one datum.
#[derive(Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) steps: Box<[Op]>,
    /// The symbols of every enum that is read.
    pub(crate) symbols: Vec<Arc<[String]>>,
}

/// Why a writer schema does not fit the plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error("it has no field {0}")]
    Missing(String),
    #[error("field {0} may be null in it, and was not when the query was planned")]
    Null(String),
    #[error("field {path} is {found} in it, and the query reads {wanted}")]
    Type { path: String, found: String, wanted: String },
    #[error("its top is not a record")]
    NotARecord,
    #[error("reading it takes too many steps")]
    TooLarge,
}

const MAX_STEPS: usize = 1 << 16;

/// Compiles the schema against the plan.
///
/// # Errors
/// The schema lacks a field the plan reads, or has it as another type.
pub(crate) fn compile(schema: &Avro, plan: &ReadPlan, layout: &Layout) -> Result<Program, Mismatch> {
    let fields = schema.fields().map_err(|_| Mismatch::NotARecord)?;
    let mut compiler = Compiler { plan, layout, symbols: Vec::new(), size: 0 };
    let wanted: Vec<usize> = (0..plan.columns.len()).filter(|&index| !plan.columns[index].of_element).collect();
    let scope = Scope { wanted, depth: 0, unnest: plan.unnest.is_some(), of_element: false };
    let mut steps = Vec::new();
    compiler.record(fields, &scope, &mut steps)?;
    Ok(Program { steps: steps.into(), symbols: compiler.symbols })
}

struct Compiler<'a> {
    plan: &'a ReadPlan,
    layout: &'a Layout,
    symbols: Vec<Arc<[String]>>,
    size: usize,
}

/// What is wanted below one place of the schema.
#[derive(Clone)]
struct Scope {
    /// Columns of the plan whose path runs through here.
    wanted: Vec<usize>,
    /// How many names of their path lead here.
    depth: usize,
    /// The path of the unnested list runs through here.
    unnest: bool,
    /// The paths start at the element of the unnested list.
    of_element: bool,
}

impl Compiler<'_> {
    fn push(&mut self, steps: &mut Vec<Op>, op: Op) -> Result<(), Mismatch> {
        self.size += 1;
        if self.size > MAX_STEPS {
            return Err(Mismatch::TooLarge);
        }
        // Bytes of fixed length that nobody reads are skipped together.
        if let (Op::SkipBytes(more), Some(Op::SkipBytes(count))) = (&op, steps.last_mut()) {
            *count = count.saturating_add(*more);
        } else if op != Op::SkipBytes(0) {
            steps.push(op);
        }
        Ok(())
    }

    fn record(&mut self, fields: &[RecordField], scope: &Scope, steps: &mut Vec<Op>) -> Result<(), Mismatch> {
        for &index in &scope.wanted {
            let path = &self.plan.columns[index].path;
            if !path.get(scope.depth).is_some_and(|name| fields.iter().any(|field| field.name == *name)) {
                return Err(Mismatch::Missing(self.name(index)));
            }
        }
        let list = self.plan.unnest.as_deref().unwrap_or(&[]);
        if scope.unnest && !fields.iter().any(|field| Some(&field.name) == list.get(scope.depth)) {
            return Err(Mismatch::Missing(list.join(".")));
        }
        for field in fields {
            let below = Scope {
                wanted: scope
                    .wanted
                    .iter()
                    .copied()
                    .filter(|&index| self.plan.columns[index].path[scope.depth] == field.name)
                    .collect(),
                depth: scope.depth + 1,
                unnest: scope.unnest && list[scope.depth] == field.name,
                of_element: scope.of_element,
            };
            self.field(&field.schema, &below, steps)?;
        }
        Ok(())
    }

    fn field(&mut self, schema: &Avro, scope: &Scope, steps: &mut Vec<Op>) -> Result<(), Mismatch> {
        if scope.wanted.is_empty() && !scope.unnest {
            return self.skip(schema, steps);
        }
        let whole = |&index: &usize| self.plan.columns[index].path.len() == scope.depth;
        if let Some(index) = scope.wanted.iter().copied().find(whole) {
            if scope.wanted.len() > 1 || scope.unnest {
                return Err(self.mismatch(index, "read as a whole and in parts"));
            }
            return self.leaf(schema, index, &self.layout.leaves[index].clone(), steps);
        }
        let (inner, null) = schema.optional().ok_or_else(|| self.unfit(schema, scope))?;
        let mut below = Vec::new();
        match inner {
            Avro::Array(item) if self.is_list(scope) => self.unnest(item, &mut below)?,
            Avro::Record(fields) => self.record(fields, scope, &mut below)?,
            _ => return Err(self.unfit(schema, scope)),
        }
        let Some(null) = null else {
            steps.append(&mut below);
            return Ok(());
        };
        let leaves = self.leaves_of(&scope.wanted)?;
        self.push(steps, Op::Optional { null, steps: below.into(), leaves })
    }

    /// Whether this place is the unnested list itself.
    fn is_list(&self, scope: &Scope) -> bool {
        let path = self.plan.unnest.as_ref();
        scope.unnest && scope.wanted.is_empty() && path.is_some_and(|path| path.len() == scope.depth)
    }

    fn unnest(&mut self, item: &Avro, steps: &mut Vec<Op>) -> Result<(), Mismatch> {
        let wanted = (0..self.plan.columns.len()).filter(|&index| self.plan.columns[index].of_element);
        let scope = Scope { wanted: wanted.collect(), depth: 0, unnest: false, of_element: true };
        let mut below = Vec::new();
        self.field(item, &scope, &mut below)?;
        self.push(steps, Op::Unnest { floor: item.floor(), item: below.into() })
    }

    /// The leaves that become null together when what holds them is null.
    fn leaves_of(&self, wanted: &[usize]) -> Result<Box<[Leaf]>, Mismatch> {
        wanted
            .iter()
            .map(|&index| match &self.layout.leaves[index] {
                leaf if leaf.valid.is_some() => Ok(leaf.clone()),
                _ => Err(Mismatch::Null(self.name(index))),
            })
            .collect()
    }

    fn leaf(&mut self, schema: &Avro, index: usize, leaf: &Leaf, steps: &mut Vec<Op>) -> Result<(), Mismatch> {
        let unfit = |this: &Self| this.mismatch(index, &describe(schema));
        let (inner, null) = schema.optional().ok_or_else(|| unfit(self))?;
        if null.is_some() && leaf.valid.is_none() {
            return Err(Mismatch::Null(self.name(index)));
        }
        if let (Store::List { ends, item }, Avro::Array(of)) = (&leaf.store, inner) {
            let mut list = Vec::new();
            if let Some(valid) = leaf.valid {
                list.push(Op::Mark { valid });
            }
            self.list(*ends, (of, item), index, &mut list)?;
            return match null {
                None => list.into_iter().try_for_each(|op| self.push(steps, op)),
                Some(null) => {
                    let leaves = Box::new([leaf.clone()]);
                    self.push(steps, Op::Optional { null, steps: list.into(), leaves })
                }
            };
        }
        let value = self.value(inner, leaf).ok_or_else(|| unfit(self))?;
        let op = match (null, leaf.valid) {
            (Some(null), Some(valid)) => Op::Nullable { null, valid, value },
            (_, Some(valid)) => Op::Present { valid, value },
            (_, None) => Op::Value(value),
        };
        self.push(steps, op)
    }

    fn list(&mut self, ends: usize, of: (&Avro, &Leaf), index: usize, steps: &mut Vec<Op>) -> Result<(), Mismatch> {
        let (schema, leaf) = of;
        let mut item = Vec::new();
        self.leaf(schema, index, leaf, &mut item)?;
        let op = match item[..] {
            [Op::Value(Value::Text(text))] => Op::TextList { ends, text },
            _ => Op::List { ends, floor: schema.floor(), item: item.into() },
        };
        self.push(steps, op)
    }

    fn value(&mut self, schema: &Avro, leaf: &Leaf) -> Option<Value> {
        let wanted = &leaf.data_type;
        Some(match (&leaf.store, schema) {
            (Store::Int(lane), Avro::Int(logical)) if int_type(*logical) == *wanted => Value::Int(*lane),
            (Store::Long(lane), Avro::Long(logical)) if long_type(*logical) == *wanted => Value::Long(*lane),
            (Store::Long(lane), Avro::Int(Logical::Plain)) if *wanted == DataType::Int64 => Value::IntAsLong(*lane),
            (Store::Float(lane), Avro::Float) => Value::Float(*lane),
            (Store::Double(lane), Avro::Double) => Value::Double(*lane),
            (Store::Double(lane), Avro::Float) => Value::FloatAsDouble(*lane),
            (Store::Boolean(lane), Avro::Boolean) => Value::Boolean(*lane),
            (Store::Text(lane), Avro::String) => Value::Text(*lane),
            (Store::Text(lane), Avro::Enum(names)) => {
                self.symbols.push(names.clone());
                Value::Symbol(*lane, self.symbols.len() - 1)
            }
            _ => return None,
        })
    }

    fn skip(&mut self, schema: &Avro, steps: &mut Vec<Op>) -> Result<(), Mismatch> {
        match schema {
            Avro::Null => Ok(()),
            Avro::Boolean => self.push(steps, Op::SkipBytes(1)),
            Avro::Int(_) | Avro::Long(_) | Avro::Enum(_) => self.push(steps, Op::SkipVarint),
            Avro::Float => self.push(steps, Op::SkipBytes(4)),
            Avro::Double => self.push(steps, Op::SkipBytes(8)),
            Avro::Fixed(size) => self.push(steps, Op::SkipBytes(*size)),
            Avro::Bytes | Avro::String => self.push(steps, Op::SkipText),
            Avro::Array(item) => {
                let mut below = Vec::new();
                self.skip(item, &mut below)?;
                self.push(steps, Op::SkipItems { floor: item.floor(), item: below.into() })
            }
            Avro::Map(value) => {
                let mut below = vec![Op::SkipText];
                self.skip(value, &mut below)?;
                let floor = value.floor().saturating_add(1);
                self.push(steps, Op::SkipItems { floor, item: below.into() })
            }
            Avro::Union(branches) => {
                let mut below = Vec::with_capacity(branches.len());
                for branch in branches.iter() {
                    let mut steps = Vec::new();
                    self.skip(branch, &mut steps)?;
                    below.push(steps.into());
                }
                self.push(steps, Op::SkipUnion(below.into()))
            }
            Avro::Record(fields) => fields.iter().try_for_each(|field| self.skip(&field.schema, steps)),
        }
    }

    fn name(&self, index: usize) -> String {
        self.plan.columns[index].display_path(self.plan.unnest.as_deref())
    }

    fn mismatch(&self, index: usize, found: &str) -> Mismatch {
        Mismatch::Type {
            path: self.name(index),
            found: found.to_owned(),
            wanted: self.plan.columns[index].data_type.to_string(),
        }
    }

    fn unfit(&self, schema: &Avro, scope: &Scope) -> Mismatch {
        let path = match scope.wanted.first() {
            Some(&index) => self.name(index),
            None => self.plan.unnest.as_deref().unwrap_or(&[]).join("."),
        };
        let wanted = if scope.unnest { "a list" } else { "a part of a record" };
        let below = if scope.of_element { "part of an element" } else { "part of a record" };
        let wanted = if scope.wanted.is_empty() { wanted } else { below };
        Mismatch::Type { path, found: describe(schema), wanted: wanted.to_owned() }
    }
}

fn int_type(logical: Logical) -> DataType {
    if logical == Logical::Date { DataType::Date32 } else { DataType::Int32 }
}

fn long_type(logical: Logical) -> DataType {
    match logical {
        Logical::Timestamp(unit) => DataType::Timestamp(unit, Some("+00:00".into())),
        Logical::LocalTimestamp(unit) => DataType::Timestamp(unit, None),
        _ => DataType::Int64,
    }
}

/// The schema in a word or two.
fn describe(schema: &Avro) -> String {
    match schema {
        Avro::Null => "null".into(),
        Avro::Boolean => "boolean".into(),
        Avro::Int(Logical::Date) => "date".into(),
        Avro::Int(_) => "int".into(),
        Avro::Long(Logical::Timestamp(_) | Logical::LocalTimestamp(_)) => "timestamp".into(),
        Avro::Long(_) => "long".into(),
        Avro::Float => "float".into(),
        Avro::Double => "double".into(),
        Avro::Bytes => "bytes".into(),
        Avro::String => "string".into(),
        Avro::Fixed(size) => format!("fixed({size})"),
        Avro::Enum(_) => "enum".into(),
        Avro::Array(item) => format!("array of {}", describe(item)),
        Avro::Map(value) => format!("map of {}", describe(value)),
        Avro::Record(_) => "record".into(),
        Avro::Union(branches) => {
            let branches: Vec<String> = branches.iter().map(describe).collect();
            format!("union of {}", branches.join(" and "))
        }
    }
}

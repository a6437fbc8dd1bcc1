//! Running a program over one datum.

use super::columns::Columns;
use super::cursor::{Cursor, Fault};
use super::program::{Op, Program, Value};

/// Reads one datum into the columns. The datum must end where its record ends.
///
/// # Errors
/// The fault, at the cursor's offset; what was appended before it is still there.
pub(crate) fn run(program: &Program, cursor: &mut Cursor, columns: &mut Columns) -> Result<(), Fault> {
    let mut machine = Machine { program, columns };
    machine.steps(&program.steps, cursor)?;
    if cursor.remaining() == 0 { Ok(()) } else { Err(Fault::Trailing) }
}

struct Machine<'a> {
    program: &'a Program,
    columns: &'a mut Columns,
}

impl Machine<'_> {
    fn steps(&mut self, steps: &[Op], cursor: &mut Cursor) -> Result<(), Fault> {
        for step in steps {
            match step {
                Op::Value(value) => self.value(*value, cursor)?,
                Op::Present { valid, value } => {
                    self.value(*value, cursor)?;
                    self.columns.valids[*valid].push(1);
                }
                Op::Nullable { null, valid, value } => self.nullable(*null, *valid, *value, cursor)?,
                Op::TextList { ends, text } => self.text_list(*ends, *text, cursor)?,
                Op::SkipVarint => drop(cursor.long()?),
                Op::SkipBytes(count) => drop(cursor.take(*count)?),
                Op::SkipText => drop(cursor.bytes()?),
                larger => self.larger(larger, cursor)?,
            }
        }
        Ok(())
    }

    /// The steps that hold other steps.
    #[inline(never)]
    fn larger(&mut self, step: &Op, cursor: &mut Cursor) -> Result<(), Fault> {
        match step {
            Op::Optional { null, steps, leaves } => {
                if absent(*null, cursor)? {
                    leaves.iter().for_each(|leaf| self.columns.push_null(leaf));
                } else {
                    self.steps(steps, cursor)?;
                }
            }
            Op::List { ends, floor, item } => self.list(*ends, *floor, item, cursor)?,
            Op::Mark { valid } => self.columns.valids[*valid].push(1),
            Op::Unnest { floor, item } => loop {
                let (count, _) = cursor.block(*floor)?;
                if count == 0 {
                    break;
                }
                for _ in 0..count {
                    self.steps(item, cursor)?;
                }
                self.columns.rows += count;
            },
            Op::SkipUnion(branches) => {
                let branch = usize::try_from(cursor.long()?).map_err(|_| Fault::Branch)?;
                let steps = branches.get(branch).ok_or(Fault::Branch)?;
                self.steps(steps, cursor)?;
            }
            Op::SkipItems { floor, item } => loop {
                match cursor.block(*floor)? {
                    (0, _) => break,
                    (_, Some(size)) => drop(cursor.take(size)?),
                    (count, None) => (0..count).try_for_each(|_| self.steps(item, cursor))?,
                }
            },
            _ => unreachable!("small steps are run where they are met"),
        }
        Ok(())
    }

    #[inline(always)]
    fn value(&mut self, value: Value, cursor: &mut Cursor) -> Result<(), Fault> {
        let columns = &mut *self.columns;
        match value {
            Value::Int(lane) => columns.ints[lane].values.push(cursor.int()?),
            Value::Long(lane) => columns.longs[lane].values.push(cursor.long()?),
            Value::IntAsLong(lane) => columns.longs[lane].values.push(i64::from(cursor.int()?)),
            Value::Float(lane) => columns.floats[lane].values.push(cursor.float()?),
            Value::Double(lane) => columns.doubles[lane].values.push(cursor.double()?),
            Value::FloatAsDouble(lane) => columns.doubles[lane].values.push(f64::from(cursor.float()?)),
            Value::Boolean(lane) => columns.booleans[lane].push(cursor.boolean()?),
            Value::Text(lane) => {
                let (rest, length) = cursor.text()?;
                let text = &mut columns.texts[lane];
                text.codes.values.push(text.dictionary.intern(rest, length)?);
            }
            Value::Symbol(lane, symbols) => {
                let symbol = usize::try_from(cursor.long()?).map_err(|_| Fault::Symbol)?;
                let name = self.program.symbols[symbols].get(symbol).ok_or(Fault::Symbol)?;
                let text = &mut columns.texts[lane];
                text.codes.values.push(text.dictionary.intern(name.as_bytes(), name.len())?);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn nullable(&mut self, null: u8, valid: usize, value: Value, cursor: &mut Cursor) -> Result<(), Fault> {
        if !absent(null, cursor)? {
            self.value(value, cursor)?;
            self.columns.valids[valid].push(1);
            return Ok(());
        }
        let columns = &mut *self.columns;
        columns.valids[valid].push(0);
        match value {
            Value::Int(lane) => columns.ints[lane].values.push(0),
            Value::Long(lane) | Value::IntAsLong(lane) => columns.longs[lane].values.push(0),
            Value::Float(lane) => columns.floats[lane].values.push(0.0),
            Value::Double(lane) | Value::FloatAsDouble(lane) => columns.doubles[lane].values.push(0.0),
            Value::Boolean(lane) => columns.booleans[lane].push(0),
            Value::Text(lane) | Value::Symbol(lane, _) => columns.texts[lane].codes.values.push(0),
        }
        Ok(())
    }

    #[inline(always)]
    fn text_list(&mut self, ends: usize, lane: usize, cursor: &mut Cursor) -> Result<(), Fault> {
        let text = &mut self.columns.texts[lane];
        loop {
            let (count, _) = cursor.block(1)?;
            if count == 0 {
                break;
            }
            for _ in 0..count {
                let (rest, length) = cursor.text()?;
                text.codes.values.push(text.dictionary.intern(rest, length)?);
            }
        }
        let end = text.codes.values.len() as i32;
        self.columns.ends[ends].values.push(end);
        Ok(())
    }

    fn list(&mut self, ends: usize, floor: usize, item: &[Op], cursor: &mut Cursor) -> Result<(), Fault> {
        let mut end = self.columns.ends[ends].values.last().copied().unwrap_or(0);
        loop {
            let (count, _) = cursor.block(floor)?;
            if count == 0 {
                break;
            }
            for _ in 0..count {
                self.steps(item, cursor)?;
            }
            end += count as i32;
        }
        self.columns.ends[ends].values.push(end);
        Ok(())
    }
}

/// Reads the branch of a union of two, one of them null.
#[inline(always)]
fn absent(null: u8, cursor: &mut Cursor) -> Result<bool, Fault> {
    match cursor.long()? {
        branch @ (0 | 1) => Ok(branch == i64::from(null)),
        _ => Err(Fault::Branch),
    }
}

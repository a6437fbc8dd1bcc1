//! RowBinary: the columns of a batch, interleaved into rows.

use super::column::{Column, Data, Kind};
use super::dictionary::varint;

/// Strings up to this many bytes, their length included, are copied as one chunk.
const SHORT: usize = 16;

/// One column's source of bytes.
enum Source<'a> {
    One(&'a [u8]),
    Two(&'a [u8]),
    Four(&'a [u8]),
    Eight(&'a [u8]),
    Nullable {
        width: usize,
        nulls: &'a [u8],
        values: &'a [u8],
    },
    /// Strings: where each key stands in `encoded`, and its length.
    Keys {
        encoded: &'a [u8],
        keys: Vec<(usize, usize)>,
        data: &'a Data,
        nullable: bool,
    },
    /// An array: its items' source, and the ends of the arrays.
    Array {
        item: Box<Source<'a>>,
        ends: &'a [u8],
    },
}

/// Appends `rows` rows. Strings must be [`Kind::Keys`].
pub(crate) fn write_rows(columns: &[Column], data: &[Data], rows: usize, out: &mut Vec<u8>) {
    let sources: Vec<Source> = columns.iter().zip(data).map(|(column, data)| source(column, data)).collect();
    for row in 0..rows {
        for source in &sources {
            source.write(row, out);
        }
    }
}

fn source<'a>(column: &'a Column, data: &'a Data) -> Source<'a> {
    let item = match &column.kind {
        Kind::Keys(keys) => {
            let mut from = 0;
            let cut = |&end: &u32| {
                let start = std::mem::replace(&mut from, end as usize);
                (start, end as usize - start)
            };
            let places = keys.ends().iter().map(cut).collect();
            Source::Keys { encoded: keys.encoded(), keys: places, data, nullable: column.nullable }
        }
        Kind::Scalar(scalar) if column.nullable => {
            Source::Nullable { width: scalar.width(), nulls: &data.nulls, values: &data.values }
        }
        Kind::Scalar(scalar) => match scalar.width() {
            1 => Source::One(&data.values),
            2 => Source::Two(&data.values),
            4 => Source::Four(&data.values),
            _ => Source::Eight(&data.values),
        },
        Kind::Text => unreachable!("strings are keyed when rows are written"),
    };
    if column.array { Source::Array { item: Box::new(item), ends: &data.ends } } else { item }
}

impl Source<'_> {
    #[inline(always)]
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            Self::One(values) => out.push(values[row]),
            Self::Two(values) => out.extend_from_slice(&values.as_chunks::<2>().0[row]),
            Self::Four(values) => out.extend_from_slice(&values.as_chunks::<4>().0[row]),
            Self::Eight(values) => out.extend_from_slice(&values.as_chunks::<8>().0[row]),
            Self::Nullable { width, nulls, values } => {
                out.push(nulls[row]);
                if nulls[row] == 0 {
                    out.extend_from_slice(&values[row * width..(row + 1) * width]);
                }
            }
            Self::Keys { encoded, keys, data, nullable } => {
                let code = data.codes.get(row);
                if *nullable {
                    out.push(u8::from(code == 0));
                    if code == 0 {
                        return;
                    }
                }
                let (start, length) = keys[code];
                copy_short(&encoded[start..], length, out);
            }
            Self::Array { item, ends } => {
                let ends = ends.as_chunks::<8>().0;
                let end = u64::from_le_bytes(ends[row]);
                let start = if row == 0 { 0 } else { u64::from_le_bytes(ends[row - 1]) };
                varint(end - start, out);
                (start..end).for_each(|index| item.write_item(index as usize, out));
            }
        }
    }

    #[inline(never)]
    fn write_item(&self, index: usize, out: &mut Vec<u8>) {
        self.write(index, out);
    }
}

/// Appends the first `length` bytes: a copy of constant size where the string is short and something follows it.
#[inline(always)]
fn copy_short(text: &[u8], length: usize, out: &mut Vec<u8>) {
    match text.first_chunk::<SHORT>() {
        Some(chunk) if length <= SHORT => {
            out.extend_from_slice(chunk);
            out.truncate(out.len() - SHORT + length);
        }
        _ => out.extend_from_slice(&text[..length]),
    }
}

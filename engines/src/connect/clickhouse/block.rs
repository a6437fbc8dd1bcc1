//! Blocks of rows: the bodies of inserts.

use std::io::IoSlice;
use std::ops::Range;

use arrow::record_batch::RecordBatch;

use super::column::{Column, Data, Kind, Unfit};
use super::dictionary::varint;
use super::order::Order;
use super::row::write_rows;

/// The wire format of an insert.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum InsertFormat {
    /// Columns, as ClickHouse keeps them.
    #[default]
    Native,
    /// Rows.
    Rowbinary,
}

impl InsertFormat {
    /// The name ClickHouse gives it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "Native",
            Self::Rowbinary => "RowBinary",
        }
    }
}

/// The rows of one insert, encoded. Its memory is used again after the insert.
#[derive(Debug, Default)]
pub(crate) struct Block {
    rows: usize,
    columns: Vec<Data>,
    /// What stands between the columns' bytes.
    heads: Vec<u8>,
    /// The body: pieces of `heads` and of the columns, in order.
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Head(Range<usize>),
    Ends(usize),
    Nulls(usize),
    Values(usize),
    Codes(usize),
}

impl Block {
    fn clear(&mut self) {
        self.rows = 0;
        self.columns.iter_mut().for_each(Data::clear);
        self.heads.clear();
        self.parts.clear();
    }

    /// The body, piece by piece.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let bytes = self.parts.iter().map(|part| match part {
            Part::Head(range) => &self.heads[range.clone()],
            Part::Ends(column) => &self.columns[*column].ends,
            Part::Nulls(column) => &self.columns[*column].nulls,
            Part::Values(column) => &self.columns[*column].values,
            Part::Codes(column) => &self.columns[*column].codes.bytes,
        });
        bytes.filter(|bytes| !bytes.is_empty()).map(IoSlice::new).collect()
    }
}

/// Turns batches into blocks of one table.
#[derive(Debug)]
pub(crate) struct Encoder {
    format: InsertFormat,
    columns: Vec<Column>,
    /// The columns of one batch on their way to rows.
    scratch: Vec<Data>,
    order: Option<Order>,
    block: Block,
}

impl Encoder {
    /// An encoder for columns in the order of the query's. Native blocks are brought into the order of `sorting_key`.
    pub(crate) fn new(format: InsertFormat, columns: Vec<Column>, sorting_key: &str) -> Self {
        let order = if format == InsertFormat::Native { Order::new(sorting_key, &columns) } else { None };
        let scratch = columns.iter().map(|_| Data::default()).collect();
        let mut encoder = Self { format, columns, scratch, order, block: Block::default() };
        encoder.start(Block::default());
        encoder
    }

    /// Rows in the block so far.
    pub(crate) fn rows(&self) -> usize {
        self.block.rows
    }

    /// Begins a block in the memory of an old one.
    fn start(&mut self, mut block: Block) -> Block {
        let columns = if self.format == InsertFormat::Native { self.columns.len() } else { 1 };
        block.columns.resize_with(columns, Data::default);
        block.clear();
        for column in &mut self.columns {
            if let Kind::Keys(keys) = &mut column.kind {
                keys.start_block();
            }
        }
        std::mem::replace(&mut self.block, block)
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// A value does not fit its column; the block is then not usable any more.
    pub(crate) fn append(&mut self, batch: &RecordBatch) -> Result<(), Unfit> {
        let rows = batch.num_rows();
        match self.format {
            InsertFormat::Native => {
                let data = self.block.columns.iter_mut();
                for ((column, array), data) in self.columns.iter_mut().zip(batch.columns()).zip(data) {
                    column.append(array.as_ref(), data)?;
                }
            }
            InsertFormat::Rowbinary => {
                for ((column, array), data) in self.columns.iter_mut().zip(batch.columns()).zip(&mut self.scratch) {
                    data.clear();
                    column.append(array.as_ref(), data)?;
                }
                write_rows(&self.columns, &self.scratch, rows, &mut self.block.columns[0].values);
            }
        }
        self.block.rows += rows;
        Ok(())
    }

    /// Completes the block and begins the next one in the memory of `spare`.
    pub(crate) fn finish(&mut self, spare: Option<Block>) -> Block {
        let spare = self.sort(spare.unwrap_or_default());
        match self.format {
            InsertFormat::Native => self.native(),
            InsertFormat::Rowbinary => self.block.parts.push(Part::Values(0)),
        }
        self.start(spare)
    }

    /// Brings the block into order in the memory of `spare`, and returns the memory that is left over.
    fn sort(&mut self, mut spare: Block) -> Block {
        let Block { rows, columns: data, .. } = &self.block;
        let Some(runs) = self.order.as_ref().and_then(|order| order.runs(&self.columns, data, *rows)) else {
            return spare;
        };
        spare.columns.resize_with(data.len(), Data::default);
        spare.clear();
        spare.rows = *rows;
        for ((column, from), to) in self.columns.iter().zip(data).zip(&mut spare.columns) {
            to.copy_runs(column, from, &runs);
        }
        std::mem::replace(&mut self.block, spare)
    }

    /// Lays out a Native block: the counts, then for each column its name, its type and its values.
    fn native(&mut self) {
        let Block { rows, columns: data, heads, parts } = &mut self.block;
        let mut from = 0;
        let mut cut = |heads: &Vec<u8>, parts: &mut Vec<Part>| {
            parts.push(Part::Head(from..heads.len()));
            from = heads.len();
        };
        varint(self.columns.len() as u64, heads);
        varint(*rows as u64, heads);
        for (index, (column, data)) in self.columns.iter().zip(data).enumerate() {
            for text in [&column.name, &column.text] {
                varint(text.len() as u64, heads);
                heads.extend_from_slice(text.as_bytes());
            }
            if let Kind::Keys(_) = column.kind {
                heads.extend(KEYS_VERSION.to_le_bytes());
            }
            if column.array {
                cut(heads, parts);
                parts.push(Part::Ends(index));
                if data.items == 0 {
                    continue;
                }
            }
            let Kind::Keys(keys) = &column.kind else {
                cut(heads, parts);
                parts.extend([Part::Nulls(index), Part::Values(index)]);
                continue;
            };
            let index_type = match data.codes.width {
                2 => 1u64,
                4 => 2,
                _ => 0,
            };
            heads.extend((index_type | HAS_ADDITIONAL_KEYS).to_le_bytes());
            heads.extend((keys.len() as u64).to_le_bytes());
            heads.extend_from_slice(keys.encoded());
            heads.extend((data.codes.len() as u64).to_le_bytes());
            cut(heads, parts);
            parts.push(Part::Codes(index));
        }
        cut(heads, parts);
    }
}

/// LowCardinality: "shared dictionaries with additional keys", the only version there is.
const KEYS_VERSION: u64 = 1;
/// LowCardinality: the keys stand before the codes.
const HAS_ADDITIONAL_KEYS: u64 = 1 << 9;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::types::Type;
    use super::*;
    use arrow::array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, ListArray, StringArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{DataType, Field, Int32Type};

    fn texts(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(values.iter().copied().collect::<DictionaryArray<Int32Type>>())
    }

    fn lists(offsets: Vec<i32>, values: &[Option<&str>]) -> ArrayRef {
        let values = texts(values);
        let field = Arc::new(Field::new("item", values.data_type().clone(), true));
        Arc::new(ListArray::new(field, OffsetBuffer::new(offsets.into()), values, None))
    }

    /// Rows of every kind of column; the same bytes were read back by ClickHouse 26.7.
    fn encoded(format: InsertFormat, empty_lists: bool) -> Vec<u8> {
        let ends = if empty_lists { vec![0, 0, 0] } else { vec![0, 2, 2] };
        let items: &[Option<&str>] = if empty_lists { &[] } else { &[Some("t"), Some("u")] };
        let columns: Vec<(&str, &str, ArrayRef)> = vec![
            ("i", "UInt16", Arc::new(Int64Array::from(vec![1, 258]))),
            ("q", "Nullable(Int8)", Arc::new(Int32Array::from(vec![None, Some(-2)]))),
            ("k", "LowCardinality(String)", texts(&[Some("a"), Some("bc")])),
            ("n", "LowCardinality(Nullable(String))", texts(&[None, Some("x")])),
            ("s", "String", texts(&[Some("bc"), Some("")])),
            ("o", "Nullable(String)", Arc::new(StringArray::from(vec![None, Some("y")]))),
            ("l", "Array(LowCardinality(String))", lists(ends, items)),
        ];
        let keyed = format == InsertFormat::Rowbinary;
        let described = columns.iter().map(|(name, text, _)| Column::new(name, &Type::parse(text).unwrap(), keyed));
        let mut encoder = Encoder::new(format, described.collect(), "");
        let batch = RecordBatch::try_from_iter(columns.into_iter().map(|(name, _, array)| (name, array))).unwrap();
        encoder.append(&batch).unwrap();
        assert_eq!(encoder.rows(), 2);
        let block = encoder.finish(None);
        assert_eq!((block.rows, encoder.rows()), (2, 0));
        block.slices().iter().flat_map(|slice| slice.to_vec()).collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_native_block_byte_for_byte() {
        insta::assert_snapshot!(hex(&encoded(InsertFormat::Native, false)));
    }

    #[test]
    fn a_native_block_with_empty_arrays_only() {
        insta::assert_snapshot!(hex(&encoded(InsertFormat::Native, true)));
    }

    #[test]
    fn rows_byte_for_byte() {
        insta::assert_snapshot!(hex(&encoded(InsertFormat::Rowbinary, false)));
    }

    #[test]
    fn a_block_of_several_batches_is_the_block_of_all_their_rows() {
        for format in [InsertFormat::Native, InsertFormat::Rowbinary] {
            let batch = |values: &[Option<&str>]| {
                let list = lists(vec![0, 1, values.len() as i32], values);
                RecordBatch::try_from_iter(
                    [("k", texts(values)), ("l", list)].map(|(name, array)| (name, array.slice(0, 2))),
                )
                .unwrap()
            };
            let encoder = || {
                let low = Type::LowCardinality { nullable: false };
                let columns = [("k", low.clone()), ("l", Type::Array(Box::new(low)))];
                Encoder::new(format, columns.iter().map(|(name, ty)| Column::new(name, ty, true)).collect(), "")
            };
            let (first, second) = (batch(&[Some("a"), Some("b"), Some("c")]), batch(&[Some("c"), Some("a")]));
            let mut apart = encoder();
            apart.append(&first).unwrap();
            apart.append(&second).unwrap();
            let mut together = encoder();
            together.append(&arrow::compute::concat_batches(&first.schema(), [&first, &second]).unwrap()).unwrap();
            let bytes = |block: Block| -> Vec<u8> { block.slices().iter().flat_map(|slice| slice.to_vec()).collect() };
            let again = apart.finish(None);
            assert_eq!(bytes(again), bytes(together.finish(None)));
            assert_eq!(
                first.schema().field(0).data_type(),
                &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            );
        }
    }
}

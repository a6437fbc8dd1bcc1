//! Stub.
use crate::error::Error;
use crate::plan;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
/// x
#[derive(Debug)]
pub struct LookupTable;
impl LookupTable {
    /// x
    pub fn new(_: &plan::Lookup, _: Vec<RecordBatch>, _: SchemaRef) -> Result<Self, Error> {
        Ok(Self)
    }
    /// x
    pub fn join(&self, b: &RecordBatch) -> Result<RecordBatch, Error> {
        Ok(b.clone())
    }
}
macro_rules! stub {
    ($n:ident, $p:ty) => {
        /// x
        pub struct $n;
        impl $n {
            /// x
            pub fn new(_: $p, _: usize, _: bool) -> Result<Self, Error> {
                Ok(Self)
            }
        }
        impl crate::flow::operator::Operator for $n {
            fn shards(&mut self) -> Vec<&mut dyn crate::flow::operator::Shard> {
                vec![]
            }
            fn exchange(&mut self) -> Result<(), Error> {
                Ok(())
            }
            fn advance(&mut self, _: i64, _: &mut crate::flow::operator::Emit<'_>) -> Result<(), Error> {
                Ok(())
            }
            fn changes(&mut self, _: &mut crate::flow::operator::Emit<'_>) -> Result<(), Error> {
                Ok(())
            }
            fn memory(&self) -> usize {
                0
            }
            fn spill(&mut self, _: &std::path::Path) -> Result<(), Error> {
                Ok(())
            }
            fn freeze(&mut self, _: bool) -> (bool, Box<dyn crate::state::run::Run>) {
                unimplemented!()
            }
            fn restore(&mut self, _: &crate::state::run::RunFile, _: i64) -> Result<(), Error> {
                Ok(())
            }
        }
    };
}
stub!(IntervalJoin, plan::IntervalJoin);

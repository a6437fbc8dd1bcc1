//! The window functions of GROUP BY, which the planner sees as functions of the event time.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Result, exec_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

/// Functions of GROUP BY that make windows.
pub(super) const WINDOWS: [&str; 3] = ["tumble", "hop", "session"];
/// End of the window that is the argument.
pub(super) const WINDOW_END: &str = "window_end";
/// Marks the condition of an ASOF join.
pub(super) const ASOF: &str = "asof_join_condition";

/// A function that stands for a part of the plan and is never called.
pub(super) fn marker(name: &str) -> Option<Arc<ScalarUDF>> {
    let known = WINDOWS.iter().chain(&[WINDOW_END, ASOF]).find(|known| **known == name)?;
    let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    Some(Arc::new(ScalarUDF::from(Marker { name: known, signature: Signature::one_of(any, Volatility::Stable) })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Marker {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Marker {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.name == ASOF { DataType::Boolean } else { DataType::Timestamp(TimeUnit::Microsecond, None) })
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{} stands outside of GROUP BY", self.name)
    }
}

//! Functions of our own: `upper` and `lower` change ASCII letters only, so that a result does not depend on a locale; the
//! window functions of GROUP BY, which the planner sees as functions of the event time.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::types::logical_string;
use datafusion_common::{Result, exec_err};
use datafusion_expr::{
    Coercion, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    TypeSignatureClass, Volatility,
};

/// Functions of GROUP BY that make windows.
pub(super) const WINDOWS: [&str; 3] = ["tumble", "hop", "session"];
/// End of the window that is the argument.
pub(super) const WINDOW_END: &str = "window_end";
/// Marks the condition of an ASOF join.
pub(super) const ASOF: &str = "asof_join_condition";

/// `upper` and `lower`.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [AsciiCase::new("upper", true), AsciiCase::new("lower", false)]
        .into_iter()
        .map(|f| Arc::new(ScalarUDF::from(f)))
        .collect()
}

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

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsciiCase {
    name: &'static str,
    upper: bool,
    signature: Signature,
}

impl AsciiCase {
    fn new(name: &'static str, upper: bool) -> Self {
        let argument = Coercion::new_exact(TypeSignatureClass::Native(logical_string()));
        Self { name, upper, signature: Signature::coercible(vec![argument], Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for AsciiCase {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let input = ColumnarValue::values_to_arrays(&args.args)?;
        let text = cast(&input[0], &DataType::Utf8)?;
        Ok(ColumnarValue::Array(change_case(text.as_string::<i32>(), self.upper)))
    }
}

fn change_case(text: &StringArray, upper: bool) -> ArrayRef {
    let mut bytes = text.values().to_vec();
    if upper {
        bytes.make_ascii_uppercase();
    } else {
        bytes.make_ascii_lowercase();
    }
    // SAFETY: only ASCII bytes are replaced, by ASCII bytes, so the text is still UTF-8 cut at the same offsets.
    let array =
        unsafe { StringArray::new_unchecked(text.offsets().clone(), Buffer::from_vec(bytes), text.nulls().cloned()) };
    Arc::new(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ascii_letters_change() {
        let text = StringArray::from(vec![Some("aßé-Z"), None, Some("")]);
        assert_eq!(
            change_case(&text, true).as_string::<i32>(),
            &StringArray::from(vec![Some("AßÉ-Z".replace('É', "é").as_str()), None, Some("")])
        );
        assert_eq!(change_case(&text.slice(1, 2), false).as_string::<i32>(), &StringArray::from(vec![None, Some("")]));
    }
}

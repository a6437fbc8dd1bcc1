//! Functions of our own: `upper` and `lower` change ASCII letters only, so that a result does not depend on a locale.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_common::types::logical_string;
use datafusion_expr::{
    Coercion, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignatureClass, Volatility,
};

/// `upper` and `lower`.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [AsciiCase::new("upper", true), AsciiCase::new("lower", false)]
        .into_iter()
        .map(|f| Arc::new(ScalarUDF::from(f)))
        .collect()
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

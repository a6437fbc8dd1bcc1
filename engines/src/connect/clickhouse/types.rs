//! ClickHouse's types, as far as a query's columns can be written to them.

use std::fmt;

/// A column type of ClickHouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Scalar(Scalar),
    /// `Nullable(…)` of a scalar, or of a string.
    Nullable(Box<Type>),
    String,
    /// `LowCardinality(String)`; `nullable` for `LowCardinality(Nullable(String))`.
    LowCardinality {
        nullable: bool,
    },
    Array(Box<Type>),
}

/// A type of fixed width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Bool,
    /// Days since 1970, 16 bits.
    Date,
    /// Days since 1970, 32 bits.
    Date32,
    /// Seconds since 1970, 32 bits.
    DateTime,
    /// Ticks of 10^-n seconds since 1970, 64 bits.
    DateTime64(u8),
}

impl Scalar {
    /// Bytes of one value.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::UInt8 | Self::Int8 | Self::Bool => 1,
            Self::UInt16 | Self::Int16 | Self::Date => 2,
            Self::UInt32 | Self::Int32 | Self::Float32 | Self::Date32 | Self::DateTime => 4,
            Self::UInt64 | Self::Int64 | Self::Float64 | Self::DateTime64(_) => 8,
        }
    }
}

impl Type {
    /// Reads the text of a type as ClickHouse prints it; `None` for types that cannot be written.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = argument(text, "Nullable") {
            return match Self::parse(inner)? {
                inner @ (Self::Scalar(_) | Self::String) => Some(Self::Nullable(Box::new(inner))),
                _ => None,
            };
        }
        if let Some(inner) = argument(text, "LowCardinality") {
            return match inner {
                "String" => Some(Self::LowCardinality { nullable: false }),
                "Nullable(String)" => Some(Self::LowCardinality { nullable: true }),
                _ => None,
            };
        }
        if let Some(inner) = argument(text, "Array") {
            return match Self::parse(inner)? {
                Self::Array(_) => None,
                inner => Some(Self::Array(Box::new(inner))),
            };
        }
        Some(Self::Scalar(match text {
            "String" => return Some(Self::String),
            "UInt8" => Scalar::UInt8,
            "UInt16" => Scalar::UInt16,
            "UInt32" => Scalar::UInt32,
            "UInt64" => Scalar::UInt64,
            "Int8" => Scalar::Int8,
            "Int16" => Scalar::Int16,
            "Int32" => Scalar::Int32,
            "Int64" => Scalar::Int64,
            "Float32" => Scalar::Float32,
            "Float64" => Scalar::Float64,
            "Bool" => Scalar::Bool,
            "Date" => Scalar::Date,
            "Date32" => Scalar::Date32,
            "DateTime" => Scalar::DateTime,
            other if argument(other, "DateTime").is_some() => Scalar::DateTime,
            other => {
                // DateTime64(3) or DateTime64(3, 'UTC'): the zone only matters to readers.
                let inner = argument(other, "DateTime64")?;
                let precision = inner.split(',').next()?.trim().parse().ok()?;
                if precision > 9 {
                    return None;
                }
                Scalar::DateTime64(precision)
            }
        }))
    }
}

/// `inner` of `name(inner)`.
fn argument<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(Scalar::DateTime64(precision)) => write!(f, "DateTime64({precision})"),
            Self::Scalar(scalar) => write!(f, "{scalar:?}"),
            Self::Nullable(inner) => write!(f, "Nullable({inner})"),
            Self::String => f.write_str("String"),
            Self::LowCardinality { nullable: false } => f.write_str("LowCardinality(String)"),
            Self::LowCardinality { nullable: true } => f.write_str("LowCardinality(Nullable(String))"),
            Self::Array(inner) => write!(f, "Array({inner})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_clickhouse_prints_them() {
        for text in [
            "UInt64",
            "Nullable(Float64)",
            "LowCardinality(String)",
            "LowCardinality(Nullable(String))",
            "Array(LowCardinality(String))",
            "DateTime64(6)",
            "Nullable(DateTime64(3))",
            "Array(Nullable(Int32))",
            "Bool",
        ] {
            assert_eq!(Type::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Type::parse("DateTime64(3, 'UTC')"), Some(Type::Scalar(Scalar::DateTime64(3))));
        assert_eq!(Type::parse("DateTime('Asia/Tokyo')"), Some(Type::Scalar(Scalar::DateTime)));
        for text in ["Array(Array(Int8))", "Map(String, String)", "UUID", "LowCardinality(Int8)", "Tuple(a Int8)"] {
            assert_eq!(Type::parse(text), None, "{text}");
        }
    }
}

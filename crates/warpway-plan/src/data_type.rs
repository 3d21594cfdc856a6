//! The types of elements.

use thiserror::Error;

/// The type of one element. A launch brings it; a plan does not name it.
///
/// The numbers are those of MSCCL++ (0 to 10) and Warpway's additions behind them. Number 255 (`AUTO`, an
/// accumulator "as the input") is not the type of any data and therefore no value here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DataType {
    /// Two's complement, 32 bits.
    Int32 = 0,
    /// Unsigned, 32 bits.
    Uint32 = 1,
    /// IEEE 754 binary16.
    Float16 = 2,
    /// IEEE 754 binary32.
    Float32 = 3,
    /// The upper half of a binary32.
    Bfloat16 = 4,
    /// Exponent bias 7, greatest 448, NaN 0x7f and 0xff, no infinity.
    Float8E4m3fn = 5,
    /// Exponent bias 8, greatest 240, NaN 0x80, neither infinity nor negative zero.
    Float8E4m3fnuz = 6,
    /// Exponent bias 15, greatest finite 57344, infinities and NaN as in IEEE 754.
    Float8E5m2 = 7,
    /// Exponent bias 16, greatest 57344, NaN 0x80, neither infinity nor negative zero.
    Float8E5m2fnuz = 8,
    /// Unsigned, 8 bits.
    Uint8 = 9,
    /// Exponent bias 15, every code a finite number, greatest 1.875.
    Float8E4m3b15 = 10,
    /// Two's complement, 8 bits.
    Int8 = 11,
    /// Two's complement, 64 bits.
    Int64 = 12,
    /// Unsigned, 64 bits.
    Uint64 = 13,
    /// IEEE 754 binary64.
    Float64 = 14,
}

/// Text or a number that is no [`DataType`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no data type `{given}`: use one of {}", names())]
pub struct UnknownDataType {
    /// What was given.
    pub given: String,
}

impl DataType {
    /// Every type, by number.
    pub const ALL: [Self; 15] = [
        Self::Int32,
        Self::Uint32,
        Self::Float16,
        Self::Float32,
        Self::Bfloat16,
        Self::Float8E4m3fn,
        Self::Float8E4m3fnuz,
        Self::Float8E5m2,
        Self::Float8E5m2fnuz,
        Self::Uint8,
        Self::Float8E4m3b15,
        Self::Int8,
        Self::Int64,
        Self::Uint64,
        Self::Float64,
    ];

    /// Its number in interfaces and records.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The type of that number.
    ///
    /// # Errors
    /// There is none; 255 (`AUTO`) is none either.
    pub fn from_number(number: u8) -> Result<Self, UnknownDataType> {
        let found = Self::ALL.get(usize::from(number)).copied();
        found.ok_or_else(|| UnknownDataType { given: number.to_string() })
    }

    /// Bytes of one element, which is also its natural alignment.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Uint8
            | Self::Int8
            | Self::Float8E4m3fn
            | Self::Float8E4m3fnuz
            | Self::Float8E5m2
            | Self::Float8E5m2fnuz
            | Self::Float8E4m3b15 => 1,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::Int64 | Self::Uint64 | Self::Float64 => 8,
        }
    }

    /// True for the floating types.
    pub const fn is_float(self) -> bool {
        !matches!(self, Self::Uint8 | Self::Int8 | Self::Int32 | Self::Uint32 | Self::Int64 | Self::Uint64)
    }

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Uint32 => "uint32",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
            Self::Float8E4m3fn => "float8_e4m3fn",
            Self::Float8E4m3fnuz => "float8_e4m3fnuz",
            Self::Float8E5m2 => "float8_e5m2",
            Self::Float8E5m2fnuz => "float8_e5m2fnuz",
            Self::Uint8 => "uint8",
            Self::Float8E4m3b15 => "float8_e4m3b15",
            Self::Int8 => "int8",
            Self::Int64 => "int64",
            Self::Uint64 => "uint64",
            Self::Float64 => "float64",
        }
    }

    /// What people type for it besides its name.
    const fn short_name(self) -> &'static str {
        match self {
            Self::Int32 => "i32",
            Self::Uint32 => "u32",
            Self::Float16 => "f16",
            Self::Float32 => "f32",
            Self::Bfloat16 => "bf16",
            Self::Float8E4m3fn => "e4m3",
            Self::Float8E4m3fnuz => "e4m3fnuz",
            Self::Float8E5m2 => "e5m2",
            Self::Float8E5m2fnuz => "e5m2fnuz",
            Self::Uint8 => "u8",
            Self::Float8E4m3b15 => "e4m3b15",
            Self::Int8 => "i8",
            Self::Int64 => "i64",
            Self::Uint64 => "u64",
            Self::Float64 => "f64",
        }
    }
}

fn names() -> String {
    DataType::ALL.map(DataType::name).join(", ")
}

impl std::fmt::Display for DataType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Accepts names and short names (`f32`, `bf16`, `e4m3`), whatever their case.
impl std::str::FromStr for DataType {
    type Err = UnknownDataType;

    fn from_str(text: &str) -> Result<Self, UnknownDataType> {
        let matches =
            |t: &Self| text.eq_ignore_ascii_case(t.name()) || text.eq_ignore_ascii_case(t.short_name());
        Self::ALL.into_iter().find(matches).ok_or_else(|| UnknownDataType { given: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_sizes_and_names_are_those_of_the_contract() {
        let table: [(u8, &str, u64); 15] = [
            (0, "INT32", 4),
            (1, "UINT32", 4),
            (2, "FLOAT16", 2),
            (3, "FLOAT32", 4),
            (4, "BFLOAT16", 2),
            (5, "FLOAT8_E4M3FN", 1),
            (6, "FLOAT8_E4M3FNUZ", 1),
            (7, "FLOAT8_E5M2", 1),
            (8, "FLOAT8_E5M2FNUZ", 1),
            (9, "UINT8", 1),
            (10, "FLOAT8_E4M3B15", 1),
            (11, "INT8", 1),
            (12, "INT64", 8),
            (13, "UINT64", 8),
            (14, "FLOAT64", 8),
        ];
        for (number, name, bytes) in table {
            let data_type = DataType::from_number(number).unwrap();
            assert_eq!(data_type.number(), number);
            assert_eq!(data_type.name().to_uppercase(), name);
            assert_eq!(data_type.bytes(), bytes);
            assert_eq!(name.parse(), Ok(data_type));
            assert_eq!(data_type.short_name().parse(), Ok(data_type));
            assert_eq!(data_type.is_float(), name.contains("FLOAT"));
        }
        assert_eq!(DataType::ALL.len(), table.len());
    }

    #[test]
    fn what_is_no_type_is_named_in_the_error() {
        assert_eq!(DataType::from_number(255), Err(UnknownDataType { given: "255".into() }));
        assert_eq!(DataType::from_number(15), Err(UnknownDataType { given: "15".into() }));
        let message = "float4".parse::<DataType>().unwrap_err().to_string();
        assert!(message.starts_with("no data type `float4`: use one of int32, uint32, float16"), "{message}");
        assert!("".parse::<DataType>().is_err());
    }
}

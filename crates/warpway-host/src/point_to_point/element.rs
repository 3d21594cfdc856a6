//! What messages consist of, so that both ends can be compared.

use std::any::{TypeId, type_name};
use std::fmt;

use warpway_core::memory::Element;
use warpway_plan::DataType;

/// The type of a message's elements, as it travels: two ends that do not agree get an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElementType(u32);

/// Set in the codes of types that are no [`DataType`].
const OTHER: u32 = 1 << 31;

impl ElementType {
    /// Of elements of this type. Numbers have the code of their [`DataType`]; another type has one that is made of its
    /// name and size.
    pub fn of<T: Element>() -> Self {
        let of = TypeId::of::<T>();
        let known = [
            (TypeId::of::<u8>(), DataType::Uint8),
            (TypeId::of::<i8>(), DataType::Int8),
            (TypeId::of::<u32>(), DataType::Uint32),
            (TypeId::of::<i32>(), DataType::Int32),
            (TypeId::of::<u64>(), DataType::Uint64),
            (TypeId::of::<i64>(), DataType::Int64),
            (TypeId::of::<half::f16>(), DataType::Float16),
            (TypeId::of::<half::bf16>(), DataType::Bfloat16),
            (TypeId::of::<f32>(), DataType::Float32),
            (TypeId::of::<f64>(), DataType::Float64),
        ];
        match known.into_iter().find(|(id, _)| *id == of) {
            Some((_, data_type)) => data_type.into(),
            None => Self(OTHER | digest(type_name::<T>(), size_of::<T>())),
        }
    }

    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u32 {
        self.0
    }
}

impl From<DataType> for ElementType {
    fn from(data_type: DataType) -> Self {
        Self(u32::from(data_type.number()))
    }
}

/// FNV-1a, 31 bits of it.
fn digest(name: &str, size: usize) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().chain((size as u64).to_le_bytes()).fold(0x811c_9dc5, step) & !OTHER
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = u8::try_from(self.0).ok();
        match number.and_then(|number| DataType::from_number(number).ok()) {
            Some(data_type) => data_type.fmt(f),
            None => write!(f, "a type of the program ({:08x})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_by_their_data_type_and_others_by_name() {
        assert_eq!(ElementType::of::<f32>(), DataType::Float32.into());
        assert_eq!(ElementType::of::<i64>().to_string(), "int64");
        assert_eq!(ElementType::of::<half::bf16>(), DataType::Bfloat16.into());
        let others = [ElementType::of::<u16>(), ElementType::of::<[u8; 2]>(), ElementType::of::<[u8; 3]>()];
        assert!(others[0] != others[1] && others[1] != others[2] && others[0] != others[2]);
        let text = others[0].to_string();
        assert!(text.starts_with("a type of the program (") && text != others[1].to_string(), "{text}");
        assert_eq!(ElementType::from_bits(others[2].bits()), others[2]);
    }
}

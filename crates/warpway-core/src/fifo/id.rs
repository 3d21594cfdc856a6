//! Numbers by which FIFO elements name objects of a proxy service.

use std::fmt;

/// Bits of an id that hold the index.
pub(crate) const INDEX_BITS: u32 = 24;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// 24 bits of index and 8 bits of generation; an id whose object was removed never names another one.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(u32);

        impl $name {
            /// From the form in a FIFO element; any number is accepted and checked where it is looked up.
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            /// The form in a FIFO element: the generation in the upper 8 bits.
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// Place in the registry.
            pub const fn index(self) -> u32 {
                self.0 & ((1 << INDEX_BITS) - 1)
            }

            /// How many objects have had that place before.
            pub const fn generation(self) -> u8 {
                (self.0 >> INDEX_BITS) as u8
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({}.{})"), self.index(), self.generation())
            }
        }
    };
}

id!(
    /// Names a memory.
    MemoryId
);
id!(
    /// Names a semaphore, and with it a connection.
    SemaphoreId
);

impl MemoryId {
    /// The `i`-th id of a run that [`next_memory_id`](crate::proxy::ProxyService::next_memory_id) reserved
    /// from this one; `None` beyond the last index.
    pub fn offset(self, i: u32) -> Option<Self> {
        let index = self.index().checked_add(i).filter(|index| *index < 1 << INDEX_BITS)?;
        Some(Self(u32::from(self.generation()) << INDEX_BITS | index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_id() {
        let id = MemoryId::from_bits(0xab_000003);
        assert_eq!((id.index(), id.generation(), id.bits()), (3, 0xab, 0xab_000003));
        assert_eq!(id.offset(4), Some(MemoryId::from_bits(0xab_000007)));
        assert_eq!(id.offset((1 << 24) - 4), Some(MemoryId::from_bits(0xab_ffffff)));
        assert_eq!(id.offset((1 << 24) - 3), None);
        assert_eq!(id.offset(u32::MAX), None);
    }
}

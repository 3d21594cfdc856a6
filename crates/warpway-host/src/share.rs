//! Who does which part of a collective call.

use std::ops::Range;

use warpway_core::channel::ChannelError;

/// One participant of a call that several threads make together, each with its own index: what device
/// code calls `thread_id` and `num_threads`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// This participant, below `count`.
    pub index: u32,
    /// How many there are.
    pub count: u32,
}

impl Share {
    /// The caller does everything.
    pub const ALL: Self = Self { index: 0, count: 1 };

    /// Participant `index` of `count`.
    pub const fn new(index: u32, count: u32) -> Self {
        Self { index, count }
    }

    /// This participant's part of `total` units, contiguous and beginning at a multiple of `granule`.
    /// The parts of all participants cover everything exactly once.
    pub(crate) fn part(
        self,
        operation: &'static str,
        total: u64,
        granule: u64,
    ) -> Result<Range<u64>, ChannelError> {
        let Self { index, count } = self;
        if index >= count {
            return Err(ChannelError::Share { operation, index, count });
        }
        let each = total.div_ceil(u64::from(count)).div_ceil(granule).saturating_mul(granule);
        let start = each.saturating_mul(u64::from(index)).min(total);
        Ok(start..start.saturating_add(each).min(total))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_cover_everything_once(total in 0u64..10_000, count in 1u32..40, granule in 1u64..70) {
            let mut next = 0;
            for index in 0..count {
                let part = Share::new(index, count).part("test", total, granule).unwrap();
                prop_assert_eq!(part.start, next);
                prop_assert!(part.start.is_multiple_of(granule) || part.start == total);
                next = part.end;
            }
            prop_assert_eq!(next, total);
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        let part = Share::new(u32::MAX - 1, u32::MAX).part("test", u64::MAX, 64).unwrap();
        assert_eq!(part.end, u64::MAX);
        assert_eq!(Share::new(3, 3).part("test", 1, 1).unwrap_err().id(), "channel.share");
        assert_eq!(Share::new(0, 0).part("test", 1, 1).unwrap_err().id(), "channel.share");
    }
}

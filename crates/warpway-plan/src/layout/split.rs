//! The share of one block in the work of a group.

use super::{Extent, LayoutError};
use crate::ir::GroupMember;

/// The part of `bytes` bytes that a member of a group handles, in whole units; parts differ by at most one. The
/// last member also takes what is left beyond the last whole unit. Without a group: everything.
///
/// # Errors
/// A member that the group does not have.
pub fn split(bytes: u64, unit: u64, group: Option<GroupMember>) -> Result<Extent, LayoutError> {
    let Some(GroupMember { member, size }) = group else { return Ok(Extent { offset: 0, bytes }) };
    if member >= size || unit == 0 {
        return Err(LayoutError::Member { member, size });
    }
    let (units, members) = (bytes / unit, u64::from(size));
    let (each, more) = (units / members, units % members);
    // At most `units`, so no product below exceeds `bytes`.
    let start = |member: u64| (member * each + member.min(more)) * unit;
    let end = if member + 1 == size { bytes } else { start(u64::from(member) + 1) };
    let offset = start(u64::from(member));
    Ok(Extent { offset, bytes: end - offset })
}

//! Memory of another rank of this process: it has an address already, and lacks only the right to use it.

use warpway_core::Result;
use warpway_core::memory::Region;

use crate::context::Context;
use crate::memory::{Foreign, ForeignKind, open_to};

/// Lets kernels and copies of `here` touch a region of `owner`'s device.
pub(super) fn adopt(here: &Context, owner: &Context, region: &Region) -> Result<()> {
    here.enable_peer(owner)?;
    let (address, size) = (region.address().as_ptr() as u64, region.size());
    let end = address + size;
    let mut at = address;
    // Mappings carry permissions of their own; a range may cover several that follow each other.
    while at < end {
        let found = Foreign::find(owner, at, 1)?;
        if found.kind != ForeignKind::Ipc {
            open_to(here, found.base, found.bytes)?;
        }
        at = found.base + found.bytes;
    }
    Ok(())
}

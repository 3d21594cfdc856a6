// Sizes and offsets of everything that host and device share. `src/handle.rs` reads this file in its tests and compares
// each line with its own structures: a field is moved on both sides or on neither.
#pragma once

#include "warpway/device_semaphore.cuh"
#include "warpway/epoch.cuh"
#include "warpway/grid.cuh"
#include "warpway/memory_channel.cuh"
#include "warpway/port_channel.cuh"
#include "warpway/switch_channel.cuh"

namespace warpway {

#define WARPWAY_SIZE(Type, bytes, alignment) static_assert(sizeof(Type) == bytes && alignof(Type) == alignment, #Type);
#define WARPWAY_OFFSET(Type, field, bytes) static_assert(WARPWAY_OFFSET_OF(Type, field) == bytes, #Type "." #field);

WARPWAY_SIZE(ErrorRecord, 64, 8)
WARPWAY_OFFSET(ErrorRecord, code, 0)
WARPWAY_OFFSET(ErrorRecord, kind, 2)
WARPWAY_OFFSET(ErrorRecord, rank, 4)
WARPWAY_OFFSET(ErrorRecord, peer, 8)
WARPWAY_OFFSET(ErrorRecord, object, 12)
WARPWAY_OFFSET(ErrorRecord, block, 16)
WARPWAY_OFFSET(ErrorRecord, thread, 20)
WARPWAY_OFFSET(ErrorRecord, expected, 24)
WARPWAY_OFFSET(ErrorRecord, observed, 32)
WARPWAY_OFFSET(ErrorRecord, elapsed_ns, 40)
WARPWAY_OFFSET(ErrorRecord, epoch, 48)
WARPWAY_OFFSET(ErrorRecord, reason, 56)

WARPWAY_SIZE(HostControl, 128, 64)
WARPWAY_OFFSET(HostControl, abort_word, 0)
WARPWAY_OFFSET(HostControl, record_state, 4)
WARPWAY_OFFSET(HostControl, record, 64)

WARPWAY_SIZE(Control, 64, 64)
WARPWAY_OFFSET(Control, poison, 0)
WARPWAY_OFFSET(Control, claim, 4)
WARPWAY_OFFSET(Control, deadline_ns, 8)
WARPWAY_OFFSET(Control, host, 16)
WARPWAY_OFFSET(Control, rank, 24)

WARPWAY_SIZE(Site, 16, 8)
WARPWAY_OFFSET(Site, control, 0)
WARPWAY_OFFSET(Site, peer, 8)
WARPWAY_OFFSET(Site, object, 12)

WARPWAY_SIZE(Host2DeviceSemaphore, 32, 8)
WARPWAY_OFFSET(Host2DeviceSemaphore, inbound, 0)
WARPWAY_OFFSET(Host2DeviceSemaphore, expected, 8)
WARPWAY_OFFSET(Host2DeviceSemaphore, site, 16)

WARPWAY_SIZE(MemoryDevice2DeviceSemaphore, 40, 8)
WARPWAY_OFFSET(MemoryDevice2DeviceSemaphore, inbound, 0)
WARPWAY_OFFSET(MemoryDevice2DeviceSemaphore, remote_inbound, 8)
WARPWAY_OFFSET(MemoryDevice2DeviceSemaphore, expected, 16)
WARPWAY_OFFSET(MemoryDevice2DeviceSemaphore, site, 24)

WARPWAY_SIZE(SwitchDevice2DeviceSemaphore, 48, 8)
WARPWAY_OFFSET(SwitchDevice2DeviceSemaphore, multicast, 0)
WARPWAY_OFFSET(SwitchDevice2DeviceSemaphore, arrivals, 8)
WARPWAY_OFFSET(SwitchDevice2DeviceSemaphore, generation, 16)
WARPWAY_OFFSET(SwitchDevice2DeviceSemaphore, n_ranks, 24)
WARPWAY_OFFSET(SwitchDevice2DeviceSemaphore, site, 32)

WARPWAY_SIZE(MemoryChannel, 104, 8)
WARPWAY_OFFSET(MemoryChannel, semaphore, 0)
WARPWAY_OFFSET(MemoryChannel, dst, 40)
WARPWAY_OFFSET(MemoryChannel, dst_bytes, 48)
WARPWAY_OFFSET(MemoryChannel, src, 56)
WARPWAY_OFFSET(MemoryChannel, src_bytes, 64)
WARPWAY_OFFSET(MemoryChannel, packet_buffer, 72)
WARPWAY_OFFSET(MemoryChannel, packet_bytes, 80)
WARPWAY_OFFSET(MemoryChannel, liveness, 88)
WARPWAY_OFFSET(MemoryChannel, generation, 96)

WARPWAY_SIZE(Fifo, 56, 8)
WARPWAY_OFFSET(Fifo, slots, 0)
WARPWAY_OFFSET(Fifo, head, 8)
WARPWAY_OFFSET(Fifo, tail, 16)
WARPWAY_OFFSET(Fifo, cached_tail, 24)
WARPWAY_OFFSET(Fifo, size, 32)
WARPWAY_OFFSET(Fifo, site, 40)

WARPWAY_SIZE(BasePortChannel, 104, 8)
WARPWAY_OFFSET(BasePortChannel, semaphore_id, 0)
WARPWAY_OFFSET(BasePortChannel, semaphore, 8)
WARPWAY_OFFSET(BasePortChannel, fifo, 40)
WARPWAY_OFFSET(BasePortChannel, flush_done, 96)

WARPWAY_SIZE(PortChannel, 128, 8)
WARPWAY_OFFSET(PortChannel, base, 0)
WARPWAY_OFFSET(PortChannel, dst, 104)
WARPWAY_OFFSET(PortChannel, src, 108)
WARPWAY_OFFSET(PortChannel, dst_bytes, 112)
WARPWAY_OFFSET(PortChannel, src_bytes, 120)

WARPWAY_SIZE(SwitchChannel, 72, 8)
WARPWAY_OFFSET(SwitchChannel, devicePtr, 0)
WARPWAY_OFFSET(SwitchChannel, mcPtr, 8)
WARPWAY_OFFSET(SwitchChannel, bytes, 16)
WARPWAY_OFFSET(SwitchChannel, semaphore, 24)

WARPWAY_SIZE(DeviceSyncer, 32, 8)
WARPWAY_OFFSET(DeviceSyncer, generation, 0)
WARPWAY_OFFSET(DeviceSyncer, arrivals, 8)
WARPWAY_OFFSET(DeviceSyncer, site, 16)

WARPWAY_SIZE(DeviceSemaphore, 32, 8)
WARPWAY_OFFSET(DeviceSemaphore, tickets, 0)
WARPWAY_OFFSET(DeviceSemaphore, units, 8)
WARPWAY_OFFSET(DeviceSemaphore, site, 16)

WARPWAY_SIZE(Epochs, 24, 8)
WARPWAY_OFFSET(Epochs, areas, 0)
WARPWAY_OFFSET(Epochs, arrivals, 8)
WARPWAY_OFFSET(Epochs, n_areas, 16)

#undef WARPWAY_OFFSET
#undef WARPWAY_SIZE

}  // namespace warpway

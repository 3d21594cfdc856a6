// Port channels: each call is one request to a proxy, which copies, signals and adds on the caller's behalf.
//
// Each call is made by one thread. Requests of one connection are carried out in the order of their positions;
// requests of different connections in any order. A push releases what its thread wrote or acquired: a block barrier
// before it makes the block's data part of the copy. Calls that push return the position, or `no_position`
// if nothing was pushed. Ids and ranges are checked again by the proxy.
#pragma once

#include "warpway/fifo.cuh"
#include "warpway/semaphores.cuh"

namespace warpway {

/// Names its memories at each call.
struct BasePortChannel {
  /// As the proxy knows it.
  u32 semaphore_id;
  u32 reserved;
  /// Raised by the peer's requests.
  Host2DeviceSemaphore semaphore;
  Fifo fifo;
  /// One past the highest position that is complete, pinned host memory; bit 63 as in the FIFO's tail.
  const u64* flush_done;

  /// Copies asynchronously. The source may be written again after a later `flush`.
  WARPWAY_DEVICE u64 put(u32 dst_id, u64 dst_offset, u32 src_id, u64 src_offset, u64 size) const {
    return request(trigger_data, dst_id, dst_offset, src_id, src_offset, size);
  }
  WARPWAY_DEVICE u64 put(u32 dst_id, u32 src_id, u64 offset, u64 size) const {
    return put(dst_id, offset, src_id, offset, size);
  }

  /// Raises the peer's semaphore after all earlier requests of the connection.
  WARPWAY_DEVICE u64 signal() const { return request(trigger_flag, 0, 0, 0, 0, 0); }

  /// `put` and `signal` in one request.
  WARPWAY_DEVICE u64 putWithSignal(u32 dst_id, u64 dst_offset, u32 src_id, u64 src_offset, u64 size) const {
    return request(trigger_data | trigger_flag, dst_id, dst_offset, src_id, src_offset, size);
  }
  WARPWAY_DEVICE u64 putWithSignal(u32 dst_id, u32 src_id, u64 offset, u64 size) const {
    return putWithSignal(dst_id, offset, src_id, offset, size);
  }

  /// `put`, `signal` and `flush` in one request.
  WARPWAY_NODISCARD WARPWAY_DEVICE Status putWithSignalAndFlush(u32 dst_id, u64 dst_offset, u32 src_id, u64 src_offset,
                                                                u64 size, i64 max_spin = -1) const {
    return complete(request(trigger_data | trigger_flag | trigger_sync, dst_id, dst_offset, src_id, src_offset, size),
                    max_spin);
  }
  WARPWAY_NODISCARD WARPWAY_DEVICE Status putWithSignalAndFlush(u32 dst_id, u32 src_id, u64 offset, u64 size) const {
    return putWithSignalAndFlush(dst_id, offset, src_id, offset, size);
  }

  /// Returns when everything pushed before on the connection is complete, whatever is pushed later.
  WARPWAY_NODISCARD WARPWAY_DEVICE Status flush(i64 max_spin = -1) const {
    return complete(request(trigger_sync, 0, 0, 0, 0, 0), max_spin);
  }

  /// Adds, wrapping, to a 64-bit word of the peer, after all earlier requests of the connection. The offset is a
  /// multiple of 8.
  WARPWAY_DEVICE u64 atomicAdd(u32 dst_id, u64 dst_offset, i64 value) const {
    if (dst_offset % 8 != 0) {
      refuse(fifo.site, Code::Alignment, 8, dst_offset);
      return no_position;
    }
    return fifo.push(Trigger{trigger_atomic_add, semaphore_id, dst_id, 0, dst_offset, 0, 0, value});
  }

  WARPWAY_DEVICE bool poll() const { return semaphore.poll(); }
  WARPWAY_NODISCARD WARPWAY_DEVICE Status wait(i64 max_spin = -1) const { return semaphore.wait(max_spin); }

 private:
  WARPWAY_DEVICE u64 request(u32 kind, u32 dst_id, u64 dst_offset, u32 src_id, u64 src_offset, u64 size) const {
    return fifo.push(Trigger{kind, semaphore_id, dst_id, src_id, dst_offset, src_offset, size, 0});
  }

  WARPWAY_DEVICE Status complete(u64 position, i64 max_spin) const {
    if (position == no_position) return Status::Aborted;
    u64 seen = 0;
    return await_proxy(flush_done, position, fifo.site, Kind::Flush, seen, {max_spin});
  }
};

/// A port channel with its memories.
struct PortChannel {
  BasePortChannel base;
  u32 dst;
  u32 src;
  u64 dst_bytes;
  u64 src_bytes;

  WARPWAY_DEVICE u64 put(u64 dst_offset, u64 src_offset, u64 size) const {
    return in_range(dst_offset, src_offset, size) ? base.put(dst, dst_offset, src, src_offset, size) : no_position;
  }
  WARPWAY_DEVICE u64 put(u64 offset, u64 size) const { return put(offset, offset, size); }

  WARPWAY_DEVICE u64 putWithSignal(u64 dst_offset, u64 src_offset, u64 size) const {
    return in_range(dst_offset, src_offset, size) ? base.putWithSignal(dst, dst_offset, src, src_offset, size)
                                                  : no_position;
  }
  WARPWAY_DEVICE u64 putWithSignal(u64 offset, u64 size) const { return putWithSignal(offset, offset, size); }

  WARPWAY_NODISCARD WARPWAY_DEVICE Status putWithSignalAndFlush(u64 dst_offset, u64 src_offset, u64 size,
                                                                i64 max_spin = -1) const {
    return in_range(dst_offset, src_offset, size)
               ? base.putWithSignalAndFlush(dst, dst_offset, src, src_offset, size, max_spin)
               : Status::Aborted;
  }
  WARPWAY_NODISCARD WARPWAY_DEVICE Status putWithSignalAndFlush(u64 offset, u64 size) const {
    return putWithSignalAndFlush(offset, offset, size);
  }

  WARPWAY_DEVICE u64 signal() const { return base.signal(); }
  WARPWAY_NODISCARD WARPWAY_DEVICE Status flush(i64 max_spin = -1) const { return base.flush(max_spin); }
  WARPWAY_DEVICE u64 atomicAdd(u64 dst_offset, i64 value) const {
    if (dst_bytes >= sizeof value && dst_offset <= dst_bytes - sizeof value) return base.atomicAdd(dst, dst_offset, value);
    refuse(base.fifo.site, Code::FifoRange, sizeof value, dst_offset);
    return no_position;
  }
  WARPWAY_DEVICE bool poll() const { return base.poll(); }
  WARPWAY_NODISCARD WARPWAY_DEVICE Status wait(i64 max_spin = -1) const { return base.wait(max_spin); }

 private:
  /// Cheap beside the push, hence in every build.
  WARPWAY_DEVICE bool in_range(u64 dst_offset, u64 src_offset, u64 size) const {
    const bool fits = dst_offset <= dst_bytes && size <= dst_bytes - dst_offset && src_offset <= src_bytes &&
                      size <= src_bytes - src_offset;
    if (!fits) refuse(base.fifo.site, Code::FifoRange, size, dst_offset > src_offset ? dst_offset : src_offset);
    return fits;
  }
};

}  // namespace warpway

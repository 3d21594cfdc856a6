// Names of MSCCL++'s device library for programs written against them. Include it before any other header of
// Warpway: it also lets programs ignore the status of waits, which return nothing there.
#pragma once

#if defined(WARPWAY_NODISCARD) && !defined(WARPWAY_MSCCLPP_COMPAT)
#error "include warpway/mscclpp_compat.cuh before other headers of warpway, or define WARPWAY_MSCCLPP_COMPAT"
#endif
#if !defined(WARPWAY_MSCCLPP_COMPAT)
#define WARPWAY_MSCCLPP_COMPAT
#endif

#include "warpway/warpway.cuh"

namespace mscclpp {

using Host2DeviceSemaphoreDeviceHandle = warpway::Host2DeviceSemaphore;
using MemoryDevice2DeviceSemaphoreDeviceHandle = warpway::MemoryDevice2DeviceSemaphore;
using SwitchDevice2DeviceSemaphoreDeviceHandle = warpway::SwitchDevice2DeviceSemaphore;
using MemoryChannelDeviceHandle = warpway::MemoryChannel;
using PortChannelDeviceHandle = warpway::PortChannel;
using BasePortChannelDeviceHandle = warpway::BasePortChannel;
using SwitchChannelDeviceHandle = warpway::SwitchChannel;
using FifoDeviceHandle = warpway::Fifo;
using MemoryId = warpway::u32;
using SemaphoreId = warpway::u32;

using warpway::BulkBarrier;
using warpway::DeviceSemaphore;
using warpway::DeviceSyncer;
using warpway::LL16;
using warpway::LL8;
using LL16Packet = warpway::LL16;
using LL8Packet = warpway::LL8;

using warpway::bulkFence;
using warpway::bulkLoad;
using warpway::bulkReduceStore;
using warpway::bulkStore;
using warpway::bulkStoreCommit;
using warpway::bulkStoreWait;
using warpway::bulkStoreWaitSource;
using warpway::copy;
using warpway::copyFromPackets;
using warpway::copyToPackets;
using warpway::read;
using warpway::write;

// Orders and scopes of atomics.
using memory_order = warpway::Order;
using thread_scope = warpway::Scope;
inline constexpr memory_order memoryOrderRelaxed = warpway::Order::Relaxed;
inline constexpr memory_order memoryOrderAcquire = warpway::Order::Acquire;
inline constexpr memory_order memoryOrderRelease = warpway::Order::Release;
inline constexpr memory_order memoryOrderAcqRel = warpway::Order::AcqRel;
inline constexpr memory_order memoryOrderSeqCst = warpway::Order::SeqCst;
inline constexpr thread_scope scopeSystem = warpway::Scope::System;
inline constexpr thread_scope scopeDevice = warpway::Scope::Device;
using warpway::atomicFetchAdd;
using warpway::atomicLoad;
using warpway::atomicStore;

// Vectors.
using warpway::bf16x2, warpway::bf16x4, warpway::bf16x8;
using warpway::f16x16, warpway::f16x2, warpway::f16x4, warpway::f16x8;
using warpway::f32x1, warpway::f32x16, warpway::f32x2, warpway::f32x4, warpway::f32x8;
using warpway::f64x1;
using warpway::i32x1, warpway::i32x2, warpway::i32x4;
using warpway::u32x1, warpway::u32x2, warpway::u32x4;
using warpway::u8x2, warpway::u8x4;
using warpway::e4m3b15x16, warpway::e4m3b15x2, warpway::e4m3b15x4, warpway::e4m3b15x8;
using warpway::e4m3x16, warpway::e4m3x2, warpway::e4m3x4, warpway::e4m3x8;
using warpway::e5m2x16, warpway::e5m2x2, warpway::e5m2x4, warpway::e5m2x8;
using warpway::bit_cast;
using warpway::clip;
using warpway::max;
using warpway::min;
using warpway::to;

}  // namespace mscclpp

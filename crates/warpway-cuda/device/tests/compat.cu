// A program as it is written against MSCCL++: statuses ignored, its names, its default arguments.
#include "warpway/mscclpp_compat.cuh"

__device__ mscclpp::DeviceSyncer device_syncer;

struct Ring {
  mscclpp::MemoryChannelDeviceHandle memory;
  mscclpp::PortChannelDeviceHandle port;
  unsigned long long bytes;
};

/// Any grid that is resident at once.
extern "C" __global__ void ring_step(const Ring p) {
  const unsigned tid = threadIdx.x + blockIdx.x * blockDim.x, threads = blockDim.x * gridDim.x;
  p.memory.put(0, p.bytes, tid, threads);
  p.memory.put<16, false>(0, 0, p.bytes / 16 * 16, tid, threads);
  device_syncer.sync(gridDim.x);
  if (tid == 0) {
    p.memory.signal();
    p.memory.wait();
    p.port.putWithSignal(0, p.bytes);
    p.port.wait();
    p.port.flush();
  }
  p.memory.putPackets<mscclpp::LL8Packet>(0, 0, p.bytes, tid, threads, 1u);
  p.memory.unpackPackets<mscclpp::LL8Packet>(0, 0, p.bytes, tid, threads, 1u);
  mscclpp::LL16Packet* packet = static_cast<mscclpp::LL16Packet*>(p.memory.packet_buffer);
  auto data = packet->read(2u);
  packet->write(data.x, data.y, 3u);
  mscclpp::f16x2 a{{0x3c00, 0x4000}}, b = a + a;
  p.memory.write(tid, mscclpp::clip(b));
  mscclpp::atomicStore(reinterpret_cast<unsigned*>(p.memory.src), 1u, mscclpp::memoryOrderRelaxed);
}

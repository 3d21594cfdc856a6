// Epochs over launches and graph replays.
#include "warpway/epoch.cuh"

using namespace warpway;

struct EpochTrace {
  Epochs epochs;
  u64* seen;     // per block and area: the sum of the epochs read over all launches
  u64* torn;     // blocks that read twice and saw a change; zero before
};

/// Any grid. After n launches from epoch e each block has added e + (e + 1) + ... and the epoch is e + n.
extern "C" __global__ void epoch_trace(const EpochTrace p) {
  for (u64 a = threadIdx.x; a < p.epochs.n_areas; a += blockDim.x) {
    const Epoch first = p.epochs.read(a);
    p.seen[u64{blockIdx.x} * p.epochs.n_areas + a] += first.value;
    pause_ns(blockIdx.x % 7 * 100);
    if (p.epochs.read(a).value != first.value) fetch_add<Scope::Device, Order::Relaxed>(p.torn, u64{1});
  }
  p.epochs.finish();
}

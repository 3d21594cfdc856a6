// The device library. Programs may include single headers instead; each stands alone.
#pragma once

#include "warpway/atomics.cuh"
#include "warpway/bulk.cuh"
#include "warpway/device_semaphore.cuh"
#include "warpway/epoch.cuh"
#include "warpway/fold.cuh"
#include "warpway/grid.cuh"
#include "warpway/layout.cuh"
#include "warpway/lines.cuh"
#include "warpway/memory_channel.cuh"
#include "warpway/port_channel.cuh"
#include "warpway/switch_channel.cuh"
#include "warpway/vectors.cuh"

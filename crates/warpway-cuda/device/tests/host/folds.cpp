// Folds of any type and operator by the integer forms of the conversions. Reads calls from standard input, writes each result
// to standard output; the caller compares it with the host engine's.
//
// A call: u32 data type, operator, ranks, last, number of sources; u64 elements; then per source u32 input and the elements.
#include <cstdio>
#include <vector>

#include "warpway/fold.cuh"

using namespace warpway;

namespace {

struct Call {
  u32 type, op, ranks, last, sources, reserved;
  u64 count;
};

template <class Format>
bool serve(const Call& call) {
  const u64 bytes = call.count * sizeof(typename Format::Bits);
  std::vector<std::vector<u8>> data(call.sources, std::vector<u8>(bytes));
  std::vector<FoldSource> sources;
  for (auto& source : data) {
    u32 input = 0;
    if (std::fread(&input, sizeof input, 1, stdin) != 1) return false;
    if (std::fread(source.data(), 1, bytes, stdin) != bytes) return false;
    sources.push_back(FoldSource{source.data(), input != 0});
  }
  std::vector<u8> out(bytes);
  const FoldSetting setting{call.ranks, call.last != 0};
  for (u32 t = 0; t < 3; ++t) {
    switch (static_cast<ReduceOp>(call.op)) {
      case ReduceOp::Sum: fold<Format, ReduceOp::Sum>(out.data(), sources.data(), call.sources, call.count, setting, t, 3); break;
      case ReduceOp::Prod: fold<Format, ReduceOp::Prod>(out.data(), sources.data(), call.sources, call.count, setting, t, 3); break;
      case ReduceOp::Max: fold<Format, ReduceOp::Max>(out.data(), sources.data(), call.sources, call.count, setting, t, 3); break;
      case ReduceOp::Min: fold<Format, ReduceOp::Min>(out.data(), sources.data(), call.sources, call.count, setting, t, 3); break;
      case ReduceOp::Avg: fold<Format, ReduceOp::Avg>(out.data(), sources.data(), call.sources, call.count, setting, t, 3); break;
    }
  }
  return std::fwrite(out.data(), 1, bytes, stdout) == bytes && std::fflush(stdout) == 0;
}

bool serve_any(const Call& call) {
  switch (static_cast<DataType>(call.type)) {
    case DataType::Int32: return serve<I32>(call);
    case DataType::Uint32: return serve<U32>(call);
    case DataType::Float16: return serve<F16>(call);
    case DataType::Float32: return serve<F32>(call);
    case DataType::Bfloat16: return serve<BF16>(call);
    case DataType::Float8E4m3fn: return serve<E4M3>(call);
    case DataType::Float8E4m3fnuz: return serve<E4M3FNUZ>(call);
    case DataType::Float8E5m2: return serve<E5M2>(call);
    case DataType::Float8E5m2fnuz: return serve<E5M2FNUZ>(call);
    case DataType::Uint8: return serve<U8>(call);
    case DataType::Float8E4m3b15: return serve<E4M3B15>(call);
    case DataType::Int8: return serve<I8>(call);
    case DataType::Int64: return serve<I64>(call);
    case DataType::Uint64: return serve<U64>(call);
    case DataType::Float64: return serve<F64>(call);
  }
  return false;
}

}  // namespace

int main() {
  Call call;
  while (std::fread(&call, sizeof call, 1, stdin) == 1) {
    if (!serve_any(call)) return 1;
  }
}

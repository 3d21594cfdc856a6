// The kernels of `switch.cu` on emulated multicast groups, one thread of the host per thread of a block. Reads calls from standard
// input, writes what every member's memory holds afterwards to standard output; the caller knows what is right.
//
// A call: u32 what (0 fold, 1 add at once, 2 add in turn, 3 store), members, threads per member, member where folds begin; u64
// vectors per member, length of a name; the name. Then for folds each member's memory (members * vectors vectors), for
// additions each member's memory (vectors) and what each adds (vectors), for stores what each stores (vectors).
// The answer: u32 bytes of a vector (0: no such name), u32 0; for folds what each member has read (vectors); each member's memory.
#include "multicast.h"

#include <string>

#include "../switch.cu"

using namespace warpway;

namespace {

enum What : u32 { fold_parts, add_at_once, add_in_turn, store_parts };

struct Call {
  u32 what, members, threads, first;
  u64 vectors, name_length;
};

void take(void* to, u64 bytes) {
  if (bytes != 0 && std::fread(to, 1, bytes, stdin) != bytes) std::exit(2);
}
void give(const void* from, u64 bytes) {
  if (bytes != 0 && std::fwrite(from, 1, bytes, stdout) != bytes) std::exit(2);
}

template <class V>
void start_answer() {
  const u32 head[2] = {V::bytes, 0};
  give(head, sizeof head);
}

template <class V, class AccumT = void, ReduceOp Op = ReduceOp::Sum>
void serve_fold(const Call& call) {
  const u64 part = call.vectors * V::bytes, all = part * call.members;
  Ranks ranks(call.members, all, call.first);
  std::vector<Guarded> read_by;
  for (u32 m = 0; m < call.members; ++m) {
    take(ranks.data.member(m), all);
    read_by.emplace_back(part);
  }
  launch(call.members, call.threads, [&](u32 m) {
    reduce_and_broadcast<V, AccumT, Op>(SwitchCall{ranks.channel(m, m * part, part), read_by[m].data(), call.vectors});
  });
  CHECK(ranks.unharmed());
  start_answer<V>();
  for (const Guarded& out : read_by) out.check(), give(out.data(), part);
  for (u32 m = 0; m < call.members; ++m) give(ranks.data.member(m), all);
}

template <class V>
void serve_add(const Call& call) {
  const u64 bytes = call.vectors * V::bytes;
  Ranks ranks(call.members, bytes);
  std::vector<Guarded> addends;
  for (u32 m = 0; m < call.members; ++m) take(ranks.data.member(m), bytes);
  for (u32 m = 0; m < call.members; ++m) addends.emplace_back(bytes), take(addends[m].data(), bytes);
  const auto add = [&](u32 m) { add_to_all<V>(SwitchCall{ranks.channel(m, 0, bytes), addends[m].data(), call.vectors}); };
  if (call.what == add_at_once) launch(call.members, call.threads, add);
  else {
    for (u32 m = 0; m < call.members; ++m) launch(1, call.threads, [&](u32) { add(m); });
  }
  start_answer<V>();
  for (u32 m = 0; m < call.members; ++m) give(ranks.data.member(m), bytes);
}

template <class V>
void serve_store(const Call& call) {
  const u64 part = call.vectors * V::bytes, all = part * call.members;
  Ranks ranks(call.members, all);
  std::vector<Guarded> stored;
  for (u32 m = 0; m < call.members; ++m) stored.emplace_back(part), take(stored[m].data(), part);
  launch(call.members, call.threads, [&](u32 m) {
    store_to_all<V>(SwitchCall{ranks.channel(m, m * part, part), stored[m].data(), call.vectors});
  });
  start_answer<V>();
  for (u32 m = 0; m < call.members; ++m) give(ranks.data.member(m), all);
}

/// 8-bit floats, which sm_100a folds.
#define FOLDS_OF_BYTES(FOLD, more, type, Format, n)               \
  FOLD(more, type##x##n, type##x##n)                              \
  FOLD(more, type##x##n##_in_half, type##x##n, F16)               \
  FOLD(more, type##x##n##_in_type, type##x##n, Format)            \
  FOLD(more, type##x##n##_min, type##x##n, void, ReduceOp::Min)   \
  FOLD(more, type##x##n##_max, type##x##n, void, ReduceOp::Max)

bool serve(const Call& call, const std::string& wanted) {
#define FOLD(called, name, ...) \
  if (called.what == fold_parts && wanted == #name) return serve_fold<__VA_ARGS__>(called), true;
  SWITCH_FOLDS(FOLD, call)
  FOLDS_OF_BYTES(FOLD, call, e4m3, E4M3, 4)
  FOLDS_OF_BYTES(FOLD, call, e4m3, E4M3, 8)
  FOLDS_OF_BYTES(FOLD, call, e4m3, E4M3, 16)
  FOLDS_OF_BYTES(FOLD, call, e5m2, E5M2, 4)
  FOLDS_OF_BYTES(FOLD, call, e5m2, E5M2, 8)
  FOLDS_OF_BYTES(FOLD, call, e5m2, E5M2, 16)
#define ADD(called, V) \
  if ((called.what == add_at_once || called.what == add_in_turn) && wanted == #V) return serve_add<V>(called), true;
  SWITCH_ADDS(ADD, call)
#define STORE(called, V) \
  if (called.what == store_parts && wanted == #V) return serve_store<V>(called), true;
  SWITCH_STORES(STORE, call)
  return false;
}

}  // namespace

int main() {
  Call call;
  while (std::fread(&call, sizeof call, 1, stdin) == 1) {
    std::string name(call.name_length, ' ');
    take(name.data(), name.size());
    if (!serve(call, name)) return 1;
    if (std::fflush(stdout) != 0) return 2;
  }
}

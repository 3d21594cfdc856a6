/* Gloo's collectives, measured and checked; see collectives.h and benchmarks/README.md.
 *
 *   g++ -std=c++17 -O3 -march=native -mprefer-vector-width=512 -o gloo_collectives gloo_collectives.cc -lgloo
 *   ./gloo_collectives 2 all_reduce float32 in 8,1024,1048576
 *
 * The first argument is the number of ranks: processes, which this one starts and which meet in files of a temporary
 * folder. Transport `tcp` over loopback, the only one that Debian's library has for one host. Where Gloo has several
 * algorithms (all_reduce), each is tried when a task is opened and the fastest one counts; options of calls are made once per
 * task and not in the timed region. */
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives.h"

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
/* One call of the open task, ready to be made again and again. */
std::function<void()> run;
/* Rank 0 passes the lines of its standard input on. */
std::vector<int> to_ranks;
FILE *commands;
uint32_t tags;

using Fold = void(void *, const void *, const void *, size_t);

template <typename T, typename Choose>
void fold_each(void *out, const void *a, const void *b, size_t count, Choose choose) {
    for (size_t i = 0; i < count; i++)
        static_cast<T *>(out)[i] = choose(static_cast<const T *>(a)[i], static_cast<const T *>(b)[i]);
}

template <op Op>
void fold_floats(void *out, const void *a, const void *b, size_t count) {
    fold_each<float>(out, a, b, count, [](float x, float y) {
        return Op == SUM ? x + y : Op == MIN ? (x < y ? x : y) : (x > y ? x : y);
    });
}

template <op Op>
void fold_halves(void *out, const void *a, const void *b, size_t count) {
    fold_bfloat16(Op, static_cast<uint16_t *>(out), static_cast<const uint16_t *>(a),
                  static_cast<const uint16_t *>(b), count);
}

Fold *fold_of(const task *t) {
    static Fold *const folds[TYPES][OPS] = {{fold_floats<SUM>, fold_floats<MIN>, fold_floats<MAX>},
                                            {fold_halves<SUM>, fold_halves<MIN>, fold_halves<MAX>}};
    return folds[t->type][t->op];
}

template <typename T, op Op>
void fold_into(T *x, const T *y, size_t count) {
    if constexpr (sizeof(T) == 4)
        fold_floats<Op>(x, x, y, count);
    else
        fold_halves<Op>(x, x, y, count);
}

template <typename T>
const gloo::ReductionFunction<T> *reduction_of(const task *t) {
    static const gloo::ReductionFunction<T> functions[OPS] = {{gloo::CUSTOM, fold_into<T, SUM>},
                                                              {gloo::CUSTOM, fold_into<T, MIN>},
                                                              {gloo::CUSTOM, fold_into<T, MAX>}};
    return &functions[t->op];
}

/* --- calls, with T an element of the type's size ---------------------------------------------------------------- */

template <typename T>
T *input(const task *t) { return reinterpret_cast<T *>(t->in); }
template <typename T>
T *output(const task *t) { return reinterpret_cast<T *>(t->out); }

/* What repeats a call whose options `set` fills in; the options live as long as the call. */
template <typename Options, typename Set>
std::function<void()> repeat(void (*call)(Options &), Set set) {
    auto options = std::make_shared<Options>(context);
    set(*options);
    options->setTag(tags++);
    return [options, call] { call(*options); };
}

template <typename T>
std::function<void()> all_reduce_by(const task *t, gloo::AllreduceOptions::Algorithm algorithm) {
    auto options = std::make_shared<gloo::AllreduceOptions>(context);
    if (!t->in_place) options->setInput(input<T>(t), t->in_count);
    options->setOutput(output<T>(t), t->out_count);
    options->setReduceFunction(fold_of(t));
    options->setAlgorithm(algorithm);
    options->setTag(tags++);
    return [options] { gloo::allreduce(*options); };
}

template <typename T, template <typename> class Algorithm>
std::function<void()> all_reduce_by_class(const task *t) {
    std::vector<T *> pointers{output<T>(t)};
    auto algorithm = std::make_shared<Algorithm<T>>(context, pointers, static_cast<int>(t->out_count),
                                                    reduction_of<T>(t));
    return [algorithm] { algorithm->run(); };
}

/* The fastest of Gloo's all-reduces, by the median of a few calls. */
template <typename T>
std::function<void()> fastest_all_reduce(task *t) {
    using Algorithm = gloo::AllreduceOptions::Algorithm;
    struct Candidate {
        const char *name;
        std::function<void()> run;
    };
    std::vector<Candidate> candidates{{"ring", all_reduce_by<T>(t, Algorithm::RING)},
                                      {"bcube", all_reduce_by<T>(t, Algorithm::BCUBE)}};
    /* The older classes work in place only. Theirs to say how many ranks fit. */
    if (t->in_place) {
        candidates.push_back({"ring class", all_reduce_by_class<T, gloo::AllreduceRing>(t)});
        candidates.push_back({"ring chunked class", all_reduce_by_class<T, gloo::AllreduceRingChunked>(t)});
        candidates.push_back({"halving doubling class", all_reduce_by_class<T, gloo::AllreduceHalvingDoubling>(t)});
        if (peer.ranks % 2 == 0)
            candidates.push_back({"bcube class", all_reduce_by_class<T, gloo::AllreduceBcube>(t)});
    }
    double best = 0;
    const Candidate *chosen = nullptr;
    long calls = t->bytes <= 1 << 16 ? 50 : t->bytes <= 1 << 22 ? 5 : 1;
    for (const auto &candidate : candidates) {
        run = candidate.run;
        double seconds = batch(t, 1, calls);
        if (!chosen || seconds < best) best = seconds, chosen = &candidate;
    }
    t->algorithm = chosen->name;
    return chosen->run;
}

template <typename T>
std::function<void()> make_call(task *t) {
    const size_t part = t->counts ? static_cast<size_t>(t->counts[0]) : 0;
    const auto own = t->counts ? static_cast<size_t>(t->counts[peer.rank]) : 0;
    const bool root = peer.rank == t->root;
    switch (t->function) {
    case ALL_REDUCE: return fastest_all_reduce<T>(t);
    case ALL_GATHER:
        return repeat<gloo::AllgatherOptions>(gloo::allgather, [&](auto &options) {
            if (!t->in_place) options.setInput(input<T>(t), t->in_count);
            options.setOutput(output<T>(t), t->out_count);
        });
    case ALL_GATHER_V:
        return repeat<gloo::AllgathervOptions>(gloo::allgatherv, [&](auto &options) {
            if (!t->in_place) options.setInput(input<T>(t), own);
            options.setOutput(output<T>(t), std::vector<size_t>(t->counts, t->counts + peer.ranks));
        });
    case REDUCE_SCATTER: {
        std::vector<T *> pointers{input<T>(t)};
        auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<T>>(
            context, pointers, static_cast<int>(t->in_count),
            std::vector<int>(static_cast<size_t>(peer.ranks), static_cast<int>(part)), reduction_of<T>(t));
        return [algorithm] { algorithm->run(); };
    }
    case BROADCAST:
        return repeat<gloo::BroadcastOptions>(gloo::broadcast, [&](auto &options) {
            if (!t->in_place && root) options.setInput(input<T>(t), t->in_count);
            options.setOutput(output<T>(t), t->out_count);
            options.setRoot(t->root);
        });
    case REDUCE:
        return repeat<gloo::ReduceOptions>(gloo::reduce, [&](auto &options) {
            /* Every rank gives an output, which is also its scratch. */
            if (!t->in_place) options.setInput(input<T>(t), t->in_count);
            options.setOutput(output<T>(t), t->in_count);
            options.setReduceFunction(fold_of(t));
            options.setRoot(t->root);
        });
    case GATHER:
        return repeat<gloo::GatherOptions>(gloo::gather, [&](auto &options) {
            options.setInput(input<T>(t), t->in_count);
            if (root) options.setOutput(output<T>(t), t->out_count);
            options.setRoot(t->root);
        });
    case SCATTER:
        return repeat<gloo::ScatterOptions>(gloo::scatter, [&](auto &options) {
            std::vector<T *> parts;
            for (int r = 0; root && r < peer.ranks; r++) parts.push_back(input<T>(t) + t->offsets[r]);
            if (root) options.setInputs(parts, part);
            options.setOutput(output<T>(t), t->out_count);
            options.setRoot(t->root);
        });
    case ALL_TO_ALL:
        return repeat<gloo::AlltoallOptions>(gloo::alltoall, [&](auto &options) {
            options.setInput(input<T>(t), t->in_count);
            options.setOutput(output<T>(t), t->out_count);
        });
    case ALL_TO_ALL_V:
        return repeat<gloo::AlltoallvOptions>(gloo::alltoallv, [&](auto &options) {
            std::vector<int64_t> counts(t->counts, t->counts + peer.ranks);
            options.setInput(input<T>(t), counts);
            options.setOutput(output<T>(t), counts);
        });
    case SEND_RECV: {
        /* Buffers that are not bound to a peer: what Gloo has for messages between two ranks. */
        std::shared_ptr<gloo::transport::UnboundBuffer> out =
            context->createUnboundBuffer(t->in, t->in_count * t->element);
        std::shared_ptr<gloo::transport::UnboundBuffer> in =
            context->createUnboundBuffer(t->out, t->out_count * t->element);
        uint64_t slot = tags++;
        return [=] {
            out->send((peer.rank + 1) % peer.ranks, slot);
            in->recv((peer.rank + peer.ranks - 1) % peer.ranks, slot);
            out->waitSend();
            in->waitRecv();
        };
    }
    default: return repeat<gloo::BarrierOptions>(gloo::barrier, [](auto &) {});
    }
}

/* --- what collectives.h wants ----------------------------------------------------------------------------------- */

const char *place(task *t) {
    switch (t->function) {
    case REDUCE_SCATTER_V: return "Gloo has no call for it";
    case REDUCE_SCATTER: t->in_place = 1; return nullptr; /* it destroys its input */
    case GATHER: case SCATTER: case ALL_TO_ALL: case ALL_TO_ALL_V: case SEND_RECV:
        t->in_place = 0;
        return nullptr;
    default: return nullptr;
    }
}

void open_task(task *t) { run = t->type == FLOAT32 ? make_call<float>(t) : make_call<uint16_t>(t); }
void call_task(task *) { run(); }
void close_task(task *) { run = nullptr; }

void barrier() {
    gloo::BarrierOptions options(context);
    options.setTag(0x7fffffff);
    gloo::barrier(options);
}

double greatest(double value) {
    gloo::AllreduceOptions options(context);
    options.setOutput(&value, 1);
    options.setReduceFunction([](void *out, const void *a, const void *b, size_t count) {
        fold_each<double>(out, a, b, count, [](double x, double y) { return x > y ? x : y; });
    });
    options.setTag(0x7ffffffe);
    gloo::allreduce(options);
    return value;
}

int next_line(char *line, size_t size) {
    if (!fgets(line, static_cast<int>(size), commands)) {
        /* Theirs ends as well. */
        for (int rank : to_ranks) close(rank);
        to_ranks.clear();
        return 0;
    }
    for (int rank : to_ranks)
        if (write(rank, line, strlen(line)) < 0) die("a rank has gone");
    return 1;
}

void join(const std::string &folder) {
    gloo::rendezvous::FileStore store(folder);
    gloo::transport::tcp::attr attributes;
    attributes.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    context = std::make_shared<gloo::rendezvous::Context>(peer.rank, peer.ranks);
    context->connectFullMesh(store, device);
}

} // namespace

int main(int argc, char **argv) {
    snprintf(peer.program, sizeof peer.program, "Gloo %d.%d.%d", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR,
             GLOO_VERSION_PATCH);
    peer.ranks = argc > 1 ? atoi(argv[1]) : 0;
    if (peer.ranks < 1 || peer.ranks > 64) die("the first argument is the number of ranks, 1 to 64");
    peer.barrier = barrier, peer.greatest = greatest, peer.next_line = next_line;
    peer.place = place, peer.open = open_task, peer.call = call_task, peer.close = close_task;

    char folder[] = "/tmp/gloo_collectives.XXXXXX";
    if (!mkdtemp(folder)) die("cannot make a folder for the ranks to meet in");
    std::vector<pid_t> children;
    commands = stdin;
    for (int rank = 1; rank < peer.ranks; rank++) {
        int ends[2];
        if (pipe(ends)) die("no pipe");
        pid_t child = fork();
        if (child < 0) die("cannot start a rank");
        if (child == 0) {
            /* The ends that rank 0 writes to must close with it. */
            close(ends[1]);
            for (int other : to_ranks) close(other);
            to_ranks.clear(), children.clear();
            commands = fdopen(ends[0], "r");
            peer.rank = rank;
            break;
        }
        close(ends[0]);
        to_ranks.push_back(ends[1]);
        children.push_back(child);
    }
    int code = 0;
    try {
        join(folder);
        drive(argc - 1, argv + 1);
        barrier();
    } catch (const std::exception &error) {
        fprintf(stderr, "%s: rank %d: %s\n", peer.program, peer.rank, error.what());
        code = 1;
    }
    for (int rank : to_ranks) close(rank); /* of a rank 0 that has read no lines, or failed */
    for (pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        if (status) code = 1;
    }
    std::error_code ignored;
    if (peer.rank == 0) std::filesystem::remove_all(folder, ignored);
    /* Gloo's threads are still there; nothing of theirs is needed any more. */
    fflush(stdout);
    _exit(code);
}

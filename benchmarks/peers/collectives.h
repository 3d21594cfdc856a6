/* What the peers of `warpway bench <collective>` have in common: tasks, test data, and the two ways to be driven.
 * C11 and C++17. benchmarks/README.md describes commands and answers.
 *
 *   PROGRAM FUNCTION TYPE PLACE BYTES[,BYTES...] [BATCHES]    a line of JSON per size
 *   PROGRAM serve                                             a command per line on standard input
 *
 * A peer gives its calls in a `struct peer` and hands everything else to `drive`. */
#ifndef WARPWAY_PEER_COLLECTIVES_H
#define WARPWAY_PEER_COLLECTIVES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum function {
    ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, GATHER, SCATTER, ALL_TO_ALL,
    ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V, BARRIER, SEND_RECV, FUNCTIONS
};
static const char *const function_names[FUNCTIONS] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all",
    "all_gather_v", "reduce_scatter_v", "all_to_all_v", "barrier", "send_recv"};
enum type { FLOAT32, BFLOAT16, TYPES };
static const char *const type_names[TYPES] = {"float32", "bfloat16"};
enum op { SUM, MIN, MAX, OPS };
static const char *const op_names[OPS] = {"sum", "min", "max"};

/* One collective of one size. `bytes` are those of the larger buffer, as nccl-tests counts. */
struct task {
    enum function function;
    enum type type;
    enum op op;
    int in_place, root;
    size_t bytes, element; /* element: bytes of one */
    /* Elements. Rank r's part of the larger buffer is `counts[r]` elements from `offsets[r]` on; of an all_to_all_v,
     * what goes to rank r, which is also what comes from it. */
    int *counts, *offsets;
    size_t in_count, out_count;
    unsigned char *in, *out;   /* of this rank; overlap in place */
    unsigned char *memory[2];
    size_t mapped[2];
    const char *algorithm;     /* which of several was taken, or NULL */
};

/* What a program must give. All functions are called by all ranks together. */
struct peer {
    char program[64];
    int rank, ranks;
    void (*barrier)(void);
    double (*greatest)(double); /* over all ranks */
    /* Gets ready for `call`: a reason if there is no such call. May turn an out-of-place task into one in place, or the
     * other way round, before there are buffers; and is called again when there are. */
    const char *(*place)(struct task *);
    void (*open)(struct task *);
    void (*call)(struct task *);
    void (*close)(struct task *);
    /* The next line of rank 0's standard input, on every rank; 0 at its end. Ranks sleep meanwhile. */
    int (*next_line)(char *line, size_t size);
};

static struct peer peer;

static void die(const char *why) {
    fprintf(stderr, "%s: rank %d: %s\n", peer.program, peer.rank, why);
    exit(1);
}

static inline double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- test data ------------------------------------------------------------------------------------------------- */

/* Whole numbers so small that every fold is exact in any order: a right result has one bit pattern. */
static inline uint32_t value(uint64_t round, int rank, uint64_t at, uint32_t mask) {
    uint64_t mixed = (at * 64 + (uint64_t)rank + 1 + (round << 40)) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(mixed >> 33) & mask;
}

static uint32_t mask_of(const struct task *t) {
    uint32_t limit = t->type == FLOAT32 ? 1023 : 255, mask = limit;
    if (t->type == BFLOAT16 && t->op == SUM)
        while (mask > 1 && mask * (uint32_t)peer.ranks > 256) mask >>= 1;
    return mask;
}

static inline uint32_t bits_of(enum type type, uint32_t number) {
    float real = (float)number;
    uint32_t bits;
    memcpy(&bits, &real, sizeof bits);
    return type == FLOAT32 ? bits : bits >> 16; /* small numbers have no lower half */
}

static void store(const struct task *t, unsigned char *memory, size_t at, uint32_t number) {
    uint32_t bits = bits_of(t->type, number);
    memcpy(memory + at * t->element, &bits, t->element);
}

static void fill(struct task *t, uint64_t round) {
    uint32_t mask = mask_of(t);
    for (int i = 0; i < 2; i++)
        if (t->memory[i]) memset(t->memory[i], 0xa5, t->mapped[i]);
    for (size_t at = 0; at < t->in_count; at++) store(t, t->in, at, value(round, peer.rank, at, mask));
}

/* How many of `count` results from `first` on are not the numbers of `rank` from `from` on; rank -1: the fold. */
static size_t differing(const struct task *t, uint64_t round, int rank, size_t first, size_t from, size_t count) {
    uint32_t mask = mask_of(t);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t number = value(round, rank < 0 ? 0 : rank, from + i, mask), found = 0;
        for (int other = 1; rank < 0 && other < peer.ranks; other++) {
            uint32_t next = value(round, other, from + i, mask);
            number = t->op == SUM ? number + next : (t->op == MIN) == (next < number) ? next : number;
        }
        memcpy(&found, t->out + (first + i) * t->element, t->element);
        wrong += found != bits_of(t->type, number);
    }
    return wrong;
}

static size_t wrong_elements(const struct task *t, uint64_t round) {
    int me = peer.rank, n = peer.ranks;
    size_t wrong = 0;
    switch (t->function) {
    case ALL_REDUCE: return differing(t, round, -1, 0, 0, t->out_count);
    case REDUCE: return me == t->root ? differing(t, round, -1, 0, 0, t->out_count) : 0;
    case REDUCE_SCATTER: case REDUCE_SCATTER_V:
        return differing(t, round, -1, 0, (size_t)t->offsets[me], t->out_count);
    case BROADCAST: return differing(t, round, t->root, 0, 0, t->out_count);
    case SCATTER: return differing(t, round, t->root, 0, (size_t)t->offsets[me], t->out_count);
    case SEND_RECV: return differing(t, round, (me + n - 1) % n, 0, 0, t->out_count);
    case ALL_GATHER: case ALL_GATHER_V: case GATHER:
        if (t->function == GATHER && me != t->root) return 0;
        for (int r = 0; r < n; r++)
            wrong += differing(t, round, r, (size_t)t->offsets[r], 0, (size_t)t->counts[r]);
        return wrong;
    case ALL_TO_ALL: case ALL_TO_ALL_V:
        for (int r = 0; r < n; r++) {
            /* Rank r's parts before the one for this rank. Its part for q is as long as q's for it. */
            size_t before = 0, total = (size_t)n * (size_t)(n + 1) / 2, all = t->bytes / t->element;
            for (int q = 0; q < me; q++) {
                size_t weight = (size_t)((q + r) % n);
                before += t->function == ALL_TO_ALL ? (size_t)t->counts[0]
                          : weight + 1 == (size_t)n ? all - all / total * (total - (size_t)n)
                                                    : all / total * (weight + 1);
            }
            wrong += differing(t, round, r, (size_t)t->offsets[r], before, (size_t)t->counts[r]);
        }
        return wrong;
    default: return 0;
    }
}

/* --- tasks ----------------------------------------------------------------------------------------------------- */

static int index_of(const char *const *names, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

static int is_sized(enum function f) { return f == ALL_GATHER_V || f == REDUCE_SCATTER_V || f == ALL_TO_ALL_V; }

/* Reads FUNCTION TYPE OP PLACE BYTES ROOT; a reason if it means nothing. */
static const char *read_task(struct task *t, const char *words) {
    char function[32], type[32], op[32], place[32];
    memset(t, 0, sizeof *t);
    if (sscanf(words, "%31s %31s %31s %31s %zu %d", function, type, op, place, &t->bytes, &t->root) != 6)
        return "expected FUNCTION TYPE OP PLACE BYTES ROOT";
    int f = index_of(function_names, FUNCTIONS, function), y = index_of(type_names, TYPES, type);
    int o = index_of(op_names, OPS, op);
    if (f < 0) return "no such function";
    if (y < 0) return "float32 and bfloat16 only";
    if (o < 0) return "sum, min and max only";
    if (t->root < 0 || t->root >= peer.ranks) return "no such root";
    t->function = (enum function)f, t->type = (enum type)y, t->op = (enum op)o;
    t->in_place = !strcmp(place, "in");
    t->element = t->type == FLOAT32 ? 4 : 2;
    return peer.place(t);
}

/* Memory whose pages have been touched. */
static unsigned char *map_pages(size_t bytes, size_t *mapped) {
    *mapped = bytes + 64;
    void *memory = mmap(NULL, *mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("out of memory");
    madvise(memory, *mapped, MADV_HUGEPAGE);
    memset(memory, 0xa5, *mapped);
    return (unsigned char *)memory;
}

/* Parts, counts and buffers; a reason if the size does not fit. */
static const char *make_task(struct task *t) {
    int n = peer.ranks, me = peer.rank;
    size_t all = t->bytes / t->element, weights = (size_t)n * (size_t)(n + 1) / 2;
    if (t->function == BARRIER) return NULL;
    if (!all || all > INT32_MAX) return "no elements, or more than 31 bits count";
    int whole = t->function == ALL_REDUCE || t->function == BROADCAST || t->function == REDUCE ||
                t->function == SEND_RECV;
    if (!whole && !is_sized(t->function) && all % (size_t)n) return "every rank needs as many elements";
    t->counts = (int *)calloc((size_t)n, sizeof *t->counts);
    t->offsets = (int *)calloc((size_t)n, sizeof *t->offsets);
    if (!t->counts || !t->offsets) die("out of memory");
    for (int r = 0, at = 0; r < n; r++) {
        /* Weights 1 to n; the largest part takes what is left over. */
        size_t weight = (size_t)(t->function == ALL_TO_ALL_V ? (r + me) % n : r) + 1;
        size_t part = weight == (size_t)n ? all - all / weights * (weights - (size_t)n) : all / weights * weight;
        t->counts[r] = (int)(is_sized(t->function) ? part : all / (size_t)n);
        t->offsets[r] = at;
        at += t->counts[r];
    }
    size_t own = (size_t)t->counts[me], own_at = 0, result_at = 0;
    /* A reduce may fold into the output of any rank on its way. */
    t->in_count = t->out_count = all;
    int root = me == t->root;
    switch (t->function) {
    case ALL_GATHER: case ALL_GATHER_V: t->in_count = own, own_at = (size_t)t->offsets[me]; break;
    case REDUCE_SCATTER: case REDUCE_SCATTER_V: t->out_count = own; break;
    case GATHER:
        t->in_count = own, t->out_count = root ? all : 0;
        own_at = root ? (size_t)t->offsets[me] : 0;
        break;
    case SCATTER:
        t->in_count = root ? all : 0, t->out_count = own;
        result_at = root ? (size_t)t->offsets[me] : 0;
        break;
    case BROADCAST: t->in_count = root ? all : 0; break;
    default: break;
    }
    if (t->in_place) {
        t->memory[0] = map_pages((t->in_count > t->out_count ? t->in_count : t->out_count) * t->element, &t->mapped[0]);
        t->in = t->memory[0] + own_at * t->element;
        t->out = t->memory[0] + result_at * t->element;
    } else {
        t->in = t->memory[0] = map_pages(t->in_count * t->element, &t->mapped[0]);
        t->out = t->memory[1] = map_pages(t->out_count * t->element, &t->mapped[1]);
    }
    return NULL;
}

static void free_task(struct task *t) {
    for (int i = 0; i < 2; i++)
        if (t->memory[i]) munmap(t->memory[i], t->mapped[i]);
    free(t->counts);
    free(t->offsets);
    memset(t, 0, sizeof *t);
}

/* --- measuring ------------------------------------------------------------------------------------------------- */

/* One checked call with new data; the wrong elements of the rank that has most. */
static double checked_call(struct task *t, uint64_t round) {
    if (t->function != BARRIER) fill(t, round);
    peer.barrier();
    peer.call(t);
    double most = peer.greatest(t->function == BARRIER ? 0 : (double)wrong_elements(t, round));
    peer.barrier();
    return most;
}

/* Seconds of one call, the mean of `calls` by the slowest rank. */
static double batch(struct task *t, long warm, long calls) {
    for (long i = 0; i < warm; i++) peer.call(t);
    peer.barrier();
    double start = seconds_now();
    for (long i = 0; i < calls; i++) peer.call(t);
    return peer.greatest(seconds_now() - start) / (double)calls;
}

static void describe(const struct task *t) {
    printf("{\"program\":\"%s\",\"benchmark\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"type\":\"%s\",\"op\":\"%s\","
           "\"place\":\"%s\",\"root\":%d",
           peer.program, function_names[t->function], peer.ranks, t->bytes, type_names[t->type], op_names[t->op],
           t->in_place ? "in" : "out", t->root);
    if (t->algorithm) printf(",\"algorithm\":\"%s\"", t->algorithm);
}

/* `open TASK`, `batch WARM CALLS`, `close`: an answer of one line each. */
static void serve(void) {
    struct task task;
    char line[256];
    int is_open = 0, first = peer.rank == 0;
    uint64_t round = 0;
    memset(&task, 0, sizeof task);
    while (peer.next_line(line, sizeof line)) {
        long warm, calls;
        if (!strncmp(line, "open ", 5) && !is_open) {
            const char *why = read_task(&task, line + 5);
            if (!why) why = make_task(&task);
            if (why) {
                free_task(&task);
                if (first) printf("{\"unsupported\":\"%s\"}\n", why);
            } else {
                peer.open(&task);
                double wrong = checked_call(&task, ++round), seconds = batch(&task, 1, 1);
                if (first) describe(&task), printf(",\"wrong\":%.0f,\"us\":%.9g}\n", wrong, seconds * 1e6);
                is_open = 1;
            }
        } else if (sscanf(line, "batch %ld %ld", &warm, &calls) == 2 && is_open && calls > 0) {
            double seconds = batch(&task, warm, calls);
            if (first) printf("{\"us\":%.9g}\n", seconds * 1e6);
        } else if (!strncmp(line, "close", 5) && is_open) {
            double wrong = checked_call(&task, ++round);
            peer.close(&task);
            free_task(&task);
            is_open = 0;
            if (first) printf("{\"wrong\":%.0f}\n", wrong);
        } else {
            die("not a command, or not now");
        }
        fflush(stdout);
    }
}

static void measure(const char *words, long batches) {
    struct task task;
    const char *why = read_task(&task, words);
    if (!why) why = make_task(&task);
    if (why) die(why);
    peer.open(&task);
    double wrong = checked_call(&task, 1), seconds = batch(&task, 1, 1);
    double samples[1000];
    /* Batches of 2 ms, so that the clock does not count. */
    for (int i = 0; i < 4 && seconds < 1e-3; i++) seconds = batch(&task, 1, (long)(2e-3 / 16 / (seconds + 1e-9)) + 1);
    long calls = (long)(2e-3 / (seconds + 1e-9)) + 1;
    for (long i = 0; i < batches; i++) samples[i] = batch(&task, 2, calls) * 1e6;
    wrong += checked_call(&task, 2);
    if (peer.rank == 0) {
        describe(&task);
        printf(",\"wrong\":%.0f,\"unit\":\"us\",\"samples\":[", wrong);
        for (long i = 0; i < batches; i++) printf("%s%.6g", i ? "," : "", samples[i]);
        printf("]}\n");
        fflush(stdout);
    }
    peer.close(&task);
    free_task(&task);
    if (wrong != 0) die("wrong data");
}

/* Everything after the ranks have found each other. */
static void drive(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "serve")) {
        serve();
        return;
    }
    if (argc < 5 || argc > 6) die("usage: serve, or FUNCTION TYPE PLACE BYTES[,BYTES...] [BATCHES]");
    long batches = argc > 5 ? strtol(argv[5], NULL, 10) : 21;
    if (batches < 1 || batches > 1000) die("1 to 1000 batches");
    for (const char *size = argv[4]; size; size = strchr(size, ',') ? strchr(size, ',') + 1 : NULL) {
        char words[256];
        snprintf(words, sizeof words, "%s %s sum %s %llu 0", argv[1], argv[2], argv[3], strtoull(size, NULL, 10));
        measure(words, batches);
    }
}

/* --- bfloat16 -------------------------------------------------------------------------------------------------- */

static inline float widen(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* Rounded to nearest even; no regard for NaN, which costs the peer less than it costs Warpway. */
static inline uint16_t narrow(float wide) {
    uint32_t bits;
    memcpy(&bits, &wide, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* out = a op b; loops that compilers vectorise. */
static void fold_bfloat16(enum op op, uint16_t *out, const uint16_t *a, const uint16_t *b, size_t count) {
#define EACH(expression)                            \
    for (size_t i = 0; i < count; i++) {            \
        float x = widen(a[i]), y = widen(b[i]);     \
        out[i] = narrow(expression);                \
    }
    if (op == SUM) EACH(x + y)
    else if (op == MIN) EACH(x < y ? x : y)
    else EACH(x > y ? x : y)
#undef EACH
}

#endif

/* What Open MPI needs for the operations that Warpway is compared on. One benchmark per run; rank 0 prints
 * one line of JSON in the form described in benchmarks/README.md. Every benchmark checks its data.
 *
 *   mpicc -O2 -o mpi_pingpong mpi_pingpong.c
 *   mpirun -n 2 ./mpi_pingpong ping_pong  [bytes] [batches] [iterations]
 *   mpirun -n N ./mpi_pingpong barrier    0       [batches] [iterations]
 *   mpirun -n N ./mpi_pingpong all_reduce [bytes] [batches] [iterations]
 *   mpirun -n N ./mpi_pingpong all_gather [bytes per rank] [batches] [iterations]
 *   mpirun -n N ./mpi_pingpong memcpy     [bytes per rank] [batches] [iterations]
 *
 * A sample is the mean of one batch of iterations. Latencies are in microseconds (ping_pong: one way, half a
 * round trip); memcpy is the sum of all ranks' rates in GB/s, each copying between private buffers at the
 * same time. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void die(const char *why) {
    fprintf(stderr, "mpi_pingpong: rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void *allocate(size_t bytes) {
    /* Pages are touched here, not in the timed region. */
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) die("out of memory");
    memset(memory, 0xa5, bytes);
    return memory;
}

/* Differs from byte to byte, rank to rank and round to round. */
static void fill(unsigned char *memory, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++) memory[i] = (unsigned char)((i * 131 + seed * 17 + (i >> 8)) ^ seed);
}

static void check(const unsigned char *memory, size_t bytes, uint64_t seed, const char *why) {
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != (unsigned char)((i * 131 + seed * 17 + (i >> 8)) ^ seed)) die(why);
}

struct buffers {
    unsigned char *in, *out;
    size_t bytes;
};

/* One batch; returns its length in seconds. */
typedef double (*batch_function)(struct buffers *, long iterations, uint64_t seed);

static double ping_pong(struct buffers *b, long iterations, uint64_t seed) {
    int count = (int)b->bytes;
    fill(b->out, b->bytes, seed + (uint64_t)rank);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < iterations; i++) {
        if (rank == 0) {
            MPI_Send(b->out, count, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(b->in, count, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(b->in, count, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(b->out, count, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
    }
    double seconds = MPI_Wtime() - start;
    if (rank < 2) check(b->in, b->bytes, seed + (uint64_t)(1 - rank), "wrong data in ping_pong");
    return seconds / 2;
}

static double barrier(struct buffers *b, long iterations, uint64_t seed) {
    (void)b, (void)seed;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < iterations; i++) MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

static double all_reduce(struct buffers *b, long iterations, uint64_t seed) {
    int count = (int)(b->bytes / 8);
    double *in = (double *)b->in, *out = (double *)b->out;
    for (int i = 0; i < count; i++) out[i] = (double)((seed + (uint64_t)i) % 1024 + (uint64_t)rank);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < iterations; i++)
        MPI_Allreduce(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - start;
    for (int i = 0; i < count; i++) {
        /* Small integers: exact in any order. */
        double sum = (double)((seed + (uint64_t)i) % 1024) * ranks + (double)ranks * (ranks - 1) / 2;
        if (in[i] != sum) die("wrong sum in all_reduce");
    }
    return seconds;
}

static double all_gather(struct buffers *b, long iterations, uint64_t seed) {
    int count = (int)b->bytes;
    fill(b->out, b->bytes, seed + (uint64_t)rank);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < iterations; i++)
        MPI_Allgather(b->out, count, MPI_BYTE, b->in, count, MPI_BYTE, MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - start;
    for (int r = 0; r < ranks; r++)
        check(b->in + (size_t)r * b->bytes, b->bytes, seed + (uint64_t)r, "wrong data in all_gather");
    return seconds;
}

static double copy(struct buffers *b, long iterations, uint64_t seed) {
    fill(b->out, b->bytes, seed);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < iterations; i++) {
        memcpy(b->in, b->out, b->bytes);
        /* The compiler must take every copy for used. */
        __asm__ volatile("" ::"r"(b->in), "r"(b->out) : "memory");
    }
    double seconds = MPI_Wtime() - start, slowest;
    check(b->in, b->bytes, seed, "wrong data in memcpy");
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static const struct {
    const char *name;
    batch_function run;
    long bytes, batches, iterations;
} benchmarks[] = {
    {"ping_pong", ping_pong, 8, 200, 1000}, {"barrier", barrier, 0, 200, 200},
    {"all_reduce", all_reduce, 8, 200, 200}, {"all_gather", all_gather, 8, 200, 200},
    {"memcpy", copy, 256L << 20, 7, 2},
};

static long argument(int argc, char **argv, int index, long otherwise) {
    if (index >= argc) return otherwise;
    char *end;
    long value = strtol(argv[index], &end, 10);
    if (*end || end == argv[index] || value < 0) die("arguments must be whole numbers");
    return value;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 2) die("usage: mpi_pingpong ping_pong|barrier|all_reduce|all_gather|memcpy [bytes] [batches] [iterations]");
    size_t chosen = 0, count = sizeof benchmarks / sizeof *benchmarks;
    while (chosen < count && strcmp(benchmarks[chosen].name, argv[1])) chosen++;
    if (chosen == count) die("no such benchmark");
    batch_function run = benchmarks[chosen].run;
    long bytes = argument(argc, argv, 2, benchmarks[chosen].bytes);
    long batches = argument(argc, argv, 3, benchmarks[chosen].batches);
    long iterations = argument(argc, argv, 4, benchmarks[chosen].iterations);
    if (run == ping_pong && ranks < 2) die("ping_pong needs two ranks");
    if (run == all_reduce && bytes % 8) die("all_reduce sums doubles: bytes must be a multiple of 8");
    if (bytes > INT32_MAX || batches < 1 || iterations < 1) die("too many bytes, or nothing to do");

    size_t received = (size_t)bytes * (run == all_gather ? (size_t)ranks : 1);
    struct buffers b = {allocate(received), allocate((size_t)bytes), (size_t)bytes};
    double *samples = allocate(sizeof *samples * (size_t)batches);
    run(&b, iterations, 4095); /* warm up */
    for (long batch = 0; batch < batches; batch++) {
        memset(b.in, 0xa5, received);
        double each = run(&b, iterations, (uint64_t)batch) / (double)iterations;
        samples[batch] = run == copy ? (double)bytes * ranks / each / 1e9 : each * 1e6;
    }
    if (rank == 0) {
        char version[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(version, &length);
        version[strcspn(version, ",\n\"\\")] = 0;
        printf("{\"program\":\"%s\",\"benchmark\":\"%s\",\"ranks\":%d,\"bytes\":%ld,\"unit\":\"%s\",\"samples\":[",
               run == copy ? "memcpy" : version, argv[1], ranks, bytes, run == copy ? "GB/s" : "us");
        for (long batch = 0; batch < batches; batch++) printf("%s%.6g", batch ? "," : "", samples[batch]);
        printf("]}\n");
    }
    MPI_Finalize();
    return 0;
}

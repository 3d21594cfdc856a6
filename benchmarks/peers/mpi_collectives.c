/* Open MPI's collectives, measured and checked; see collectives.h and benchmarks/README.md.
 *
 *   mpicc -O3 -march=native -mprefer-vector-width=512 -o mpi_collectives mpi_collectives.c
 *   mpirun -n 2 ./mpi_collectives all_reduce bfloat16 out 8,1024,1048576
 *
 * Everything as it comes: the shared-memory transport `vader` with its single copy (CMA where the kernel allows it), the
 * choice of algorithms of `coll/tuned`, vector units by `op/avx`. Its own operation on bfloat16 is a user's, since
 * MPI has no such type; other calls move bfloat16 as 16-bit words. */
#include <mpi.h>

#include "collectives.h"

static MPI_Datatype types[TYPES];
static MPI_Op ops[TYPES][OPS];

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static double greatest(double value) {
    double result;
    MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return result;
}

/* Rank 0 sleeps in its read; the others look a few thousand times a second, so that none takes a core. */
static int next_line(char *line, size_t size) {
    MPI_Request request;
    int done = 0;
    if (peer.rank == 0 && !fgets(line, (int)size, stdin)) line[0] = 0;
    MPI_Ibcast(line, (int)size, MPI_CHAR, 0, MPI_COMM_WORLD, &request);
    for (MPI_Test(&request, &done, MPI_STATUS_IGNORE); !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE)) {
        struct timespec pause = {0, 200 * 1000};
        nanosleep(&pause, NULL);
    }
    return line[0] != 0;
}

#define FOLD(name, op)                                                                           \
    static void name(void *in, void *in_out, int *count, MPI_Datatype *type) {                   \
        (void)type;                                                                              \
        fold_bfloat16(op, (uint16_t *)in_out, (uint16_t *)in_out, (uint16_t *)in, (size_t)*count); \
    }
FOLD(add, SUM)
FOLD(lesser, MIN)
FOLD(greater, MAX)

static const char *place(struct task *t) {
    /* Of broadcasts there is one buffer. */
    if (t->function == BROADCAST || t->function == BARRIER) t->in_place = 1;
    if (t->function == SEND_RECV) t->in_place = 0;
    return NULL;
}

static void nothing(struct task *t) { (void)t; }

static void call(struct task *t) {
    MPI_Datatype type = types[t->type];
    MPI_Op op = ops[t->type][t->op];
    MPI_Comm world = MPI_COMM_WORLD;
    int all = (int)(t->bytes / t->element), root = peer.rank == t->root, *counts = t->counts, *at = t->offsets;
    const void *in = t->in_place ? MPI_IN_PLACE : t->in;
    switch (t->function) {
    case ALL_REDUCE: MPI_Allreduce(in, t->out, all, type, op, world); break;
    case ALL_GATHER: MPI_Allgather(in, *counts, type, t->out, *counts, type, world); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(in, t->out, *counts, type, op, world); break;
    case BROADCAST: MPI_Bcast(t->out, all, type, t->root, world); break;
    case REDUCE: MPI_Reduce(t->in_place && root ? in : t->in, t->out, all, type, op, t->root, world); break;
    case GATHER:
        MPI_Gather(t->in_place && root ? in : t->in, *counts, type, t->out, *counts, type, t->root, world);
        break;
    case SCATTER:
        MPI_Scatter(t->in, *counts, type, t->in_place && root ? MPI_IN_PLACE : t->out, *counts, type, t->root, world);
        break;
    case ALL_TO_ALL: MPI_Alltoall(in, *counts, type, t->out, *counts, type, world); break;
    case ALL_GATHER_V: MPI_Allgatherv(in, counts[peer.rank], type, t->out, counts, at, type, world); break;
    case REDUCE_SCATTER_V: MPI_Reduce_scatter(in, t->out, counts, type, op, world); break;
    case ALL_TO_ALL_V: MPI_Alltoallv(in, counts, at, type, t->out, counts, at, type, world); break;
    case SEND_RECV:
        MPI_Sendrecv(t->in, all, type, (peer.rank + 1) % peer.ranks, 0, t->out, all, type,
                     (peer.rank + peer.ranks - 1) % peer.ranks, 0, world, MPI_STATUS_IGNORE);
        break;
    default: MPI_Barrier(world);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.ranks);
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n\"\\")] = 0;
    snprintf(peer.program, sizeof peer.program, "%.63s", version);
    peer.barrier = barrier, peer.greatest = greatest, peer.next_line = next_line;
    peer.place = place, peer.open = nothing, peer.call = call, peer.close = nothing;

    types[FLOAT32] = MPI_FLOAT, types[BFLOAT16] = MPI_UINT16_T;
    ops[FLOAT32][SUM] = MPI_SUM, ops[FLOAT32][MIN] = MPI_MIN, ops[FLOAT32][MAX] = MPI_MAX;
    MPI_Op_create(add, 1, &ops[BFLOAT16][SUM]);
    MPI_Op_create(lesser, 1, &ops[BFLOAT16][MIN]);
    MPI_Op_create(greater, 1, &ops[BFLOAT16][MAX]);
    drive(argc, argv);
    MPI_Finalize();
    return 0;
}

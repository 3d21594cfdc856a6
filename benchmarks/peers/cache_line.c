// The floor under every ping-pong in shared memory: two processes, a cache line each way, nothing but a release
// store and a load in a loop. One line of JSON in the form described in benchmarks/README.md.
//
//     cache_line [BATCHES]
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUND_TRIPS = 20000, LINE = 128 };

typedef struct {
    _Alignas(LINE) atomic_ulong there;
    _Alignas(LINE) atomic_ulong back;
} Lines;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void await(atomic_ulong *line, unsigned long value) {
    while (atomic_load_explicit(line, memory_order_acquire) < value) __builtin_ia32_pause();
}

int main(int count, char **arguments) {
    long batches = count > 1 ? atol(arguments[1]) : 50;
    if (batches < 1) {
        fprintf(stderr, "cache_line: BATCHES must be at least 1\n");
        return 2;
    }
    Lines *lines = mmap(NULL, sizeof *lines, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lines == MAP_FAILED) {
        perror("cache_line: mmap");
        return 1;
    }
    pid_t child = fork();
    if (child < 0) {
        perror("cache_line: fork");
        return 1;
    }
    unsigned long total = (unsigned long)(batches + 1) * ROUND_TRIPS;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (unsigned long i = 1; i <= total; i++) {
            await(&lines->there, i);
            atomic_store_explicit(&lines->back, i, memory_order_release);
        }
        _exit(0);
    }
    alarm(60);
    printf("{\"program\":\"cache line\",\"benchmark\":\"ping_pong\",\"ranks\":2,\"bytes\":8,\"unit\":\"us\",\"samples\":[");
    unsigned long i = 1;
    // The first batch warms up.
    for (long batch = 0; batch <= batches; batch++) {
        double begin = now_us();
        for (long k = 0; k < ROUND_TRIPS; k++, i++) {
            atomic_store_explicit(&lines->there, i, memory_order_release);
            await(&lines->back, i);
        }
        double one_way = (now_us() - begin) / ROUND_TRIPS / 2;
        if (batch > 0) printf("%s%.6g", batch > 1 ? "," : "", one_way);
    }
    printf("]}\n");
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}

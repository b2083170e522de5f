/* One call of a program: its arrays and sizes, its threads and their barrier. */
#include <pthread.h>
#include <sched.h>

#define MAX_THREADS 64

typedef struct job job;

/* C [M, N] = A B + bias, or C += A B. Without a k_stride the column sums of B [K, N] instead. */
typedef struct {
    const real *a, *b, *bias;
    real *c;
    long M, N, K;
    long m_stride, k_stride; /* A[m][k] is a[m * m_stride + k * k_stride]; one of them is 1 */
    long ldb, transposed;    /* B[k][n] is b[n * ldb + k], or if transposed b[k * ldb + n] */
    long ldc, accumulate;
} gemm_arguments;

/* Matrix products that all programs share, compiled once: microkernel.c and gemm.c. */
typedef void pack_fn(real *packed, const real *w, long ldw, long transposed, const real *bias,
                     long first, long columns, long K, long stride);
typedef void multiply_fn(const real *packed, const real *x, long ldx, long K, long B, real **y,
                         const long *ldy, const long *columns);
typedef void gemv_fn(const real *w, long ldw, const real *bias, const real *x, long ldx, long K,
                     long B, real *y, long ldy, long rows);
typedef void gemm_fn(job *job, long thread, long *phase, const gemm_arguments *g, real *packed_b,
                     real *thread_buffers);
typedef struct {
    pack_fn *pack;
    gemv_fn *gemv;
    gemm_fn *gemm;
    multiply_fn *multiply[5]; /* multiply[n]: by n vectors of columns */
} linalg;

struct job {
    real *const *arrays;   /* all that the program reads and writes */
    const intptr_t *slots; /* of each state, how many steps its array holds */
    const linalg *linalg;
    long T, B, threads;
    long loop_threads;  /* threads that run the loop; the others share the projections only */
    long by_sequence;   /* each thread has sequences of its own, else they share units */
    long reverse_tiles; /* the first step goes through its tiles backwards */
    long started;
    struct { long phase, padding[15]; } flags[MAX_THREADS]; /* of the barrier */
};

static inline void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Threads wait here thousands of times a call, each time for less than a system call takes, so they
   spin. Each has a flag on cache lines of its own: a barrier costs one transfer. Where there are
   more threads than cores, yielding keeps them going. */
__attribute__((unused)) static void barrier_wait(job *job, long thread, long *phase) {
    const long threads = job->threads, now = ++*phase;
    __atomic_store_n(&job->flags[thread].phase, now, __ATOMIC_RELEASE);
    for (long i = 0; i < threads; i++)
        for (long spins = 0; __atomic_load_n(&job->flags[i].phase, __ATOMIC_ACQUIRE) < now;
             spins++) {
            cpu_pause();
            if (spins > 200) sched_yield();
        }
}

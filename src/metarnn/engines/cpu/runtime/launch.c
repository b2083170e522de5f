/* Runs a program's loop, the function LOOP, on all threads of a call. */

/* The OpenMP runtime that torch has loaded. After an operation of torch's its threads stay awake
   for a while and would keep the cores from any others, so they are used where there are some. */
typedef struct {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    int (*thread_num)(void), (*num_threads)(void);
} openmp;

/* One block, so that a call from Python converts little: see `Arguments` in kernel.py. */
typedef struct {
    const linalg *linalg;
    const openmp *omp; /* 0: start threads of our own */
    long T, B, threads, loop_threads, by_sequence, reverse_tiles;
    intptr_t slots[];
} call_arguments;

typedef struct { job *job; const openmp *omp; long thread; } thread_arguments;

static void *pthread_main(void *p) {
    thread_arguments *self = p;
    while (!__atomic_load_n(&self->job->started, __ATOMIC_ACQUIRE)) sched_yield();
    LOOP(self->job, self->thread);
    return 0;
}
static void openmp_main(void *p) {
    thread_arguments *self = p;
    /* There may be fewer threads than asked for: all must know before the first barrier. */
    __atomic_store_n(&self->job->threads, self->omp->num_threads(), __ATOMIC_RELAXED);
    LOOP(self->job, self->omp->thread_num());
}

long vector_length(void) { return VL; }

void run(real *const *arrays, const call_arguments *call) {
    const openmp *omp = call->omp;
    const long threads = call->threads;
    job job = {arrays, call->slots, call->linalg, call->T, call->B,
               threads < MAX_THREADS ? threads : MAX_THREADS, call->loop_threads,
               call->by_sequence, call->reverse_tiles};
    thread_arguments each[MAX_THREADS] = {{&job, omp, 0}};
    if (threads > 1 && omp) {
        omp->parallel(openmp_main, each, job.threads, 0);
        return;
    }
    pthread_t id[MAX_THREADS];
    long started = 1;
    for (; started < job.threads; started++) {
        each[started] = (thread_arguments){&job, omp, started};
        if (pthread_create(&id[started], 0, pthread_main, &each[started])) break;
    }
    job.threads = started; /* as many as the system gave */
    __atomic_store_n(&job.started, 1, __ATOMIC_RELEASE);
    LOOP(&job, 0);
    for (long i = 1; i < started; i++) pthread_join(id[i], 0);
}

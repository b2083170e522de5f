/* How a program is started: `work` by each thread. */
/* torch's own OpenMP threads where there are some: after an operation of torch's they stay awake
   for a while and would keep the processors from any others. */
typedef struct {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    int (*number)(void), (*count)(void);
} openmp;
typedef struct { job *j; const openmp *omp; long me; } seat;

static void *sit(void *p) {
    seat *s = p;
    while (!__atomic_load_n(&s->j->started, __ATOMIC_ACQUIRE)) sched_yield();
    work(s->j, s->me);
    return 0;
}
static void member(void *p) {
    seat *s = p;
    /* Never more threads than asked for, but there may be fewer: all must know before they meet. */
    __atomic_store_n(&s->j->threads, s->omp->count(), __ATOMIC_RELAXED);
    work(s->j, s->omp->number());
}
long vector_length(void) { return VL; }
/* One block of arguments, so that a call from Python converts little: the tables of products and
   of OpenMP, T, B, threads, how many of them loop, apart, turn, the slots of the states. */
void run(real **p, const intptr_t *arguments) {
    const openmp *omp = (const openmp *)arguments[1];
    const long threads = arguments[4];
    job j = {p, arguments + 8, (const library *)arguments[0], arguments[2], arguments[3],
             threads < MOST_THREADS ? threads : MOST_THREADS, arguments[5], arguments[6],
             arguments[7]};
    seat seats[MOST_THREADS] = {{&j, omp, 0}};
    if (threads > 1 && omp) {
        omp->parallel(member, seats, j.threads, 0);
        return;
    }
    pthread_t id[MOST_THREADS];
    long n = 1;
    for (; n < j.threads; n++) {
        seats[n] = (seat){&j, omp, n};
        if (pthread_create(&id[n], 0, sit, &seats[n])) break;
    }
    j.threads = n;  /* as many as the system gave */
    __atomic_store_n(&j.started, 1, __ATOMIC_RELEASE);
    work(&j, 0);
    for (long i = 1; i < n; i++) pthread_join(id[i], 0);
}

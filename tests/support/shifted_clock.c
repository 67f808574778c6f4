/* Preloaded into a server: the wall clock is CLOCK_SHIFT_S seconds off. Clocks that never go back are right.
 *
 * A wait until a time of the wall clock is given a time of the shifted one, and ends when that comes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>

enum { EPOCH = 1000000000 }; /* seconds: no clock that begins with the machine shows as much */

static time_t shift;

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("CLOCK_SHIFT_S");
    shift = text == NULL ? 0 : atol(text);
}

#define REAL(type, name, ...)         \
    static type (*real)(__VA_ARGS__); \
    if (real == NULL) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

int clock_gettime(clockid_t clock, struct timespec *at) {
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int result = real(clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += shift;
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    REAL(int, gettimeofday, struct timeval *, void *);
    int result = real(at, zone);
    if (result == 0) at->tv_sec += shift;
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL) *at = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
    if (base != TIME_UTC || clock_gettime(CLOCK_REALTIME, at) != 0) return 0;
    return base;
}

/* The same moment by the right clock. */
static struct timespec right(const struct timespec *until) {
    struct timespec found = *until;
    if (found.tv_sec > EPOCH) found.tv_sec -= shift;
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (real == NULL) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"); /* not the one before */
    if (real == NULL) real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec at = right(until);
    return real(condition, mutex, &at);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    REAL(int, cnd_timedwait, cnd_t *, mtx_t *, const struct timespec *);
    struct timespec at = right(until);
    return real(condition, mutex, &at);
}

int sem_timedwait(void *semaphore, const struct timespec *until) {
    REAL(int, sem_timedwait, void *, const struct timespec *);
    struct timespec at = right(until);
    return real(semaphore, &at);
}

/* Preloaded into a server: calls on files of one folder fail with the error numbers that a control file holds.
 *
 * The control file is six native 32-bit integers. It is mapped, so that the test changes it at any time.
 *
 *   SYNC    the errno of syncs; 0 lets them through
 *   WRITE   the errno of writes
 *   AFTER   so many syncs succeed before the first that fails
 *   MAIN    1: only syncs of files that end in ".db" fail
 *   DROP    1: a sync that fails takes back what was written to its file since the last one that succeeded, as a
 *           system may whose dirty pages could not be written: the next sync then succeeds without them
 *   FAILED  counts the syncs that failed
 *
 * FAULTY_CONTROL names the file, FAULTY_FOLDER the folder.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SYNC, WRITE, AFTER, MAIN, DROP, FAILED, FIELDS };

static volatile int32_t *control;
static const char *folder;

/* What was written and not synced yet, the newest first, with what was there before. */
struct change {
    struct change *next;
    dev_t device;
    ino_t inode;
    off64_t at;
    size_t size;
    char before[];
};
static struct change *changes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAULTY_CONTROL");
    folder = getenv("FAULTY_FOLDER");
    int file = name != NULL && folder != NULL ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, FIELDS * sizeof(int32_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) control = mapped;
    close(file);
}

#define REAL(type, name, ...)                   \
    static type (*real)(__VA_ARGS__);           \
    if (real == NULL) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

/* Whether `file` is one of the folder; its name goes to `target`. */
static int ours(int file, char *target, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, target, size - 1);
    if (length < 0) return 0;
    target[length] = 0;
    return strncmp(target, folder, strlen(folder)) == 0;
}

/* The error that a call on `file` has to fail with, or 0. */
static int fault(int which, int file) {
    char name[4096];
    int error = control == NULL ? 0 : control[which];
    if (error == 0 || !ours(file, name, sizeof name)) return 0;
    if (which != SYNC) return error;
    size_t length = strlen(name);
    if (control[MAIN] && (length < 3 || strcmp(name + length - 3, ".db") != 0)) return 0;
    if (control[AFTER] > 0) {
        control[AFTER]--;
        return 0;
    }
    control[FAILED]++;
    return error;
}

/* Remember what a write is about to change. */
static void remember(int file, off64_t at, size_t size) {
    REAL(ssize_t, pread64, int, void *, size_t, off64_t);
    char name[4096];
    struct stat found;
    if (control == NULL || !control[DROP] || !ours(file, name, sizeof name)) return;
    if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) return;
    struct change *made = calloc(1, sizeof *made + size);
    if (made == NULL) abort();
    made->device = found.st_dev;
    made->inode = found.st_ino;
    made->at = at;
    made->size = size;
    if (real(file, made->before, size, at) < 0) { /* nothing was there: zeros */
    }
    pthread_mutex_lock(&lock);
    made->next = changes;
    changes = made;
    pthread_mutex_unlock(&lock);
}

/* A sync of `file` has ended: forget its changes, and undo them where it failed. */
static void settle(int file, int failed) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    struct stat found;
    if (control == NULL || fstat(file, &found) != 0) return;
    pthread_mutex_lock(&lock);
    struct change **place = &changes;
    while (*place != NULL) {
        struct change *one = *place;
        if (one->device == found.st_dev && one->inode == found.st_ino) {
            if (failed && control[DROP] && real(file, one->before, one->size, one->at) < 0) abort();
            *place = one->next;
            free(one);
        } else {
            place = &one->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

#define FAIL(which, file)                  \
    do {                                   \
        int error = fault(which, file);    \
        if (error != 0) {                  \
            errno = error;                 \
            return -1;                     \
        }                                  \
    } while (0)

static int synced(int file, int (*real)(int)) {
    int error = fault(SYNC, file);
    settle(file, error != 0);
    if (error == 0) return real(file);
    errno = error;
    return -1;
}

int fsync(int file) {
    REAL(int, fsync, int);
    return synced(file, real);
}

int fdatasync(int file) {
    REAL(int, fdatasync, int);
    return synced(file, real);
}

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    FAIL(WRITE, file);
    remember(file, lseek64(file, 0, SEEK_CUR), size);
    return real(file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    FAIL(WRITE, file);
    remember(file, at, size);
    return real(file, data, size, at);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    FAIL(WRITE, file);
    remember(file, at, size);
    return real(file, data, size, at);
}

/* These return the error. */
int posix_fallocate(int file, off_t at, off_t size) {
    REAL(int, posix_fallocate, int, off_t, off_t);
    int error = fault(WRITE, file);
    return error != 0 ? error : real(file, at, size);
}

int posix_fallocate64(int file, off64_t at, off64_t size) {
    REAL(int, posix_fallocate64, int, off64_t, off64_t);
    int error = fault(WRITE, file);
    return error != 0 ? error : real(file, at, size);
}

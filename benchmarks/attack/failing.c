/* Calls of the system that fail at the k-th time: preloaded, and armed from Python by shims.py.

   Only calls that concern files below a root count. What glibc calls inside of itself does not
   come through here, so the functions of stdio that write are among those that are wrapped. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX];
static size_t root_length;
static long due, calls;
static int armed, full;
static const char *failed = "";

void failing_arm(long k, int until_the_end, const char *where) {
    strncpy(root, where, sizeof root - 1);
    root_length = strlen(root);
    due = k;
    full = until_the_end;
    calls = 0;
    failed = "";
    __atomic_store_n(&armed, 1, __ATOMIC_SEQ_CST);
}

int failing_disarm(void) {
    __atomic_store_n(&armed, 0, __ATOMIC_SEQ_CST);
    return (int)calls;
}

const char *failing_failed(void) { return failed; }

static int below(const char *path) {
    return strncmp(path, root, root_length) == 0 &&
           (path[root_length] == '/' || path[root_length] == 0);
}

static int fd_below(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return 0;
    path[n] = 0;
    return below(path);
}

static int name_below(int folder, const char *path) {
    char here[PATH_MAX];
    if (path == NULL)
        return 0;
    if (path[0] == '/')
        return below(path);
    if (folder != AT_FDCWD)
        return fd_below(folder);
    return getcwd(here, sizeof here) != NULL && below(here);
}

/* Whether it is this call's turn; errno says what went wrong. */
static int turn(const char *name, int growing) {
    long n = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    if (due == 0 || !(n == due || (full && n > due && growing)))
        return 0;
    if (failed[0] == 0)
        failed = name;
    errno = growing ? ENOSPC : EIO;
    return 1;
}

#define ON __atomic_load_n(&armed, __ATOMIC_SEQ_CST)
#define REAL(type, name, ...)                                                                      \
    static type (*real)(__VA_ARGS__);                                                              \
    if (real == NULL)                                                                              \
    real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define MODE                                                                                       \
    mode_t mode = 0;                                                                               \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                           \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode = va_arg(more, mode_t);                                                               \
        va_end(more);                                                                              \
    }

#define OPEN(function)                                                                             \
    int function(const char *path, int flags, ...) {                                               \
        REAL(int, #function, const char *, int, ...);                                              \
        MODE if (ON && name_below(AT_FDCWD, path) && turn("open", (flags & O_CREAT) != 0)) return -1; \
        return real(path, flags, mode);                                                            \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(function)                                                                           \
    int function(int folder, const char *path, int flags, ...) {                                   \
        REAL(int, #function, int, const char *, int, ...);                                         \
        MODE if (ON && name_below(folder, path) && turn("open", (flags & O_CREAT) != 0)) return -1; \
        return real(folder, path, flags, mode);                                                    \
    }
OPENAT(openat)
OPENAT(openat64)

/* Of an open file. */
#define BY_HANDLE(type, function, told, growing, failure, parameters, arguments, ...)              \
    type function parameters {                                                                     \
        REAL(type, #function, __VA_ARGS__);                                                        \
        if (ON && fd_below(fd) && turn(told, growing))                                             \
            return failure;                                                                        \
        return real arguments;                                                                     \
    }
BY_HANDLE(ssize_t, write, "write", 1, -1, (int fd, const void *p, size_t n), (fd, p, n), int,
          const void *, size_t)
BY_HANDLE(ssize_t, pwrite, "write", 1, -1, (int fd, const void *p, size_t n, off_t at),
          (fd, p, n, at), int, const void *, size_t, off_t)
BY_HANDLE(ssize_t, pwrite64, "write", 1, -1, (int fd, const void *p, size_t n, off64_t at),
          (fd, p, n, at), int, const void *, size_t, off64_t)
BY_HANDLE(ssize_t, writev, "write", 1, -1, (int fd, const struct iovec *p, int n), (fd, p, n), int,
          const struct iovec *, int)
BY_HANDLE(int, fsync, "fsync", 0, -1, (int fd), (fd), int)
BY_HANDLE(int, fdatasync, "fsync", 0, -1, (int fd), (fd), int)
BY_HANDLE(int, ftruncate, "ftruncate", 1, -1, (int fd, off_t n), (fd, n), int, off_t)
BY_HANDLE(int, ftruncate64, "ftruncate", 1, -1, (int fd, off64_t n), (fd, n), int, off64_t)
BY_HANDLE(int, fallocate, "fallocate", 1, -1, (int fd, int how, off_t at, off_t n),
          (fd, how, at, n), int, int, off_t, off_t)
BY_HANDLE(int, posix_fallocate, "fallocate", 1, ENOSPC, (int fd, off_t at, off_t n), (fd, at, n),
          int, off_t, off_t)
BY_HANDLE(int, posix_fallocate64, "fallocate", 1, ENOSPC, (int fd, off64_t at, off64_t n),
          (fd, at, n), int, off64_t, off64_t)

#define MMAP(function, offset)                                                                     \
    void *function(void *at, size_t n, int protection, int flags, int fd, offset from) {           \
        REAL(void *, #function, void *, size_t, int, int, int, offset);                            \
        if (ON && fd >= 0 && fd_below(fd) && turn("mmap", 0)) {                                    \
            errno = ENOMEM;                                                                        \
            return MAP_FAILED;                                                                     \
        }                                                                                          \
        return real(at, n, protection, flags, fd, from);                                           \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

size_t fwrite(const void *p, size_t size, size_t n, FILE *stream) {
    REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *);
    if (ON && fd_below(fileno(stream)) && turn("fwrite", 1))
        return 0;
    return real(p, size, n, stream);
}

int fflush(FILE *stream) {
    REAL(int, "fflush", FILE *);
    if (ON && stream != NULL && fd_below(fileno(stream)) && turn("fwrite", 1))
        return EOF;
    return real(stream);
}

/* Of names. */
#define BY_NAME(function, told, growing, folder, parameters, arguments, ...)                       \
    int function parameters {                                                                      \
        REAL(int, #function, __VA_ARGS__);                                                         \
        if (ON && name_below(folder, path) && turn(told, growing))                                 \
            return -1;                                                                             \
        return real arguments;                                                                     \
    }
BY_NAME(mkdir, "mkdir", 1, AT_FDCWD, (const char *path, mode_t m), (path, m), const char *, mode_t)
BY_NAME(mkdirat, "mkdir", 1, at, (int at, const char *path, mode_t m), (at, path, m), int,
        const char *, mode_t)
BY_NAME(rmdir, "rmdir", 0, AT_FDCWD, (const char *path), (path), const char *)
BY_NAME(unlink, "unlink", 0, AT_FDCWD, (const char *path), (path), const char *)
BY_NAME(unlinkat, "unlink", 0, at, (int at, const char *path, int how), (at, path, how), int,
        const char *, int)
BY_NAME(truncate, "truncate", 1, AT_FDCWD, (const char *path, off_t n), (path, n), const char *,
        off_t)
BY_NAME(rename, "rename", 0, AT_FDCWD, (const char *path, const char *to), (path, to), const char *,
        const char *)
BY_NAME(renameat, "rename", 0, at, (int at, const char *path, int b, const char *to),
        (at, path, b, to), int, const char *, int, const char *)
BY_NAME(renameat2, "rename", 0, at,
        (int at, const char *path, int b, const char *to, unsigned int how),
        (at, path, b, to, how), int, const char *, int, const char *, unsigned int)
BY_NAME(link, "link", 1, AT_FDCWD, (const char *path, const char *to), (path, to), const char *,
        const char *)

/* The faults of a machine in one process: preloaded, it makes calls of libc fail or hang, and moves its clocks.
 *
 * FAULTS names a file that stays mapped. Its bytes are lines, ended by a zero byte:
 *
 *   write ERRNO PART   every write, sync, rename, mkdir and creation of a file whose path contains PART
 *   use ERRNO PART     every call on such a path
 *   hang 0 PART        the same calls do not return while the line is there
 *   thread ERRNO -     no thread can be created
 *   lookup ERRNO -     no host name can be resolved
 *   real SECONDS -     CLOCK_REALTIME differs by so much
 *   boot SECONDS -     CLOCK_BOOTTIME differs by so much, as after a sleep of the machine
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SIZE 4096
static const volatile char *rules;
static pid_t owner;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd < 0) return;
    void *at = mmap(0, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (at != MAP_FAILED) rules = at;
    owner = (pid_t)syscall(SYS_getpid);
    unsetenv("LD_PRELOAD"); /* for this process alone */
    unsetenv("FAULTS");
}

/* The number of the first line of this kind whose third word is part of path; -1 without one. */
static long rule(const char *kind, const char *path) {
    if (!rules || !rules[0] || owner != (pid_t)syscall(SYS_getpid)) return -1;
    char copy[SIZE];
    memcpy(copy, (const char *)rules, SIZE);
    copy[SIZE - 1] = 0;
    char *rest = 0;
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(0, "\n", &rest)) {
        char word[16], part[1024];
        long number;
        if (sscanf(line, "%15s %ld %1023s", word, &number, part) == 3 && !strcmp(word, kind) &&
            (!path || strstr(path, part)))
            return number;
    }
    return -1;
}

static const char *named(int dir, const char *path, char *room) {
    char link[64];
    ssize_t size;
    if (path && (path[0] == '/' || dir == -2)) return path;
    if (dir == AT_FDCWD || dir == -2) {
        if (syscall(SYS_getcwd, room, PATH_MAX) < 0) return path ? path : "";
        size = (ssize_t)strlen(room);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        if ((size = syscall(SYS_readlinkat, AT_FDCWD, link, room, PATH_MAX - 1)) < 0) return path ? path : "";
    }
    room[size] = 0;
    if (path && path[0] && size + strlen(path) + 2 < PATH_MAX) {
        strcat(room, "/");
        strcat(room, path);
    }
    return room;
}

static __attribute__((noinline)) int follows(int dir, const char *path, int writes) {
    char room[PATH_MAX];
    const char *name = named(dir, path, room);
    while (rule("hang", name) >= 0) {
        struct timespec rest = {0, 10000000};
        syscall(SYS_nanosleep, &rest, 0);
    }
    long number = rule("use", name);
    if (number < 0 && writes) number = rule("write", name);
    if (number < 0) return 0;
    errno = (int)number;
    return 1;
}

/* Whether a call fails, with errno set; returns late where it hangs. Not in a handler of signals: Python's run
 * on a stack of some kilobytes (sigaltstack(2)), of which the kernel's frame alone takes up to eleven. */
static int fails(int dir, const char *path, int writes) {
    stack_t stack;
    if (!rules || !rules[0] || (!sigaltstack(0, &stack) && stack.ss_flags & SS_ONSTACK)) return 0;
    return follows(dir, path, writes);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define PASS(type, name, dir, path, writes, args, ...)            \
    type name args {                                              \
        if (fails(dir, path, writes)) return (type)-1;            \
        return REAL(name)(__VA_ARGS__);                           \
    }
#define OPENS(name, dir, given, ...)                                          \
    {                                                                         \
        mode_t mode = 0;                                                      \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                \
            va_list more;                                                     \
            va_start(more, flags);                                            \
            mode = va_arg(more, mode_t);                                      \
            va_end(more);                                                     \
        }                                                                     \
        if (fails(dir, path, (flags & (O_CREAT | O_ACCMODE)) != 0)) return -1; \
        return REAL(name)(__VA_ARGS__, mode);                                 \
    }

int open(const char *path, int flags, ...) OPENS(open, AT_FDCWD, path, path, flags)
int open64(const char *path, int flags, ...) OPENS(open64, AT_FDCWD, path, path, flags)
int openat(int dir, const char *path, int flags, ...) OPENS(openat, dir, path, dir, path, flags)
int openat64(int dir, const char *path, int flags, ...) OPENS(openat64, dir, path, dir, path, flags)
PASS(ssize_t, write, fd, 0, 1, (int fd, const void *data, size_t size), fd, data, size)
PASS(ssize_t, pwrite, fd, 0, 1, (int fd, const void *data, size_t size, off_t at), fd, data, size, at)
PASS(ssize_t, pwrite64, fd, 0, 1, (int fd, const void *data, size_t size, off64_t at), fd, data, size, at)
PASS(ssize_t, writev, fd, 0, 1, (int fd, const struct iovec *data, int count), fd, data, count)
PASS(ssize_t, read, fd, 0, 0, (int fd, void *data, size_t size), fd, data, size)
PASS(ssize_t, pread64, fd, 0, 0, (int fd, void *data, size_t size, off64_t at), fd, data, size, at)
PASS(int, fsync, fd, 0, 1, (int fd), fd)
PASS(int, fdatasync, fd, 0, 1, (int fd), fd)
PASS(int, ftruncate, fd, 0, 1, (int fd, off_t size), fd, size)
PASS(int, ftruncate64, fd, 0, 1, (int fd, off64_t size), fd, size)
PASS(int, rename, AT_FDCWD, to, 1, (const char *from, const char *to), from, to)
PASS(int, renameat, dir, to, 1, (int old, const char *from, int dir, const char *to), old, from, dir, to)
PASS(int, mkdir, AT_FDCWD, path, 1, (const char *path, mode_t mode), path, mode)
PASS(int, mkdirat, dir, path, 1, (int dir, const char *path, mode_t mode), dir, path, mode)
PASS(int, unlink, AT_FDCWD, path, 1, (const char *path), path)
PASS(int, unlinkat, dir, path, 1, (int dir, const char *path, int flags), dir, path, flags)
PASS(int, stat, AT_FDCWD, path, 0, (const char *path, struct stat *into), path, into)
PASS(int, stat64, AT_FDCWD, path, 0, (const char *path, struct stat64 *into), path, into)
PASS(int, lstat, AT_FDCWD, path, 0, (const char *path, struct stat *into), path, into)
PASS(int, lstat64, AT_FDCWD, path, 0, (const char *path, struct stat64 *into), path, into)
PASS(int, fstatat, dir, path, 0, (int dir, const char *path, struct stat *into, int f), dir, path, into, f)
PASS(int, fstatat64, dir, path, 0, (int dir, const char *path, struct stat64 *into, int f), dir, path, into, f)
PASS(int, fstat, fd, 0, 0, (int fd, struct stat *into), fd, into)
PASS(int, fstat64, fd, 0, 0, (int fd, struct stat64 *into), fd, into)
PASS(int, statvfs, AT_FDCWD, path, 0, (const char *path, struct statvfs *into), path, into)
PASS(int, statvfs64, AT_FDCWD, path, 0, (const char *path, struct statvfs64 *into), path, into)
PASS(int, access, AT_FDCWD, path, 0, (const char *path, int how), path, how)
PASS(ssize_t, readlink, AT_FDCWD, path, 0, (const char *path, char *into, size_t size), path, into, size)

DIR *opendir(const char *path) {
    return fails(AT_FDCWD, path, 0) ? 0 : REAL(opendir)(path);
}

int pthread_create(pthread_t *made, const pthread_attr_t *how, void *(*work)(void *), void *with) {
    long number = rule("thread", 0);
    return number >= 0 ? (int)number : REAL(pthread_create)(made, how, work, with);
}

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found) {
    return rule("lookup", 0) >= 0 ? EAI_AGAIN : REAL(getaddrinfo)(host, port, hints, found);
}

static long shift(const char *kind) {
    if (!rules || !rules[0]) return 0;
    char copy[SIZE], *line;
    memcpy(copy, (const char *)rules, SIZE);
    copy[SIZE - 1] = 0;
    return (line = strstr(copy, kind)) ? strtol(line + strlen(kind), 0, 10) : 0;
}

int clock_gettime(clockid_t which, struct timespec *into) {
    int answer = (int)syscall(SYS_clock_gettime, which, into);
    if (!answer && which == CLOCK_REALTIME) into->tv_sec += shift("real ");
    if (!answer && which == CLOCK_BOOTTIME) into->tv_sec += shift("boot ");
    return answer;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *into, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    into->tv_sec = now.tv_sec;
    into->tv_usec = now.tv_nsec / 1000;
    return 0;
}

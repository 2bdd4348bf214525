/* Loaded in front of the C library: makes one system call on files below a folder fail.
   Only what is opened or named there counts, so that the interpreter's own files are left alone. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { DESCRIPTORS = 4096, HALF_OF_IT = -1 };

static char call[32], folder[4096];
static int left, code, hits;
static char is_below[DESCRIPTORS];

/* The `at`-th call of this name fails with `error`, or, where that is -1, writes half of it. */
void fail_call(const char *name, const char *path, int at, int error) {
    strncpy(call, name, sizeof call - 1);
    strncpy(folder, path, sizeof folder - 1);
    left = at;
    code = error;
    hits = 0;
}

int failed_calls(void) { return hits; }

static int named(const char *path) { return folder[0] && !strncmp(path, folder, strlen(folder)); }

/* A name in an open folder: root makes files so. */
static int named_in(int at, const char *path) {
    char link[64], whole[8192];
    if (at == AT_FDCWD || path[0] == '/') return named(path);
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t length = readlink(link, whole, 4096);
    if (length < 0) return 0;
    snprintf(whole + length, sizeof whole - length, "/%s", path);
    return named(whole);
}

static int held(int file) { return file >= 0 && file < DESCRIPTORS && is_below[file]; }

static int fails(const char *name) {
    if (strcmp(name, call) || __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST)) return 0;
    hits++;
    if (code != HALF_OF_IT) errno = code;
    return 1;
}

#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

#define OPENING(function)                                                                        \
    int function(const char *path, int flags, ...) {                                             \
        va_list rest;                                                                            \
        va_start(rest, flags);                                                                   \
        int mode = flags & O_CREAT ? va_arg(rest, int) : 0;                                      \
        va_end(rest);                                                                            \
        if (named(path) && fails("open")) return -1;                                             \
        int file = NEXT(function)(path, flags, mode);                                            \
        if (file >= 0 && file < DESCRIPTORS) is_below[file] = named(path);                       \
        return file;                                                                             \
    }
OPENING(open)
OPENING(open64)

#define OPENING_IN(function)                                                                     \
    int function(int at, const char *path, int flags, ...) {                                     \
        va_list rest;                                                                            \
        va_start(rest, flags);                                                                   \
        int mode = flags & O_CREAT ? va_arg(rest, int) : 0;                                      \
        va_end(rest);                                                                            \
        int is_named = named_in(at, path);                                                       \
        if (is_named && fails("open")) return -1;                                                \
        int file = NEXT(function)(at, path, flags, mode);                                        \
        if (file >= 0 && file < DESCRIPTORS) is_below[file] = is_named;                          \
        return file;                                                                             \
    }
OPENING_IN(openat)
OPENING_IN(openat64)

int mkdirat(int at, const char *path, mode_t mode) {
    return named_in(at, path) && fails("mkdir") ? -1 : NEXT(mkdirat)(at, path, mode);
}

#define OF_FILE(function, name, arguments, passed)                                               \
    int function arguments {                                                                     \
        return held(file) && fails(name) ? -1 : NEXT(function) passed;                           \
    }
OF_FILE(fdatasync, "fdatasync", (int file), (file))
OF_FILE(fsync, "fsync", (int file), (file))
OF_FILE(ftruncate, "ftruncate", (int file, off_t length), (file, length))
OF_FILE(ftruncate64, "ftruncate", (int file, off64_t length), (file, length))
OF_FILE(flock, "flock", (int file, int how), (file, how))
OF_FILE(fstatvfs, "fstatvfs", (int file, struct statvfs *found), (file, found))
OF_FILE(fstatvfs64, "fstatvfs", (int file, struct statvfs64 *found), (file, found))

#define OF_PATH(function, name, arguments, passed)                                               \
    int function arguments {                                                                     \
        return named(path) && fails(name) ? -1 : NEXT(function) passed;                          \
    }
OF_PATH(stat, "stat", (const char *path, struct stat *found), (path, found))
OF_PATH(stat64, "stat", (const char *path, struct stat64 *found), (path, found))
OF_PATH(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode))
OF_PATH(unlink, "unlink", (const char *path), (path))

DIR *opendir(const char *path) {
    return named(path) && fails("opendir") ? NULL : NEXT(opendir)(path);
}

ssize_t read(int file, void *data, size_t length) {
    return held(file) && fails("read") ? -1 : NEXT(read)(file, data, length);
}

#define READING_AT(function, place)                                                              \
    ssize_t function(int file, void *data, size_t length, place from) {                          \
        return held(file) && fails("pread") ? -1 : NEXT(function)(file, data, length, from);     \
    }
READING_AT(pread, off_t)
READING_AT(pread64, off64_t)

#define WRITING_AT(function, place)                                                              \
    ssize_t function(int file, const void *data, size_t length, place to) {                      \
        if (held(file) && fails("pwrite")) {                                                     \
            if (code != HALF_OF_IT) return -1;                                                   \
            length /= 2;                                                                         \
        }                                                                                        \
        return NEXT(function)(file, data, length, to);                                           \
    }
WRITING_AT(pwrite, off_t)
WRITING_AT(pwrite64, off64_t)

ssize_t write(int file, const void *data, size_t length) {
    if (held(file) && fails("write")) {
        if (code != HALF_OF_IT) return -1;
        length /= 2;
    }
    return NEXT(write)(file, data, length);
}

int close(int file) {
    int failing = held(file) && fails("close");
    if (file >= 0 && file < DESCRIPTORS) is_below[file] = 0;
    int error = errno, ended = NEXT(close)(file);
    if (failing) errno = error;
    return failing ? -1 : ended;
}

/* Stands before libc (LD_PRELOAD) and makes one chosen call fail, or end the process there.
 *
 * Only calls that change what is on disk count, and only those on files below FPFAULT_ROOT. Nothing happens until
 * fpfault_arm(at, mode): then the calls are counted from 1 on, and at the call number `at` this happens:
 *
 *   kill, kill-after       the process is killed before the call, or after it succeeded
 *   torn                   of a write only the first half is done, then the process is killed; other calls: as kill
 *   short                  of a write only the first half is done, and that many bytes are reported; other calls: nothing
 *   ENOSPC, EIO, ...       this call fails so
 *   ENOSPC-from, ...       this call and all later ones that would write fail so (not those that remove)
 *   count                  nothing
 *
 * FPFAULT_LOG names a file that gets a line for each call: number, name, path. FPFAULT_REFUSE=exchange has renameat2 know no
 * RENAME_EXCHANGE, as some file systems do. The variables are read when armed.
 *
 * FPFAULT_UNREADABLE=name:start:end needs no arming: a file whose path ends so cannot be read from byte start to end. A read there
 * fails with EIO; one that begins before it is cut short, as the kernel does. */
#include "paths.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum action { PASS, FAIL, HALF_AND_KILL, HALF, KILL_AFTER };
enum kind { WRITES = 1, REMOVES = 2, DATA = 4 };
enum mode { COUNT, KILL, AFTER, TORN, SHORT, ERROR };

static atomic_int armed;
static atomic_long count, fired;
static long at;
static enum mode mode;
static int error, from, refuse_exchange;
static char log_path[PATH_MAX];

static const struct {
  const char* name;
  int number;
} errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EROFS", EROFS}, {"EDQUOT", EDQUOT}, {"EACCES", EACCES}};

/* 0, or -1 for a mode that does not exist. */
int fpfault_arm(long number, const char* name) {
  static const char* const names[] = {"count", "kill", "kill-after", "torn", "short"};
  atomic_store(&armed, 0);
  const char* value = getenv("FPFAULT_ROOT");
  if (!value || !realpath(value, root)) return -1;
  value = getenv("FPFAULT_LOG");
  snprintf(log_path, sizeof log_path, "%s", value ? value : "");
  value = getenv("FPFAULT_REFUSE");
  refuse_exchange = value && !strcmp(value, "exchange");
  mode = ERROR;
  for (unsigned i = 0; i < sizeof names / sizeof *names; ++i)
    if (!strcmp(name, names[i])) mode = (enum mode)i;
  const char* dash = strstr(name, "-from");
  from = dash != NULL;
  error = 0;
  for (unsigned i = 0; i < sizeof errors / sizeof *errors; ++i)
    if (!strncmp(name, errors[i].name, dash ? (size_t)(dash - name) : strlen(name) + 1)) error = errors[i].number;
  if (mode == ERROR && !error) return -1;
  at = number;
  atomic_store(&count, 0);
  atomic_store(&fired, 0);
  atomic_store(&armed, 1);
  return 0;
}

void fpfault_disarm(void) { atomic_store(&armed, 0); }
long fpfault_count(void) { return atomic_load(&count); }
long fpfault_fired(void) { return atomic_load(&fired); }

static void die(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

static enum action boundary(const char* name, int kind, const char* path) {
  if (!below_root(path)) return PASS;
  const long number = atomic_fetch_add(&count, 1) + 1;
  if (*log_path) {
    char line[PATH_MAX + 64];
    const int n = snprintf(line, sizeof line, "%ld %s %s\n", number, name, path);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    syscall(SYS_write, fd, line, n);
    syscall(SYS_close, fd);
  }
  if (mode == COUNT || number < at || (number > at && !(from && kind & WRITES))) return PASS;
  atomic_store(&fired, 1);
  switch (mode) {
    case ERROR:
      errno = error;
      return FAIL;
    case AFTER:
      return KILL_AFTER;
    case SHORT:
      return kind & DATA ? HALF : PASS;
    case TORN:
      if (kind & DATA) return HALF_AND_KILL;
      /* fall through */
    default:
      die();
  }
  return PASS;
}

static enum action at_fd(const char* name, int kind, int fd) {
  char path[PATH_MAX];
  const int before = errno;
  const enum action action = atomic_load(&armed) && of_fd(fd, path) ? boundary(name, kind, path) : PASS;
  if (action != FAIL) errno = before;
  return action;
}

static enum action at_path(const char* name, int kind, int folder, const char* path) {
  char whole[PATH_MAX];
  const int before = errno;
  const enum action action = atomic_load(&armed) && of_path(folder, path, whole) ? boundary(name, kind, whole) : PASS;
  if (action != FAIL) errno = before;
  return action;
}

/* A rename belongs to the root when either end does. */
static enum action at_paths(const char* name, int folder, const char* path, int other_folder, const char* other) {
  char whole[PATH_MAX], other_whole[PATH_MAX];
  if (!atomic_load(&armed)) return PASS;
  if (of_path(other_folder, other, other_whole) && below_root(other_whole)) return boundary(name, WRITES, other_whole);
  return of_path(folder, path, whole) ? boundary(name, WRITES, whole) : PASS;
}

static long finish(enum action action, long result) {
  if (action == HALF_AND_KILL || (action == KILL_AFTER && result >= 0)) die();
  return result;
}

#define REAL(result, name, ...)                     \
  static result (*real)(__VA_ARGS__);               \
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, name)

#define HALVED(action) ((action) == HALF || (action) == HALF_AND_KILL)

ssize_t write(int fd, const void* data, size_t size) {
  REAL(ssize_t, "write", int, const void*, size_t);
  const enum action action = at_fd("write", WRITES | DATA, fd);
  if (action == FAIL) return -1;
  return finish(action, real(fd, data, HALVED(action) ? (size + 1) / 2 : size));
}

#define PWRITE(name)                                                                              \
  ssize_t name(int fd, const void* data, size_t size, off64_t offset) {                           \
    REAL(ssize_t, #name, int, const void*, size_t, off64_t);                                      \
    const enum action action = at_fd(#name, WRITES | DATA, fd);                                   \
    if (action == FAIL) return -1;                                                                \
    return finish(action, real(fd, data, HALVED(action) ? (size + 1) / 2 : size, offset));        \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

/* The first half of the parts, cut to whole bytes. */
static int halve(const struct iovec* parts, int n, struct iovec* out) {
  size_t total = 0;
  for (int i = 0; i < n; ++i) total += parts[i].iov_len;
  size_t left = (total + 1) / 2;
  int used = 0;
  for (; used < n && left; ++used) {
    out[used] = parts[used];
    if (out[used].iov_len > left) out[used].iov_len = left;
    left -= out[used].iov_len;
  }
  return used;
}

ssize_t writev(int fd, const struct iovec* parts, int n) {
  REAL(ssize_t, "writev", int, const struct iovec*, int);
  struct iovec half[IOV_MAX];
  const enum action action = at_fd("writev", WRITES | DATA, fd);
  if (action == FAIL) return -1;
  if (HALVED(action)) return finish(action, real(fd, half, halve(parts, n, half)));
  return finish(action, real(fd, parts, n));
}

#define PWRITEV(name)                                                                             \
  ssize_t name(int fd, const struct iovec* parts, int n, off64_t offset) {                        \
    REAL(ssize_t, #name, int, const struct iovec*, int, off64_t);                                 \
    struct iovec half[IOV_MAX];                                                                   \
    const enum action action = at_fd(#name, WRITES | DATA, fd);                                   \
    if (action == FAIL) return -1;                                                                \
    if (HALVED(action)) return finish(action, real(fd, half, halve(parts, n, half), offset));     \
    return finish(action, real(fd, parts, n, offset));                                            \
  }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PWRITEV2(name)                                                                               \
  ssize_t name(int fd, const struct iovec* parts, int n, off64_t offset, int flags) {                \
    REAL(ssize_t, #name, int, const struct iovec*, int, off64_t, int);                               \
    struct iovec half[IOV_MAX];                                                                      \
    const enum action action = at_fd(#name, WRITES | DATA, fd);                                      \
    if (action == FAIL) return -1;                                                                   \
    if (HALVED(action)) return finish(action, real(fd, half, halve(parts, n, half), offset, flags)); \
    return finish(action, real(fd, parts, n, offset, flags));                                        \
  }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

/* Nothing is synced in earnest, armed or not: what a killed process wrote stays in the page cache, and disks are slow. */
#define SYNC(name)                                       \
  int name(int fd) {                                     \
    const enum action action = at_fd(#name, WRITES, fd); \
    return action == FAIL ? -1 : (int)finish(action, 0); \
  }
SYNC(fsync)
SYNC(fdatasync)

/* Which file a mapping belongs to is not looked up: all that is mapped writable counts. */
int msync(void* start, size_t size, int flags) {
  REAL(int, "msync", void*, size_t, int);
  const enum action action = atomic_load(&armed) ? boundary("msync", WRITES, root) : PASS;
  if (action == FAIL) return -1;
  return (int)finish(action, real(start, size, flags));
}

#define TRUNCATE(name)                                   \
  int name(int fd, off64_t size) {                       \
    REAL(int, #name, int, off64_t);                      \
    const enum action action = at_fd(#name, WRITES, fd); \
    if (action == FAIL) return -1;                       \
    return (int)finish(action, real(fd, size));          \
  }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define ALLOCATE(name)                                       \
  int name(int fd, int flags, off64_t start, off64_t size) { \
    REAL(int, #name, int, int, off64_t, off64_t);            \
    const enum action action = at_fd(#name, WRITES, fd);     \
    if (action == FAIL) return -1;                           \
    return (int)finish(action, real(fd, flags, start, size));\
  }
ALLOCATE(fallocate)
ALLOCATE(fallocate64)

#define CREATES(flags) ((flags) & (O_CREAT | O_TRUNC))

#define OPEN(name)                                                                                      \
  int name(const char* path, int flags, ...) {                                                          \
    REAL(int, #name, const char*, int, ...);                                                            \
    MODE(flags)                                                                                         \
    const enum action action = CREATES(flags) ? at_path(#name, WRITES, AT_FDCWD, path) : PASS;          \
    if (action == FAIL) return -1;                                                                      \
    return (int)finish(action, real(path, flags, permissions));                                         \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                    \
  int name(int folder, const char* path, int flags, ...) {                                              \
    REAL(int, #name, int, const char*, int, ...);                                                       \
    MODE(flags)                                                                                         \
    const enum action action = CREATES(flags) ? at_path(#name, WRITES, folder, path) : PASS;            \
    if (action == FAIL) return -1;                                                                      \
    return (int)finish(action, real(folder, path, flags, permissions));                                 \
  }
OPENAT(openat)
OPENAT(openat64)

int mkdir(const char* path, mode_t permissions) {
  REAL(int, "mkdir", const char*, mode_t);
  const enum action action = at_path("mkdir", WRITES, AT_FDCWD, path);
  if (action == FAIL) return -1;
  return (int)finish(action, real(path, permissions));
}

int mkdirat(int folder, const char* path, mode_t permissions) {
  REAL(int, "mkdirat", int, const char*, mode_t);
  const enum action action = at_path("mkdirat", WRITES, folder, path);
  if (action == FAIL) return -1;
  return (int)finish(action, real(folder, path, permissions));
}

#define REMOVE(name)                                                \
  int name(const char* path) {                                      \
    REAL(int, #name, const char*);                                  \
    const enum action action = at_path(#name, REMOVES, AT_FDCWD, path); \
    if (action == FAIL) return -1;                                  \
    return (int)finish(action, real(path));                         \
  }
REMOVE(unlink)
REMOVE(rmdir)

int unlinkat(int folder, const char* path, int flags) {
  REAL(int, "unlinkat", int, const char*, int);
  const enum action action = at_path("unlinkat", REMOVES, folder, path);
  if (action == FAIL) return -1;
  return (int)finish(action, real(folder, path, flags));
}

#define TWO_PATHS(name)                                                                \
  int name(const char* path, const char* other) {                                      \
    REAL(int, #name, const char*, const char*);                                        \
    const enum action action = at_paths(#name, AT_FDCWD, path, AT_FDCWD, other);       \
    if (action == FAIL) return -1;                                                     \
    return (int)finish(action, real(path, other));                                     \
  }
TWO_PATHS(rename)
TWO_PATHS(link)

int renameat(int folder, const char* path, int other_folder, const char* other) {
  REAL(int, "renameat", int, const char*, int, const char*);
  const enum action action = at_paths("renameat", folder, path, other_folder, other);
  if (action == FAIL) return -1;
  return (int)finish(action, real(folder, path, other_folder, other));
}

int renameat2(int folder, const char* path, int other_folder, const char* other, unsigned flags) {
  REAL(int, "renameat2", int, const char*, int, const char*, unsigned);
  if (atomic_load(&armed) && refuse_exchange && flags & RENAME_EXCHANGE) {
    errno = EINVAL;
    return -1;
  }
  const enum action action = at_paths("renameat2", folder, path, other_folder, other);
  if (action == FAIL) return -1;
  return (int)finish(action, real(folder, path, other_folder, other, flags));
}

int linkat(int folder, const char* path, int other_folder, const char* other, int flags) {
  REAL(int, "linkat", int, const char*, int, const char*, int);
  const enum action action = at_paths("linkat", folder, path, other_folder, other);
  if (action == FAIL) return -1;
  return (int)finish(action, real(folder, path, other_folder, other, flags));
}

/* How much of a read can be done: all, what lies before the unreadable part, or -1 with EIO. */
static ssize_t readable(int fd, size_t size, off64_t offset) {
  static char name[PATH_MAX];
  static long long start, end;
  static atomic_int known;
  char path[PATH_MAX];
  if (!atomic_load(&known)) {
    const char* value = getenv("FPFAULT_UNREADABLE");
    if (value && sscanf(value, "%4095[^:]:%lld:%lld", name, &start, &end) != 3) end = 0;
    atomic_store(&known, 1);
  }
  if (offset >= end || offset + (long long)size <= start || !of_fd(fd, path)) return (ssize_t)size;
  const size_t n = strlen(name), length = strlen(path);
  if (length < n || strcmp(path + length - n, name)) return (ssize_t)size;
  if (offset < start) return (ssize_t)(start - offset);
  errno = EIO;
  return -1;
}

#define PREAD(name)                                                \
  ssize_t name(int fd, void* data, size_t size, off64_t offset) {  \
    REAL(ssize_t, #name, int, void*, size_t, off64_t);             \
    const ssize_t most = readable(fd, size, offset);               \
    return most < 0 ? -1 : real(fd, data, (size_t)most, offset);   \
  }
PREAD(pread)
PREAD(pread64)

ssize_t copy_file_range(int source, off64_t* from_at, int target, off64_t* to_at, size_t size, unsigned flags) {
  REAL(ssize_t, "copy_file_range", int, off64_t*, int, off64_t*, size_t, unsigned);
  const ssize_t most = from_at ? readable(source, size, *from_at) : (ssize_t)size;
  return most < 0 ? -1 : real(source, from_at, target, to_at, (size_t)most, flags);
}

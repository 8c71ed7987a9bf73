/* Stands before libc (LD_PRELOAD) and writes down every call that changes what is below FPRECORD_ROOT, with its data, to the file
 * FPRECORD_LOG, in the order in which they took effect. Syncs are written down and not done.
 *
 * The words of a log's mapped header change without a call: each file named "log" that is opened is looked at before every call and
 * every note, and a word that has changed is written down.
 *
 * The sync whose number FPRECORD_FAIL names fails with EIO.
 *
 * A line of the record: kind (1 byte), file (inode, 8 bytes), place (8), lengths of two parts (4 each), the parts.
 *   W write   D the same, and a sync of these bytes   H a word of a mapped header   T truncate, to the place   S sync   X sync that failed
 *   C create  M mkdir  R rename  L link  U unlink  V rmdir    N note */
#include "paths.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { LOGS = 64, WORDS_AT = 512, WORDS = 2 };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int out = -1, syncs, failing;
static struct {
  int fd;
  uint64_t file, words[WORDS];
} logs[LOGS];
static int log_count;

static void put(const void* data, size_t n) {
  for (const char* p = data; n;) {
    const long done = syscall(SYS_write, out, p, n);
    if (done <= 0) abort();
    p += done;
    n -= (size_t)done;
  }
}

static void event(char kind, uint64_t file, uint64_t place, const void* data, size_t n, const char* other) {
  const uint64_t numbers[2] = {file, place};
  const uint32_t lengths[2] = {(uint32_t)n, other ? (uint32_t)strlen(other) : 0};
  put(&kind, 1);
  put(numbers, sizeof numbers);
  put(lengths, sizeof lengths);
  put(data, n);
  put(other, lengths[1]);
}

static void look_at_logs(void) {
  for (int i = 0; i < log_count; ++i) {
    uint64_t words[WORDS];
    if (syscall(SYS_pread64, logs[i].fd, words, sizeof words, WORDS_AT) != sizeof words) continue;
    for (int w = 0; w < WORDS; ++w)
      if (words[w] != logs[i].words[w]) event('H', logs[i].file, WORDS_AT + 8 * (uint64_t)w, &words[w], 8, NULL);
    memcpy(logs[i].words, words, sizeof words);
  }
}

__attribute__((constructor)) static void start(void) {
  const char *folder = getenv("FPRECORD_ROOT"), *to = getenv("FPRECORD_LOG");
  if (!folder || !to || !realpath(folder, root)) return;
  failing = getenv("FPRECORD_FAIL") ? atoi(getenv("FPRECORD_FAIL")) : 0;
  out = (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

/* Whether a file is recorded; what it is, and where. */
static int known(int fd, uint64_t* file, char path[PATH_MAX]) {
  struct stat status;
  if (out < 0 || !of_fd(fd, path) || !below_root(path) || fstat(fd, &status)) return 0;
  *file = status.st_ino;
  return 1;
}

static void lock(void) {
  pthread_mutex_lock(&turn);
  if (out >= 0) look_at_logs();
}

static long unlock(long result) {
  const int before = errno;
  pthread_mutex_unlock(&turn);
  errno = before;
  return result;
}

void fprecord_note(const char* text) {
  lock();
  if (out >= 0) event('N', 0, 0, text, strlen(text), NULL);
  unlock(0);
}

static void follow_log(const char* path, uint64_t file) {
  const size_t n = strlen(path);
  if (n < 4 || strcmp(path + n - 4, "/log")) return;
  for (int i = 0; i < log_count; ++i)
    if (logs[i].file == file) return;
  if (log_count == LOGS) abort();
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  logs[log_count].fd = fd;
  logs[log_count].file = file;
  uint64_t* words = logs[log_count++].words;
  if (syscall(SYS_pread64, fd, words, 8 * WORDS, WORDS_AT) != 8 * WORDS) memset(words, 0, 8 * WORDS);
}

static int opened(int folder, const char* path, int flags, mode_t mode) {
  char whole[PATH_MAX];
  struct stat status;
  lock();
  const int is_new = out >= 0 && flags & O_CREAT && fstatat(folder, path, &status, 0);
  const int cuts = out >= 0 && flags & O_TRUNC;
  const int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
  uint64_t file;
  if (fd >= 0 && known(fd, &file, whole)) {
    if (is_new) event('C', file, 0, whole, strlen(whole), NULL);
    else if (cuts) event('T', file, 0, NULL, 0, NULL);
    follow_log(whole, file);
  }
  return (int)unlock(fd);
}

#define OPEN(name)                                      \
  int name(const char* path, int flags, ...) {          \
    MODE(flags)                                         \
    return opened(AT_FDCWD, path, flags, permissions);  \
  }
#define OPENAT(name)                                        \
  int name(int folder, const char* path, int flags, ...) {  \
    MODE(flags)                                             \
    return opened(folder, path, flags, permissions);        \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static ssize_t written(char kind, int fd, const struct iovec* parts, int n, off64_t place, int flags) {
  char path[PATH_MAX];
  uint64_t file;
  lock();
  const int moves = place < 0;
  const off64_t start = moves ? (off64_t)syscall(SYS_lseek, fd, 0, SEEK_CUR) : place;
  const ssize_t done = moves ? syscall(SYS_writev, fd, parts, n) : syscall(SYS_pwritev2, fd, parts, n, place, 0, flags);
  int error = errno, fails = 0;
  if (done > 0 && known(fd, &file, path)) {
    fails = kind == 'D' && ++syncs == failing;
    char* data = malloc((size_t)done);
    size_t at = 0;
    for (int i = 0; i < n && at < (size_t)done; ++i) {
      const size_t part = parts[i].iov_len < (size_t)done - at ? parts[i].iov_len : (size_t)done - at;
      memcpy(data + at, parts[i].iov_base, part);
      at += part;
    }
    event(fails ? 'W' : kind, file, (uint64_t)start, data, (size_t)done, NULL);
    if (fails) event('X', file, 0, NULL, 0, NULL);
    free(data);
  }
  errno = fails ? EIO : error;
  return unlock(fails ? -1 : done);
}

ssize_t write(int fd, const void* data, size_t size) {
  return written('W', fd, &(struct iovec){(void*)data, size}, 1, -1, 0);
}
ssize_t writev(int fd, const struct iovec* parts, int n) { return written('W', fd, parts, n, -1, 0); }
#define PWRITE(name)                                                          \
  ssize_t name(int fd, const void* data, size_t size, off64_t place) {        \
    return written('W', fd, &(struct iovec){(void*)data, size}, 1, place, 0); \
  }
#define PWRITEV(name) \
  ssize_t name(int fd, const struct iovec* parts, int n, off64_t place) { return written('W', fd, parts, n, place, 0); }
#define PWRITEV2(name)                                                                \
  ssize_t name(int fd, const struct iovec* parts, int n, off64_t place, int flags) {  \
    return written(flags & (RWF_DSYNC | RWF_SYNC) ? 'D' : 'W', fd, parts, n, place, flags & ~(RWF_DSYNC | RWF_SYNC)); \
  }
PWRITE(pwrite)
PWRITE(pwrite64)
PWRITEV(pwritev)
PWRITEV(pwritev64)
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

static int plain(char kind, int fd, uint64_t place) {
  char path[PATH_MAX];
  uint64_t file;
  lock();
  int result = kind == 'T' ? (int)syscall(SYS_ftruncate, fd, place) : 0;
  if (!result && known(fd, &file, path)) {
    const int fails = kind == 'S' && ++syncs == failing;
    event(fails ? 'X' : kind, file, place, path, strlen(path), NULL);
    if (fails) {
      errno = EIO;
      result = -1;
    }
  }
  return (int)unlock(result);
}
int ftruncate(int fd, off64_t size) { return plain('T', fd, (uint64_t)size); }
int ftruncate64(int fd, off64_t size) { return plain('T', fd, (uint64_t)size); }
int fsync(int fd) { return plain('S', fd, 0); }
int fdatasync(int fd) { return plain('S', fd, 0); }

/* A change of names: done by the system call, then written down. */
#define NAMES(kind, folder, path, other_folder, other, call)                             \
  {                                                                                      \
    char whole[PATH_MAX] = "", other_whole[PATH_MAX] = "";                               \
    lock();                                                                              \
    const int is_known = out >= 0 && of_path(folder, path, whole) && below_root(whole);  \
    if (is_known) of_path(other_folder, other, other_whole);                             \
    const int result = (int)(call);                                                      \
    if (!result && is_known) event(kind, 0, 0, whole, strlen(whole), other_whole);       \
    return (int)unlock(result);                                                          \
  }
#define NONE (const char*)NULL
int mkdir(const char* p, mode_t mode) NAMES('M', AT_FDCWD, p, 0, NONE, syscall(SYS_mkdirat, AT_FDCWD, p, mode))
int mkdirat(int d, const char* p, mode_t mode) NAMES('M', d, p, 0, NONE, syscall(SYS_mkdirat, d, p, mode))
int unlink(const char* p) NAMES('U', AT_FDCWD, p, 0, NONE, syscall(SYS_unlinkat, AT_FDCWD, p, 0))
int rmdir(const char* p) NAMES('V', AT_FDCWD, p, 0, NONE, syscall(SYS_unlinkat, AT_FDCWD, p, AT_REMOVEDIR))
int unlinkat(int d, const char* p, int flags)
  NAMES(flags & AT_REMOVEDIR ? 'V' : 'U', d, p, 0, NONE, syscall(SYS_unlinkat, d, p, flags))
int rename(const char* p, const char* q)
  NAMES('R', AT_FDCWD, p, AT_FDCWD, q, syscall(SYS_renameat2, AT_FDCWD, p, AT_FDCWD, q, 0))
int renameat(int d, const char* p, int e, const char* q) NAMES('R', d, p, e, q, syscall(SYS_renameat2, d, p, e, q, 0))
int link(const char* p, const char* q)
  NAMES('L', AT_FDCWD, p, AT_FDCWD, q, syscall(SYS_linkat, AT_FDCWD, p, AT_FDCWD, q, 0))
int linkat(int d, const char* p, int e, const char* q, int flags) NAMES('L', d, p, e, q, syscall(SYS_linkat, d, p, e, q, flags))

/* Which file a call is about: what the libraries before libc share. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[PATH_MAX];

static int below_root(const char* path) {
  const size_t n = strlen(root);
  return !strncmp(path, root, n) && (path[n] == '/' || path[n] == 0);
}

static int of_fd(int fd, char out[PATH_MAX]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, out, PATH_MAX - 1);
  if (n < 0) return 0;
  out[n] = 0;
  return 1;
}

/* The folder without symbolic links, and the last name as it is: the calls wrapped here that follow
 * it only create. */
static int of_path(int folder, const char* path, char out[PATH_MAX]) {
  char whole[2 * PATH_MAX + 2], base[PATH_MAX] = "";
  if (!path) return 0;
  if (path[0] != '/' && (folder == AT_FDCWD ? !getcwd(base, sizeof base) : !of_fd(folder, base)))
    return 0;
  snprintf(whole, sizeof whole, "%s/%s", base, path);
  for (size_t n = strlen(whole); n > 1 && whole[n - 1] == '/'; --n) whole[n - 1] = 0;
  char* name = strrchr(whole, '/');
  *name++ = 0;
  if (!realpath(*whole ? whole : "/", out)) return 0;
  const size_t n = strlen(out);
  snprintf(out + n, PATH_MAX - n, "/%s", name);
  return 1;
}

/* The permissions of a call of open(), which has them where it may create a file. */
#define MODE(flags)                                    \
  mode_t permissions = 0;                              \
  if ((flags) & (O_CREAT | __O_TMPFILE)) {             \
    va_list arguments;                                 \
    va_start(arguments, flags);                        \
    permissions = (mode_t)va_arg(arguments, unsigned); \
    va_end(arguments);                                 \
  }

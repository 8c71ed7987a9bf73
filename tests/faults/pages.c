/* Stands before libc to count what a process asks of the page cache and of itself, and to report major faults that never were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static long asked, checked, polled, invented;
static int faulting;

long fppages_asked(void) { return asked; }
long fppages_checked(void) { return checked; }
long fppages_polled(void) { return polled; }
void fppages_faulting(int on) { faulting = on; }

int madvise(void *p, size_t n, int advice) {
  static int (*real)(void *, size_t, int);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "madvise");
  if (advice == MADV_WILLNEED) __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
  return real(p, n, advice);
}

int mincore(void *p, size_t n, unsigned char *pages) {
  static int (*real)(void *, size_t, unsigned char *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "mincore");
  __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
  return real(p, n, pages);
}

int getrusage(int who, struct rusage *usage) {
  static int (*real)(int, struct rusage *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getrusage");
  const int status = real(who, usage);
  __atomic_add_fetch(&checked, 1, __ATOMIC_RELAXED);
  usage->ru_majflt = faulting ? __atomic_add_fetch(&invented, 1, __ATOMIC_RELAXED) : invented;
  return status;
}

/* Asked by the kernel each time that it looks for signals. */
pid_t getpid(void) {
  __atomic_add_fetch(&polled, 1, __ATOMIC_RELAXED);
  return (pid_t)syscall(SYS_getpid);
}

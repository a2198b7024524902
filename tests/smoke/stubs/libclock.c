/* Loaded before the C library (LD_PRELOAD). Tests can change clocks with it. Tests only.
   STUB_CLOCK: a file with the seconds by which the time of day is wrong; it is read for each call, so that a test can change it
   in the middle of a run.
   STUB_CLOCK_SPEED: the speed of the monotonic clock, such as 3.
   While a clock is wrong, sleeping until a time of a clock fails (Python 3.11 sleeps so), as with libfaketime after a jump. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long wrong_by(void) {
  const char *path = getenv("STUB_CLOCK");
  FILE *file = path ? fopen(path, "r") : NULL;
  long seconds = 0;
  if (file) {
    if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
    fclose(file);
  }
  return seconds;
}

static double speed(void) {
  const char *text = getenv("STUB_CLOCK_SPEED");
  return text ? atof(text) : 1;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int answer = real(clock, out);
  if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) out->tv_sec += wrong_by();
  if (answer == 0 && clock == CLOCK_MONOTONIC && speed() != 1) {
    double seconds = speed() * (out->tv_sec + out->tv_nsec * 1e-9);
    out->tv_sec = (time_t)seconds;
    out->tv_nsec = (long)((seconds - out->tv_sec) * 1e9);
  }
  return answer;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
  static int (*real)(clockid_t, int, const struct timespec *, struct timespec *);
  if (!real) real = (int (*)(clockid_t, int, const struct timespec *, struct timespec *))dlsym(RTLD_NEXT, "clock_nanosleep");
  if ((flags & TIMER_ABSTIME) && (wrong_by() || speed() != 1)) return EINVAL;
  return real(clock, flags, until, left);
}

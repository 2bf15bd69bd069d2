// A wall clock that is ahead by AHEAD_NS nanoseconds, for a process that is started with this library in LD_PRELOAD.
// Other clocks are not changed. libfaketime does the same, but locks at each call: a node of Cassandra takes minutes to
// start with it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long long ahead;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
	const char *text = getenv("AHEAD_NS");
	ahead = text ? atoll(text) : 0;
	real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	const long long second = 1000000000;
	int err;
	if (!real)
		begin(); // another library's constructor asks for the time first
	err = real(clock, t);
	if (!err && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		long long ns = (long long)t->tv_sec * second + t->tv_nsec + ahead;
		t->tv_sec = ns / second;
		t->tv_nsec = ns % second;
	}
	return err;
}

int gettimeofday(struct timeval *t, void *zone) {
	struct timespec now;
	int err = clock_gettime(CLOCK_REALTIME, &now);
	(void)zone;
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return err;
}

time_t time(time_t *t) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t)
		*t = now.tv_sec;
	return now.tv_sec;
}

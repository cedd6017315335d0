//go:build linux && cgo

// What must be known or done before Go's runtime starts, which catches nearly every signal, opens /dev/null where a standard stream is
// closed, and ends the program where the limits of the process leave it too little.

#define _GNU_SOURCE
#include "early_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static unsigned long long ignored;
static int closed;

unsigned long long oomguard_ignored_at_start(void) { return ignored; }
int oomguard_closed_at_start(void) { return closed; }

static void note_signals(void)
{
	for (int s = 1; s <= 64; s++) {
		struct sigaction action;
		if (sigaction(s, 0, &action) == 0 && action.sa_handler == SIG_IGN)
			ignored |= 1ULL << (s - 1);
	}
}

// note_streams also takes the places of closed streams where there is no /dev/null, without which Go's runtime would end the program.
static void note_streams(void)
{
	for (int fd = 0; fd < 3; fd++) {
		if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
			continue;
		closed |= 1 << fd;
		if (access("/dev/null", R_OK | W_OK) != 0)
			memfd_create("null", 0); // the lowest free number: this one
	}
}

// replace executes a command in place of this program, as a shell would. It returns only the status for a command that cannot be executed.
static int replace(const char *file, char **argv)
{
	execvp(file, argv);
	int failed = errno;
	fprintf(stderr, "oomguard: %s: %s\n", file, strerror(failed));
	return failed == ENOENT ? 127 : 126;
}

// start_ignoring is the command's own process on its way: it sets the signals ignored that Go cannot hand down so.
static void start_ignoring(char **argv)
{
	unsigned long long mask = strtoull(argv[2], 0, 16);
	for (int s = 1; s <= 64; s++)
		if (mask & 1ULL << (s - 1))
			signal(s, SIG_IGN);
	_exit(replace(argv[3], argv + 4));
}

// What the program takes at most, with many processors: address space, writable memory, descriptors, and threads, those of its helper
// processes among them. Measured on two processors: 2 GiB, 200 MiB, 12, 30.
enum { ADDRESSES = 4, WRITABLE = 1, DESCRIPTORS = 32, THREADS = 48 }; // the first in GiB, the second in half GiB

static int can_map(size_t bytes, int protection)
{
	void *at = mmap(0, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return at != MAP_FAILED && munmap(at, bytes) == 0;
}

static int can_open(void)
{
	int first = open("/", O_PATH | O_CLOEXEC), opened = 0, fds[DESCRIPTORS];
	while (first >= 0 && opened < DESCRIPTORS && (fds[opened] = fcntl(first, F_DUPFD_CLOEXEC, 0)) >= 0)
		opened++;
	for (int i = 0; i < opened; i++)
		close(fds[i]);
	if (first >= 0)
		close(first);
	return opened == DESCRIPTORS;
}

static void *wait_for(void *gate)
{
	while (sem_wait(gate) != 0)
		;
	return 0;
}

static int can_thread(void)
{
	pthread_t threads[THREADS];
	pthread_attr_t small;
	sem_t gate;
	int started = 0;
	sem_init(&gate, 0, 0);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	while (started < THREADS && pthread_create(&threads[started], &small, wait_for, &gate) == 0)
		started++;
	for (int i = 0; i < started; i++)
		sem_post(&gate);
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], 0);
	return started == THREADS;
}

// lacking names the limit under which this program might not live as long as the command; 0: none.
static const char *lacking(void)
{
	struct rlimit files, raised;
	if (!can_map((size_t)ADDRESSES << 30, PROT_NONE))
		return "address space (ulimit -v)";
	if (!can_map((size_t)WRITABLE << 29, PROT_READ | PROT_WRITE))
		return "memory (ulimit -d)";
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) { // Go's runtime raises it, and gives it back to the command
		raised = files;
		raised.rlim_cur = raised.rlim_max;
		setrlimit(RLIMIT_NOFILE, &raised);
		int enough = can_open();
		setrlimit(RLIMIT_NOFILE, &files);
		if (!enough)
			return "open files (ulimit -n)";
	}
	return can_thread() ? 0 : "processes or threads (ulimit -u, pids.max)";
}

static int is_launcher(const char *word)
{
	static const char *words[] = {"torchrun", "accelerate", "deepspeed", "python", "python3", 0};
	for (int i = 0; words[i]; i++)
		if (strcmp(word, words[i]) == 0)
			return 1;
	return 0;
}

// command_of finds the command in "oomguard torchrun ..." and "oomguard run [flags] [--] CMD...", 0 where there is none to start, or none
// that is certain.
static char **command_of(char **argv)
{
	if (is_launcher(argv[1]))
		return argv + 1;
	if (strcmp(argv[1], "run") != 0)
		return 0;
	for (int i = 2; argv[i]; i++) {
		if (strcmp(argv[i], "--") == 0)
			return argv[i + 1] ? argv + i + 1 : 0;
		if (strstr(argv[i], "-dry-run") == argv[i] || strstr(argv[i], "--dry-run") == argv[i] || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return 0;
		if (is_launcher(argv[i]) || (i == 2 && argv[i][0] != '-'))
			return argv + i;
	}
	return 0;
}

__attribute__((constructor)) static void early(int argc, char **argv)
{
	note_signals();
	if (argc >= 5 && strcmp(argv[1], OOMGUARD_START_IGNORING) == 0)
		start_ignoring(argv);
	char **command = argc >= 2 ? command_of(argv) : 0;
	const char *limit = command ? lacking() : 0;
	if (limit) {
		fprintf(stderr, "oomguard: too little %s is left for watching; the command runs without oomguard\n", limit);
		_exit(replace(command[0], command));
	}
	note_streams();
}

// The signals below are caught here, since Go's runtime cannot hand them to a program: it keeps some for itself, and does not tell of others
// who sent them.

static int told = -1; // where the numbers of those that somebody sent are written
static struct sigaction before[65];

static void caught(int s, siginfo_t *info, void *context)
{
	int saved = errno;
	int own = info->si_pid == getpid() || info->si_code == SI_KERNEL;
	if (!own) {
		unsigned char number = s;
		if (write(told, &number, 1) < 0) {
			// the pipe is full of signals that nobody has taken yet: as good as a signal that is pending already
		}
	} else if (s == SIGURG && before[s].sa_flags & SA_SIGINFO)
		before[s].sa_sigaction(s, info, context); // Go's scheduler signals its own threads
	errno = saved;
}

int oomguard_catch(int s, int to)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
	action.sa_sigaction = caught;
	sigfillset(&action.sa_mask);
	told = to;
	if (sigaction(s, 0, &before[s]) != 0)
		return -1;
	return sigaction(s, &action, 0);
}

int oomguard_release(int s) { return sigaction(s, &before[s], 0); }

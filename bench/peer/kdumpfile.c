/*
 * Times libkdumpfile through its own C API.
 *
 *   kdumpfile LIBRARY open  DUMP COUNT        seconds to open, once per line
 *   kdumpfile LIBRARY read  DUMP PFNS         reads the 4 KiB pages listed in PFNS (64-bit words of this machine), in that order
 *   kdumpfile LIBRARY write DUMP PFNS OUTPUT  the same, and writes each page that can be read to OUTPUT
 *
 * `read` prints seconds, how many pages were read, and the XOR of the pages' first words rotated by their place, which
 * tells that another reader saw the same. The library is loaded at run time, so that no header or development package is
 * needed: the one in drgn's wheel will do.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MACHPHYSADDR = 1 };

static void *(*context_new)(void);
static void (*context_free)(void *);
static const char *(*last_error)(void *);
static int (*open_fdset)(void *, unsigned, const int *);
static int (*read_at)(void *, int, uint64_t, void *, size_t *);

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "kdumpfile: %s: %s\n", what, why);
	exit(1);
}

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);
	if (!found)
		fail(name, dlerror());
	return found;
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void *open_dump(const char *path)
{
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		fail(path, "cannot be opened");
	void *context = context_new();
	if (!context)
		fail(path, "no memory");
	if (open_fdset(context, 1, &fd))
		fail(path, last_error(context));
	return context;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		fail("usage", "LIBRARY open|read|write DUMP COUNT|PFNS [OUTPUT]");
	void *library = dlopen(argv[1], RTLD_NOW);
	if (!library)
		fail(argv[1], dlerror());
	*(void **)&context_new = symbol(library, "kdump_new");
	*(void **)&context_free = symbol(library, "kdump_free");
	*(void **)&last_error = symbol(library, "kdump_get_err");
	*(void **)&open_fdset = symbol(library, "kdump_open_fdset");
	*(void **)&read_at = symbol(library, "kdump_read");

	if (!strcmp(argv[2], "open")) {
		for (int left = atoi(argv[4]); left > 0; left--) {
			double start = now();
			void *context = open_dump(argv[3]);
			printf("%.6f\n", now() - start);
			context_free(context);
		}
		return 0;
	}

	struct stat status;
	int list = open(argv[4], O_RDONLY);
	if (list < 0 || fstat(list, &status) || !status.st_size)
		fail(argv[4], "no list of page frames");
	size_t count = status.st_size / sizeof(uint64_t);
	const uint64_t *pfns = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, list, 0);
	if (pfns == MAP_FAILED)
		fail(argv[4], "cannot be mapped");
	FILE *output = argc > 5 ? fopen(argv[5], "wb") : NULL;

	void *context = open_dump(argv[3]);
	uint64_t page[PAGE / sizeof(uint64_t)], sum = 0;
	size_t done = 0;
	double start = now();
	for (size_t at = 0; at < count; at++) {
		size_t length = PAGE;
		if (read_at(context, MACHPHYSADDR, pfns[at] * PAGE, page, &length))
			continue;
		sum = (sum << 1 | sum >> 63) ^ page[0];
		done++;
		if (output && fwrite(page, PAGE, 1, output) != 1)
			fail(argv[5], "cannot be written");
	}
	printf("%.6f %zu %016llx\n", now() - start, done, (unsigned long long)sum);
	if (output && fclose(output))
		fail(argv[5], "cannot be written");
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Allocates and frees vmalloc areas from many threads, to make a backlog of hundreds of thousands of areas to purge.
 *
 * Each thread allocates `areas` areas of 1 to `pages` pages, frees them all, and repeats that for `seconds`. The counts are
 * logged when the module is removed. The threads share no counter while they work.
 */
#include <linux/delay.h>
#include <linux/init.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

static unsigned int threads = 4;
module_param(threads, uint, 0444);
MODULE_PARM_DESC(threads, "threads that allocate and free (1 to 1024)");

static unsigned int areas = 2000;
module_param(areas, uint, 0444);
MODULE_PARM_DESC(areas, "areas each thread holds at most (1 to 1000000)");

static unsigned int pages = 4;
module_param(pages, uint, 0444);
MODULE_PARM_DESC(pages, "an area has from 1 to this many pages (1 to 4096)");

static unsigned int seconds = 10;
module_param(seconds, uint, 0444);
MODULE_PARM_DESC(seconds, "how long the threads work (1 to 3600)");

/* Not zero while threads work: scripts wait for it in /sys/module/vmalloc_stress/parameters. */
static int running;
module_param(running, int, 0444);

struct worker {
	struct task_struct *task;
	void **held;
	u64 random;
	unsigned long allocated;
	unsigned long failed;
	unsigned long rounds;
};

static struct worker *workers;
static atomic_t working = ATOMIC_INIT(0);

/* xorshift64*: no two kernels agree on what their own generator is called. */
static u32 next_random(u64 *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (*state * 2685821657736338717ULL) >> 32;
}

static void free_all(struct worker *worker, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		vfree(worker->held[i]);
}

static int work(void *data)
{
	struct worker *worker = data;
	ktime_t end = ktime_add_ms(ktime_get(), seconds * 1000ULL);

	while (!kthread_should_stop() && ktime_before(ktime_get(), end)) {
		unsigned int count = 0;

		while (count < areas && !kthread_should_stop()) {
			unsigned long size = (1 + next_random(&worker->random) % pages) * PAGE_SIZE;
			void *area = vmalloc(size);

			if (!area) {
				worker->failed++;
				break;
			}
			worker->held[count++] = area;
			worker->allocated++;
			cond_resched();
		}
		free_all(worker, count);
		worker->rounds++;
		cond_resched();
	}
	if (atomic_dec_and_test(&working))
		running = 0;
	while (!kthread_should_stop())
		msleep_interruptible(100);
	return 0;
}

static void stop_all(void)
{
	unsigned long allocated = 0, failed = 0, rounds = 0;
	unsigned int i;

	for (i = 0; i < threads; i++) {
		if (workers[i].task)
			kthread_stop(workers[i].task);
		allocated += workers[i].allocated;
		failed += workers[i].failed;
		rounds += workers[i].rounds;
		vfree(workers[i].held);
	}
	pr_info("vmalloc_stress: %u threads, %lu areas allocated and freed, %lu failed, %lu rounds\n", threads,
		allocated, failed, rounds);
	kfree(workers);
}

static int __init stress_init(void)
{
	unsigned int i;

	if (!threads || threads > 1024 || !areas || areas > 1000000 || !pages || pages > 4096 || !seconds ||
	    seconds > 3600)
		return -EINVAL;
	workers = kcalloc(threads, sizeof(*workers), GFP_KERNEL);
	if (!workers)
		return -ENOMEM;
	running = 1;
	atomic_set(&working, threads);
	for (i = 0; i < threads; i++) {
		struct task_struct *task;

		workers[i].random = 0x9e3779b97f4a7c15ULL * (i + 1);
		workers[i].held = vmalloc(array_size(areas, sizeof(void *)));
		if (!workers[i].held)
			goto fail;
		task = kthread_run(work, &workers[i], "vmalloc_stress/%u", i);
		if (IS_ERR(task))
			goto fail;
		workers[i].task = task;
	}
	return 0;
fail:
	stop_all();
	return -ENOMEM;
}

static void __exit stress_exit(void)
{
	stop_all();
}

module_init(stress_init);
module_exit(stress_exit);
MODULE_DESCRIPTION("Allocates and frees vmalloc areas from many threads");
/* The kernel's word for the dual licence that lets a module use what is exported to GPL code. */
MODULE_LICENSE("Dual MIT/GPL");

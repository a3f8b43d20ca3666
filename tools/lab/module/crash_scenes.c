// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Crashes or stalls the kernel in the way that `scene` names, when it is loaded.
 */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/version.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

static char *scene = "";
module_param(scene, charp, 0444);
MODULE_PARM_DESC(scene, "null, null-call, bug, use-after-free, stack-overflow, deadlock, rwsem, rtlock, lockup, irqs-off, work, vmalloc or leak");

/* kthread_run_on_cpu() is there since 5.17. */
static void scene_run_on_cpu(int (*function)(void *), unsigned int cpu, const char *name)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 17, 0)
	kthread_run_on_cpu(function, NULL, cpu, name);
#else
	struct task_struct *task = kthread_create(function, NULL, name, cpu);

	if (!IS_ERR(task)) {
		kthread_bind(task, cpu);
		wake_up_process(task);
	}
#endif
}

static DEFINE_MUTEX(scene_first);
static DEFINE_MUTEX(scene_second);
static DECLARE_RWSEM(scene_table);
static DEFINE_SPINLOCK(scene_counter);

struct scene_request {
	long unused;
	long count;
};

static noinline void scene_null_dereference(struct scene_request *request)
{
	WRITE_ONCE(request->count, 1);
}

static int (*scene_operation)(int);

static noinline int scene_call_null(int argument)
{
	/* Not a tail call. */
	return READ_ONCE(scene_operation)(argument) + 1;
}

static noinline void scene_bug(void)
{
	BUG();
}

/* Frees an entry that is still in a list, which CONFIG_DEBUG_LIST notices when its neighbour is removed. */
static noinline void scene_use_after_free(void)
{
	struct list_head *freed = kzalloc(256, GFP_KERNEL), *other = kzalloc(256, GFP_KERNEL);
	LIST_HEAD(queue);

	if (!freed || !other)
		return;
	list_add_tail(freed, &queue);
	list_add_tail(other, &queue);
	kfree(freed);
	/* The next user of that memory. */
	memset(freed, 0x5a, sizeof(*freed));
	list_del(other);
}

static noinline int scene_overflow_stack(int depth)
{
	volatile char frame[256];

	frame[depth & 255] = 1;
	if (depth >= 0)
		scene_overflow_stack(depth + 1);
	return frame[depth & 255];
}

/*
 * Frees more areas than the kernel keeps unpurged. As a real-time thread, so that the worker that purges does not run: there is
 * one CPU.
 */
static noinline int scene_fill_backlog(void *unused)
{
	static void *areas[128];
	int round, i;

	sched_set_fifo(current);
	for (round = 0; round < 6; round++) {
		for (i = 0; i < ARRAY_SIZE(areas); i++)
			areas[i] = vmalloc(64 << 10);
		for (i = 0; i < ARRAY_SIZE(areas); i++)
			vfree(areas[i]);
	}
	panic("the machine stalls");
	return 0;
}

static noinline int scene_first_then_second(void *unused)
{
	mutex_lock(&scene_first);
	msleep(500);
	mutex_lock(&scene_second);
	mutex_unlock(&scene_second);
	mutex_unlock(&scene_first);
	return 0;
}

static noinline int scene_second_then_first(void *unused)
{
	mutex_lock(&scene_second);
	msleep(500);
	mutex_lock(&scene_first);
	mutex_unlock(&scene_first);
	mutex_unlock(&scene_second);
	return 0;
}

static noinline int scene_writer(void *unused)
{
	down_write(&scene_table);
	msleep(3600 * 1000);
	up_write(&scene_table);
	return 0;
}

static noinline int scene_reader(void *unused)
{
	msleep(200);
	down_read(&scene_table);
	up_read(&scene_table);
	return 0;
}

static noinline int scene_spin(void *unused)
{
	msleep(200);
	preempt_disable();
	for (;;)
		cpu_relax();
	return 0;
}

/* On PREEMPT_RT, whose spinlocks can be held by a task that sleeps. */
static noinline int scene_counter_holder(void *unused)
{
	spin_lock(&scene_counter);
	msleep(3600 * 1000);
	spin_unlock(&scene_counter);
	return 0;
}

static noinline int scene_first_then_counter(void *unused)
{
	msleep(200);
	mutex_lock(&scene_first);
	spin_lock(&scene_counter);
	spin_unlock(&scene_counter);
	mutex_unlock(&scene_first);
	return 0;
}

static noinline int scene_takes_first(void *unused)
{
	msleep(500);
	mutex_lock(&scene_first);
	mutex_unlock(&scene_first);
	return 0;
}

/* On CPU 1. The capture kernel has to start on CPU 0, which is the one that waits and notices. */
static noinline int scene_spin_without_interrupts(void *unused)
{
	msleep(200);
	local_irq_disable();
	for (;;)
		cpu_relax();
	return 0;
}

static void scene_nothing(void *unused)
{
}

static noinline int scene_call_other(void *unused)
{
	msleep(1000);
	smp_call_function_single(1, scene_nothing, NULL, 1);
	return 0;
}

static noinline int scene_holds_first(void *unused)
{
	mutex_lock(&scene_first);
	msleep(3600 * 1000);
	mutex_unlock(&scene_first);
	return 0;
}

static noinline void scene_work_function(struct work_struct *work)
{
	mutex_lock(&scene_first);
	mutex_unlock(&scene_first);
}
static DECLARE_WORK(scene_work, scene_work_function);
static DECLARE_WORK(scene_later_work, scene_work_function);

static noinline int scene_flush(void *unused)
{
	struct workqueue_struct *queue = alloc_workqueue("scene-queue", WQ_UNBOUND, 1);

	msleep(200);
	if (!queue)
		return 0;
	queue_work(queue, &scene_work);
	queue_work(queue, &scene_later_work);
	flush_work(&scene_work);
	return 0;
}

/* Memory whose address nobody keeps. */
static noinline int scene_leak(void)
{
	int i;

	for (i = 0; i < 2048; i++) {
		if (!alloc_page(GFP_KERNEL))
			return -ENOMEM;
	}
	for (i = 0; i < 1024; i++) {
		if (!kmalloc(4096, GFP_KERNEL))
			return -ENOMEM;
	}
	return vmalloc(3 << 20) ? 0 : -ENOMEM;
}

static int __init scene_init(void)
{
	int i;

	if (!strcmp(scene, "null")) {
		scene_null_dereference(NULL);
	} else if (!strcmp(scene, "null-call")) {
		return scene_call_null(1);
	} else if (!strcmp(scene, "bug")) {
		scene_bug();
	} else if (!strcmp(scene, "use-after-free")) {
		scene_use_after_free();
	} else if (!strcmp(scene, "stack-overflow")) {
		scene_overflow_stack(0);
	} else if (!strcmp(scene, "vmalloc")) {
		kthread_run(scene_fill_backlog, NULL, "scene-vmalloc");
	} else if (!strcmp(scene, "deadlock")) {
		kthread_run(scene_first_then_second, NULL, "scene-a");
		kthread_run(scene_second_then_first, NULL, "scene-b");
	} else if (!strcmp(scene, "rwsem")) {
		kthread_run(scene_writer, NULL, "scene-writer");
		for (i = 0; i < 3; i++)
			kthread_run(scene_reader, NULL, "scene-reader/%d", i);
	} else if (!strcmp(scene, "rtlock")) {
		kthread_run(scene_counter_holder, NULL, "scene-holder");
		kthread_run(scene_first_then_counter, NULL, "scene-counter");
		kthread_run(scene_takes_first, NULL, "scene-first");
	} else if (!strcmp(scene, "irqs-off")) {
		scene_run_on_cpu(scene_spin_without_interrupts, 1, "scene-spin/%u");
		scene_run_on_cpu(scene_call_other, 0, "scene-caller/%u");
	} else if (!strcmp(scene, "work")) {
		kthread_run(scene_holds_first, NULL, "scene-holder");
		kthread_run(scene_flush, NULL, "scene-flush");
	} else if (!strcmp(scene, "leak")) {
		return scene_leak();
	} else if (!strcmp(scene, "lockup")) {
		kthread_run(scene_spin, NULL, "scene-spin");
	} else {
		return -EINVAL;
	}
	return 0;
}
module_init(scene_init);

MODULE_DESCRIPTION("Crashes or stalls the kernel for tests");
MODULE_LICENSE("Dual MIT/GPL");

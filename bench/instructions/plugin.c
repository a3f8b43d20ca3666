// A plugin for QEMU's user emulation that counts instructions: prints the clock and the count so far at each
// clock_gettime(2), with which programs time their parts.
//
// gcc -shared -fPIC -O2 -o count.so bench/instructions/plugin.c
// qemu-aarch64 -plugin ./count.so -d plugin -D counts PROGRAM
//
// Declares the parts of QEMU's plugin interface (version 1, docs/devel/tcg-plugins) that it uses: Debian packages no header.

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t plugin_id;
struct translation_block;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct translation_block *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct translation_block *, int operation, void *counter, uint64_t immediate);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                                                               uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
size_t qemu_plugin_tb_n_insns(const struct translation_block *);
void qemu_plugin_outs(const char *);

enum { ADD_U64 = 0, CLOCK_GETTIME = 113 };

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
static uint64_t executed;

static void translated(plugin_id id, struct translation_block *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &executed, qemu_plugin_tb_n_insns(block));
}

static void called(plugin_id id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                   uint64_t f, uint64_t g, uint64_t h) {
    (void)id, (void)cpu, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number == CLOCK_GETTIME) {
        char line[64];
        snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 "\n", a, executed);
        qemu_plugin_outs(line);
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments) {
    (void)info, (void)count, (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    return 0;
}

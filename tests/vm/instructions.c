/* Plugin of QEMU's translator: counts the instructions that the machine executes, in a file that others read meanwhile: `counts=PATH`.
 * Its declarations are those of include/qemu/qemu-plugin.h, which QEMU's packages do not have. */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct qemu_plugin_tb;
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*)(uint64_t id, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(
    struct qemu_plugin_tb *, void (*)(unsigned processor, void *), int registers, void *given);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);

enum { PROCESSORS = 64, LINE = 8 };
int qemu_plugin_version = 1;
static volatile uint64_t *counts; /* a cache line for each processor: only its own thread writes there */

static void executed(unsigned processor, void *instructions) {
    counts[processor % PROCESSORS * LINE] += (uintptr_t)instructions;
}

static void translated(uint64_t id, struct qemu_plugin_tb *block) {
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)qemu_plugin_tb_n_insns(block));
}

int qemu_plugin_install(uint64_t id, const void *about, int count, char **words) {
    const size_t size = PROCESSORS * LINE * sizeof *counts;
    if (count != 1 || strncmp(words[0], "counts=", 7)) return 1;
    int file = open(words[0] + 7, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, (off_t)size)) return 1;
    counts = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (counts == MAP_FAILED) return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}

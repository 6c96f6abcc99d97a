/* codemem.c: see codemem.h. */
#include "device/cpu/codemem.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

bool ki_codemem_make(ki_env *env, const void *code, size_t n, ki_codemem *out) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (n + page - 1) & ~(page - 1);
    *out = (ki_codemem){0};
    if (!n || bytes < n) return ki_fail(env, KI_E_EXEC_MEMORY, n, "that is no size"), false;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return ki_fail(env, KI_E_EXEC_MEMORY, n, strerror(errno)), false;
    memcpy(p, code, n);
    memset((uint8_t *)p + n, 0xcc, bytes - n); /* int3: what runs off the end stops there */
    if (mprotect(p, bytes, PROT_READ | PROT_EXEC)) {
        ki_fail(env, KI_E_EXEC_MEMORY, n, strerror(errno));
        munmap(p, bytes);
        return false;
    }
    *out = (ki_codemem){p, bytes};
    return true;
}

void ki_codemem_free(ki_codemem *e) {
    if (e->code) munmap(e->code, e->bytes);
    *e = (ki_codemem){0};
}

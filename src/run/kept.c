/* kept.c: see kept.h. */
#include "run/kept.h"

#include "base/cpuid.h"
#include "base/text.h"
#include "run/search/tune.h"

#include <link.h>
#include <string.h>

/* ---- the key ----------------------------------------------------------------------------------------------------- */

typedef struct build {
    uintptr_t here; /* an address of ours */
    ki_digest id;
    bool known;
} build;

bool ki_build_id_in(const void *notes, size_t n, ki_digest *id) {
    ElfW(Nhdr) h;
    for (const char *at = notes; n >= sizeof h;) {
        memcpy(&h, at, sizeof h);
        uint64_t name = sizeof h + ((uint64_t)h.n_namesz + 3) / 4 * 4, end = name + h.n_descsz,
                 next = (end + 3) / 4 * 4;
        if (end > n) return false;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && memcmp(at + sizeof h, "GNU", 4) == 0)
            return *id = ki_digest_bytes(at + name, h.n_descsz), true;
        if (next > n) return false; /* the last one need not be filled up */
        at += next;
        n -= next;
    }
    return false;
}

/* The build id (a note the linker writes) of the object that holds `here`. */
static int look_at(struct dl_phdr_info *info, size_t size, void *arg) {
    build *b = arg;
    bool ours = false;
    (void)size;
    for (unsigned k = 0; k < info->dlpi_phnum; k++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[k];
        ours |= h->p_type == PT_LOAD && b->here - (info->dlpi_addr + h->p_vaddr) < h->p_memsz;
    }
    for (unsigned k = 0; ours && k < info->dlpi_phnum && !b->known; k++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[k];
        const void *at = (const void *)(info->dlpi_addr + h->p_vaddr);
        b->known = h->p_type == PT_NOTE && ki_build_id_in(at, h->p_memsz, &b->id);
    }
    return ours;
}

bool ki_build_id(ki_digest *id) {
    build b = {.here = (uintptr_t)&ki_cpu_level_names};
    dl_iterate_phdr(look_at, &b);
    *id = b.id;
    return b.known;
}

static bool program_digest(const ki_program *p, ki_digest *d) {
    size_t n = 0;
    kn_uop *node = ki_calloc(1 + p->nin + p->nout, sizeof *node);
    bool ok = node != NULL;
    if (!ok) return false;
    node[n++] = p->root;
    for (size_t i = 0; i < p->nin; i++) node[n++] = p->in[i].node;
    for (size_t i = 0; i < p->nout; i++) node[n++] = p->out[i].node;
    *d = ki_graph_digest(p->ir, node, n, &ok);
    ki_free(node);
    return ok;
}

bool ki_machine_key(const ki_lower_opts *o, bool measured, ki_digest *key) {
    const ki_machine *m = &o->machine;
    ki_digest build = {0};
    bool known = ki_build_id(&build);
    const uint64_t all[] = {build.a,    build.b,   ki_cpu_features(), o->target->level, o->target->native,
                            m->threads, m->stream, m->ahead,          m->alone};
    *key = ki_digest_also(*key, all, sizeof all / sizeof *all);
    if (measured) {
        uint64_t times[4] = {ki_cpu_model()};
        ki_tune_caches(times + 1);
        *key = ki_digest_also(*key, times, 4);
    }
    return known;
}

bool ki_kept_key(ki_run *r, const ki_program *p, const ki_lower_opts *o, ki_digest *key) {
    ki_env *env = &r->k->env;
    /* Who looks at the stages wants to see them run. */
    bool watched =
        ki_setting_number(env, KI_VAR_VERIFY) || *ki_setting(env, KI_VAR_DEBUG) || *ki_setting(env, KI_VAR_TRACE);
    const uint64_t also[] = {p->nin, p->nout, o->choose ? ki_setting_number(env, KI_VAR_BEAM) : 0};
    if (!o->target->native || watched || env->err != KI_E_NONE) return false;
    bool ok = program_digest(p, key) && ki_machine_key(o, o->choose != NULL, key) &&
              (r->cache.temp || ki_code_cache_open(env, &r->cache)) && r->cache.dir;
    if (ok) *key = ki_digest_also(*key, also, sizeof also / sizeof *also);
    else ki_env_clear(env); /* that it is not kept is no failure */
    return ok;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

bool ki_kept_find(ki_run *r, ki_digest key, ki_ir *ir, ki_program *out) {
    size_t n;
    char *text = ki_code_cache_read(&r->cache, key, ".kn", &n);
    if (!text) return false;
    bool ok = ki_parse(ir, "the program cache", text, n, out);
    ki_free(text);
    if (ok && out->stage == KI_S_RENDER) return true;
    if (ok) ki_program_free(out);
    ki_env_clear(&r->k->env);
    (void)ki_ir_reset(ir); /* an open store has the memory that this takes */
    return false;
}

/* LINEAR(CALL(PROGRAM(LINEAR(...), BINARY), ...)...) with the inner lists empty. NULL: not all of it is machine code. */
static kn_uop without_lists(ki_ir *ir, kn_uop root) {
    uint32_t most = root->nsrc;
    for (uint32_t i = 0; i < root->nsrc; i++)
        if (root->src[i]->nsrc > most) most = root->src[i]->nsrc;
    kn_uop *call = ki_calloc(root->nsrc + 1, sizeof *call), *src = ki_calloc(most, sizeof *src), result = NULL;
    kn_uop empty = ki_opn(ir, KN_LINEAR, NULL, 0);
    bool ok = call && src && empty;
    for (uint32_t i = 0; i < root->nsrc && ok; i++) {
        kn_uop c = call[i] = root->src[i], k = c->src[0];
        if (k->op != KN_PROGRAM) continue;
        if (k->src[1]->op != KN_BINARY) ok = false;
        memcpy(src, c->src, c->nsrc * sizeof *src);
        ok = ok && (src[0] = ki_make(ir, KN_PROGRAM, KN_VOID, (kn_uop[]){empty, k->src[1]}, 2, k->arg, 0));
        ok = ok && (call[i] = ki_with_src(ir, c, src));
    }
    if (ok) result = ki_with_src(ir, root, call);
    ki_free(call);
    ki_free(src);
    return result;
}

void ki_kept_store(ki_run *r, ki_digest key, const ki_program *low) {
    ki_program p = *low;
    ki_text t = {0};
    p.root = without_lists(p.ir, low->root);
    if (p.root && ki_print(&p, &t) && !t.oom) ki_code_cache_write(&r->cache, key, ".kn", t.s, t.n);
    ki_text_free(&t);
    ki_env_clear(&r->k->env); /* the program is there; that it is not kept is no failure */
}

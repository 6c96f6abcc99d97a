/* code.c: rendered kernels to machine code. See code.h.
 *
 * What is missing is cut into parts of about equal size; a part is one C file, one compiler process, one file of
 * the disk cache. In a part kernel i is renamed by a macro to kn_<i>, so names need not be unique. */
#include "device/cpu/code.h"

#include "stages/target.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <koine/base.h>

enum { PART_BYTES = 16384, MAX_PARTS = 64, MAX_FLAGS = 64 };

/* What the object's file needs; the rest is the meaning of the text (KI_C_FLAGS) and the target's. */
#define LINK_FLAGS   "-shared -fPIC -pipe -fvisibility=default -nostartfiles"
#define VERSION_TEXT "koine " KI_STR(KN_VERSION_MAJOR) "." KI_STR(KN_VERSION_MINOR) "." KI_STR(KN_VERSION_PATCH) "\n"
#define KI_STR(x)    KI_STR_(x)
#define KI_STR_(x)   #x

typedef struct part {
    size_t from, to; /* of the list of missing kernels */
    ki_text source;
    ki_digest key;
    char *path; /* of the object being made */
    ki_cc_job job;
    void *object;
} part;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- in memory ----------------------------------------------------------------------------------------------- */

static ki_digest text_key(const ki_device *on, const char *cflags, const ki_kernel_text *k) {
    const char *cc = ki_setting(on->env, KI_VAR_CC);
    ki_digest d = ki_digest_bytes(k->text, k->n);
    d.a = ki_hash_bytes(ki_hash_bytes(d.a, cflags, strlen(cflags)), cc, strlen(cc));
    d.b = ki_hash_bytes(d.b, k->name, strlen(k->name));
    return d;
}

/* ---- parts --------------------------------------------------------------------------------------------------- */

static void write_part(part *p, ki_kernel_text *const *k) {
    ki_text *t = &p->source;
    for (size_t i = p->from; i < p->to; i++) {
        ki_text_printf(t, "#define %s kn_%zu\n", k[i]->name, i - p->from);
        ki_text_putn(t, k[i]->text, k[i]->n);
        ki_text_printf(t, "\n#undef %s\n", k[i]->name);
    }
}

/* p->key, of what write_part wrote. False: no memory. */
static bool part_key(const ki_code *c, const char *cflags, part *p) {
    ki_text head = {0};
    ki_text_put(&head, VERSION_TEXT KI_C_FLAGS " " LINK_FLAGS " ");
    ki_text_printf(&head, "%s\n%s\n", cflags, c->cc.identity.s);
    bool ok = !head.oom && !p->source.oom;
    p->key = ki_digest_bytes(p->source.s, p->source.n);
    if (ok) p->key.a = ki_hash_bytes(p->key.a, head.s, head.n);
    if (ok) p->key.b = ki_hash_bytes(p->key.b, head.s, head.n);
    ki_text_free(&head);
    return ok;
}

/* Splits a copy of the flags at its spaces. */
static size_t split_flags(char *s, const char **flag, size_t most) {
    size_t n = 0;
    for (char *p = strtok_r(s, " ", &s); p && n < most; p = strtok_r(NULL, " ", &s)) flag[n++] = p;
    return n;
}

static bool start_part(ki_code *c, ki_device *d, const char *cflags, part *p) {
    const char *flag[MAX_FLAGS];
    ki_text all = {0};
    ki_text_printf(&all, "%s %s %s", KI_C_FLAGS, LINK_FLAGS, cflags);
    if (all.oom || !all.s) return ki_text_free(&all), ki_fail(d->env, KI_E_NOMEM), false;
    size_t n = split_flags(all.s, flag, MAX_FLAGS);
    p->path = ki_code_cache_new(d->env, &c->cache);
    bool ok = p->path && ki_cc_start(d->env, &c->cc, flag, n, &p->source, c->cache.temp, p->path, &p->job);
    ki_text_free(&all);
    d->stats.compiler_runs += ok;
    return ok;
}

/* Cuts k[0..n) into parts of about equal text. */
static size_t cut(ki_kernel_text *const *k, size_t n, unsigned jobs, part *p) {
    size_t total = 0, parts, at = 0, done = 0;
    for (size_t i = 0; i < n; i++) total += k[i]->n;
    parts = 1 + total / PART_BYTES;
    if (parts > jobs) parts = jobs;
    if (parts > n) parts = n;
    if (parts > MAX_PARTS) parts = MAX_PARTS;
    for (size_t j = 0; j < parts; j++) {
        p[j] = (part){.from = at, .job = {0, -1}};
        do done += k[at++]->n;
        while (at < n && n - at > parts - 1 - j && (j == parts - 1 || done * parts < total * (j + 1)));
        p[j].to = at;
    }
    p[parts - 1].to = n;
    return parts;
}

static bool keep_object(ki_code *c, void *object) {
    void **v = ki_realloc(c->object, c->nobject + 1, sizeof *v);
    if (!v) return false;
    c->object = v;
    v[c->nobject++] = object;
    return true;
}

static bool take_symbols(ki_code *c, ki_device *d, const char *cflags, part *p, ki_kernel_text *const *k) {
    if (!keep_object(c, p->object)) return dlclose(p->object), ki_fail(d->env, KI_E_NOMEM), false;
    for (size_t i = p->from; i < p->to; i++) {
        char name[32];
        snprintf(name, sizeof name, "kn_%zu", i - p->from);
        void *symbol = dlsym(p->object, name);
        if (!symbol) return ki_fail(d->env, KI_E_CODE_LOAD, k[i]->name), false;
        memcpy(&k[i]->entry, &symbol, sizeof symbol); /* ISO C has no cast for this */
        ki_entries_put(&c->known, text_key(d, cflags, k[i]), k[i]->entry);
    }
    return true;
}

/* Machine code for k[0..n), all different and none known. */
static bool compile_missing(ki_code *c, ki_device *d, unsigned jobs, const char *cflags, ki_kernel_text *const *k,
                            size_t n) {
    part *p = ki_calloc(MAX_PARTS, sizeof *p);
    if (!p || !ki_entries_room(&c->known, n)) return ki_free(p), ki_fail(d->env, KI_E_NOMEM), false;
    size_t parts = cut(k, n, jobs ? jobs : 1, p);
    bool ok = true;
    for (size_t j = 0; j < parts && ok; j++) {
        write_part(&p[j], k);
        ok = part_key(c, cflags, &p[j]) || (ki_fail(d->env, KI_E_NOMEM), false);
        if (!ok) break;
        p[j].object = ki_code_cache_load(&c->cache, p[j].key);
        if (p[j].object) d->stats.cached += p[j].to - p[j].from;
        else ok = start_part(c, d, cflags, &p[j]);
    }
    for (size_t j = 0; j < parts; j++) {
        bool made = p[j].job.pid && ki_cc_finish(d->env, &c->cc, &p[j].job);
        if (made) {
            p[j].object = ki_code_cache_store(d->env, &c->cache, p[j].key, p[j].path);
            d->stats.compiled += p[j].to - p[j].from;
        } else if (p[j].path) {
            remove(p[j].path);
            ki_free(p[j].path);
        }
        if (p[j].object) ok = take_symbols(c, d, cflags, &p[j], k) && ok;
        else ok = false;
        ki_text_free(&p[j].source);
    }
    ki_free(p);
    return ok;
}

/* The compiler that KN_CC asks for now. */
static bool find_compiler(ki_code *c, ki_env *env) {
    const char *said = ki_setting(env, KI_VAR_CC);
    if (c->cc.path && strcmp(c->cc_said.s, said) == 0) return true;
    ki_cc_free(&c->cc);
    ki_text_free(&c->cc_said);
    ki_text_put(&c->cc_said, said);
    return c->cc_said.oom ? (ki_fail(env, KI_E_NOMEM), false) : ki_cc_find(env, &c->cc);
}

static bool open_tools(ki_code *c, ki_env *env) {
    return find_compiler(c, env) && (c->cache.temp || ki_code_cache_open(env, &c->cache));
}

bool ki_code_compile(ki_code *c, ki_device *d, unsigned jobs, const char *cflags, ki_kernel_text *k, size_t n) {
    double start = now();
    size_t missing = 0;
    ki_kernel_text **list = ki_calloc(n + 1, sizeof *list);
    if (!list || !ki_entries_room(&c->known, n)) return ki_free(list), ki_fail(d->env, KI_E_NOMEM), false;
    /* Kernels of equal text, which stand near each other, are compiled once. */
    for (size_t i = 0; i < n; i++) {
        k[i].entry = ki_entries_find(&c->known, text_key(d, cflags, &k[i]));
        if (k[i].entry) continue;
        bool listed = false;
        for (size_t j = missing; j-- > 0 && !listed && missing - j <= 64;)
            listed = list[j]->n == k[i].n && memcmp(list[j]->text, k[i].text, k[i].n) == 0 &&
                     strcmp(list[j]->name, k[i].name) == 0;
        if (!listed) list[missing++] = &k[i];
    }
    bool ok = !missing || (open_tools(c, d->env) && compile_missing(c, d, jobs, cflags, list, missing));
    for (size_t i = 0; i < n && ok; i++)
        if (!k[i].entry) k[i].entry = ki_entries_find(&c->known, text_key(d, cflags, &k[i]));
    ki_free(list);
    d->stats.compile_seconds += now() - start;
    return ok;
}

void ki_code_close(ki_code *c) {
    for (size_t i = 0; i < c->nobject; i++) dlclose(c->object[i]);
    ki_free(c->object);
    ki_entries_free(&c->known);
    ki_cc_free(&c->cc);
    ki_text_free(&c->cc_said);
    ki_code_cache_close(&c->cache);
    *c = (ki_code){0};
}

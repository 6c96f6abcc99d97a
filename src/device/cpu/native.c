/* native.c: see native.h. */
#include "device/cpu/native.h"

#include <string.h>

enum { ALIGN = 64 };

/* What is not there yet, one behind the other, into memory of its own. */
static bool load_new(ki_native *c, ki_device *d, ki_kernel_text *const *k, const ki_digest *key, size_t n) {
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < n; i++) bytes += (k[i]->n + ALIGN - 1) / ALIGN * ALIGN;
    uint8_t *all = ki_malloc(bytes);
    ki_codemem *block = all ? ki_realloc(c->block, c->nblock + 1, sizeof *block) : NULL;
    if (block) c->block = block;
    bool ok = block || (ki_fail(d->env, KI_E_NOMEM), false);
    if (ok) memset(all, 0xcc, bytes);
    for (size_t i = 0; i < n && ok; at += (k[i++]->n + ALIGN - 1) / ALIGN * ALIGN)
        memcpy(all + at, k[i]->text, k[i]->n);
    ok = ok && ki_codemem_make(d->env, all, bytes, &c->block[c->nblock]);
    ki_free(all);
    if (!ok) return false;
    uint8_t *code = c->block[c->nblock++].code;
    at = 0;
    for (size_t i = 0; i < n; at += (k[i++]->n + ALIGN - 1) / ALIGN * ALIGN) {
        void *p = code + at;
        ki_entry *entry;
        memcpy(&entry, &p, sizeof p); /* ISO C has no cast for this */
        ki_entries_put(&c->known, key[i], entry);
    }
    d->stats.compiled += n;
    return true;
}

bool ki_native_load(ki_native *c, ki_device *d, ki_kernel_text *k, size_t n) {
    ki_kernel_text **list = ki_calloc(n + 1, sizeof *list);
    ki_digest *key = ki_calloc(n + 1, sizeof *key), *fresh = ki_calloc(n + 1, sizeof *fresh);
    bool ok = list && key && fresh && ki_entries_room(&c->known, n);
    size_t missing = 0;
    if (!ok) ki_fail(d->env, KI_E_NOMEM);
    for (size_t i = 0; i < n && ok; i++) {
        key[i] = ki_digest_bytes(k[i].text, k[i].n);
        bool known = ki_entries_find(&c->known, key[i]) != NULL;
        for (size_t j = missing; j-- > 0 && !known && missing - j <= 64;)
            known = fresh[j].a == key[i].a && fresh[j].b == key[i].b;
        if (!known) fresh[missing] = key[i], list[missing++] = &k[i];
    }
    if (ok && missing) ok = load_new(c, d, list, fresh, missing);
    for (size_t i = 0; i < n && ok; i++) k[i].entry = ki_entries_find(&c->known, key[i]);
    ki_free(list), ki_free(key), ki_free(fresh);
    return ok;
}

void ki_native_close(ki_native *c) {
    for (size_t i = 0; i < c->nblock; i++) ki_codemem_free(&c->block[i]);
    ki_free(c->block);
    ki_entries_free(&c->known);
    *c = (ki_native){0};
}

/* native.c: see native.h. */
#include "device/cpu/native.h"

#include <string.h>

enum { ALIGN = 64 };

static size_t room(const ki_kernel_text *k) { return (k->n + ALIGN - 1) / ALIGN * ALIGN; }

/* One behind the other, into memory of their own; symbol[i]: where each is. */
static bool place(ki_native *c, ki_device *d, ki_kernel_text *const *k, size_t n, ki_symbol *symbol) {
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) symbol[i] = (ki_symbol){k[i]->name, bytes, k[i]->n}, bytes += room(k[i]);
    uint8_t *all = ki_malloc(bytes);
    struct ki_native_block *block = all ? ki_realloc(c->block, c->nblock + 1, sizeof *block) : NULL;
    if (!block) return ki_free(all), ki_fail(d->env, KI_E_NOMEM), false;
    c->block = block;
    block += c->nblock;
    memset(all, 0xcc, bytes);
    for (size_t i = 0; i < n; i++) memcpy(all + symbol[i].at, k[i]->text, k[i]->n);
    bool ok = ki_codemem_make(d->env, all, bytes, &block->mem);
    ki_free(all);
    if (!ok) return false;
    block->symbols = ki_symbols_add(d->env, block->mem.code, bytes, symbol, n);
    c->nblock++;
    return true;
}

/* What is not there yet. */
static bool load_new(ki_native *c, ki_device *d, ki_kernel_text *const *k, const ki_digest *key, size_t n) {
    ki_symbol *symbol = ki_calloc(n, sizeof *symbol);
    if (!symbol) return ki_fail(d->env, KI_E_NOMEM), false;
    bool ok = place(c, d, k, n, symbol);
    for (size_t i = 0; i < n && ok; i++) {
        void *p = c->block[c->nblock - 1].mem.code + symbol[i].at;
        ki_entry *entry;
        memcpy(&entry, &p, sizeof p); /* ISO C has no cast for this */
        ki_entries_put(&c->known, key[i], entry);
    }
    ki_free(symbol);
    for (size_t i = 0; i < n && ok; i++) *(k[i]->kept ? &d->stats.cached : &d->stats.compiled) += 1;
    return ok;
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
    for (size_t i = 0; i < c->nblock; i++) {
        ki_symbols_remove(c->block[i].symbols);
        ki_codemem_free(&c->block[i].mem);
    }
    ki_free(c->block);
    ki_entries_free(&c->known);
    *c = (ki_native){0};
}

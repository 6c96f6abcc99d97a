/* storage.c: the bytes behind GLOBAL BUFFERs, and the collection of what nothing needs any more.
 *
 * k->storage is indexed by BUFFER id. An id is free again once a collection has found no node with it, and no captured step holds it. */
#include "tensor/context.h"

#include <string.h>

static void release(kn_ctx *k, ki_storage *s) {
    if (!s->borrowed) k->live_bytes -= s->bytes < k->live_bytes ? s->bytes : k->live_bytes;
    if (s->borrowed) {
        if (s->release) s->release(s->owner);
    } else if (s->data) {
        if (s->device && k->run_free) k->run_free(k, s);
        else ki_data_free(s->data, s->bytes);
    }
    *s = (ki_storage){0};
}

kn_uop ki_buffer_new(kn_ctx *k, int64_t numel, kn_dtype t, unsigned device) {
    uint32_t id = k->storage_free ? k->storage_free : 1; /* 0 is no buffer */
    while (id < k->nstorage && k->storage[id].used) id++;
    if (id >= k->nstorage) {
        uint32_t n = k->nstorage ? k->nstorage * 2 : 64;
        ki_storage *s = ki_realloc(k->storage, n, sizeof *s);
        if (!s) return ki_fail(&k->env, KI_E_NOMEM), NULL;
        memset(s + k->nstorage, 0, (n - k->nstorage) * sizeof *s);
        k->storage = s;
        k->nstorage = n;
    }
    kn_uop b = ki_buffer_make(&k->ir, id, numel, t, KN_GLOBAL, device);
    if (!b) return NULL;
    if (k->ir.next_buffer <= id) k->ir.next_buffer = id + 1;
    k->storage[id].used = true;
    k->storage_free = id + 1;
    return b;
}

bool ki_storage_host(kn_ctx *k, ki_storage *s, size_t bytes) {
    s->data = ki_data_alloc(bytes);
    if (!s->data) return ki_fail(&k->env, KI_E_NOMEM), false;
    s->bytes = bytes;
    k->live_bytes += bytes;
    k->new_bytes += bytes;
    return true;
}

kn_uop ki_buffer_under(kn_uop u) {
    while (u && u->op == KN_RESHAPE) u = u->src[0];
    return u && u->op == KN_BUFFER && u->arg.buffer->addrspace == KN_GLOBAL ? u : NULL;
}

void ki_storage_close(kn_ctx *k) {
    for (uint32_t i = 0; i < k->nstorage; i++)
        if (k->storage[i].used) release(k, &k->storage[i]);
    ki_free(k->storage);
    k->storage = NULL;
    k->nstorage = 0;
}

/* ---- collection -------------------------------------------------------------------------------------------- */

/* Live tensors and dimension variables as one list of roots; back the same way. */
static size_t gather(kn_ctx *k, kn_uop *root, bool back) {
    size_t n = 0;
    for (struct kn_tensor_s *t = k->tensors; t; t = t->next) {
        if (!t->u) continue;
        if (root && back) t->u = root[n];
        if (root && !back) root[n] = t->u;
        n++;
        if (!t->past) continue;
        if (root && back) t->past = root[n];
        if (root && !back) root[n] = t->past;
        n++;
    }
    for (uint32_t i = 0; i < k->nsym; i++, n++) {
        if (root && back) k->sym[i] = root[n];
        if (root && !back) root[n] = k->sym[i];
    }
    return n;
}

void ki_collect(kn_ctx *k) {
    size_t n = gather(k, NULL, false);
    kn_uop *root = ki_malloc((n ? n : 1) * sizeof *root);
    uint8_t *seen = ki_calloc(k->nstorage ? k->nstorage : 1, 1);
    bool failed = k->env.err != KI_E_NONE;
    if (root && seen && ki_views_room(k, k->ir.n)) {
        gather(k, root, false);
        k->collections++;
        ki_views_none(k);
        bool done = ki_ir_collect(&k->ir, root, n);
        if (done) gather(k, root, true);
        ki_views_again(k);
        if (done) {
            for (uint32_t id = 1; id < k->ir.n; id++) {
                kn_uop u = k->ir.node[id];
                if (u->op == KN_BUFFER && u->arg.buffer->id < k->nstorage) seen[u->arg.buffer->id] = 1;
            }
            for (uint32_t i = 0; i < k->nstorage; i++)
                if (k->storage[i].used && !seen[i] && !k->storage[i].held) release(k, &k->storage[i]);
            k->storage_free = 1;
        }
    }
    ki_free(root);
    ki_free(seen);
    if (!failed) ki_env_clear(&k->env); /* no memory to tidy up with: next time */
    k->collected_nodes = k->ir.n;
    k->collected_bytes = k->live_bytes;
    k->new_bytes = 0;
}

/* Worth it when the store, or the memory behind it, has doubled; and when it costs little beside the memory filled since
 * the last time, so that the next step of a loop gets back the very blocks that this one has done with. */
void ki_maybe_collect(kn_ctx *k, bool died) {
    bool nodes = k->ir.n > 2 * (size_t)k->collected_nodes + 4096;
    bool bytes = k->live_bytes > 2 * k->collected_bytes + (16u << 20);
    bool cheap = died && k->new_bytes >> 20 && k->new_bytes / KI_BYTES_A_NODE > (size_t)k->ir.n + k->nstorage;
    if (nodes || bytes || cheap) ki_collect(k);
}

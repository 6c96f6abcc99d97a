/* mir.c: see mir.h. */
#include "stages/8_render/x86/mir.h"

#include "stages/target.h"

#include <string.h>

enum { FRONT = 48 }; /* instructions of most entries, or more */

bool ki_mir_open(ki_mir *m, ki_env *env, const ki_target *t, uint32_t n) {
    *m = (ki_mir){.env = env, .target = t, .nv = 1, .nvector = t->nvector, .align = 64};
    m->features = ki_cpu_level_features(t->level);
    m->sse = !(m->features & KI_CPU_BIT(KI_CPU_AVX));
    if (!ki_array_grow(&m->block, &m->cap, n + (size_t)FRONT, sizeof *m->ins) ||
        !ki_array_grow(&m->v, &m->v_cap, n, sizeof *m->v))
        return ki_fail(env, KI_E_NOMEM), m->failed = true, false;
    m->ins = m->block + FRONT;
    return true;
}

void ki_mir_close(ki_mir *m) {
    ki_free(m->block);
    ki_free(m->entry);
    ki_free(m->v);
    ki_free(m->loop);
    *m = (ki_mir){0};
}

/* Room for one more in the array whose pointer is at `array`. */
static bool room(ki_mir *m, void *array, size_t *cap, uint32_t n, size_t size) {
    if (m->failed || n < *cap) return !m->failed;
    if (ki_array_grow(array, cap, (size_t)n + 1, size)) return true;
    ki_fail(m->env, KI_E_NOMEM);
    return m->failed = true, false;
}

ki_vreg ki_vreg_new(ki_mir *m, ki_rclass cls, ki_x86_kind kind) {
    if (!room(m, &m->v, &m->v_cap, m->nv, sizeof *m->v)) return 0;
    m->v[m->nv] = (ki_vinfo){.cls = (uint8_t)cls, .kind = (uint8_t)kind, .reg = KI_X_NOREG, .slot = -1};
    return m->nv++;
}

/* What a form does with operand 0, and whether registers must differ. */
static unsigned flags_of(unsigned form) {
    if (form == KI_M_LABEL) return 0;
    if (form >= KI_X_COUNT) return KI_MF_WRITES0;
    const ki_x86_form *f = &ki_x86_forms[form];
    unsigned r = f->attr & KI_XA_READS ? KI_MF_READS0 : f->op[0] ? KI_MF_WRITES0 : 0;
    if (f->attr & KI_XA_RW) r |= KI_MF_READS0;
    if (f->attr & KI_XA_DISTINCT) r |= KI_MF_LATE | (f->op[2] ? KI_MF_WRITES2 : 0);
    return r;
}

ki_mins *ki_mput(ki_mir *m, unsigned form, uint32_t at, unsigned nop, const ki_mop *op) {
    ki_mins *i;
    if (m->before) {
        if (!room(m, &m->entry, &m->entry_cap, m->nentry, sizeof *m->entry)) return &m->nowhere;
        i = &m->entry[m->nentry++];
    } else {
        if (!room(m, &m->block, &m->cap, m->n + FRONT, sizeof *m->block)) return &m->nowhere;
        m->ins = m->block + FRONT;
        i = &m->ins[m->n++];
    }
    *i = (ki_mins){.form = (uint16_t)form, .flags = (uint8_t)flags_of(form), .at = at};
    memcpy(i->op, op, nop * sizeof *op);
    return i;
}

bool ki_mir_join(ki_mir *m) {
    uint32_t more = m->nentry;
    if (m->failed) return false;
    if (more > FRONT) { /* all move back */
        if (!room(m, &m->block, &m->cap, m->n + more, sizeof *m->block)) return false;
        memmove(m->block + more, m->block + FRONT, m->n * sizeof *m->block);
        m->ins = m->block + more;
    }
    m->ins -= more;
    if (more) memcpy(m->ins, m->entry, more * sizeof *m->ins);
    for (uint32_t k = 0; k < m->nloop; k++) m->loop[k].begin += more, m->loop[k].end += more;
    m->n += more;
    m->nentry = 0;
    return true;
}

uint32_t ki_mloop_open(ki_mir *m, float trips) {
    if (!room(m, &m->loop, &m->loop_cap, m->nloop, sizeof *m->loop)) return 0;
    m->loop[m->nloop] = (ki_mloop){m->n, UINT32_MAX / 4, trips};
    return m->nloop++;
}

uint64_t ki_mframe_take(ki_mir *m, uint64_t bytes, unsigned align) {
    m->frame = (m->frame + align - 1) / align * align;
    if (m->align < align) m->align = align;
    uint64_t at = m->frame;
    m->frame += bytes;
    return at;
}

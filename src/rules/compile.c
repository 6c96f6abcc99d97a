/* compile.c: a parsed file to rule sets: attributes, one rule after the other, then the tables into the arena. */
#include "rules/front.h"

#include "base/hash.h"

#include <string.h>

enum { MOST_BYTES = (1 << 24) - 1 }; /* what ki_rule.line counts to */

bool ki_vec_room(void **v, uint32_t n, uint32_t *cap, size_t size) {
    if (n < *cap) return true;
    uint32_t grown = *cap ? *cap * 2 : 32;
    void *p = ki_realloc(*v, grown, size);
    if (!p) return false;
    *v = p;
    *cap = grown;
    return true;
}

bool ki_once(ki_compiler *c, ki_runs *r, const void *v, uint32_t *n, size_t size, uint32_t from, uint32_t *at) {
    const char *p = v;
    uint32_t len = *n - from, probe = 0, k;
    *at = len ? from : 0;
    if (!len) return true;
    uint32_t hash = (uint32_t)ki_hash_bytes(len, p + from * size, len * size);
    while ((k = ki_slots_next(&r->slots, hash, &probe)) &&
           (r->run[k - 1].n != len || memcmp(p + r->run[k - 1].at * size, p + from * size, len * size) != 0)) {
    }
    if (k) return *at = r->run[k - 1].at, *n = from, true;
    k = r->slots.n;
    if (!ki_vec_room((void **)&r->run, k, &r->cap, sizeof *r->run) || !ki_slots_add(&r->slots, hash))
        return ki_fail(c->r->env, KI_E_NOMEM), false;
    r->run[k] = (struct ki_run){from, len};
    return true;
}

static void forget(ki_runs *r) {
    ki_free(r->run);
    ki_slots_free(&r->slots);
    *r = (ki_runs){0};
}

static void forget_all(ki_compiler *c) {
    forget(&c->once.letters), forget(&c->once.rname), forget(&c->once.cond);
    forget(&c->once.number), forget(&c->once.kid), forget(&c->once.term);
}

/* ---- attributes -------------------------------------------------------------------------------------------- */

static bool fp_attribute(ki_compiler *c, const ki_attr *a) {
    static const struct {
        const char *name;
        uint8_t bit;
    } flags[] = {{"nsz", KI_FP_NSZ},           {"reassoc", KI_FP_REASSOC}, {"nnan", KI_FP_NNAN}, {"ninf", KI_FP_NINF},
                 {"contract", KI_FP_CONTRACT}, {"arcp", KI_FP_ARCP},       {"afn", KI_FP_AFN}};
    for (const char *s = a->text; *s;) {
        size_t n = strcspn(s, " ,|"), k = 0;
        while (k < 7 && !(strlen(flags[k].name) == n && memcmp(flags[k].name, s, n) == 0)) k++;
        if (n && k == 7) return ki_compile_fail(c, KI_E_RULE_UNKNOWN, a->pos, "permission", a->text);
        if (n) c->now->fp |= flags[k].bit;
        s += n ? n : 1;
    }
    return c->now->fp ? true : ki_compile_fail(c, KI_E_RULE_UNKNOWN, a->pos, "permission", a->text);
}

bool ki_worded(ki_compiler *c, const char *s, size_t n, uint32_t *at) {
    *at = c->wording.n;
    for (size_t k = 0; k <= n; k++)
        if (!KI_PUSH(c, wording, k < n ? s[k] : 0)) return false;
    return true;
}

static bool attributes(ki_compiler *c) {
    ki_written_rule *w = &c->written.v[c->rule.n - 1];
    for (const ki_attr *a = c->ast->attr; a; a = a->next) {
        if (strcmp(a->name, "fp") == 0) {
            if (!fp_attribute(c, a)) return false;
        } else if (strcmp(a->name, "ends") == 0) {
            if (!ki_worded(c, a->text, strlen(a->text), &w->ends)) return false;
        } else if (strcmp(a->name, "opaque") == 0) {
            if (!ki_worded(c, a->text, strlen(a->text), &w->opaque)) return false;
        } else if (strcmp(a->name, "retype") == 0) {
            c->now->flags |= KI_RF_RETYPE;
        } else if (strcmp(a->name, "ordered") == 0) {
            c->now->flags |= KI_RF_ORDERED;
        } else {
            return ki_compile_fail(c, KI_E_RULE_UNKNOWN, a->pos, "attribute", a->name);
        }
        bool reason = strcmp(a->name, "ends") == 0 || strcmp(a->name, "opaque") == 0;
        if (reason && !*a->text) return ki_compile_fail(c, KI_E_RULE_ARITY, a->pos, a->name, "a reason in quotes", 0u);
    }
    return true;
}

/* ---- one rule ---------------------------------------------------------------------------------------------- */

static bool grad_count(ki_compiler *c) {
    const ki_rule *r = c->now;
    const ki_pat *root = &c->pat.v[r->pat];
    if (r->kind != KI_R_GRAD || r->does || root->flags & KI_PF_REST || r->ngrad == root->nsrc) return true;
    return ki_compile_fail(c, KI_E_RULE_ARITY, c->ast->rhs->pos, "grad", "one gradient a source", (unsigned)r->ngrad);
}

static bool one_rule(ki_compiler *c, const ki_rule_ast *a) {
    ki_written_rule w = {.pos = a->pos, .names = c->bound.n};
    ki_rule r = {.kind = a->kind,
                 .line = ki_reader_line(c->r, a->pos) & 0xffffff,
                 .pat = (uint16_t)c->pat.n,
                 .rest = (uint16_t)c->rest.n,
                 .rname = (uint16_t)c->rname.n};
    if (!ki_worded(c, c->r->text + a->pos, a->end - a->pos, &w.text) || !ki_letters_of(c, a->name, a->pos, &r.name))
        return false;
    if (c->pat.n > UINT16_MAX - KI_MAX_REG || c->rule.n == UINT16_MAX || c->rname.n > UINT16_MAX - KI_MAX_NAMES)
        return ki_compile_fail(c, KI_E_RULE_LIMIT, a->pos, "terms in a rule set", UINT16_MAX);
    if (!KI_PUSH(c, rule, r) || !KI_PUSH(c, written, w)) return false;
    c->now = &c->rule.v[c->rule.n - 1];
    c->ast = a;
    c->mapped = false;
    ki_rule_ast *meant = (ki_rule_ast *)(uintptr_t)a; /* ours until the file is compiled */
    if (!attributes(c) || !ki_infer_rule(c)) return false;
    if (c->r->meaning && (!ki_mean_rhs(c, &meant->rhs) || !ki_infer_rule(c))) return false;
    if (!ki_compile_pattern(c, a->pattern) || !ki_compile_guard(c, a->guard) || !ki_compile_rhs(c, a->rhs))
        return false;
    uint32_t rname;
    if (!KI_ONCE(c, rname, c->now->rname, &rname)) return false;
    c->now->rname = (uint16_t)rname;
    return (c->r->meaning || ki_check_order(c)) && grad_count(c);
}

/* Names are unique within a set; a table of rule numbers by hash. */
static bool unique_names(ki_compiler *c) {
    uint32_t cap = 16;
    while (cap < c->rule.n * 2) cap *= 2;
    uint16_t *slot = ki_calloc(cap, sizeof *slot);
    if (!slot) return ki_fail(c->r->env, KI_E_NOMEM), false;
    bool ok = true;
    for (uint32_t i = 0; i < c->rule.n && ok; i++) {
        const char *name = ki_rule_called(c, &c->rule.v[i]);
        uint32_t k = (uint32_t)ki_hash_bytes(0, name, strlen(name)) & (cap - 1);
        for (; slot[k] && ok; k = (k + 1) & (cap - 1)) {
            const ki_rule *was = &c->rule.v[slot[k] - 1];
            if (was->name == c->rule.v[i].name)
                ok = ki_compile_fail(c, KI_E_RULE_TWICE, c->written.v[i].pos, "rule", name, (unsigned)was->line);
        }
        slot[k] = (uint16_t)(i + 1);
    }
    ki_free(slot);
    return ok;
}

/* ---- tables into the arena --------------------------------------------------------------------------------- */

static const void *keep(ki_compiler *c, ki_arena *arena, const void *v, uint32_t n, size_t size, bool *ok) {
    void *p = ki_arena_alloc(arena, n * size + 1);
    if (!p) {
        ki_fail(c->r->env, KI_E_NOMEM);
        *ok = false;
        return NULL;
    }
    if (n) memcpy(p, v, n * size);
    return p;
}

static bool finish(ki_compiler *c, const ki_set_ast *s, const char *source, ki_arena *arena, ki_ruleset *out) {
    bool ok = true;
#define KEEP(vec) keep(c, arena, c->vec.v, c->vec.n, sizeof *c->vec.v, &ok)
    *out = (ki_ruleset){.name = s->name,
                        .source = source,
                        .pure = s->pure,
                        .nrule = c->rule.n,
                        .npat = c->pat.n,
                        .nrest = c->rest.n,
                        .nname = c->rname.n,
                        .nterm = c->term.n,
                        .nkid = c->kid.n,
                        .ncond = c->cond.n,
                        .nopset = c->opset.n,
                        .nextern = c->file->next,
                        .nentry = c->entry.n,
                        .nbucket = c->bucket.n,
                        .nlist = c->list.n,
                        .rule = KEEP(rule),
                        .pat = KEEP(pat),
                        .rest = KEEP(rest),
                        .rname = KEEP(rname),
                        .letters = KEEP(letters),
                        .nletter = c->letters.n,
                        .term = KEEP(term),
                        .kid = KEEP(kid),
                        .cond = KEEP(cond),
                        .opset = KEEP(opset),
                        .ext = c->file->ext,
                        .entry = KEEP(entry),
                        .bucket = KEEP(bucket),
                        .list = KEEP(list),
                        .second = KEEP(second),
                        .does = KEEP(does),
                        .ndoes = c->does.n,
                        .number = KEEP(number),
                        .nnumber = c->number.n,
                        .nsecond = c->second.n};
    ki_wording w = {.letters = KEEP(wording),
                    .rule = KEEP(written),
                    .pat = KEEP(written_pat),
                    .term = KEEP(term_pos),
                    .nletter = c->wording.n,
                    .name = KEEP(bound),
                    .nname = c->bound.n};
#undef KEEP
    out->wording = keep(c, arena, &w, 1, sizeof w, &ok);
    out->root = keep(c, arena, c->root, KI_OP_COUNT, sizeof *c->root, &ok);
    out->column = keep(c, arena, c->column, KI_OP_COUNT + 1, sizeof *c->column, &ok);
    for (uint32_t i = 0; i < c->rule.n; i++) {
        out->spec |= c->rule.v[i].kind == KI_R_ACCEPT;
        out->grad |= c->rule.v[i].kind == KI_R_GRAD;
    }
    return ok;
}

static bool one_set(ki_compiler *c, const ki_set_ast *s, const char *source, ki_arena *arena, ki_ruleset *out) {
    static const ki_opset all = {{~UINT64_C(0), ~UINT64_C(0)}};
    c->rule.n = c->pat.n = c->rest.n = c->rname.n = c->letters.n = c->term.n = c->kid.n = c->cond.n = 0;
    c->opset.n = c->entry.n = c->bucket.n = c->list.n = c->second.n = 0;
    c->does.n = c->written.n = c->wording.n = c->bound.n = c->written_pat.n = c->term_pos.n = c->number.n = 0;
    forget_all(c);
    if (!KI_PUSH(c, term, (ki_term){0}) || !KI_PUSH(c, term_pos, 0) || !KI_PUSH(c, opset, all)) return false;
    if (!KI_PUSH(c, letters, 0) || !KI_PUSH(c, wording, 0) || !KI_PUSH(c, does, (ki_does){0})) return false;
    for (const ki_rule_ast *a = s->rule; a; a = a->next)
        if (!one_rule(c, a)) return false;
    return unique_names(c) && ki_check_set(c) && ki_compile_dispatch(c) && finish(c, s, source, arena, out);
}

bool ki_compile_file(ki_reader *r, const ki_file_ast *file, ki_rules *out) {
    ki_compiler *c = ki_calloc(1, sizeof *c);
    out->set = ki_arena_alloc(&out->arena, file->nset * sizeof *out->set);
    char *source = ki_arena_alloc(&out->arena, strlen(r->source) + 1);
    bool ok = c && out->set && source;
    if (!ok) ki_fail(r->env, KI_E_NOMEM);
    if (ok) {
        strcpy(source, r->source);
        c->r = r;
        c->file = file;
    }
    for (const ki_set_ast *s = file->set; ok && s; s = s->next)
        ok = one_set(c, s, source, &out->arena, &out->set[out->nset++]);
    if (c) {
        ki_free(c->rule.v), ki_free(c->pat.v), ki_free(c->rest.v), ki_free(c->rname.v), ki_free(c->letters.v);
        ki_free(c->term.v), ki_free(c->kid.v), ki_free(c->cond.v), ki_free(c->opset.v), ki_free(c->entry.v);
        ki_free(c->bucket.v), ki_free(c->list.v), ki_free(c->second.v), ki_free(c->does.v);
        ki_free(c->written.v), ki_free(c->wording.v), ki_free(c->bound.v), ki_free(c->written_pat.v),
            ki_free(c->term_pos.v);
        ki_free(c->number.v);
        forget_all(c);
    }
    ki_free(c);
    return ok;
}

/* ---- entry points ------------------------------------------------------------------------------------------ */

static bool compile(ki_env *env, const char *source, const char *text, size_t n, ki_ins_meaning meaning,
                    ki_rules *out) {
    *out = (ki_rules){0};
    ki_reader r = {.env = env, .arena = &out->arena, .source = source ? source : "rules", .text = text, .n = n};
    r.meaning = meaning;
    ki_file_ast file;
    if (n > MOST_BYTES) return ki_fail(env, KI_E_RULE_LIMIT, "bytes of rules", MOST_BYTES), false;
    if (ki_rules_parse(&r, &file) && ki_compile_file(&r, &file, out)) return true;
    ki_rules_free(out);
    return false;
}

bool ki_rules_compile(ki_env *env, const char *source, const char *text, size_t n, ki_rules *out) {
    return compile(env, source, text, n, NULL, out);
}

bool ki_rules_compile_meant(ki_env *env, const char *source, const char *text, size_t n, ki_ins_meaning meaning,
                            ki_rules *out) {
    return compile(env, source, text, n, meaning, out);
}

void ki_rules_free(ki_rules *r) {
    ki_arena_free(&r->arena);
    *r = (ki_rules){0};
}

/* load.c: rules at run time: the front end krc uses, then host functions bound by the symbols the text names. */
#include "rules/front.h"

#include <string.h>

static const ki_callback *find(const ki_callback *c, const char *symbol) {
    for (; c && c->symbol; c++)
        if (strcmp(c->symbol, symbol) == 0) return c;
    return NULL;
}

/* Where a symbol stands in the text, for messages. */
static size_t place_of(const char *text, size_t n, const char *symbol) {
    const char *at = memmem(text, n, symbol, strlen(symbol));
    return at ? (size_t)(at - text) : 0;
}

static bool bind(ki_env *env, const char *text, size_t n, const ki_ruleset *s, const ki_callback *callback) {
    /* The tables are ours until they are handed out. */
    ki_extern *ext = (ki_extern *)s->ext;
    ki_does *does = (ki_does *)s->does;
    for (uint32_t k = 0; k < s->nextern; k++) {
        const ki_callback *c = find(callback, ext[k].symbol);
        ext[k].fn = c && c->fn ? c->fn : ki_rule_helper(ext[k].symbol);
        if (ext[k].fn) continue;
        size_t at = place_of(text, n, ext[k].symbol);
        return ki_fail_at(env, KI_E_RULE_SYMBOL, s->source, text, n, at, ext[k].symbol), false;
    }
    for (uint32_t k = 1; k < s->ndoes; k++) {
        const ki_callback *c = find(callback, does[k].symbol);
        does[k].fn = c ? c->run : NULL;
        uint32_t r = 0;
        while (!does[k].fn && s->rule[r].does != k) r++;
        if (!does[k].fn)
            return ki_fail_at(env, KI_E_RULE_SYMBOL, s->source, text, n, s->wording->rule[r].pos, does[k].symbol),
                   false;
    }
    return true;
}

bool ki_rules_load(ki_env *env, const char *source, const char *text, size_t n, const ki_callback *callback,
                   ki_rules *out) {
    return ki_rules_load_meant(env, source, text, n, callback, NULL, out);
}

bool ki_rules_load_meant(ki_env *env, const char *source, const char *text, size_t n, const ki_callback *callback,
                         ki_ins_meaning meaning, ki_rules *out) {
    if (!ki_rules_compile_meant(env, source, text, n, meaning, out)) return false;
    for (unsigned k = 0; k < out->nset; k++)
        if (!bind(env, text, n, &out->set[k], callback)) {
            ki_rules_free(out);
            return false;
        }
    return true;
}

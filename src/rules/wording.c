/* wording.c: the text of the library's rules, beside their tables. The command and the prover ask; a shared library, which links
 * what it calls, has none of it. */
#include <rules.h>

const ki_wording *ki_wording_of(const ki_ruleset *s) {
    static const struct {
        const ki_ruleset *set;
        const ki_wording *wording;
    } own[] = {
#define X(name) {&ki_rules_##name, &ki_wording_##name},
        KI_ALL_RULES(X)
#undef X
    };
    for (size_t k = 0; !s->wording && k < sizeof own / sizeof *own; k++)
        if (own[k].set == s) return own[k].wording;
    return s->wording;
}

/* rules.h: rewriting with rules of one's own. C99 and C++ clean. The language is in docs/rules.md.
 *
 *   static const char text[] = "ruleset mine\n"
 *                              "twice : x:int + x => x * 2   @ends(\"a product holds more\")\n";
 *   kn_rules *r = kn_rules_load(k, "mine.kr", text, NULL);
 *   kn_uop v = kn_rewrite(k, r, "mine", u, KN_FIXPOINT, NULL);
 *   kn_rules_free(r);
 *
 * Failures are the context's, as everywhere: NULL is returned, and kn_message says what and where. */
#ifndef KN_RULES_H
#define KN_RULES_H

#include <koine/uop.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_rules kn_rules;
typedef struct ki_match kn_match;

/* Host functions by the symbol the text names, in a table that ends with a NULL name.
 *   build  right side of a rule, `=> do(name)`: the new node, or NULL: no match
 *   test   `extern pred` or `extern fn` of integers: nonzero if it holds, or if *result was set */
typedef kn_uop (*kn_rule_build)(kn_match *m);
typedef int (*kn_rule_test)(void *user, const int64_t *arg, unsigned n, int64_t *result);
typedef struct kn_rule_callback {
    const char *name;
    kn_rule_build build;
    kn_rule_test test;
} kn_rule_callback;

/* Reads rule sets. `source` names the text in messages. The table must outlive the rules. */
KN_API kn_rules *kn_rules_load(kn_ctx *k, const char *source, const char *text, const kn_rule_callback *callbacks);
KN_API void kn_rules_free(kn_rules *r);

typedef enum kn_rewrite_how {
    KN_FIXPOINT, /* sources first, again until no rule fires */
    KN_TOPDOWN,  /* rules on a node before its sources */
    KN_WALK      /* each node once */
} kn_rewrite_how;

/* root rewritten by one set (NULL: the first); root itself if nothing changed. `user` is for the callbacks. */
KN_API kn_uop kn_rewrite(kn_ctx *k, const kn_rules *r, const char *set, kn_uop root, kn_rewrite_how how, void *user);

/* In a build callback: the node matched, what its names stand for (numbered in order of first appearance), the context. */
KN_API kn_ctx *kn_match_ctx(const kn_match *m);
KN_API void *kn_match_user(const kn_match *m);
KN_API kn_uop kn_match_root(const kn_match *m);
KN_API kn_uop kn_match_node(const kn_match *m, unsigned name);                        /* NULL: it is no node */
KN_API size_t kn_match_rest(const kn_match *m, unsigned name, const kn_uop **nodes);  /* length of a rest */

#ifdef __cplusplus
}
#endif
#endif

/* parse_text.c: libFuzzer entry of the .kn parser. What parses must print, and that must parse and print the same.
 *
 *   clang -fsanitize=fuzzer,address,undefined -DKN_BUILD -D_GNU_SOURCE -std=gnu17 -Iinclude -Isrc \
 *       tests/fuzz/parse_text.c $(find src/base src/ir -name '*.c') -lm -o fuzz_text && ./fuzz_text examples
 *
 * With -DSTANDALONE: a program that reads the files it is given (to replay a finding), or, without files, mutates
 * small texts for as many rounds as KN_SEED says. */
#include "ir/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok, const ki_env *env, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, env->message.s ? env->message.s : "");
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ki_env env;
    ki_ir ir, again;
    ki_program p, q;
    if (!ki_env_open(&env)) return 0;
    if (!ki_ir_open(&ir, &env)) return ki_env_close(&env), 0;
    if (ki_parse(&ir, "fuzz", (const char *)data, size, &p)) {
        ki_text a = {0}, b = {0};
        must(env.err == KI_E_NONE, &env, "success with a failure recorded");
        must(ki_print(&p, &a), &env, "not printed");
        must(ki_ir_open(&again, &env), &env, "no second store");
        if (!ki_parse(&again, "again", a.s, a.n, &q)) fputs(a.s, stderr), must(0, &env, "not read back");
        must(ki_print(&q, &b), &env, "not printed again");
        if (a.n != b.n || memcmp(a.s, b.s, a.n) != 0)
            fputs(a.s, stderr), fputs(b.s, stderr), must(0, &env, "texts differ");
        ki_text_free(&a);
        ki_text_free(&b);
        ki_program_free(&q);
        ki_ir_close(&again);
        ki_program_free(&p);
    } else {
        must(env.err != KI_E_NONE && env.status != KI_INTERNAL, &env, "failure without a message");
        must(ir.n == 1, &env, "nodes left behind");
    }
    ki_ir_close(&ir);
    ki_env_close(&env);
    return 0;
}

#ifdef STANDALONE
#include "base/hash.h"

static uint64_t state = 1;
static size_t below(size_t n) { return (size_t)((state = ki_mix(state + UINT64_C(0x9e3779b97f4a7c15))) % n); }

static char seed_text[1 << 16];
static size_t seed_n;

/* Cuts, copies and small changes of the seed. */
static size_t mutate(char *to, size_t room) {
    static const char *const word[] = {"%1",
                                       "%2",
                                       " : f32",
                                       "[4, 4]",
                                       "axes=(0)",
                                       "(4, 4)",
                                       "nan",
                                       "0x",
                                       "\"",
                                       "..",
                                       "@CPU",
                                       "tag=1",
                                       "-",
                                       "stack",
                                       "reduce add",
                                       "param \"x\"",
                                       "buffer 0 REG size=4",
                                       "in",
                                       "in [0, 1]",
                                       "out \"y\" = %1",
                                       "root %1",
                                       ":i8",
                                       "<=",
                                       "#",
                                       "\n",
                                       "1e9",
                                       "18446744073709551615"};
    size_t n = seed_n;
    memcpy(to, seed_text, n);
    for (size_t k = below(6) + 1; k; k--) {
        size_t at = below(n + 1);
        switch (below(4)) {
        case 0: /* a word put in */
        {
            const char *w = word[below(sizeof word / sizeof *word)];
            size_t len = strlen(w);
            if (n + len > room) break;
            memmove(to + at + len, to + at, n - at);
            memcpy(to + at, w, len);
            n += len;
            break;
        }
        case 1: /* a piece taken out */
        {
            size_t len = below(12);
            if (at + len > n) break;
            memmove(to + at, to + at + len, n - at - len);
            n -= len;
            break;
        }
        case 2: /* a byte changed */
            if (at < n) to[at] = (char)(below(4) ? 32 + below(95) : below(256));
            break;
        default: /* a piece from elsewhere */
        {
            size_t len = below(30), from = below(n + 1);
            if (from + len > n || at + len > n) break;
            memmove(to + at, to + from, len);
        }
        }
    }
    return n;
}

int main(int argc, char **argv) {
    static char buf[1 << 17];
    size_t rounds = getenv("KN_SEED") ? (size_t)atoll(getenv("KN_SEED")) : 0;
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f) continue;
        seed_n = fread(seed_text, 1, sizeof seed_text, f);
        fclose(f);
        LLVMFuzzerTestOneInput((const uint8_t *)seed_text, seed_n);
        for (size_t k = 0; k < rounds; k++) LLVMFuzzerTestOneInput((const uint8_t *)buf, mutate(buf, sizeof buf));
    }
    return 0;
}
#endif

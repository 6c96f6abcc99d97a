/* Every failure of the rules front end: its number and its place. */
#include "rules/rules.h"
#include "tap.h"

#include <stdio.h>
#include <string.h>

static ki_env env;

/* The text fails with `err` and its message contains `what`; with KI_E_NONE it compiles. */
static void fails(const char *text, ki_err err, const char *what) {
    ki_rules r;
    bool good = ki_rules_load(&env, "t.kr", text, strlen(text), NULL, &r);
    const char *message = env.err == KI_E_NONE ? "" : env.message.s;
    bool right = good ? err == KI_E_NONE : env.err == err && strstr(message, what) != NULL;
    CHECK(right, "%s", what);
    if (!right) printf("# got: %s\n", good ? "no failure" : message);
    if (good) ki_rules_free(&r);
    ki_env_clear(&env);
}

#define R "ruleset r\n"

static void syntax(void) {
    fails("", KI_E_RULE_SYNTAX, "t.kr:1:1: KN3001: 'ruleset NAME' expected");
    fails("a : x => y", KI_E_RULE_SYNTAX, "t.kr:1:1");
    fails(R "a : x + => y", KI_E_RULE_SYNTAX, "t.kr:2:9: KN3001: an expression expected, found '=>'");
    fails(R "a : (x + y => y", KI_E_RULE_SYNTAX, "')' expected, found '=>'");
    fails(R "a : x:int", KI_E_RULE_SYNTAX, "'=>' expected, found the end of the text");
    fails(R "a : x $ y => x", KI_E_RULE_SYNTAX, "t.kr:2:7");
    fails(R "a : x => y if a < b < c", KI_E_RULE_SYNTAX, "'&&' between two comparisons");
    fails(R "a : x:nope => x", KI_E_RULE_UNKNOWN, "unknown dtype 'nope'");
    fails(R "a : x:int + 0 => x @what", KI_E_RULE_UNKNOWN, "unknown attribute 'what'");
    fails(R "a : x:float + 0.0 => x @fp(fast)", KI_E_RULE_UNKNOWN, "unknown permission");
    fails(R "a : x:int + 12ab => x", KI_E_RULE_SYNTAX, "a number");
    fails(R "a : x:int + 0 => x @ends(\"open", KI_E_RULE_SYNTAX, "closing \"");
    fails(R "a : x:int + 99999999999999999999 => x", KI_E_RULE_SYNTAX, "an integer below 2^63");
    fails(R "extern pred p(float) = f", KI_E_RULE_SYNTAX, "int, node, nodes, ints, const, bool or any");
    char deep[600] = R "a : ";
    for (int k = 0; k < 200; k++) strcat(deep, "(");
    fails(deep, KI_E_RULE_LIMIT, "nesting: more than 60");
}

static void names(void) {
    fails(R "a : x:int + 0 => x\na : x:int * 1 => x", KI_E_RULE_TWICE,
          "t.kr:3:1: KN3002: rule a is already defined at line 2");
    fails(R "a : x:int + 0 => x\nb : y:int + 0 => y", KI_E_RULE_SAME,
          "rule b has the pattern and guard of rule a at line 2");
    fails(R "a : 0 + x:int => x\nb : y:int + 0 => y", KI_E_RULE_SAME, "rule b has the pattern");
    fails(R "a : x:int + y => x @ends(\"t\")\nb : x:int + 0 => x", KI_E_RULE_SHADOWED,
          "t.kr:3:1: KN3004: rule b can never fire: rule a at line 2");
    fails(R "a : x:int % #c => x if c > 3\nb : y:int % #d => y if d > 3", KI_E_RULE_SAME, "rule b");
    fails(R "a : x:int % #c => x if c > 3\nb : y:int % #d => y if d > 4", KI_E_NONE, "another guard is another rule");
    fails(R "a : x:int + 0 => x\nb : x:float + 0.0 => x @fp(nsz)", KI_E_NONE, "another dtype is another rule");
    fails(R "a : x:float + 0.0 => x @fp(nsz)\nb : x:float + 0.0 => x if lo(x) > 0", KI_E_NONE,
          "a rule that may not be allowed shadows none");
    fails(R "a : x:int + 0 => y", KI_E_RULE_UNBOUND, "t.kr:2:18: KN3005: y is not bound");
    fails(R "a : x:int + #c => x if d > 0", KI_E_RULE_UNBOUND, "t.kr:2:24: KN3005: d is not bound");
    fails(R "a : x + x... => x", KI_E_RULE_KIND, "x is a node, wanted rest");
    fails(R "a : stack(x...) => x", KI_E_RULE_KIND, "x is a rest");
    fails(R "a : x:int + #x => x", KI_E_RULE_KIND, "x is a node, wanted constant");
    fails(R "a : stack(x..., y...) => x", KI_E_RULE_MISPLACED, "a second rest");
    fails(R "a : {nope}(x) => x", KI_E_RULE_UNKNOWN, "unknown class of ops 'nope'");
    fails(R "a : frob(x) => x", KI_E_RULE_UNKNOWN, "unknown op 'frob'");
    fails(R "a : x:int + 0 => x if frob(x)", KI_E_RULE_UNKNOWN, "unknown function 'frob'");
}

static void meaning(void) {
    fails(R "a : recip(x, y) => x", KI_E_RULE_ARITY, "recip takes one source, got 2");
    fails(R "a : x:int + 0 => x if lo(x, x) > 0", KI_E_RULE_ARITY, "lo takes 1 operands, got 2");
    fails(R "a : permute(x; p, q) => x", KI_E_RULE_ARITY, "permute takes fewer args");
    fails(R "a : permute(permute(x; p); q) => permute(x)", KI_E_RULE_ARITY, "permute takes an arg after ';'");
    fails(R "a : (x:int + y):float => x", KI_E_RULE_DTYPE, "dtypes do not agree");
    fails(R "a : recip(x:int) => x", KI_E_RULE_DTYPE, "t.kr:2:11: KN3008");
    fails(R "a : x + y => recip(x) @ends(\"t\")", KI_E_RULE_DTYPE, "dtypes do not agree");
    fails(R "a : x < y => x @ends(\"t\")", KI_E_RULE_DTYPE, "t.kr:2:14: KN3008");
    fails(R "a : where(p, x:int, y) => p", KI_E_RULE_DTYPE, "dtypes do not agree");
    fails(R "a : x:int + y => y + x", KI_E_RULE_ORDER, "t.kr:2:20: KN3010: rule a: the right side is not smaller");
    fails(R "a : x:int + 1 => x + x", KI_E_RULE_ORDER, "not smaller");
    fails(R "a : x:int + y => do(f)", KI_E_RULE_OPAQUE, "rule a: do(f) needs a reason");
    fails(R "a : x:int + y => do(f) @opaque(\"test\")", KI_E_RULE_SYMBOL, "t.kr:2:1: KN3012: no host function 'f'");
    fails(R "extern pred p(int) = nowhere\na : x:int + #c => x if p(c)", KI_E_RULE_SYMBOL,
          "no host function 'nowhere'");
    fails(R "a : [x] => x", KI_E_RULE_MISPLACED, "'[...]' cannot stand here");
    fails(R "grad a : x:float * y => g * y", KI_E_RULE_ARITY, "grad takes one gradient a source, got 1");
    fails(R "a : sink(x...) => sink(x..., 3) @ends(\"t\")", KI_E_NONE, "an index literal in an ordering op");
    fails(R "a : sink(x...) => sink(x..., stack(y:int))", KI_E_RULE_UNBOUND, "y is not bound");
    fails(R "a : x:f32 + y => ins(x, y; \"VADDPS\") @ends(\"t\")", KI_E_RULE_ARITY,
          "t.kr:2:18: KN3007: ins takes a row's name and a dtype after ';', got 1");
    fails(R "a : x:f32 + y => ins(x, y; \"VADDPS\", i32) @ends(\"t\")", KI_E_RULE_DTYPE, "t.kr:2:18: KN3008");
    fails(R "a : x:f32 + y => ins(x, y; 3, f32) @ends(\"t\")", KI_E_RULE_MISPLACED,
          "t.kr:2:28: KN3014: an arg that is no text");
    fails(R "a : x:f32 + y => x + \"VADDPS\" @ends(\"t\")", KI_E_RULE_MISPLACED,
          "t.kr:2:22: KN3014: a text cannot stand here");
    fails(R "a : ins(x; \"VADDPS\") + \"y\" => x", KI_E_RULE_MISPLACED, "a text cannot stand here");
    fails(R "a : cast(x:i32; \"f32\") => 1.0:f32 @retype", KI_E_RULE_MISPLACED, "this arg");
    fails(R "a : ins(x:f32, y; \"VADDPS\", f32) => x\nb : ins(p:f32, q; \"VADDPS\", f32) => p", KI_E_RULE_SAME,
          "rule b");
    fails(R "a : x:float + 0.0 => x @fp()", KI_E_RULE_UNKNOWN, "unknown permission");
    fails(R "a : x:int + 0 => x if x", KI_E_RULE_KIND, "t.kr:2:23: KN3015: x is a value, wanted a condition");
    fails(R "a : x:int + #c => x if c > 0 && lo(x)", KI_E_RULE_KIND, "this is a value, wanted a condition");
    fails(R "a : x:int + #c => x if x > 0", KI_E_RULE_KIND, "x is a node, wanted a value: a constant, its lo, its hi");
    fails(R "a : stack(x...) => [shape(x)] if x > 0", KI_E_RULE_KIND, "x is a rest, wanted");
    fails(R "a : stack(x...) => stack(x...) if rank(x) > 0", KI_E_RULE_KIND, "x is a rest, wanted one node or value");
    fails(R "a : index(b, i:index) => index(b, i) if op(b) < param", KI_E_RULE_KIND, "is a name, wanted a number");
    fails(R "a : #a {alu2:op} #b => [fold(a, b)]", KI_E_RULE_KIND, "a is a value, wanted an op");
    fails(R "a : #a {alu2:op} #b => [op]", KI_E_RULE_KIND, "op is a op, wanted a value");
    fails(R "a : x:int + 0 => x @ends()", KI_E_RULE_ARITY, "ends takes a reason in quotes");
}

/* What a number of the tables counts to. */
static void limits(void) {
    static char many[64 * 300] = R;
    for (int k = 0; k < 256; k++) sprintf(many + strlen(many), "r%d : x:int + %d => do(f%d) @opaque(\"t\")\n", k, k, k);
    fails(many, KI_E_RULE_LIMIT, "t.kr:257:23: KN3013: C functions in a rule set: more than 255");
    for (int n = 8; n <= 264; n += 256) {
        static char args[264 * 6], read[128 + 264 * 6], made[128 + 264 * 6];
        strcpy(args, "a...");
        for (int k = 1; k < n; k++) strcat(args, ", a...");
        sprintf(read, R "a : reduce(x; %s) => x", args);
        sprintf(made, R "a : reduce(x; a...) => reduce(x; %s) @ends(\"t\")", args);
        fails(read, KI_E_RULE_LIMIT, "t.kr:2:5: KN3013: args: more than 7");
        fails(made, KI_E_RULE_LIMIT, "t.kr:2:24: KN3013: args: more than 7");
    }
}

int main(void) {
    if (!ki_env_open(&env)) return 1;
    syntax();
    names();
    meaning();
    limits();
    ki_env_close(&env);
    return tap_done();
}

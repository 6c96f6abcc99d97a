/* Malformed texts: each gives its error, at its line and column, and leaves the store as it was. */
#include "text_util.h"

typedef struct bad {
    const char *text;
    ki_err id;
    int line, col;
    const char *says; /* part of the message, or NULL */
} bad;

#define T   "koine 1 tensor\n"
#define X   T "%x = param \"x\" : f32 [4, 4]\n"
#define R   "koine 1 rangeify\n"
#define OUT "out \"y\" = %x\n"

static const bad cases[] = {
    /* header */
    {"", KI_E_TEXT_HEADER, 1, 1, "koine 1"},
    {"# only a comment\n\n", KI_E_TEXT_HEADER, 3, 1, NULL},
    {"%x = param \"x\" : f32\n", KI_E_TEXT_HEADER, 1, 1, NULL},
    {"koine tensor\n", KI_E_TEXT_HEADER, 1, 7, NULL},
    {"koine 2 tensor\n", KI_E_TEXT_VERSION, 1, 7, "version 2"},
    {"koine 1\n", KI_E_TEXT_WANTED, 1, 8, "the end of the line"},
    {"koine 1 tensr\n", KI_E_TEXT_STAGE, 1, 9, "did you mean tensor"},
    {"koine 1 zebra\n", KI_E_TEXT_STAGE, 1, 9, "tensor callify"},
    {"koine 1 tensor 2\n", KI_E_TEXT_TRAILING, 1, 16, "'2'"},
    /* statements */
    {X "x = exp %x\n", KI_E_TEXT_STATEMENT, 3, 1, "'x'"},
    {X "  42\n", KI_E_TEXT_STATEMENT, 3, 3, "'42'"},
    {X "\x01\n", KI_E_TEXT_STATEMENT, 3, 1, "byte 0x01"},
    {X "% = exp %x\n", KI_E_TEXT_WANTED, 3, 3, "a name after '%'"},
    {X "%y exp %x\n", KI_E_TEXT_WANTED, 3, 4, "'=' after the name"},
    {X "%y =\n", KI_E_TEXT_WANTED, 3, 5, "an op"},
    {X "%y = exq2 %x\n", KI_E_TEXT_OP, 3, 6, "did you mean exp2"},
    {X "%y = sum %x\n", KI_E_TEXT_OP, 3, 6, "reduce add"},
    {X "%y = cmplt %x %x\n", KI_E_TEXT_OP, 3, 6, "did you mean lt"},
    {X "%y = qqqqqqqqq %x\n", KI_E_TEXT_OP, 3, 6, "unknown op 'qqqqqqqqq'\n"},
    {X "%y = exp %z\n", KI_E_TEXT_NAME, 3, 10, "%z"},
    {X "%y = exp %y\n", KI_E_TEXT_NAME, 3, 10, NULL},
    {X "%y = exp %x\n%x = exp %y\n", KI_E_TEXT_TWICE, 4, 1, "line 2"},
    {X "%y = exp %x )\n", KI_E_TEXT_TRAILING, 3, 13, "')'"},
    {X "%y = exp %x : f32 junk\n", KI_E_TEXT_TRAILING, 3, 19, "'junk'"},
    {X OUT "end\n", KI_E_TEXT_STATEMENT, 4, 1, NULL},
    /* keys */
    {X "%y = exp %x axes=(1)\n", KI_E_TEXT_KEY, 3, 13, "exp has no 'axes='; it has: tag"},
    {X "%y = exp %x frob=1\n", KI_E_TEXT_KEY, 3, 13, "frob"},
    {X "%y = exp %x tag=1 tag=2\n", KI_E_TEXT_KEY_TWICE, 3, 19, NULL},
    {X "%y = exp %x tag=-1\n", KI_E_TEXT_NUMBER_RANGE, 3, 17, NULL},
    {R "%b = buffer 0 GLOBAL : f32\n", KI_E_TEXT_KEY_MISSING, 2, 6, "buffer needs size"},
    {R "%s = source\n", KI_E_TEXT_KEY_MISSING, 2, 6, NULL},
    {R "%s = sink threads=2\n", KI_E_TEXT_KEY_MISSING, 2, 6, "sink needs name"},
    {R "%s = sink name=r\n", KI_E_TEXT_WANTED, 2, 16, "a string"},
    {R "%b = buffer 0 GLOBL size=4 : f32\n", KI_E_TEXT_SPACE, 2, 15, "GLOBAL LOCAL REG"},
    {R "%b = buffer -1 GLOBAL size=4 : f32\n", KI_E_TEXT_NUMBER_RANGE, 2, 13, NULL},
    {R "%b = buffer 0 GLOBAL size=999999999999999999 : f32\n", KI_E_TEXT_NUMBER_RANGE, 2, 27, NULL},
    {R "%r = range 4294967295 LOOP 4\n", KI_E_TEXT_NUMBER_RANGE, 2, 12, NULL},
    {R "%r = range 0 LOP 4\n", KI_E_TEXT_AXIS, 2, 14, "LOOP"},
    {R "%s = sink name=\"r_8\" optimized=1 native=z80\n", KI_E_TEXT_LEVEL, 2, 41, "avx512"},
    {X "%y = reduce sum %x axes=(0)\n", KI_E_TEXT_REDUCE, 3, 13, "add mul max"},
    {X "%y = reduce add %x axes=(40)\n", KI_E_TEXT_AXIS_NO, 3, 6, NULL},
    {X "%y = reduce add %x axes=(0, 1, 2)\n", KI_E_TEXT_NODE, 3, 6, "KN1013"},
    {X "%y = permute %x order=(1 0)\n", KI_E_TEXT_WANTED, 3, 26, "')'"},
    {X "%y = permute %x order=(1, 1)\n", KI_E_TEXT_NODE, 3, 6, "name each axis once"},
    {X "%y = permute %x order=1\n", KI_E_TEXT_WANTED, 3, 23, "'(' before the axes"},
    {R "%s = sink name=\"k\" opts=[splat 1 2 u]\n", KI_E_TEXT_OPTOP, 2, 26, "split"},
    {R "%s = sink name=\"k\" opts=[split 1 2 q]\n", KI_E_TEXT_LETTER, 2, 36, "letter q"},
    {R "%s = sink name=\"k\" opts=[split 1 2 u up]\n", KI_E_TEXT_WANTED, 2, 38, NULL},
    {R "%s = sink name=\"k\\x00k\"\n", KI_E_TEXT_NUL, 2, 6, NULL},
    {T "%n = param \"n\" bounds=[4, 1] : index\n", KI_E_TEXT_EMPTY_RANGE, 2, 24, NULL},
    {T "%n = param \"n\" bounds=[1.5, 2] : index\n", KI_E_TEXT_NUMBER, 2, 24, "1.5"},
    /* literals */
    {X "%y = add %x 1.0x\n", KI_E_TEXT_NUMBER, 3, 13, "1.0x"},
    {X "%y = add %x 1e99\n", KI_E_TEXT_NUMBER_RANGE, 3, 13, "f32"},
    {X "%y = add %x 1.0:f33\n", KI_E_TEXT_DTYPE, 3, 17, "did you mean f32"},
    {X "%y = add %x 1.5:i32\n", KI_E_TEXT_NUMBER, 3, 13, "not a value of i32"},
    {X "%y = add 1.0 2.0\n", KI_E_TEXT_LITERAL, 3, 10, "2.0:f32"},
    {X "%y = tuple 1.0\n", KI_E_TEXT_LITERAL, 3, 12, NULL},
    {X "%y = const 1\n", KI_E_TEXT_LITERAL, 3, 12, NULL},
    {X "%y = const 300 : u8\n", KI_E_TEXT_NUMBER_RANGE, 3, 12, "u8"},
    {X "%y = const\n", KI_E_TEXT_WANTED, 3, 11, "a value"},
    {X "%y = reshape %x (4, 4.5)\n", KI_E_TEXT_NUMBER, 3, 21, NULL},
    {X "%y = reshape %x (4, %x)\n", KI_E_TEXT_SHAPE, 3, 17, "entry 1"},
    {X "%y = reshape %x (4, 4\n", KI_E_TEXT_WANTED, 3, 22, "')'"},
    {X "%y = reshape %x (4, 3)\n", KI_E_TEXT_NODE, 3, 6, "KN1006"},
    {X "%y = reshape %x (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)\n", KI_E_TEXT_RANK, 3, 50, "16"},
    {X "%y = stack %1..%4\n", KI_E_TEXT_NAME, 3, 12, NULL},
    {T "%1 = param \"x\" : f32\n%2 = stack %1..%9\n", KI_E_TEXT_NAME, 3, 12, "%2"},
    {T "%1 = param \"x\" : f32\n%2 = stack %1..%x\n", KI_E_TEXT_RUN, 3, 12, NULL},
    {T "%1 = param \"x\" : f32\n%2 = stack %1..4\n", KI_E_TEXT_WANTED, 3, 16, "after '..'"},
    {T "%1 = param \"x\" : f32\n%2 = stack %1..%999999999\n", KI_E_TEXT_LIMIT, 3, 12, NULL},
    /* types */
    {X "%y = exp %x : f32 [4]\n", KI_E_TEXT_TYPE, 3, 15, "f32 [4, 4]"},
    {X "%y = exp %x : f16\n", KI_E_TEXT_TYPE, 3, 15, NULL},
    {X "%y = exp %x : f32 [<=4, 4]\n", KI_E_TEXT_TYPE, 3, 15, NULL},
    {X "%y = exp %x : f32 @CPU\n", KI_E_TEXT_TYPE, 3, 15, NULL},
    {X "%y = exp %x : f32 axis=0\n", KI_E_TEXT_TYPE, 3, 15, NULL},
    {X "%y = exp %x : f99\n", KI_E_TEXT_DTYPE, 3, 15, NULL},
    {X "%y = exp %x :\n", KI_E_TEXT_WANTED, 3, 14, "a dtype"},
    {X "%y = exp %x : f32 [4,\n", KI_E_TEXT_WANTED, 3, 22, "a size"},
    {X "%y = exp %x : f32 [-4]\n", KI_E_TEXT_NUMBER_RANGE, 3, 20, NULL},
    {X "%y = exp %x : f32 @\n", KI_E_TEXT_WANTED, 3, 20, "device"},
    {X "%y = cast %x\n", KI_E_TEXT_NO_DTYPE, 3, 13, "cast"},
    {X "%y = cast %x : void\n", KI_E_TEXT_VOID, 3, 16, NULL},
    {T "%x = param \"x\" : f32 [<=4]\n", KI_E_TEXT_SYMBOLIC, 2, 18, NULL},
    {T "%x = param \"x\" : f32 [140737488355329]\n", KI_E_TEXT_NUMBER_RANGE, 2, 23, NULL},
    {T "%x = param \"x\" : f32 [140737488355328, 140737488355328]\n", KI_E_TEXT_NODE, 2, 6, "KN1023"},
    {X "%y = param \"y\" : i32 [4, 4]\n%z = add %x %y\n", KI_E_TEXT_NODE, 4, 6, "insert a cast"},
    {X "%y = add %x\n", KI_E_TEXT_NODE, 3, 6, "KN1001"},
    /* strings */
    {T "%x = param \"x : f32\n", KI_E_TEXT_STRING, 2, 12, NULL},
    {T "%x = param \"x\\q\" : f32\n", KI_E_TEXT_ESCAPE, 2, 14, "\\q"},
    {T "%x = param \"x\\x4\" : f32\n", KI_E_TEXT_ESCAPE, 2, 14, NULL},
    {R "%x = binary x\"7f4\"\n", KI_E_TEXT_HEX, 2, 17, NULL},
    {R "%x = binary x\"7f\n", KI_E_TEXT_STRING, 2, 13, "byte string"},
    {T "%x = param \"a\\x00b\" : f32\n", KI_E_TEXT_NUL, 2, 6, NULL},
    /* ports and roots */
    {X, KI_E_TEXT_NO_ROOT, 3, 1, "out \"name\""},
    {R "%r = range 0 LOOP 4\n", KI_E_TEXT_NO_ROOT, 3, 1, "root"},
    {X OUT OUT, KI_E_TEXT_PORT_TWICE, 4, 1, "\"y\""},
    {X "%y = param \"x\" slot=1 : f32\n" OUT, KI_E_TEXT_PORT_TWICE, 3, 1, "in ports \"x\""},
    {X "out \"y\" = %y\n", KI_E_TEXT_NAME, 3, 11, NULL},
    {X "out y = %x\n", KI_E_TEXT_WANTED, 3, 5, "a string"},
    {X "out \"y\" %x\n", KI_E_TEXT_WANTED, 3, 9, "'='"},
    {X "out \"y\" = 4\n", KI_E_TEXT_WANTED, 3, 11, "a %name"},
    {X "out \"y\" = %x : f32 [16]\n", KI_E_TEXT_PORT_TYPE, 3, 16, NULL},
    {X "%s = sink %x\nout \"y\" = %s\n", KI_E_TEXT_PORT_NODE, 4, 11, "sink"},
    {X "%y = exp %x\nin \"y\" = %y\n", KI_E_TEXT_PORT_NODE, 4, 10, "exp"},
    {X "in \"x\" = %x in [4, -4]\n", KI_E_TEXT_EMPTY_RANGE, 3, 16, NULL},
    {X "in \"x\" = %x in [4]\n", KI_E_TEXT_WANTED, 3, 18, "','"},
    {T "%x = param \"x\" : f32 in [nan, nan]\n" OUT, KI_E_TEXT_EMPTY_RANGE, 2, 25, NULL},
    {T "%x = param \"x\" : f32 in [0, 1]\nin \"x\" = %x\n" OUT, KI_E_TEXT_PORT_MIXED, 2, 22, NULL},
    {R "%b = buffer 0 GLOBAL size=4 : f32\nroot %b\nroot %b\n", KI_E_TEXT_ROOTS, 4, 1, NULL},
    {R "%b = buffer 0 GLOBAL size=4 : f32\nroot %b\nin \"x\" = %b : f32 [5]\n", KI_E_TEXT_PORT_TYPE, 4, 15, NULL},
    /* all of a port's buffer is the user's array: smaller than what kernels write it would be written past its end */
    {R "%b = buffer 0 GLOBAL size=4 : f32\nroot %b\nin \"x\" = %b : f32 [2]\n", KI_E_TEXT_PORT_TYPE, 4, 15,
     "its node is f32 [4], the text says f32 [2]"},
    {R "%b = buffer 0 GLOBAL size=4 : f32\nroot %b\nout \"y\" = %b : f32 [2]\n", KI_E_TEXT_PORT_TYPE, 4, 16, NULL},
    {R "%b = buffer 0 GLOBAL size=4 : f32\nroot %b\nout \"y\" = %b : f32 []\n", KI_E_TEXT_PORT_TYPE, 4, 16, NULL},
    {R "%b = buffer 0 GLOBAL size=4 : f32\nroot %b\nout \"y\" = %b : i8\n", KI_E_TEXT_PORT_TYPE, 4, 16, NULL},
    {R "%n = param \"n\" bounds=[1, 4] : index\nroot %n\nin \"n\" = %n : i32 []\n", KI_E_TEXT_PORT_TYPE, 4, 15, NULL},
    {R "root\n", KI_E_TEXT_WANTED, 2, 5, NULL},
};

static int run(lab *l, const bad *b) {
    ki_program p;
    char place[64];
    uint32_t before = l->ir.n;
    ki_env_clear(&l->env);
    bool ok = ki_parse(&l->ir, "t.kn", b->text, strlen(b->text), &p);
    const char *m = l->env.message.s ? l->env.message.s : "";
    snprintf(place, sizeof place, "t.kn:%d:%d: KN20", b->line, b->col);
    int good = !ok && l->env.err == b->id && l->env.status == KI_PARSE && strncmp(m, place, strlen(place)) == 0;
    good = good && (!b->says || strstr(m, b->says)) && !p.root && !p.nin && !p.nout && l->ir.n == before;
    if (!good)
        printf("# wanted id %d at %d:%d \"%s\", got %d: %s\n# text: %s\n", b->id, b->line, b->col,
               b->says ? b->says : "", l->env.err, m, b->text);
    if (ok) ki_program_free(&p);
    return good;
}

static void test_cases(void) {
    bool raised[KI_E_COUNT] = {false};
    lab l;
    lab_open(&l);
    kn_uop kept = ki_index(&l.ir, 12345); /* the store is not empty */
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char head[48];
        const char *nl = strrchr(cases[k].text, '\n');
        size_t end = nl ? (size_t)(nl - cases[k].text) : 0, from = end;
        while (from && cases[k].text[from - 1] != '\n') from--;
        snprintf(head, sizeof head, "%.*s", (int)(end - from > 40 ? 40 : end - from), cases[k].text + from);
        for (char *c = head; *c; c++) *c = *c == '#' || *c < 32 ? '.' : *c;
        CHECK(run(&l, &cases[k]), "%zu: KN%d: %s", k, cases[k].id, head);
        raised[cases[k].id] = true;
    }
    CHECK(ki_index(&l.ir, 12345) == kept && l.ir.n == kept->id + 1, "failed texts leave nothing behind");
    int all = 1;
    for (int id = KI_E_TEXT_HEADER; id <= KI_E_TEXT_NUL; id++)
        if (!raised[id]) all = 0, printf("# message %d is raised by no case\n", id);
    CHECK(all, "every message of the text form is raised");
    lab_close(&l);
}

/* What the reader takes beyond what the printer writes. */
static void test_lenient(void) {
    static const char *const good[] = {
        "\xef\xbb\xbfkoine 1 tensor\r\n%x = param \"x\" : f32 [4]\r\nout \"y\" = %x\r\n",
        "\n# a comment\n  koine 1 tensor # and one here\n%x=param\"x\":f32[4]in[0,1]#c\nout\"y\"=%x",
        X "%y = add %x 1\n%z = where true %y 0\nout \"y\" = %z\nout \"z\" = %z\n",
        X "%y = reduce add %x axes=(0) tag=0 : f32\nout \"y\" = %y\n",
        X "%a_longer_name_1 = exp %x\nout \"y\" = %a_longer_name_1\n",
        T "%s = param \"s\" : f32 []\n%e = param \"e\" () : f32\n%f = add %s %e\nout \"y\" = %f\n",
        T "%n = param \"n\" bounds=[1, 64] : index\n%x = param \"x\" (%n, 4) : f32 [<=64, 4]\nout \"y\" = %x : f32 "
          "[64, 4]\n",
    };
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
        lab l;
        ki_program p;
        lab_open(&l);
        bool ok = ki_parse(&l.ir, "t", good[k], strlen(good[k]), &p) && round_trip(&p, "lenient");
        if (!ok) printf("# %s\n", l.env.message.s ? l.env.message.s : "");
        CHECK(ok, "accepted %zu", k);
        ki_program_free(&p);
        lab_close(&l);
    }
}

int main(void) {
    test_cases();
    test_lenient();
    return tap_done();
}

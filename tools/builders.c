/* builders: which C functions of the stages build nodes. Rules are proved, C is not: `koine rules` shows this count
 * beside theirs, so that logic does not flee from one to the other. builders OUT.h FILE.c... */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The makers of uop.h, and the accessors that make. */
static const char *const makers[] = {
    "ki_make",      "ki_op0",        "ki_op1",      "ki_op2",        "ki_op3",         "ki_opn",
    "ki_with_src",  "ki_with_srcs",  "ki_with_arg", "ki_const_bits", "ki_const_int",   "ki_const_float",
    "ki_index",     "ki_cast",       "ki_bitcast",  "ki_param_make", "ki_buffer_make", "ki_range_make",
    "ki_shape_src", "ki_stack_dims", "ki_reshape",  "ki_expand",     "ki_permute",     "ki_flip",
    "ki_pad",       "ki_shrink",     "ki_reduce",   "ki_str_op",
};

static bool calls_maker(const char *line) {
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        size_t n = strlen(makers[i]);
        for (const char *p = line; (p = strstr(p, makers[i])); p += n)
            if ((p == line || !(isalnum((unsigned char)p[-1]) || p[-1] == '_')) && p[n] == '(') return true;
    }
    return false;
}

/* The name before the parenthesis of a function's head. */
static bool head_name(const char *line, char *name, size_t cap) {
    if (!isalpha((unsigned char)*line) || strncmp(line, "typedef", 7) == 0) return false;
    const char *open = strchr(line, '('), *eq = strchr(line, '=');
    if (!open || (eq && eq < open)) return false;
    const char *end = open, *from;
    while (end > line && end[-1] == ' ') end--;
    for (from = end; from > line && (isalnum((unsigned char)from[-1]) || from[-1] == '_');) from--;
    size_t n = (size_t)(end - from);
    if (n == 0 || n >= cap) return false;
    memcpy(name, from, n);
    name[n] = 0;
    return true;
}

static void scan(FILE *out, const char *path) {
    FILE *f = fopen(path, "r");
    char line[1024], name[128] = "", head[128];
    bool told = false;
    if (!f) {
        fprintf(stderr, "builders: cannot read %s\n", path);
        exit(1);
    }
    while (fgets(line, sizeof line, f)) {
        if (head_name(line, head, sizeof head)) {
            memcpy(name, head, sizeof name);
            told = false;
        }
        const char *body = isalpha((unsigned char)*line) ? strchr(line, '{') : line;
        if (*name && !told && body && calls_maker(body)) {
            fprintf(out, "    {\"%s\", \"%s\"},\n", path, name);
            told = true;
        }
        if (*line == '}') *name = 0;
    }
    fclose(f);
}

int main(int argc, char **argv) {
    FILE *out = argc > 1 ? fopen(argv[1], "w") : NULL;
    if (!out) return 1;
    fputs("/* Made by builders: C functions of the stages that build nodes. */\n"
          "static const struct {\n    const char *file, *name;\n} builders[] = {\n",
          out);
    for (int i = 2; i < argc; i++) scan(out, argv[i]);
    fputs("    {0}};\n", out);
    return fclose(out) != 0;
}

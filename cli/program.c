/* program.c: reads a .kn file and lowers it. See program.h. */
#include "program.h"

#include "device/cpu/cpu.h"
#include "io/file.h"
#include "stages/verify.h"

#include <string.h>

int cli_program_failed(const cli *c, const cli_program *p) {
    return cli_fail(c, "%s", p->env && p->env->err ? p->env->message.s : "out of memory");
}

static void log_line(void *user, const char *text) {
    (void)user;
    fputs(text, stderr);
}

/* Anyone may have written a text: it is checked unless KN_VERIFY says 0. */
static bool unchecked(const ki_env *env) {
    return *ki_setting(env, KI_VAR_VERIFY) && !ki_setting_number(env, KI_VAR_VERIFY);
}

bool cli_program_open(cli *c, cli_program *p, ki_env *env) {
    *p = (cli_program){.env = env};
    if (!env) {
        if (!ki_env_open(&p->own)) return cli_fail(c, "out of memory"), false;
        p->env = &p->own;
        p->own.log = log_line;
        if (p->own.err) return cli_program_failed(c, p), false;
    }
    const char *path = c->operand[0];
    uint8_t *text;
    size_t n;
    if (!ki_ir_open(&p->ir, p->env) || !ki_file_read(p->env, path, &text, &n)) return cli_program_failed(c, p), false;
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    bool ok = ki_parse(&p->ir, name, (const char *)text, n, &p->in);
    ok = ok && (unchecked(p->env) || ki_verify_text(&p->in));
    ki_free(text);
    if (!ok) cli_program_failed(c, p);
    return ok;
}

bool cli_program_fits(cli *c, const cli_program *p, void *const *in, void *const *out, bool native) {
    const void *const *given = (const void *const *)in;
    size_t i = 0;
    while (i < p->in.nin && !ki_is_variable(p->in.in[i].node)) i++;
    bool fits = unchecked(p->env) ||
                ((i == p->in.nin || ki_verify_calls(&p->in, given)) && (!native || ki_verify_run(&p->in, given, out)));
    if (!fits) cli_program_failed(c, p);
    return fits;
}

bool cli_program_lower(cli *c, cli_program *p, ki_stage to) {
    ki_lower_opts o = {.machine = ki_cpu_machine(p->env)};
    if (!(o.target = ki_target_chosen(p->env, false))) return cli_program_failed(c, p), false;
    if (!ki_ir_open(&p->low_ir, p->env) || !ki_lower(&p->in, &p->low_ir, to, &o, &p->out))
        return cli_program_failed(c, p), false;
    return true;
}

void cli_program_close(cli_program *p) {
    if (!p->env) return;
    ki_program_free(&p->out);
    ki_program_free(&p->in);
    ki_ir_close(&p->low_ir);
    ki_ir_close(&p->ir);
    if (p->env == &p->own) ki_env_close(p->env);
}

static const char *stage_word(const void *of, int i) {
    (void)of;
    return i < KI_S_COUNT ? ki_stage_names[i] : NULL;
}

ki_stage cli_stage(const cli *c, const char *name) {
    for (int s = 0; s < KI_S_COUNT; s++)
        if (strcmp(name, ki_stage_names[s]) == 0) return (ki_stage)s;
    const char *near = cli_near(name, stage_word, NULL);
    ki_text all = {0};
    for (int s = 0; s < KI_S_COUNT; s++) ki_text_printf(&all, " %s", ki_stage_names[s]);
    if (near) cli_usage(c, "no stage %s; did you mean %s?", name, near);
    else cli_usage(c, "no stage %s; stages:%s", name, all.s ? all.s : "");
    ki_text_free(&all);
    return KI_S_COUNT;
}

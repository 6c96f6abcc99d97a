/* info.c: `koine info`: version, target, dtypes, settings. */
#include "cli.h"

#include "base/cpuid.h"
#include "device/device.h"
#include "ir/dtype.h"
#include "stages/target.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

static int cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static const char *const kinds[] = {"", "bool", "unsigned", "signed", "float", "index"};

static void print_dtypes(bool json) {
    if (!json) printf("\ndtypes\n");
    for (int t = 0; t < KI_DTYPE_COUNT; t++) {
        const ki_dtype_info *d = &ki_dtypes[t];
        if (d->kind == KI_K_VOID) continue;
        if (json)
            cli_json(stdout, "s dtype, s kind, i bits, s numpy", d->name, kinds[d->kind], (int64_t)d->bits, d->npy);
        else printf("  %-8s %-9s %2d bits\n", d->name, kinds[d->kind], d->bits);
    }
}

static void print_settings(ki_env *env, bool json) {
    if (!json) printf("\nsettings (environment)\n");
    for (int v = 0; v < KI_VAR_COUNT; v++) {
        const ki_var_info *i = &ki_vars[v];
        const char *value = ki_setting(env, (ki_var)v);
        if (json)
            cli_json(stdout, "s setting, s value, s default, b set, s doc", i->name, value, i->def, env->var[v] != NULL,
                     i->doc);
        else printf("  %-11s %-10s %s\n", i->name, *value ? value : "-", i->doc);
    }
}

/* What the processor offers, whatever KN_CPU says. */
static void features_text(char *buf, size_t n) {
    size_t at = 0;
    for (unsigned k = KI_CPU_SSE2; k < KI_CPU_COUNT; k++)
        if (ki_cpu_features() >> k & 1 && at < n)
            at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? " " : "", ki_cpu_feature_names[k]);
}

static int info(cli *c) {
    char features[512] = "";
    ki_env env;
    if (!ki_env_open(&env)) return cli_fail(c, "out of memory");
    const ki_target *t = ki_target_host();
    const char *level = *ki_setting(&env, KI_VAR_CPU) ? ki_setting(&env, KI_VAR_CPU) : t->name;
    features_text(features, sizeof features);
    if (c->json) {
        cli_json(stdout, "s version, s compiler, s cpu, i cores, s features", CLI_VERSION, __VERSION__, level,
                 (int64_t)cores(), features);
    } else {
        printf("koine      %s, built with %s\n", CLI_VERSION, __VERSION__);
        printf("cpu        %s (%s), %d cores\n", t->name, level, cores());
        printf("features   %s\n", features);
    }
    print_dtypes(c->json);
    print_settings(&env, c->json);
    unsigned unit;
    (void)ki_device_parse(&env, NULL, &unit); /* a default that is none is told too */
    int rc = env.err ? cli_fail(c, "%s", env.message.s) : CLI_OK;
    ki_env_close(&env);
    return rc;
}

static const cli_opt options[] = {{"json", NULL, "one object a line"}, {NULL, NULL, NULL}};
const cli_verb cli_info = {.name = "info",
                           .args = "[--json]",
                           .summary = "version, processor, dtypes, settings",
                           .text = "Every environment variable koine reads is listed with its value and meaning.",
                           .opt = options,
                           .run = info};

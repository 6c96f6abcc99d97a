/* devices.c: `koine devices`: what programs can run on. */
#include "cli.h"

#include "device/device.h"

#include <string.h>

static int devices(cli *c) {
    ki_env env;
    if (!ki_env_open(&env)) return cli_fail(c, "out of memory");
    unsigned unit;
    const ki_device_class *def = env.err ? NULL : ki_device_parse(&env, NULL, &unit);
    int rc = def ? CLI_OK : cli_fail(c, "%s", env.message.s);
    for (size_t i = 0; ki_device_classes[i]; i++) {
        const ki_device_class *d = ki_device_classes[i];
        ki_env probe;
        if (!ki_env_open(&probe)) break;
        ki_env_clear(&probe);
        /* Opening tells whether it can be used, and why not. */
        ki_device *open = ki_device_open(&probe, ki_device_intern(&probe, d->name));
        const char *why = open ? NULL : probe.message.s;
        if (c->json)
            cli_json(stdout, "s device, s doc, b runs, b default, s missing", d->name, d->doc, d->runs, d == def, why);
        else
            printf("%c %-7s %s%s%s\n", d == def ? '*' : ' ', d->name, d->doc, why ? "; not usable: " : "",
                   why ? why : "");
        if (open) ki_device_close(open);
        ki_env_close(&probe);
    }
    ki_env_close(&env);
    return rc;
}

static const cli_opt options[] = {{"json", NULL, "one object a line"}, {NULL, NULL, NULL}};
const cli_verb cli_devices = {
    .name = "devices",
    .args = "[--json]",
    .summary = "what programs can run on",
    .text = "The default, set by KN_DEVICE, has a star.",
    .opt = options,
    .run = devices,
};

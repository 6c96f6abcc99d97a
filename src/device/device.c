/* device.c: the table of devices, and their names. */
#include "device/device.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const ki_device_class *const ki_device_classes[] = {&ki_device_cpu, &ki_device_interp, &ki_device_null, NULL};

enum { MAX_UNIT = 63 };

static bool same_name(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (toupper((unsigned char)a[i]) != b[i]) return false;
    return b[n] == 0;
}

static void fail_unknown(ki_env *env, const char *name) {
    ki_text t = {0};
    for (size_t i = 0; ki_device_classes[i]; i++) ki_text_printf(&t, "%s%s", i ? ", " : "", ki_device_classes[i]->name);
    ki_fail(env, KI_E_DEVICE_UNKNOWN, name, t.s ? t.s : "");
    ki_text_free(&t);
}

const ki_device_class *ki_device_parse(ki_env *env, const char *name, unsigned *unit) {
    if (!name || !*name) name = ki_setting(env, KI_VAR_DEVICE);
    size_t n = strcspn(name, ":");
    const ki_device_class *found = NULL;
    for (size_t i = 0; ki_device_classes[i] && !found; i++)
        if (same_name(name, ki_device_classes[i]->name, n)) found = ki_device_classes[i];
    *unit = 0;
    if (found && name[n] == ':') {
        size_t at = n + 1;
        for (; isdigit((unsigned char)name[at]) && *unit <= MAX_UNIT; at++)
            *unit = *unit * 10 + (unsigned)(name[at] - '0');
        if (name[at] || at == n + 1 || *unit > MAX_UNIT) found = NULL;
    }
    if (!found) fail_unknown(env, name);
    return found;
}

unsigned ki_device_intern(ki_env *env, const char *name) {
    unsigned unit;
    const ki_device_class *c = ki_device_parse(env, name, &unit);
    char text[64];
    if (!c) return 0;
    if (unit) snprintf(text, sizeof text, "%s:%u", c->name, unit);
    else snprintf(text, sizeof text, "%s", c->name);
    return ki_device_id(env, text);
}

ki_device *ki_device_open(ki_env *env, unsigned id) {
    unsigned unit;
    const char *name = id < env->ndevice ? env->device[id] : NULL;
    if (name && strchr(name, ',')) return ki_fail(env, KI_E_DEVICE_TUPLE, name), NULL;
    const ki_device_class *c = ki_device_parse(env, name, &unit);
    if (!c) return NULL;
    ki_device *d = ki_calloc(1, sizeof *d);
    if (!d) return ki_fail(env, KI_E_NOMEM), NULL;
    *d = (ki_device){.is = c, .env = env, .id = id, .unit = unit};
    if (c->open(d)) return d;
    ki_device_close(d);
    return NULL;
}

void ki_device_close(ki_device *d) {
    if (!d) return;
    d->is->close(d);
    ki_free(d);
}

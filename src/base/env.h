/* env.h: what every layer of one context shares: diagnostics, device names, settings, the log.
 *
 * Errors are values. The first failure is kept (id, message, place), later ones are counted: a chain of calls
 * may run on over NULLs and be checked once at its end. Nothing here prints, aborts or exits. */
#ifndef KI_ENV_H
#define KI_ENV_H

#include "base/alloc.h"
#include "base/gnu.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* Public status codes; kn_status in koine/koine.h has the same values. */
enum { KI_OK = 0, KI_INVALID = -1, KI_PARSE = -2, KI_IO = -3, KI_NOMEM = -4, KI_UNSUPPORTED = -5, KI_INTERNAL = -6, KI_DEVICE = -7, KI_VERIFY_FAILED = -8 };

typedef enum ki_err {
    KI_E_NONE,
#define KI_ERROR(num, name, status, fmt, hint) KI_E_##name,
#include "base/errors.def"
#undef KI_ERROR
    KI_E_COUNT
} ki_err;

/* The caller's place, for messages; file may be NULL. */
typedef struct ki_loc {
    const char *file;
    int line;
} ki_loc;

typedef enum ki_var {
#define KI_ENV(name, def, takes, code, doc) KI_VAR_##name,
#include "base/env.def"
#undef KI_ENV
    KI_VAR_COUNT
} ki_var;
typedef struct ki_var_info {
    const char *name, *def, *takes;
    bool code; /* what a program is made into depends on it */
    const char *doc;
} ki_var_info;
extern const ki_var_info ki_vars[KI_VAR_COUNT];

struct ki_watch;
struct ki_ir;
struct kn_uop_s;
typedef struct ki_env {
    ki_err err;      /* first failure, KI_E_NONE = none */
    int status;      /* its status */
    unsigned more;   /* failures after the first */
    ki_text message; /* its text: "file:line: KNnnnn: what\n  detail\n  hint: ..." */
    ki_loc loc;      /* place of the public call now running */

    char *var[KI_VAR_COUNT]; /* settings: environment, then API */
    void (*log)(void *user, const char *text);
    void *log_user;

    struct ki_watch *watch; /* who sees each rewrite (rules/watch.h), NULL nobody */
    void (*watch_close)(struct ki_env *e);
    struct ki_history *history; /* of nodes (ir/history.h), NULL nobody asks */
    /* What a machine instruction (INS) means, as an expression; NULL: none is known here. */
    const struct kn_uop_s *(*ins)(struct ki_ir *ir, const struct kn_uop_s *u);

    char **device; /* interned device names; [0] is NULL, "no device" */
    unsigned ndevice, device_cap;
} ki_env;

/* Reads the environment. False when out of memory. A setting that cannot be is a failure (e->err), and left as it was. */
bool ki_env_open(ki_env *e);
void ki_env_close(ki_env *e);

/* Records a failure by its catalogue entry; the rest are the format's arguments. Returns its status, never 0. */
KI_COLD int ki_fail(ki_env *e, ki_err id, ...);
/* The same for text: adds "source:line:col", the source line and a caret. `at` points into text[0..n). */
int ki_fail_at(ki_env *e, ki_err id, const char *source, const char *text, size_t n, size_t at, ...);
/* Adds an indented line to the failure just recorded (nothing if it was not the first). */
KI_COLD void ki_fail_note(ki_env *e, const char *fmt, ...) KI_PRINTF(2, 3);
/* Forgets the failure. */
void ki_env_clear(ki_env *e);

const char *ki_setting(const ki_env *e, ki_var v);
uint64_t ki_setting_number(const ki_env *e, ki_var v); /* of one that takes numbers; 0 if it has none and no default */
/* Sets (value copied) or, with NULL or "", resets to the default. False after a failure: no memory, no such number or word. */
bool ki_setting_set(ki_env *e, ki_var v, const char *value);

void ki_log(ki_env *e, const char *fmt, ...) KI_PRINTF(2, 3);

/* Index of a device name (or comma-separated tuple), interned; 0 for NULL or "". Never fails: out of memory gives 0
 * and records it. */
unsigned ki_device_id(ki_env *e, const char *name);

#endif

/* cache.h: what was compiled, on disk, named by the digest of all that it was made from: shared objects of kernels (.so), programs
 * made ready (.kn, run/kept.h), searches (.opt, run/search; these are small and dear, and stay when the oldest files go).
 *
 * A file ends in a trailer (magic, length, digest of its bytes, its key), so one that was cut, damaged or renamed is
 * noticed and simply made again. Files appear by rename, so no reader ever sees a part; what a process was writing when it was killed
 * goes after a day. A folder that cannot be made or written, or is full, is no error: code is then compiled into a temporary file
 * elsewhere, and the log is told once. */
#ifndef KI_CACHE_H
#define KI_CACHE_H

#include "base/env.h"
#include "base/hash.h"

typedef struct ki_code_cache {
    char *dir;  /* NULL: off */
    char *temp; /* where new files are made; never NULL */
    ki_env *env; /* whose log is told why nothing is kept */
    bool told;
    unsigned stored;
} ki_code_cache;

bool ki_code_cache_open(ki_env *env, ki_code_cache *c);
void ki_code_cache_close(ki_code_cache *c);

/* Loads the object of a key; NULL: it is not there, or is not sound. */
void *ki_code_cache_load(ki_code_cache *c, ki_digest key);
/* A name for a new object, ki_malloc'ed. NULL: env says why. */
char *ki_code_cache_new(ki_env *env, ki_code_cache *c);
/* Loads the object just made at `path` and keeps it under the key where it can. NULL: env says why. Takes path. */
void *ki_code_cache_store(ki_env *env, ki_code_cache *c, ki_digest key, char *path);

/* The text kept under a key, of a kind named by its suffix, ki_malloc'ed, NUL-terminated. NULL: it is not there, or is not sound. */
char *ki_code_cache_read(ki_code_cache *c, ki_digest key, const char *suffix, size_t *n);
/* Keeps a text where it can. */
void ki_code_cache_write(ki_code_cache *c, ki_digest key, const char *suffix, const char *text, size_t n);

#endif

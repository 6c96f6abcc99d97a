/* idx.h: IDX, the format of the MNIST files. */
#ifndef KI_IDX_H
#define KI_IDX_H

#include "io/array.h"

/* Parses an IDX file (already unpacked). */
bool ki_idx_parse(ki_env *env, const char *name, const uint8_t *p, size_t n, ki_array *out);
/* Reads one, plain or gzip. */
bool ki_idx_read(ki_env *env, const char *path, ki_array *out);

#endif

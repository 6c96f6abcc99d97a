/* file.h: whole files in and out. Parsers never see a FILE: they take (bytes, count). */
#ifndef KI_FILE_H
#define KI_FILE_H

#include "base/env.h"

#include <stddef.h>
#include <stdint.h>

/* Reads a whole file ("-": standard input) into ki_malloc'ed memory with a NUL after the last byte. */
bool ki_file_read(ki_env *env, const char *path, uint8_t **data, size_t *n);
/* Writes a whole file ("-": standard output), through a temporary one beside it, so that no reader sees a half. */
bool ki_file_write(ki_env *env, const char *path, const void *data, size_t n);
/* The same from two pieces. */
bool ki_file_write2(ki_env *env, const char *path, const void *head, size_t nhead, const void *data, size_t n);

/* The bytes of a file, unpacked if they are gzip. */
bool ki_file_read_gz(ki_env *env, const char *path, uint8_t **data, size_t *n);

#endif

/* kept.h: programs that were made ready once, kept on disk for the next process: where kernels are machine code, the text of
 * stage render without the lists the code was made from. A program found there is neither lowered nor compiled.
 *
 * The key holds the program, this build of the library, the processor's features and every setting that lowering looks at;
 * where kernels are searched for also how widely, and what times depend on. Files are those of device/cpu/cache.h (KN_CACHE): what is
 * cut, damaged or another's is not used, and made again. */
#ifndef KI_KEPT_H
#define KI_KEPT_H

#include "run/run.h"

/* What this build of the library is; false: the linker did not say. */
bool ki_build_id(ki_digest *id);
/* The build id among ELF's notes, n bytes; false: it is not there. */
bool ki_build_id_in(const void *notes, size_t n, ki_digest *id);
/* Adds to a key what lowering depends on besides the program: this build, the machine and what settings say of it; measured: also what
 * times depend on. False: without the build, of which the linker did not say what it is. */
bool ki_machine_key(const ki_lower_opts *o, bool measured, ki_digest *key);
/* Whether programs lowered so are kept at all; key: p's. p: callified. No failure is left in env. */
bool ki_kept_key(ki_run *r, const ki_program *p, const ki_lower_opts *o, ki_digest *key);
/* Reads the program of a key into ir, which is empty. False: it is not there, or is not sound; env and ir are as before. */
bool ki_kept_find(ki_run *r, ki_digest key, ki_ir *ir, ki_program *out);
/* Keeps a rendered program, where it can. Makes nodes in its store. */
void ki_kept_store(ki_run *r, ki_digest key, const ki_program *low);

#endif

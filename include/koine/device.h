/* device.h: which devices there are, and what running on them cost. C99 and C++ clean. */
#ifndef KN_DEVICE_H
#define KN_DEVICE_H

#include <koine/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_device_info {
    const char *name; /* "CPU" */
    const char *doc;  /* one line */
    const char *kind; /* "compiled", "interpreted", "none": nothing runs */
} kn_device_info;

/* The i-th kind of device, 0 when there is no i-th. */
KN_API int kn_device_at(size_t i, kn_device_info *out);

/* What a context has done since it was opened. Seconds are wall-clock. */
typedef struct kn_stats {
    uint64_t programs; /* compiled */
    uint64_t replays;  /* runs of a program, compiled or found again */
    uint64_t kernels_launched;
    uint64_t kernels_compiled; /* and not found on disk, whoever made their code */
    uint64_t kernels_cached;   /* found on disk */
    uint64_t compiler_runs;    /* of the C compiler */
    uint64_t kernels_searched; /* KN_BEAM: for which OptOps were searched for, or gone on with */
    uint64_t trials_measured;  /* that were run for it */
    double lower_seconds;      /* from graph to source text */
    double compile_seconds;    /* from source text to loaded code */
    double run_seconds;
    uint64_t bytes, peak_bytes, pooled_bytes; /* device memory in use, its maximum, kept for reuse */
    uint64_t scratch_bytes;                   /* for intermediate values */
} kn_stats;
KN_API kn_stats kn_stats_of(const kn_ctx *k);

#ifdef __cplusplus
}
#endif
#endif

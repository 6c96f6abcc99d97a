/* host.h: device memory that is host memory, for the devices that compute there.
 *
 * Freed blocks are kept and given out again, the one freed last first: fresh pages cost a fault and a clearing each, which
 * for a large elementwise kernel is more than the kernel, and what was just used may still be in a cache. What is kept
 * and what is in use together stay within one and a half times the most that was in use lately, or 64 MiB more than that
 * if this is more; what was freed longest ago goes back to the system first. */
#ifndef KI_HOST_H
#define KI_HOST_H

#include "device/device.h"

bool ki_host_open(ki_device *d);
void ki_host_close(ki_device *d);
void *ki_host_alloc(ki_device *d, size_t bytes);
void ki_host_free(ki_device *d, void *p, size_t bytes);
bool ki_host_copy(ki_device *d, ki_copy dir, void *to, const void *from, size_t bytes);

#endif

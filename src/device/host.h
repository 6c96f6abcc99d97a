/* host.h: device memory that is host memory, for the devices that compute there.
 *
 * Freed blocks are kept by size and given out again: fresh pages cost a fault each, which for a large elementwise
 * kernel is as much as the kernel. What is kept is bounded (twice what is in use, at least 64 MiB). */
#ifndef KI_HOST_H
#define KI_HOST_H

#include "device/device.h"

bool ki_host_open(ki_device *d);
void ki_host_close(ki_device *d);
void *ki_host_alloc(ki_device *d, size_t bytes);
void ki_host_free(ki_device *d, void *p, size_t bytes);
bool ki_host_copy(ki_device *d, ki_copy dir, void *to, const void *from, size_t bytes);

#endif

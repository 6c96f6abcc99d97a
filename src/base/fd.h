/* fd.h: all of so many bytes to or from a file descriptor, whatever a call takes at once and whoever interrupts it. */
#ifndef KI_FD_H
#define KI_FD_H

#include <stdbool.h>
#include <stddef.h>

bool ki_fd_write(int fd, const void *data, size_t n); /* false: errno says why */
size_t ki_fd_read(int fd, void *data, size_t n);      /* how many there were: fewer at the end, or where reading failed */

#endif

/* entries.h: entries of kernels by the digest of what they were made of: open addressing. */
#ifndef KI_ENTRIES_H
#define KI_ENTRIES_H

#include "base/hash.h"
#include "device/device.h"

typedef struct ki_entries {
    struct ki_entry_of { /* entry NULL: free */
        ki_digest key;
        ki_entry *entry;
    } * table;
    size_t n, cap;
} ki_entries;

/* Room for `more`; before it there is none. False: out of memory. */
bool ki_entries_room(ki_entries *e, size_t more);
ki_entry *ki_entries_find(const ki_entries *e, ki_digest key);      /* NULL: not there */
void ki_entries_put(ki_entries *e, ki_digest key, ki_entry *entry); /* what is there stays; room was made */
void ki_entries_free(ki_entries *e);

#endif

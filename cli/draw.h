/* draw.h: what the command draws in a terminal: a progress bar, small images. */
#ifndef CLI_DRAW_H
#define CLI_DRAW_H

#include <stdint.h>

/* A bar on standard error: redrawn in a terminal, else a line every twentieth of the way. */
typedef struct bar {
    const char *what; /* "training" */
    int64_t total;
    double begun, drawn;
    int part;
    int live; /* a terminal */
} bar;
void bar_begin(bar *b, const char *what, int64_t total);
/* text: what stands behind the bar. */
void bar_step(bar *b, int64_t done, const char *text);
void bar_end(bar *b);

/* Images side by side on standard output, each with a caption beneath. */
typedef struct picture {
    const float *pixels; /* height x width, 0 to 1 */
    char caption[32];
} picture;
void draw_row(const picture *p, int n, int64_t height, int64_t width);

#endif

/* draw.c: progress bar and images in a terminal. See draw.h.
 * Images are braille, two by four dots a character, where the locale is UTF-8, else shades of ASCII. */
#include "draw.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void bar_begin(bar *b, const char *what, int64_t total) {
    *b = (bar){.what = what, .total = total, .begun = cli_now(), .live = isatty(STDERR_FILENO)};
}

void bar_step(bar *b, int64_t done, const char *text) {
    enum { WIDTH = 30 };
    double now = cli_now();
    int part = (int)(done * 20 / b->total);
    if (b->live ? now - b->drawn < 0.05 && done < b->total : part == b->part) return;
    b->drawn = now;
    b->part = part;
    int full = (int)(done * WIDTH / b->total);
    fprintf(stderr, "%s%s [%.*s%.*s] %lld/%lld  %s%s", b->live ? "\r" : "", b->what, full,
            "##############################", WIDTH - full, "..............................", (long long)done,
            (long long)b->total, text, b->live ? "\033[K" : "\n");
    fflush(stderr);
}

void bar_end(bar *b) {
    if (b->live) fputc('\n', stderr);
}

static bool utf8(void) {
    const char *s = getenv("LC_ALL");
    if (!s || !*s) s = getenv("LC_CTYPE");
    if (!s || !*s) s = getenv("LANG");
    return s && (strstr(s, "UTF-8") || strstr(s, "utf8") || strstr(s, "UTF8"));
}

static float at(const float *p, int64_t h, int64_t w, int64_t y, int64_t x) {
    return y < h && x < w ? p[y * w + x] : 0;
}

/* Dots 1 2 3 7 stand in the left column, 4 5 6 8 in the right one. */
static void cell_braille(const float *p, int64_t h, int64_t w, int64_t y, int64_t x) {
    static const int dot[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    int c = 0;
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 2; i++)
            if (at(p, h, w, y + j, x + i) > 0.4f) c |= dot[j][i];
    printf("%c%c%c", 0xe2, 0xa0 | c >> 6, 0x80 | (c & 63));
}

static void cell_ascii(const float *p, int64_t h, int64_t w, int64_t y, int64_t x) {
    float v = 0;
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 2; i++) v += at(p, h, w, y + j, x + i) / 8;
    int shade = (int)(v * 10);
    putchar(" .:-=+*#%@"[shade < 0 ? 0 : shade > 9 ? 9 : shade]);
}

void draw_row(const picture *p, int n, int64_t height, int64_t width) {
    bool braille = utf8();
    for (int64_t y = 0; y < height; y += 4) {
        for (int i = 0; i < n; i++) {
            fputs("  ", stdout);
            for (int64_t x = 0; x < width; x += 2)
                (braille ? cell_braille : cell_ascii)(p[i].pixels, height, width, y, x);
        }
        putchar('\n');
    }
    for (int i = 0; i < n; i++) printf("  %-*s", (int)((width + 1) / 2), p[i].caption);
    putchar('\n');
}

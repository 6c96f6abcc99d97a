/* digits.c: draws handwritten-style digits. See digits.h.
 *
 * A digit is one of several skeletons: pen strokes through control points on a 100 x 100 sheet. An image is made by
 * bending the sheet (a smooth random displacement, so that strokes that meet still meet), jittering each point,
 * drawing a spline through them, mapping it by a random affine map onto 28 x 28 pixels, and inking every pixel by its
 * distance to the pen's path; then come stray marks, blur, contrast and noise. The amounts (AMOUNT below) are set so
 * that a linear classifier stays under 90 % and a small convolutional network passes 98 %: change them with care and
 * measure both (tests/nn/test_digits.py does). */
#include "nn/digits.h"

#include "base/cpuid.h"
#include "base/gnu.h"
#include "base/hash.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* Points x, y in percent of the sheet, y downwards. A repeated point is a corner; UP lifts the pen; END ends. */
enum { UP = -1, END = -2, MAX_POINTS = 24, VARIANTS = 4 };
static const int8_t skeleton[10][VARIANTS][2 * MAX_POINTS] = {
    {
        {50, 5, 20, 20, 12, 50, 22, 82, 50, 95, 78, 80, 88, 50, 78, 18, 50, 5, END},
        {62, 10, 35, 8, 18, 40, 25, 80, 50, 95, 75, 75, 80, 35, 60, 8, 42, 14, END},
        {60, 12, 30, 15, 15, 50, 30, 88, 60, 92, 85, 60, 78, 25, 52, 6, END},
        {45, 5, 27, 30, 27, 70, 48, 95, 70, 72, 72, 28, 52, 5, 38, 12, END},
    },
    {
        {50, 5, 50, 95, END},
        {28, 27, 55, 5, 55, 5, 55, 50, 55, 95, END},
        {30, 25, 54, 5, 54, 5, 54, 95, UP, 28, 95, 80, 95, END},
        {60, 5, 52, 50, 45, 95, END},
    },
    {
        {15, 25, 30, 7, 60, 5, 80, 25, 65, 50, 35, 75, 12, 95, 12, 95, 50, 94, 88, 93, END},
        {18, 28, 40, 6, 72, 14, 75, 40, 45, 72, 18, 90, 22, 75, 45, 85, 70, 95, 90, 85, END},
        {20, 15, 55, 5, 80, 22, 70, 48, 15, 95, 15, 95, 85, 95, END},
        {22, 30, 30, 10, 58, 4, 76, 20, 72, 42, 48, 66, 20, 92, 20, 92, 55, 88, 84, 94, END},
    },
    {
        {15, 15, 45, 4, 75, 18, 65, 42, 40, 48, 40, 48, 75, 55, 82, 78, 50, 96, 15, 85, END},
        {18, 8, 80, 8, 80, 8, 45, 42, 45, 42, 80, 58, 75, 85, 45, 96, 12, 85, END},
        {20, 20, 50, 5, 78, 22, 55, 46, 40, 47, 60, 48, 85, 70, 60, 95, 15, 88, END},
        {25, 10, 60, 5, 72, 25, 42, 45, 42, 45, 74, 60, 70, 88, 38, 96, 18, 80, END},
    },
    {
        {25, 5, 15, 55, 15, 55, 85, 55, UP, 68, 30, 68, 95, END},
        {65, 5, 10, 65, 10, 65, 90, 65, UP, 65, 5, 65, 95, END},
        {20, 8, 22, 45, 45, 55, 78, 45, UP, 80, 5, 75, 50, 70, 95, END},
        {35, 5, 18, 40, 20, 60, 20, 60, 50, 60, 86, 56, UP, 62, 35, 60, 65, 58, 95, END},
    },
    {
        {80, 8, 25, 8, 25, 8, 20, 45, 20, 45, 55, 38, 85, 60, 65, 92, 15, 90, END},
        {30, 10, 22, 45, 22, 45, 60, 40, 82, 65, 60, 93, 20, 88, UP, 30, 10, 82, 6, END},
        {78, 12, 40, 10, 25, 35, 55, 48, 78, 68, 55, 94, 18, 86, END},
        {75, 6, 32, 10, 32, 10, 24, 42, 24, 42, 50, 40, 76, 55, 72, 82, 44, 96, 20, 92, END},
    },
    {
        {70, 5, 35, 30, 15, 65, 35, 95, 70, 88, 80, 65, 55, 50, 20, 65, END},
        {60, 5, 25, 40, 18, 75, 45, 96, 78, 80, 68, 55, 38, 58, 22, 78, END},
        {82, 15, 50, 5, 20, 40, 18, 75, 50, 96, 80, 75, 60, 52, 25, 62, END},
        {48, 4, 28, 35, 22, 70, 40, 95, 66, 90, 72, 70, 50, 58, 26, 72, END},
    },
    {
        {12, 10, 85, 10, 85, 10, 55, 50, 40, 95, END},
        {15, 12, 50, 10, 85, 8, 85, 8, 58, 48, 42, 95, UP, 32, 52, 76, 49, END},
        {14, 27, 16, 9, 16, 9, 85, 8, 85, 8, 50, 95, END},
        {16, 14, 50, 16, 82, 8, 82, 8, 64, 40, 60, 95, END},
    },
    {
        {70, 20, 45, 4, 25, 22, 50, 47, 78, 72, 50, 96, 22, 74, 50, 47, 75, 25, 68, 14, END},
        {50, 5, 26, 25, 50, 46, 74, 25, 50, 5, UP, 50, 46, 18, 70, 50, 96, 82, 70, 50, 46, END},
        {75, 15, 40, 6, 30, 28, 60, 52, 75, 78, 45, 95, 22, 75, 50, 50, 78, 15, END},
        {60, 48, 30, 35, 34, 10, 60, 5, 72, 22, 50, 48, 25, 72, 40, 96, 70, 88, 74, 64, 48, 46, END},
    },
    {
        {75, 25, 45, 6, 20, 28, 40, 50, 72, 38, 78, 20, 78, 20, 72, 60, 60, 95, END},
        {78, 28, 50, 5, 20, 28, 48, 52, 78, 28, UP, 78, 12, 78, 55, 76, 95, END},
        {75, 30, 40, 8, 20, 35, 50, 50, 78, 25, 75, 65, 50, 95, 20, 85, END},
        {70, 12, 40, 8, 28, 32, 48, 48, 70, 30, 72, 10, 72, 10, 66, 55, 50, 95, END},
    },
};

/* AMOUNT: the standard deviations and ranges that set the difficulty. */
#define BEND      7.5f  /* of the sheet's displacement, in percent */
#define JITTER    2.0f  /* of a control point */
#define ROTATE    0.16f /* radians */
#define SHEAR     0.19f
#define SHIFT     1.35f /* pixels */
#define WIDTH_LO  10.0f /* pixels */
#define WIDTH_HI  16.0f
#define HEIGHT_LO 15.5f
#define HEIGHT_HI 21.0f
#define PEN_LO    0.65f /* half width, pixels */
#define PEN_HI    1.45f
#define NOISE     0.11f /* largest standard deviation of a pixel */

typedef struct rng {
    uint64_t s;
} rng;

static KI_INLINED uint64_t next(rng *r) { return ki_mix(r->s += UINT64_C(0x9e3779b97f4a7c15)); }
static KI_INLINED float uniform(rng *r, float lo, float hi) {
    return lo + (hi - lo) * (float)(next(r) >> 40) * 0x1p-24f;
}

/* Nearly normal, deviation 1, never beyond 3.5: the sum of four 16-bit uniforms. */
static KI_INLINED float normal(rng *r) {
    uint64_t v = next(r);
    float s = (float)((v & 0xffff) + (v >> 16 & 0xffff) + (v >> 32 & 0xffff) + (v >> 48));
    return (s - 131070.0f) * (1.7320508f / 65536.0f);
}

/* v, kept from 0 to 1; without a branch, since what noise decides is not to be foreseen. */
static KI_INLINED float unit(float v) {
    v = v > 1 ? 1 : v;
    return v < 0 ? 0 : v;
}

/* Pixels are inked LANES at a time; what lies beyond the right border is never read. */
enum { LANES = 8, ROW = KI_DIGIT + LANES };

typedef struct canvas {
    float ink[KI_DIGIT][ROW];
    float a[2][3];       /* sheet (percent) to pixels */
    float bend[3][3][2]; /* displacement at the sheet's corners, edges and middle */
} canvas;

/* Inks the pixels within a pen's half width (r0 to r1) of the segment p..q. A pixel too many is inked with nothing. */
static KI_INLINED void segment(canvas *c, const float p[2], const float q[2], float r0, float r1, float dark) {
    float r = r0 > r1 ? r0 : r1, reach = r + 0.8f;
    int lo[2], hi[2];
    for (int k = 0; k < 2; k++) {
        float least = ceilf((p[k] < q[k] ? p[k] : q[k]) - reach), most = floorf((p[k] < q[k] ? q[k] : p[k]) + reach);
        lo[k] = least < 0 ? 0 : (int)least;
        hi[k] = most > KI_DIGIT - 1 ? KI_DIGIT - 1 : (int)most;
    }
    float dx = q[0] - p[0], dy = q[1] - p[1], len2 = dx * dx + dy * dy, inv = len2 > 1e-9f ? 1 / len2 : 0;
    for (int y = lo[1]; y <= hi[1]; y++)
        for (int x = lo[0]; x <= hi[0]; x += LANES) {
            float *ink = &c->ink[y][x];
            for (int k = 0; k < LANES; k++) {
                float ex = (float)(x + k) - p[0], ey = (float)y - p[1], t = (ex * dx + ey * dy) * inv;
                t = unit(t);
                ex -= t * dx;
                ey -= t * dy;
                float v = r0 + (r1 - r0) * t + 0.5f - sqrtf(ex * ex + ey * ey); /* one pixel of soft edge */
                v = unit(v) * dark;
                ink[k] = v > ink[k] ? v : ink[k];
            }
        }
}

/* From the sheet to pixels, bent. */
static KI_INLINED void place(const canvas *c, float x, float y, float out[2]) {
    float u = x * 0.02f, v = y * 0.02f; /* in grid cells, 0 to 2 */
    int i = u < 1 ? 0 : 1, j = v < 1 ? 0 : 1;
    float fu = u - (float)i, fv = v - (float)j, at[2] = {x, y};
    for (int k = 0; k < 2; k++)
        at[k] += (c->bend[j][i][k] * (1 - fu) + c->bend[j][i + 1][k] * fu) * (1 - fv) +
                 (c->bend[j + 1][i][k] * (1 - fu) + c->bend[j + 1][i + 1][k] * fu) * fv;
    for (int k = 0; k < 2; k++) out[k] = c->a[k][0] * at[0] + c->a[k][1] * at[1] + c->a[k][2];
}

/* Catmull-Rom through n placed points; a repeated point is a corner. */
static KI_INLINED void stroke(canvas *c, float (*p)[2], const bool *corner, int n, float pen, rng *r) {
    float r0 = pen * uniform(r, 0.75f, 1.15f);
    for (int i = 0; i + 1 < n; i++) {
        if (corner[i]) continue; /* between the two copies of a corner nothing is drawn */
        float *b = p[i], *e = p[i + 1], m0[2], m1[2], from[2] = {b[0], b[1]};
        for (int k = 0; k < 2; k++) {
            m0[k] = i > 0 && !corner[i - 1] ? (e[k] - p[i - 1][k]) / 2 : e[k] - b[k];
            m1[k] = i + 2 < n && !corner[i + 1] ? (p[i + 2][k] - b[k]) / 2 : e[k] - b[k];
        }
        float r1 = pen * uniform(r, 0.75f, 1.15f), len = fabsf(e[0] - b[0]) + fabsf(e[1] - b[1]);
        int steps = 1 + (int)(len * 0.55f);
        float at = r0;
        for (int s = 1; s <= steps; s++) {
            float t = (float)s / (float)steps, t2 = t * t, t3 = t2 * t, to[2];
            for (int k = 0; k < 2; k++)
                to[k] = (2 * t3 - 3 * t2 + 1) * b[k] + (t3 - 2 * t2 + t) * m0[k] + (3 * t2 - 2 * t3) * e[k] +
                        (t3 - t2) * m1[k];
            float rt = r0 + (r1 - r0) * t;
            segment(c, from, to, at, rt, 1);
            from[0] = to[0];
            from[1] = to[1];
            at = rt;
        }
        r0 = r1;
    }
}

static KI_INLINED void write_digit(canvas *c, const int8_t *s, float pen, rng *r) {
    while (*s != END) {
        float p[MAX_POINTS][2];
        bool corner[MAX_POINTS] = {false};
        int n = 0;
        for (; *s >= 0; s += 2, n++) {
            if (n && s[0] == s[-2] && s[1] == s[-1]) {
                corner[n - 1] = true;
                p[n][0] = p[n - 1][0];
                p[n][1] = p[n - 1][1];
                continue;
            }
            float jx = JITTER * normal(r), jy = JITTER * normal(r);
            place(c, (float)s[0] + jx, (float)s[1] + jy, p[n]);
        }
        stroke(c, p, corner, n, pen, r);
        if (*s == UP) s++;
    }
}

/* Stray marks: short faint lines that belong to nothing, often cut off by the border. */
static KI_INLINED void clutter(canvas *c, rng *r) {
    for (int n = (int)(next(r) % 3); n > 0; n--) {
        float x = uniform(r, -2, 29), y = uniform(r, -2, 29), p[2] = {x, y}, q[2];
        float turn = uniform(r, 0, 6.2831853f), len = uniform(r, 1, 7), w = uniform(r, 0.3f, 0.9f);
        q[0] = p[0] + len * cosf(turn);
        q[1] = p[1] + len * sinf(turn);
        segment(c, p, q, w, w, uniform(r, 0.15f, 0.6f));
    }
}

static KI_INLINED void blur(const canvas *c, float a, float *out) {
    float row[KI_DIGIT + 2][KI_DIGIT] = {{0}}; /* a border above and below */
    for (int y = 0; y < KI_DIGIT; y++)
        for (int x = 0; x < KI_DIGIT; x++) {
            const float *p = &c->ink[y][x];
            row[y + 1][x] = (1 - 2 * a) * *p + a * ((x ? p[-1] : 0) + (x < KI_DIGIT - 1 ? p[1] : 0));
        }
    for (int y = 0; y < KI_DIGIT; y++)
        for (int x = 0; x < KI_DIGIT; x++)
            out[y * KI_DIGIT + x] = (1 - 2 * a) * row[y + 1][x] + a * (row[y][x] + row[y + 2][x]);
}

static KI_INLINED void grain(float *ink, float contrast, float noise, float ground, rng *r) {
    for (int i = 0; i < KI_DIGIT * KI_DIGIT; i++) {
        ink[i] = unit(ground + (contrast - ground) * ink[i] + noise * normal(r));
    }
}

static KI_INLINED int draw(uint64_t seed, uint64_t i, float *pixels) {
    rng r = {ki_hash2(ki_hash2(UINT64_C(0x646967697473), seed), i)};
    int label = (int)(next(&r) % 10);
    canvas c = {0};
    for (int k = 0; k < 18; k++) (&c.bend[0][0][0])[k] = BEND * 0.5f * normal(&r);
    float turn = ROTATE * normal(&r), shear = SHEAR * normal(&r), cs = cosf(turn), sn = sinf(turn);
    float w = uniform(&r, WIDTH_LO, WIDTH_HI) / 100, h = uniform(&r, HEIGHT_LO, HEIGHT_HI) / 100;
    if (label == 1) w *= 0.7f;
    /* pixels = R * (scale with shear) * (sheet - its middle) + the image's middle + shift */
    float m[2][2] = {{cs * w, (cs * -shear - sn) * h}, {sn * w, (sn * -shear + cs) * h}};
    for (int k = 0; k < 2; k++) {
        c.a[k][0] = m[k][0];
        c.a[k][1] = m[k][1];
        c.a[k][2] = 13.5f + SHIFT * normal(&r) - 50 * (m[k][0] + m[k][1]);
    }
    float pen = uniform(&r, PEN_LO, PEN_HI);
    write_digit(&c, skeleton[label][next(&r) % VARIANTS], pen, &r);
    clutter(&c, &r);
    blur(&c, uniform(&r, 0, 0.2f), pixels);
    float ground = uniform(&r, 0, 0.12f), noise = uniform(&r, 0, NOISE), contrast = uniform(&r, 0.6f, 1);
    grain(pixels, contrast, noise, ground, &r);
    return label;
}

/* The same bits either way: nothing is contracted or reordered. */
#ifdef KI_AVX512
KI_AVX512 static int draw_wide(uint64_t seed, uint64_t i, float *pixels) { return draw(seed, i, pixels); }
#endif

int ki_digit_draw(uint64_t seed, uint64_t i, float *pixels) {
#ifdef KI_AVX512
    if (ki_cpu_host_level() >= KI_CPU_AVX512_LEVEL) return draw_wide(seed, i, pixels);
#endif
    return draw(seed, i, pixels);
}

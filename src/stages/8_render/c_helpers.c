/* c_helpers.c: the text a kernel's function leans on: vector types and the ops C has no sign for.
 *
 * Every piece stands once a file (#ifndef KN_...), so kernels may be joined. gcc turns loops over lanes into vector
 * instructions, clang the bitwise forms; where both are at hand each gets its own. What a helper computes is defined by
 * ir/scalar.h. */
#include "stages/8_render/c_gen.h"

static bool is_float_elem(ki_celem e) { return e >= KI_F32; }
static bool is_signed_elem(ki_celem e) { return e == KI_I8 || e == KI_I16 || e == KI_I32 || e == KI_I64; }
static const char *mask_name(ki_celem e) { return ki_celem_name[ki_cmask_elem(ki_celem_bytes[e])]; }

/* Writes a template: $e element, $t type (element or vector), $n lanes, $b bits of the element, $B bytes of the vector,
 * $a bytes of the element, $m mask type, $u unsigned mask type. */
static void put(ki_text *o, const char *s, ki_celem e, unsigned n) {
    const char *name = ki_celem_name[e], *mask = mask_name(e);
    unsigned bytes = ki_celem_bytes[e];
    for (; *s; s++) {
        if (*s != '$') {
            ki_text_putc(o, *s);
            continue;
        }
        switch (*++s) {
        case 'e': ki_text_put(o, name); break;
        case 't': n > 1 ? ki_text_printf(o, "%sx%u", name, n) : ki_text_put(o, name); break;
        case 'm': ki_text_printf(o, "%sx%u", mask, n); break;
        case 'u': ki_text_printf(o, "u%ux%u", bytes * 8, n); break;
        case 'n': ki_text_printf(o, "%u", n); break;
        case 'b': ki_text_printf(o, "%u", bytes * 8); break;
        case 'B': ki_text_printf(o, "%u", bytes * n); break;
        case 'a': ki_text_printf(o, "%u", bytes); break;
        default: break;
        }
    }
}

static void vec(ki_text *o, ki_celem e, unsigned n) {
    put(o,
        "typedef $e $t __attribute__((vector_size($B)));\n"
        "typedef $e $tu __attribute__((vector_size($B), aligned($a), may_alias));\n"
        "KN_F $t $t_of($e x) { return ($t){",
        e, n);
    for (unsigned k = 0; k < n; k++) ki_text_put(o, k ? ", x" : "x");
    ki_text_put(o, "}; }\n");
}

/* The loop becomes a blend. In vectors shorter than a register gcc 12 puts the mask itself for m ? 1 : 0 (found by a random
 * program), so these are made of bits. */
static void sel(ki_text *o, ki_celem e, unsigned n) {
    if (n == 1) return;
    put(o, "KN_F $t $t_sel($m m, $t a, $t b) {\n", e, n);
    if (n * ki_celem_bytes[e] < 16) {
        put(o, "    return ($t)((($m)a & m) | (($m)b & ~m));\n}\n", e, n);
        return;
    }
    put(o,
        "#ifdef __clang__\n"
        "    return ($t)((($m)a & m) | (($m)b & ~m));\n"
        "#else\n"
        "    $t r;\n"
        "    for (int l = 0; l < $n; l++) r[l] = m[l] ? a[l] : b[l];\n"
        "    return r;\n"
        "#endif\n"
        "}\n",
        e, n);
}

/* lt: a < b ? a : b, gt: a > b ? a : b, which are what x86's min and max do, NaN and zeros included. */
static void least_most(ki_text *o, ki_celem e, unsigned n) {
    unsigned bytes = n * ki_celem_bytes[e];
    const char *s = e == KI_F32 ? "ps" : "pd";
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "max" : "min";
        put(o, k ? "KN_F $t $t_gt($t a, $t b) {\n" : "KN_F $t $t_lt($t a, $t b) {\n", e, n);
        if (bytes == 64)
            ki_text_printf(
                o,
                "#if defined(__AVX512F__) && defined(__clang__)\n    return __builtin_ia32_%s%s512(a, b, 4);\n"
                "#elif defined(__AVX512F__)\n    return __builtin_ia32_%s%s512_mask(a, b, a, -1, 4);\n#else\n",
                name, s, name, s);
        else if (bytes == 32 || bytes == 16)
            ki_text_printf(o, "#ifdef %s\n    return __builtin_ia32_%s%s%s(a, b);\n#else\n",
                           bytes == 32 ? "__AVX__" : "__SSE2__", name, s, bytes == 32 ? "256" : "");
        put(o, k ? "    return $t_sel(($m)(a > b), a, b);\n" : "    return $t_sel(($m)(a < b), a, b);\n", e, n);
        ki_text_put(o, bytes >= 16 && bytes <= 64 ? "#endif\n}\n" : "}\n");
    }
}

static void max(ki_text *o, ki_celem e, unsigned n) {
    if (!is_float_elem(e)) {
        put(o,
            n == 1 ? "KN_F $e $e_max($e a, $e b) { return a > b ? a : b; }\n"
                   : "KN_F $t $t_max($t a, $t b) { return $t_sel(($m)(a > b), a, b); }\n",
            e, n);
        return;
    }
    /* max: NaN wins, +0 beats -0; maxc: b is a constant, no NaN, not 0; max0: b is +0. */
    if (n == 1) {
        put(o,
            "KN_F $e $e_max($e a, $e b) {\n"
            "    if (a != a || b != b) return a + b;\n"
            "    return a == b ? (__builtin_signbit(a) ? b : a) : a > b ? a : b;\n"
            "}\n"
            "KN_F $e $e_maxc($e a, $e b) { return a < b ? b : a; }\n"
            "KN_F $e $e_max0($e a, $e b) { return (a < b ? b : a) + b; }\n",
            e, n);
        return;
    }
    least_most(o, e, n);
    put(o,
        "KN_F $t $t_max($t a, $t b) {\n"
        "    $m x = ($m)$t_gt(a, b), y = ($m)$t_gt(b, a);\n"
        "    return ($t)((x & y) | ($m)(a != a) | ($m)(b != b));\n"
        "}\n"
        "KN_F $t $t_maxc($t a, $t b) { return $t_gt(b, a); }\n"
        "KN_F $t $t_max0($t a, $t b) { return $t_gt(b, a) + b; }\n",
        e, n);
}

static void fused(ki_text *o, ki_celem e, unsigned n) {
    unsigned bytes = n * ki_celem_bytes[e];
    const char *s = e == KI_F32 ? "ps" : "pd";
    put(o, "KN_F $t $t_fma($t a, $t b, $t c) {\n", e, n);
    if (bytes == 16 || bytes == 32)
        ki_text_printf(o, "#ifdef __FMA__\n    return __builtin_ia32_vfmadd%s%s(a, b, c);\n#else\n", s,
                       bytes == 32 ? "256" : "");
    else if (bytes == 64)
        ki_text_printf(o, "#ifdef __AVX512F__\n    return __builtin_ia32_vfmadd%s512_mask(a, b, c, -1, 4);\n#else\n",
                       s);
    put(o,
        e == KI_F32 ? "    for (int l = 0; l < $n; l++) c[l] = __builtin_fmaf(a[l], b[l], c[l]);\n"
                    : "    for (int l = 0; l < $n; l++) c[l] = __builtin_fma(a[l], b[l], c[l]);\n",
        e, n);
    ki_text_put(o, "    return c;\n");
    if (bytes == 16 || bytes == 32 || bytes == 64) ki_text_put(o, "#endif\n");
    ki_text_put(o, "}\n");
}

static void roots(ki_text *o, ki_celem e, unsigned n) {
    unsigned bytes = n * ki_celem_bytes[e];
    const char *s = e == KI_F32 ? "ps" : "pd", *f = e == KI_F32 ? "f" : "";
    put(o, "KN_F $t $t_sqrt($t a) {\n", e, n);
    bool wide = bytes == 16 || bytes == 32 || bytes == 64;
    if (wide)
        ki_text_printf(o, "#if defined(__clang__) && defined(%s)\n    return __builtin_ia32_sqrt%s%s(a%s);\n#else\n",
                       bytes == 64   ? "__AVX512F__"
                       : bytes == 32 ? "__AVX__"
                                     : "__SSE2__",
                       s,
                       bytes == 64   ? "512"
                       : bytes == 32 ? "256"
                                     : "",
                       bytes == 64 ? ", 4" : "");
    put(o, "    for (int l = 0; l < $n; l++) ", e, n);
    ki_text_printf(o, "a[l] = __builtin_sqrt%s(a[l]);\n    return a;\n%s}\n", f, wide ? "#endif\n" : "");
    put(o,
        "KN_F $t $t_trunc($t a) {\n"
        "#ifdef __clang__\n"
        "    return __builtin_elementwise_trunc(a);\n"
        "#else\n"
        "    for (int l = 0; l < $n; l++) ",
        e, n);
    ki_text_printf(o, "a[l] = __builtin_trunc%s(a[l]);\n    return a;\n#endif\n}\n", f);
}

static void divmod(ki_text *o, ki_celem e, unsigned n) {
    put(o,
        is_signed_elem(e) ? "KN_F $e $e_idiv($e a, $e b) {\n"
                            "    if (b == 0) return 0;\n"
                            "    if (b == -1) return ($e)-a;\n"
                            "    return ($e)(a / b - (a % b != 0 && (a < 0) != (b < 0)));\n"
                            "}\n"
                            "KN_F $e $e_mod($e a, $e b) {\n"
                            "    if (b == 0 || b == -1) return 0;\n"
                            "    $e r = ($e)(a % b);\n"
                            "    return ($e)(r != 0 && (r < 0) != (b < 0) ? r + b : r);\n"
                            "}\n"
                          : "KN_F $e $e_idiv($e a, $e b) { return b ? a / b : 0; }\n"
                            "KN_F $e $e_mod($e a, $e b) { return b ? a % b : 0; }\n",
        e, n);
}

static void shifts(ki_text *o, ki_celem e, unsigned n) {
    put(o, "KN_F $e $e_shl($e a, $e b) { return (u64)b < $b ? ($e)((u64)a << b) : 0; }\n", e, n);
    put(o,
        is_signed_elem(e) ? "KN_F $e $e_shr($e a, $e b) { return (u64)b < $b ? ($e)(a >> b) : a < 0 ? -1 : 0; }\n"
                          : "KN_F $e $e_shr($e a, $e b) { return (u64)b < $b ? ($e)(a >> b) : 0; }\n",
        e, n);
}

/* f32 lanes to an integer of at most 32 bits: clamped to what f32 and the integer both hold, NaN to 0. The largest i32
 * is no f32, so what reaches 2^31 is put right afterwards. */
static void float_to_ints(ki_text *o, ki_celem e, unsigned n) {
    static const char *const lo[] = {
        [KI_U8] = "0.0f", [KI_I8] = "-128.0f", [KI_U16] = "0.0f", [KI_I16] = "-32768.0f", [KI_I32] = "-2147483648.0f"};
    static const char *const hi[] = {[KI_U8] = "255.0f",
                                     [KI_I8] = "127.0f",
                                     [KI_U16] = "65535.0f",
                                     [KI_I16] = "32767.0f",
                                     [KI_I32] = "2147483520.0f"};
    put(o, "KN_F $t f32x$n_$e(f32x$n x) {\n", e, n);
    ki_text_printf(o, "    f32x%u lo = f32x%u_of(%s), hi = f32x%u_of(%s), y = x;\n", n, n, lo[e], n, hi[e]);
    put(o,
        "    y = f32x$n_sel((i32x$n)(y < lo), lo, y);\n"
        "    y = f32x$n_sel((i32x$n)(y > hi), hi, y);\n"
        "    i32x$n r = __builtin_convertvector(f32x$n_sel((i32x$n)(x == x), y, f32x$n_of(0.0f)), i32x$n);\n",
        e, n);
    put(o,
        e == KI_I32 ? "    return i32x$n_sel((i32x$n)(x > hi), i32x$n_of(2147483647), r);\n}\n"
                    : "    return __builtin_convertvector(r, $t);\n}\n",
        e, n);
}

static void float_to_int(ki_text *o, ki_celem e, unsigned n) {
    if (n > 1) {
        float_to_ints(o, e, n);
        return;
    }
    static const char *const limits[KI_CELEM_COUNT][4] = {
        [KI_U8] = {"0", "0", "256.0", "255"},
        [KI_I8] = {"-128.0", "-128", "128.0", "127"},
        [KI_U16] = {"0", "0", "65536.0", "65535"},
        [KI_I16] = {"-32768.0", "-32768", "32768.0", "32767"},
        [KI_U32] = {"0", "0", "4294967296.0", "4294967295u"},
        [KI_I32] = {"-2147483648.0", "-2147483647 - 1", "2147483648.0", "2147483647"},
        [KI_U64] = {"0", "0", "18446744073709551616.0", "18446744073709551615u"},
        [KI_I64] = {"-9223372036854775808.0", "-9223372036854775807 - 1", "9223372036854775808.0",
                    "9223372036854775807"},
    };
    const char *const *l = limits[e];
    if (!l[0]) return;
    put(o, "KN_F $e kn_f64_$e(f64 x) {\n", e, n);
    ki_text_printf(o, "    if (x != x) return 0;\n    if (x <= %s) return %s;\n    if (x >= %s) return %s;\n", l[0],
                   l[1], l[2], l[3]);
    put(o, "    return ($e)x;\n}\n", e, n);
}

/* A line under `#if guard`; its two %s are filled in first. */
static void builtin(ki_text *o, const char *guard, const char *line, const char *a, const char *b, ki_celem e,
                    unsigned n) {
    if (!guard) return;
    ki_text t = {0};
    for (const char *next = a; *line; line++) {
        if (line[0] == '%' && line[1] == 's') ki_text_put(&t, next), next = b, line++;
        else ki_text_putc(&t, *line);
    }
    ki_text_printf(o, "#if %s\n", guard);
    if (t.s) put(o, t.s, e, n);
    ki_text_put(o, "#else\n");
    o->oom |= t.oom;
    ki_text_free(&t);
}

static void masked(ki_text *o, ki_celem e, unsigned n) {
    unsigned bytes = n * ki_celem_bytes[e];
    bool four = ki_celem_bytes[e] == 4;
    /* The integer instructions move bits, so they serve floats too. d: 4-byte lanes, q: 8-byte lanes. */
    const char *load = NULL, *store = NULL, *guard = NULL, *lane = four ? "d" : "q", *wide = four ? "si" : "di";
    if (bytes == 64) {
        guard = "defined(__AVX512DQ__)";
        load =
            "    return ($t)__builtin_ia32_loaddqu%s512_mask((void *)p, ($m)alt, __builtin_ia32_cvt%s2mask512(m));\n";
        store = "    __builtin_ia32_storedqu%s512_mask((void *)p, ($m)v, __builtin_ia32_cvt%s2mask512(m));\n";
    } else if (bytes == 32 || bytes == 16) {
        guard = "defined(__AVX2__)";
        load = bytes == 32 ? "    return $t_sel(m, ($t)__builtin_ia32_maskload%s256((void *)p, m), alt);\n"
                           : "    return $t_sel(m, ($t)__builtin_ia32_maskload%s((void *)p, m), alt);\n";
        store = bytes == 32 ? "    __builtin_ia32_maskstore%s256((void *)p, m, ($m)v);\n"
                            : "    __builtin_ia32_maskstore%s((void *)p, m, ($m)v);\n";
        wide = lane;
    }
    put(o, "KN_F $t $t_mload(const $e *p, $m m, $t alt) {\n", e, n);
    builtin(o, guard, load, wide, lane, e, n);
    put(o, "    for (int l = 0; l < $n; l++)\n        if (m[l]) alt[l] = p[l];\n    return alt;\n", e, n);
    if (guard) ki_text_put(o, "#endif\n");
    put(o, "}\nKN_F void $t_mstore($e *p, $m m, $t v) {\n", e, n);
    builtin(o, guard, store, wide, lane, e, n);
    put(o, "    for (int l = 0; l < $n; l++)\n        if (m[l]) p[l] = v[l];\n", e, n);
    if (guard) ki_text_put(o, "#endif\n");
    ki_text_put(o, "}\n");
}

static void stream(ki_text *o, ki_celem e, unsigned n) {
    unsigned bytes = n * ki_celem_bytes[e];
    const char *guard = bytes == 64 ? "__AVX512F__" : bytes == 32 ? "__AVX__" : "__SSE__";
    put(o,
        "KN_F void $t_stream($e *p, $t v) {\n"
        "    typedef f32 line __attribute__((vector_size($B)));\n"
        "    if ((u64)p & ($B - 1)) *($tu *)p = v;\n",
        e, n);
    ki_text_printf(o,
                   "#if defined(__clang__)\n    else __builtin_nontemporal_store((line)v, (line *)p);\n"
                   "#elif defined(%s)\n    else __builtin_ia32_movntps%s((f32 *)p, (line)v);\n"
                   "#else\n    else *(line *)p = (line)v;\n#endif\n}\n",
                   guard,
                   bytes == 64   ? "512"
                   : bytes == 32 ? "256"
                                 : "");
}

/* pick: c ? a : b, c 0 or 1, where one is -0: of s += c ? a : -0.0 gcc 12's loop vectorizer makes s += c ? a : 0.0 (found by a
 * random program). */
static void bits(ki_text *o, ki_celem e, unsigned n) {
    (void)e, (void)n;
    ki_text_put(o, "KN_F u32 kn_bits_f32(f32 x) { u32 b; __builtin_memcpy(&b, &x, 4); return b; }\n"
                   "KN_F u64 kn_bits_f64(f64 x) { u64 b; __builtin_memcpy(&b, &x, 8); return b; }\n"
                   "KN_F f32 kn_from_f32(u32 b) { f32 x; __builtin_memcpy(&x, &b, 4); return x; }\n"
                   "KN_F f64 kn_from_f64(u64 b) { f64 x; __builtin_memcpy(&x, &b, 8); return x; }\n"
                   "KN_F f32 kn_pick_f32(u32 c, f32 a, f32 b) {\n"
                   "    return kn_from_f32((kn_bits_f32(a) & -c) | (kn_bits_f32(b) & (c - 1)));\n"
                   "}\n"
                   "KN_F f64 kn_pick_f64(u64 c, f64 a, f64 b) {\n"
                   "    return kn_from_f64((kn_bits_f64(a) & -c) | (kn_bits_f64(b) & (c - 1)));\n"
                   "}\n");
}

/* One encoder and decoder for all; f16 and bf16 have short cuts from f32. */
static const char small_text[] =
    "static inline u32 kn_enc(f64 v, int eb, int mb, int inf) {\n"
    "    u64 b = kn_bits_f64(v), man = b & 0xfffffffffffff;\n"
    "    u32 sign = (u32)(b >> 63) << (eb + mb), top = ((1u << eb) - 1) << mb, all = (1u << mb) - 1;\n"
    "    int x = (int)(b >> 52 & 0x7ff), e = x - 1023 + (1 << (eb - 1)) - 1, shift = 52 - mb;\n"
    "    if (x == 0x7ff && man) return sign | (inf ? top | 1u << (mb - 1) | (u32)(man >> shift) : top | all);\n"
    "    if (x == 0x7ff || e >= 1 << eb) return sign | (inf ? top : top | all);\n"
    "    u32 base = e < 1 ? 0 : (u32)(e - 1) << mb, limit = inf ? top : top | all;\n"
    "    if (e < 1) shift += 1 - e;\n"
    "    if (shift > 54) return sign;\n"
    "    man |= 0x10000000000000;\n"
    "    u64 q = man >> shift, rest = man & (((u64)1 << shift) - 1), half = (u64)1 << (shift - 1);\n"
    "    u32 r = base + (u32)q + (rest > half || (rest == half && (q & 1)));\n"
    "    return sign | (r < limit ? r : limit);\n"
    "}\n"
    "static inline f32 kn_dec(u32 b, int eb, int mb, int inf) {\n"
    "    u32 all = (1u << mb) - 1, man = b & all, top = (1u << eb) - 1, e = b >> mb & top;\n"
    "    f64 v = e ? kn_from_f64((u64)(e - ((1u << (eb - 1)) - 1) + 1023) << 52 | (u64)man << (52 - mb))\n"
    "              : (f64)man * kn_from_f64((u64)(1025 - (1 << (eb - 1)) - mb) << 52);\n"
    "    if (e == top && (inf || man == all)) v = man ? __builtin_nan(\"\") : __builtin_inf();\n"
    "    return (f32)(b >> (eb + mb) & 1 ? -v : v);\n"
    "}\n"
    "KN_F f64 kn_fma_odd(f64 a, f64 b, f64 c) {\n"
    "    f64 p = a * b, s = p + c, t = s - p, e = (p - (s - t)) + (c - t);\n"
    "    u64 u = kn_bits_f64(s);\n"
    "    if (!(e < 0 || e > 0) || (u & 1)) return s;\n"
    "    return kn_from_f64((e > 0) == (s > 0) ? u + 1 : u - 1);\n"
    "}\n"
    "KN_F u16 kn_f16_putd(f64 x) { return (u16)kn_enc(x, 5, 10, 1); }\n"
    "KN_F u16 kn_bf16_putd(f64 x) { return (u16)kn_enc(x, 8, 7, 1); }\n"
    "KN_F u8 kn_f8e4m3_putd(f64 x) { return (u8)kn_enc(x, 4, 3, 0); }\n"
    "KN_F u8 kn_f8e5m2_putd(f64 x) { return (u8)kn_enc(x, 5, 2, 1); }\n"
    "KN_F u8 kn_f8e4m3_put(f32 x) { return kn_f8e4m3_putd(x); }\n"
    "KN_F u8 kn_f8e5m2_put(f32 x) { return kn_f8e5m2_putd(x); }\n"
    "KN_F f32 kn_f8e4m3_get(u8 b) { return kn_dec(b, 4, 3, 0); }\n"
    "KN_F f32 kn_f8e5m2_get(u8 b) { return kn_dec(b, 5, 2, 1); }\n"
    "KN_F f32 kn_bf16_get(u16 b) { return kn_from_f32((u32)b << 16); }\n"
    "KN_F u16 kn_bf16_put(f32 x) {\n"
    "    u32 b = kn_bits_f32(x);\n"
    "    return x != x ? (u16)(b >> 16 | 64) : (u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);\n"
    "}\n"
    "#ifdef __F16C__\n"
    "typedef i16 kn_h8 __attribute__((vector_size(16)));\n"
    "typedef f32 kn_f4 __attribute__((vector_size(16)));\n"
    "KN_F f32 kn_f16_get(u16 b) { return __builtin_ia32_vcvtph2ps((kn_h8){(i16)b})[0]; }\n"
    "KN_F u16 kn_f16_put(f32 x) { return (u16)__builtin_ia32_vcvtps2ph((kn_f4){x}, 0)[0]; }\n"
    "#else\n"
    "KN_F f32 kn_f16_get(u16 b) { return kn_dec(b, 5, 10, 1); }\n"
    "KN_F u16 kn_f16_put(f32 x) { return kn_f16_putd(x); }\n"
    "#endif\n";

static void small(ki_text *o, ki_celem e, unsigned n) {
    (void)e, (void)n;
    ki_text_put(o, small_text);
}

static void bf16(ki_text *o, ki_celem e, unsigned n) {
    put(o,
        "KN_F $t $t_bf16get(u16x$n b) { return ($t)(__builtin_convertvector(b, u32x$n) << 16); }\n"
        "KN_F u16x$n $t_bf16put($t x) {\n"
        "    u32x$n b = (u32x$n)x, r = (b + 0x7fff + (b >> 16 & 1)) >> 16, nan = (u32x$n)(x != x);\n"
        "    return __builtin_convertvector((nan & (b >> 16 | 64)) | (~nan & r), u16x$n);\n"
        "}\n",
        e, n);
}

static void f16(ki_text *o, ki_celem e, unsigned n) {
    const char *wide = n == 8    ? "#if defined(__F16C__)\n"
                       : n == 16 ? "#if defined(__AVX512F__) && !defined(__clang__)\n"
                                 : NULL;
    const char *get = n == 8 ? "    return __builtin_ia32_vcvtph2ps256((i16x8)b);\n"
                             : "    return __builtin_ia32_vcvtph2ps512_mask((i16x16)b, (f32x16){0}, -1, 4);\n";
    const char *store = n == 8 ? "    return (u16x8)__builtin_ia32_vcvtps2ph256(x, 0);\n"
                               : "    return (u16x16)__builtin_ia32_vcvtps2ph512_mask(x, 0, (i16x16){0}, -1);\n";
    put(o, "KN_F $t $t_f16get(u16x$n b) {\n", e, n);
    if (wide) ki_text_put(o, wide), ki_text_put(o, get), ki_text_put(o, "#else\n");
    put(o,
        "    u32x$n w = __builtin_convertvector(b, u32x$n), a = (w & 0x7fff) << 13;\n"
        "    u32x$n big = (u32x$n)((w & 0x7c00) == 0x7c00);\n"
        "    u32x$n f = (u32x$n)(($t)a * f32x$n_of(0x1p112f));\n"
        "    return ($t)((big & (a | 0x7f800000)) | (~big & f) | (w & 0x8000) << 16);\n",
        e, n);
    if (wide) ki_text_put(o, "#endif\n");
    put(o, "}\nKN_F u16x$n $t_f16put($t x) {\n", e, n);
    if (wide) ki_text_put(o, wide), ki_text_put(o, store), ki_text_put(o, "#else\n");
    put(o,
        "    u32x$n b = (u32x$n)x, a = b & 0x7fffffff;\n"
        "    u32x$n r = (a + 0xfff + (a >> 13 & 1) - 0x38000000u) >> 13;\n"
        "    u32x$n s = (u32x$n)(($t)a + f32x$n_of(0.5f)) - 0x3f000000;\n"
        "    u32x$n sub = (u32x$n)(a < 0x38800000), inf = (u32x$n)(a >= 0x47800000u), nan = (u32x$n)(a > 0x7f800000);\n"
        "    r = (sub & s) | (~sub & r);\n"
        "    r = (inf & 0x7c00) | (~inf & r);\n"
        "    r = (nan & (0x7e00 | (a >> 13 & 0x3ff))) | (~nan & r);\n"
        "    return __builtin_convertvector(r | b >> 31 << 15, u16x$n);\n",
        e, n);
    ki_text_put(o, wide ? "#endif\n}\n" : "}\n");
}

static void threefry(ki_text *o, ki_celem e, unsigned n) {
    (void)e, (void)n;
    ki_text_put(o, "static inline u64 kn_threefry(u64 counter, u64 key) {\n"
                   "    static const u8 turn[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};\n"
                   "    u32 k[3] = {(u32)key, (u32)(key >> 32), 0};\n"
                   "    k[2] = k[0] ^ k[1] ^ 0x1bd11bda;\n"
                   "    u32 x = (u32)counter + k[0], y = (u32)(counter >> 32) + k[1];\n"
                   "    for (u32 g = 0; g < 5; g++) {\n"
                   "        for (u32 i = 0; i < 4; i++) {\n"
                   "            u32 r = turn[g & 1][i];\n"
                   "            x += y;\n"
                   "            y = (y << r | y >> (32 - r)) ^ x;\n"
                   "        }\n"
                   "        x += k[(g + 1) % 3];\n"
                   "        y += k[(g + 2) % 3] + g + 1;\n"
                   "    }\n"
                   "    return (u64)y << 32 | x;\n"
                   "}\n");
}

typedef void writer(ki_text *o, ki_celem e, unsigned n);
static writer *const writers[KI_H_COUNT] = {
    [KI_H_VEC] = vec,      [KI_H_SEL] = sel,       [KI_H_BITS] = bits,         [KI_H_SMALL] = small,
    [KI_H_F16] = f16,      [KI_H_BF16] = bf16,     [KI_H_MAX] = max,           [KI_H_FMA] = fused,
    [KI_H_SQRT] = roots,   [KI_H_DIV] = divmod,    [KI_H_SHIFT] = shifts,      [KI_H_FTOI] = float_to_int,
    [KI_H_MLOAD] = masked, [KI_H_STREAM] = stream, [KI_H_THREEFRY] = threefry,
};
static const char *const guards[KI_H_COUNT] = {
    [KI_H_VEC] = "",         [KI_H_SEL] = "_sel",       [KI_H_BITS] = "_bits",         [KI_H_SMALL] = "_small",
    [KI_H_F16] = "_f16",     [KI_H_BF16] = "_bf16",     [KI_H_MAX] = "_max",           [KI_H_FMA] = "_fma",
    [KI_H_SQRT] = "_sqrt",   [KI_H_DIV] = "_div",       [KI_H_SHIFT] = "_shift",       [KI_H_FTOI] = "_ftoi",
    [KI_H_MLOAD] = "_mload", [KI_H_STREAM] = "_stream", [KI_H_THREEFRY] = "_threefry",
};

/* What the helpers themselves lean on. */
static void close_needs(ki_cgen *g) {
    if (g->need[KI_H_SMALL][KI_U8]) g->need[KI_H_BITS][KI_U8] |= 1;
    for (int e = 0; e < KI_CELEM_COUNT; e++) { /* first what asks for selections */
        uint8_t half = (uint8_t)(g->need[KI_H_F16][e] | g->need[KI_H_BF16][e]);
        const ki_celem parts[] = {KI_F32, KI_U32, KI_I32, KI_U16, KI_I16};
        for (int k = 0; k < 5; k++) g->need[KI_H_VEC][parts[k]] |= half;
        uint8_t casts = (uint8_t)(g->need[KI_H_FTOI][e] & ~1);
        g->need[KI_H_VEC][e] |= casts, g->need[KI_H_VEC][KI_F32] |= casts, g->need[KI_H_VEC][KI_I32] |= casts;
        g->need[KI_H_SEL][KI_F32] |= casts, g->need[KI_H_SEL][KI_I32] |= casts;
    }
    for (int e = 0; e < KI_CELEM_COUNT; e++) {
        ki_celem m = ki_cmask_elem(ki_celem_bytes[e]);
        g->need[KI_H_SEL][e] |= (uint8_t)((g->need[KI_H_MAX][e] | g->need[KI_H_MLOAD][e]) & ~1);
        uint8_t all =
            (uint8_t)((g->need[KI_H_SEL][e] | g->need[KI_H_STREAM][e] | g->need[KI_H_FMA][e] | g->need[KI_H_SQRT][e]) &
                      ~1);
        g->need[KI_H_VEC][e] |= all;
        g->need[KI_H_VEC][m] |= all;
    }
}

void ki_chelpers(ki_cgen *g, ki_text *out) {
    close_needs(g);
    for (int h = 0; h < KI_H_COUNT; h++)
        for (int e = 0; e < KI_CELEM_COUNT; e++)
            for (unsigned k = 0; k < 8; k++) {
                if (!(g->need[h][e] >> k & 1)) continue;
                ki_text guard = {0};
                put(&guard, "KN_$t", (ki_celem)e, 1u << k);
                const char *name = ki_cwritten(g, &guard);
                ki_text_printf(out, "#ifndef %s%s\n#define %s%s\n", name, guards[h], name, guards[h]);
                writers[h](out, (ki_celem)e, 1u << k);
                ki_text_put(out, "#endif\n");
            }
}

/* parse_lex.c: the cursor over a text: blanks, words, numbers, strings, names; and failures at a place.
 *
 * What holds: a function that returns false has recorded why; the cursor never passes r->n; nothing is read twice
 * more than a constant number of times, so that reading is linear in the text. */
#include "ir/parse.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

bool ki_read_nomem(ki_reader *r) { return ki_fail(r->ir->env, KI_E_NOMEM), false; }

/* ---- characters --------------------------------------------------------------------------------------------- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

void ki_skip(ki_reader *r) {
    while (r->at < r->n && is_blank(r->text[r->at])) r->at++;
}

bool ki_at_end(ki_reader *r) {
    ki_skip(r);
    return r->at >= r->n || r->text[r->at] == '\n' || r->text[r->at] == '#';
}

bool ki_accept(ki_reader *r, char c) {
    ki_skip(r);
    if (r->at >= r->n || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

bool ki_expect_char(ki_reader *r, char c, const char *where) {
    if (ki_accept(r, c)) return true;
    char what[64];
    snprintf(what, sizeof what, "'%c' %s", c, where);
    return ki_read_wanted(r, what);
}

size_t ki_word(ki_reader *r, const char **s) {
    ki_skip(r);
    size_t from = r->at;
    *s = r->text + from;
    if (from >= r->n || !is_letter(r->text[from])) return 0;
    while (r->at < r->n && (is_letter(r->text[r->at]) || is_digit(r->text[r->at]))) r->at++;
    return r->at - from;
}

bool ki_word_is(const char *s, size_t n, const char *word) { return strlen(word) == n && memcmp(s, word, n) == 0; }

/* ---- failures ----------------------------------------------------------------------------------------------- */

const char *ki_token(const ki_reader *r, size_t at, char *buf, size_t n) {
    while (at < r->n && is_blank(r->text[at])) at++;
    if (at >= r->n) return "the end of the text";
    if (r->text[at] == '\n' || r->text[at] == '#') return "the end of the line";
    size_t end = at;
    if (is_letter(r->text[at]) || is_digit(r->text[at]) || r->text[at] == '%') {
        end++;
        while (end < r->n && (is_letter(r->text[end]) || is_digit(r->text[end]))) end++;
    } else if ((unsigned char)r->text[at] < 32 || (unsigned char)r->text[at] > 126) {
        snprintf(buf, n, "byte 0x%02x", (unsigned char)r->text[at]);
        return buf;
    } else {
        end++;
    }
    size_t len = end - at;
    snprintf(buf, n, "'%.*s%s'", (int)(len > 24 ? 24 : len), r->text + at, len > 24 ? "..." : "");
    return buf;
}

bool ki_read_wanted(ki_reader *r, const char *what) {
    char buf[64];
    ki_skip(r);
    return KI_READ_FAIL(r, KI_E_TEXT_WANTED, r->at, what, ki_token(r, r->at, buf, sizeof buf));
}

/* ---- numbers ------------------------------------------------------------------------------------------------ */

static size_t take(const ki_reader *r, size_t at, const char *word) {
    size_t n = strlen(word);
    if (r->n - at < n || memcmp(r->text + at, word, n) != 0) return 0;
    if (at + n < r->n && (is_letter(r->text[at + n]) || is_digit(r->text[at + n]))) return 0;
    return n;
}

size_t ki_literal_len(const ki_reader *r) {
    size_t i = r->at, k;
    if (i < r->n && r->text[i] == '-') i++;
    if (i == r->n) return 0;
    if ((k = take(r, i, "inf"))) return i + k - r->at;
    if ((k = take(r, i, "nan"))) {
        i += k;
        if (i < r->n && r->text[i] == '(') {
            while (i < r->n && r->text[i] != ')' && r->text[i] != '\n') i++;
            if (i < r->n && r->text[i] == ')') i++;
        }
        return i - r->at;
    }
    if (i == r->at && ((k = take(r, i, "true")) || (k = take(r, i, "false")))) return k;
    if (!is_digit(r->text[i])) return 0;
    for (; i < r->n; i++) { /* all that could belong to a number; whether it is one is seen later */
        char c = r->text[i];
        bool sign = (c == '-' || c == '+') && (r->text[i - 1] | 32) == 'e' && i + 1 < r->n && is_digit(r->text[i + 1]);
        if (!is_digit(c) && !is_letter(c) && c != '.' && !sign) break;
    }
    return i - r->at;
}

static bool number_failed(ki_reader *r, ki_num st, size_t at, size_t len, const char *what) {
    int shown = (int)(len > 40 ? 40 : len);
    if (st == KI_NUM_RANGE) return KI_READ_FAIL(r, KI_E_TEXT_NUMBER_RANGE, at, shown, r->text + at, what);
    return KI_READ_FAIL(r, KI_E_TEXT_NUMBER, at, shown, r->text + at, what);
}

bool ki_read_i64(ki_reader *r, int64_t lo, int64_t hi, const char *what, int64_t *v) {
    ki_skip(r);
    size_t at = r->at, len = ki_literal_len(r);
    if (!len) return ki_read_wanted(r, what);
    ki_num st = ki_i64_read(r->text + at, len, v);
    if (st == KI_NUM_OK && (*v < lo || *v > hi)) st = KI_NUM_RANGE;
    r->at += len;
    return st == KI_NUM_OK ? true : number_failed(r, st, at, len, what);
}

bool ki_read_f64(ki_reader *r, double *v) {
    ki_skip(r);
    size_t at = r->at, len = ki_literal_len(r);
    if (!len) return ki_read_wanted(r, "a number");
    ki_num st = ki_f64_read(r->text + at, len, v);
    r->at += len;
    return st == KI_NUM_OK ? true : number_failed(r, st, at, len, "a number");
}

bool ki_read_ints(ki_reader *r, int64_t *v, unsigned max, unsigned *n) {
    *n = 0;
    if (!ki_expect_char(r, '(', "before the axes")) return false;
    if (ki_accept(r, ')')) return true;
    do {
        if (*n == max) return KI_READ_FAIL(r, KI_E_TEXT_RANK, r->at, max);
        if (!ki_read_i64(r, INT64_MIN, INT64_MAX, "an axis", &v[*n])) return false;
        ++*n;
    } while (ki_accept(r, ','));
    return ki_expect_char(r, ')', "after the axes");
}

/* ---- strings ------------------------------------------------------------------------------------------------ */

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_escape(ki_reader *r) {
    size_t at = r->at - 1; /* the backslash */
    char c = ki_peek(r);
    r->at += r->at < r->n;
    switch (c) {
    case 'n': ki_text_putc(&r->str, '\n'); return true;
    case 't': ki_text_putc(&r->str, '\t'); return true;
    case '"':
    case '\\': ki_text_putc(&r->str, c); return true;
    case 'x':
        if (r->n - r->at >= 2 && hex_value(r->text[r->at]) >= 0 && hex_value(r->text[r->at + 1]) >= 0) {
            ki_text_putc(&r->str, (char)(hex_value(r->text[r->at]) * 16 + hex_value(r->text[r->at + 1])));
            r->at += 2;
            return true;
        }
        break;
    default: break;
    }
    return KI_READ_FAIL(r, KI_E_TEXT_ESCAPE, at, c >= 32 && c < 127 ? c : '?');
}

static bool read_piece(ki_reader *r) {
    size_t start = r->at - 1;
    while (r->at < r->n && r->text[r->at] != '\n') {
        size_t from = r->at;
        while (r->at < r->n && r->text[r->at] != '"' && r->text[r->at] != '\\' && r->text[r->at] != '\n') r->at++;
        ki_text_putn(&r->str, r->text + from, r->at - from);
        if (ki_accept(r, '"')) return true;
        if (r->at < r->n && r->text[r->at] == '\\') {
            r->at++;
            if (!read_escape(r)) return false;
        }
    }
    return KI_READ_FAIL(r, KI_E_TEXT_STRING, start, "string");
}

static bool read_hex_piece(ki_reader *r) {
    size_t start = r->at - 2;
    for (;;) {
        ki_skip(r);
        if (ki_accept(r, '"')) return true;
        if (r->at >= r->n || r->text[r->at] == '\n') return KI_READ_FAIL(r, KI_E_TEXT_STRING, start, "byte string");
        int a = hex_value(r->text[r->at]), b = r->at + 1 < r->n ? hex_value(r->text[r->at + 1]) : -1;
        if (a < 0 || b < 0) return KI_READ_FAIL(r, KI_E_TEXT_HEX, r->at, 2);
        ki_text_putc(&r->str, (char)(a * 16 + b));
        r->at += 2;
    }
}

/* To the next piece, on this line or a later one; no statement starts with a quote. */
bool ki_string_next(ki_reader *r) {
    size_t at = r->at;
    while (at < r->n && (is_blank(r->text[at]) || r->text[at] == '\n')) at++;
    bool hex = at + 1 < r->n && r->text[at] == 'x' && r->text[at + 1] == '"';
    if (!hex && !(at < r->n && r->text[at] == '"')) return false;
    r->at = at;
    return true;
}

bool ki_read_string(ki_reader *r) {
    ki_text_cut(&r->str, 0);
    ki_text_put(&r->str, "");
    ki_skip(r);
    bool first = true;
    while (first || ki_string_next(r)) {
        first = false;
        if (ki_accept(r, '"')) {
            if (!read_piece(r)) return false;
        } else if (r->n - r->at >= 2 && memcmp(r->text + r->at, "x\"", 2) == 0) {
            r->at += 2;
            if (!read_hex_piece(r)) return false;
        } else {
            return ki_read_wanted(r, "a string in quotes");
        }
    }
    return r->str.oom ? ki_read_nomem(r) : true;
}

/* ---- words from tables -------------------------------------------------------------------------------------- */

static const char *dtype_name(size_t i) { return ki_dtypes[i].name; }

bool ki_read_dtype(ki_reader *r, kn_dtype *out) {
    const char *s;
    ki_skip(r);
    size_t at = r->at, n = ki_word(r, &s);
    if (!n) return ki_read_wanted(r, "a dtype");
    *out = ki_dtype_named(s, n);
    if (*out != KI_DTYPE_COUNT) return true;
    const char *near = ki_nearest(s, n, dtype_name, KI_DTYPE_COUNT);
    return KI_READ_FAIL(r, KI_E_TEXT_DTYPE, at, (int)(n > 40 ? 40 : n), s, near ? "; did you mean " : "",
                        near ? near : "", near ? "?" : "");
}

bool ki_read_choice(ki_reader *r, ki_err err, const char *const *names, size_t count, unsigned *out) {
    const char *s;
    ki_skip(r);
    size_t at = r->at, n = ki_word(r, &s);
    for (size_t i = 0; i < count && n; i++)
        if (ki_word_is(s, n, names[i])) return *out = (unsigned)i, true;
    char all[128], token[64];
    size_t k = 0;
    all[0] = 0;
    for (size_t i = 0; i < count && k < sizeof all; i++)
        k += (size_t)snprintf(all + k, sizeof all - k, "%s%s", i ? " " : "", names[i]);
    return KI_READ_FAIL(r, err, at, ki_token(r, at, token, sizeof token), all);
}

static bool is_device_char(char c) {
    return is_letter(c) || is_digit(c) || c == ':' || c == ',' || c == '.' || c == '/' || c == '-';
}

bool ki_read_device(ki_reader *r, unsigned *out) {
    size_t at = r->at;
    ki_text_cut(&r->str, 0);
    if (ki_peek(r) == '"') {
        if (!ki_read_string(r)) return false;
    } else {
        while (r->at < r->n && is_device_char(r->text[r->at])) r->at++;
        ki_text_putn(&r->str, r->text + at, r->at - at);
    }
    if (r->str.oom) return ki_read_nomem(r);
    if (r->str.n == 0 || strlen(r->str.s) != r->str.n)
        return KI_READ_FAIL(r, KI_E_TEXT_WANTED, at, "a device name", "none");
    if (r->ir->env->ndevice > 4096) return KI_READ_FAIL(r, KI_E_TEXT_LIMIT, at, "device names", 4096LL);
    *out = ki_device_id(r->ir->env, r->str.s);
    return *out != 0;
}

/* ---- names -------------------------------------------------------------------------------------------------- */

ki_name_slot *ki_names_find(ki_names *t, const char *s, size_t len) {
    if (!t->cap) return NULL;
    uint32_t h = (uint32_t)ki_hash_bytes(0, s, len), k = h & (t->cap - 1);
    for (; t->slot[k].s; k = (k + 1) & (t->cap - 1))
        if (t->slot[k].hash == h && t->slot[k].len == len && memcmp(t->slot[k].s, s, len) == 0) return &t->slot[k];
    return NULL;
}

static bool names_grow(ki_names *t) {
    uint32_t cap = t->cap ? t->cap * 2 : 64;
    ki_name_slot *slot = cap ? ki_calloc(cap, sizeof *slot) : NULL;
    if (!slot) return false;
    for (uint32_t i = 0; i < t->cap; i++) {
        if (!t->slot[i].s) continue;
        uint32_t k = t->slot[i].hash & (cap - 1);
        while (slot[k].s) k = (k + 1) & (cap - 1);
        slot[k] = t->slot[i];
    }
    ki_free(t->slot);
    t->slot = slot;
    t->cap = cap;
    return true;
}

bool ki_names_add(ki_names *t, const char *s, size_t len, kn_uop node, size_t at) {
    if (t->n * 2 >= t->cap && !names_grow(t)) return false;
    uint32_t h = (uint32_t)ki_hash_bytes(0, s, len), k = h & (t->cap - 1);
    while (t->slot[k].s) k = (k + 1) & (t->cap - 1);
    t->slot[k] = (ki_name_slot){s, (uint32_t)len, h, node, at};
    t->n++;
    return true;
}

/* schedule.c: list scheduling of a loop's body.
 *
 * A processor looks about a hundred instructions ahead. Where what one lane vector needs is a long chain (a polynomial, a
 * division), the depth-first order, one vector after the other, leaves it waiting: two or three vectors are in its view. So their
 * instructions are put beside each other: each cycle those issue whose sources are there, the one with most behind it
 * first, as long as values fit the registers; where they do not, what ends a value, and if there is no such, what comes
 * first in the depth-first order, which needs few.
 *
 * Bodies whose longest chain is short stay as they are: they were ordered for few registers and short ways from load to use. But where
 * more values live at once than there are registers, as in a tile whose rows are more than its vectors, which every row reads again,
 * what ends values comes first, and of what begins one what lets another end soonest (squeeze).
 * What is no instruction (addresses, bit casts, groups) takes no time and stands right before its first user.
 *
 * Invariants: deterministic; sources before users; a body of more than MOST items stays as it is, so that looking through what
 * is ready is no quadratic pass. */
#include "stages/6_linearize/schedule.h"

#include "stages/x86/x86.h"

#include <string.h>

enum {
    MOST = 1024,
    MOST_SQUEEZED = 256, /* items; where there are FEW registers three times as many, as a tile of four terms has */
    LONG = 36,           /* cycles of a chain from which on the view is too short */
    ISSUE = 4,           /* vector instructions a cycle */
    LOAD = 6,            /* cycles */
    PERMUTE = 3,         /* cycles in which a table is looked up */
    SLACK = 12,          /* cycles before it must, a value that takes a register is not begun yet */
    LEAST = 6, /* values that may live at once, however many constants there are: those can be read from memory; */
    MANY = 12, /* where there are FEW registers all the same so many, if others leave */
    FEW = 16,
    SPARE = 3 /* registers beside them, for what is read from there */
};
#define OUTSIDE UINT32_MAX

typedef struct task {
    uint32_t height;      /* cycles from its start to the end of the body */
    uint32_t ready;       /* the cycle in which its sources are there */
    uint32_t left, users; /* sources not there yet; instructions that still read the value */
    uint32_t head;        /* of the list of its users */
    uint32_t soonest;     /* squeeze: how many still read the value nearest to its end that it is to be read beside */
    int8_t growth;        /* squeeze: see growth */
    uint8_t latency;
    bool real;  /* an instruction */
    bool value; /* it takes a vector register */
    bool out;   /* it has its place */
} task;

typedef struct body {
    kn_uop *item;
    uint32_t n, nready, m, nwaiting;
    uint32_t *place;
    task *t;
    uint32_t *user, *next; /* lists of users; 0 ends them */
    uint32_t *first, *ready, *waiting, *stack;
    kn_uop *order;
    uint32_t nuser;
    int live, budget, held, nvector;
    uint32_t top; /* the greatest height of what is not issued */
} body;

static bool is_memory(kn_uop u) {
    while (u->op == KN_INDEX || u->op == KN_AFTER) u = u->src[0];
    return u->op == KN_PARAM || u->op == KN_BUFFER;
}

static bool in_register(kn_uop access) {
    kn_uop b = access;
    while (b->op == KN_INDEX || b->op == KN_AFTER) b = b->src[0];
    return b->op == KN_BUFFER && b->arg.buffer->addrspace == KN_REG;
}

static bool is_real(kn_uop u) {
    switch ((kn_op)u->op) {
    case KN_GROUP:
    case KN_AFTER:
    case KN_BITCAST:
    case KN_END:
    case KN_CONST: return false;
    case KN_INDEX: return !is_memory(u);
    default: return u->dtype != KN_IDX;
    }
}

/* f: of an INS. */
static uint8_t latency_of(kn_uop u, const ki_x86_form *f) {
    if (u->op == KN_LOAD) return in_register(u->src[0]) ? 0 : LOAD;
    if (u->op == KN_INS) return f && f->lat ? f->lat : 1;
    if (u->op == KN_INDEX && u->src[1]->dtype != KN_IDX) return PERMUTE;
    return u->dtype == KN_VOID ? 0 : 1;
}

/* What has the register: a bit cast has none of its own. */
static kn_uop held_in(kn_uop u) {
    while (u->op == KN_BITCAST) u = u->src[0];
    return u;
}

/* The item whose register holds it. OUTSIDE: it is made outside the body. */
static uint32_t holder(const body *b, kn_uop u) {
    uint32_t p = b->place[held_in(u)->id];
    return p && p != OUTSIDE && b->t[p - 1].value ? p - 1 : OUTSIDE;
}

static void add_user(body *b, uint32_t of, uint32_t user) {
    uint32_t k = ++b->nuser;
    b->user[k] = user;
    b->next[k] = b->t[of].head;
    b->t[of].head = k;
    b->t[user].left++;
}

static bool is_immediate(const ki_x86_form *f, uint32_t k) {
    char name[8];
    return k < ki_x86_sources(f, name) && name[k] == 'i';
}

/* Registers that constants, values from outside and accumulators hold all the time; edges. */
static void read_body(body *b, uint32_t *longest) {
    int held = 0, constants = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        kn_uop u = b->item[i];
        task *t = &b->t[i];
        const ki_x86_form *f = u->op == KN_INS ? ki_x86_row(u->arg.str->s) : NULL;
        t->real = is_real(u);
        t->latency = t->real ? latency_of(u, f) : 0;
        t->value =
            t->real && u->dtype != KN_VOID && u->dtype != KN_BOOL && (u->op != KN_LOAD || !in_register(u->src[0]));
        held += u->op == KN_STORE && in_register(u->src[0]);
        uint32_t start = 0;
        for (uint32_t k = 0; k < u->nsrc; k++) {
            kn_uop s = u->src[k], r = held_in(s);
            uint32_t p = b->place[s->id];
            if (b->place[r->id] && b->place[r->id] != OUTSIDE)
                p = b->place[r->id]; /* what reads a bit cast reads that */
            if (p && p != OUTSIDE) {
                add_user(b, p - 1, i);
                uint32_t end = b->t[p - 1].ready + b->t[p - 1].latency;
                if (end > start) start = end;
            } else if (!p && t->real && s->dtype != KN_IDX && s->dtype != KN_VOID && !is_memory(s) &&
                       !(f && is_immediate(f, k))) {
                b->place[s->id] = OUTSIDE;
                held++, constants += ki_is_const(s);
            }
            uint32_t h = t->real ? holder(b, s) : OUTSIDE;
            if (h != OUTSIDE) b->t[h].users++;
        }
        t->ready = start;
        if (start + t->latency > *longest) *longest = start + t->latency;
    }
    b->held = held;
    b->budget -= held;
    int without = b->budget + constants - SPARE, least = b->nvector > FEW ? LEAST : without < MANY ? without : MANY;
    if (b->budget < least) b->budget = least;
    if (b->budget < LEAST) b->budget = LEAST;
}

static void heights(body *b) {
    for (uint32_t i = b->n; i-- > 0;) {
        uint32_t most = 0;
        for (uint32_t k = b->t[i].head; k; k = b->next[k])
            if (b->t[b->user[k]].height > most) most = b->t[b->user[k]].height;
        b->t[i].height = most + b->t[i].latency;
        b->t[i].ready = 0;
    }
}

/* Its value is there at `cycle`; those of users that take no time are as soon as they have all they need. */
static void arrive(body *b, uint32_t i, uint32_t cycle) {
    uint32_t top = 0;
    b->t[i].ready = cycle;
    b->stack[top++] = i;
    while (top) {
        uint32_t x = b->stack[--top];
        for (uint32_t k = b->t[x].head; k; k = b->next[k]) {
            task *u = &b->t[b->user[k]];
            if (u->ready < b->t[x].ready) u->ready = b->t[x].ready;
            if (--u->left) continue;
            if (u->real) b->waiting[b->nwaiting++] = b->user[k];
            else b->stack[top++] = b->user[k];
        }
    }
}

/* How many registers more are held after it. */
static int growth(const body *b, uint32_t i) {
    kn_uop u = b->item[i];
    int g = b->t[i].value;
    for (uint32_t k = 0; k < u->nsrc; k++) {
        uint32_t h = holder(b, u->src[k]), same = 1; /* it may be read twice */
        if (h == OUTSIDE) continue;
        bool seen = false;
        for (uint32_t j = 0; j < u->nsrc; j++) {
            if (j == k || holder(b, u->src[j]) != h) continue;
            seen |= j < k;
            same++;
        }
        g -= !seen && b->t[h].users == same;
    }
    return g;
}

/* Of those ready, the one with most behind it that fits; `forced`: whichever came first. NONE: OUTSIDE. */
static uint32_t choose(body *b, bool forced) {
    uint32_t best = OUTSIDE;
    for (uint32_t k = 0; k < b->nready; k++) {
        uint32_t i = b->ready[k], o = best == OUTSIDE ? 0 : b->ready[best];
        if (best != OUTSIDE &&
            (forced ? i > o : b->t[i].height < b->t[o].height || (b->t[i].height == b->t[o].height && i > o)))
            continue;
        if (!forced && (b->live >= b->budget || b->t[i].height + SLACK < b->top) && growth(b, i) > 0) continue;
        best = k;
    }
    return best;
}

/* Into the list, after what it needs that takes no time. */
static void put(body *b, uint32_t i) {
    uint32_t top = 0;
    b->stack[top++] = i;
    while (top) {
        uint32_t x = b->stack[top - 1];
        kn_uop u = b->item[x];
        uint32_t before = OUTSIDE;
        for (uint32_t k = 0; k < u->nsrc && before == OUTSIDE; k++) {
            uint32_t p = b->place[u->src[k]->id];
            if (p && p != OUTSIDE && !b->t[p - 1].out) before = p - 1;
        }
        if (before != OUTSIDE) {
            b->stack[top++] = before;
            continue;
        }
        b->t[x].out = true;
        b->order[b->m++] = u;
        top--;
    }
}

static void issue(body *b, uint32_t k, uint32_t cycle) {
    uint32_t i = b->ready[k];
    kn_uop u = b->item[i];
    b->ready[k] = b->ready[--b->nready];
    b->live += growth(b, i);
    for (uint32_t j = 0; j < u->nsrc; j++) {
        uint32_t h = holder(b, u->src[j]);
        if (h != OUTSIDE) b->t[h].users--;
    }
    put(b, i);
    arrive(b, i, cycle + b->t[i].latency);
}

/* Cycle by cycle. What waits for a source on its way is ready once that is there. */
static void schedule(body *b) {
    uint32_t nfirst = 0;
    for (uint32_t i = 0; i < b->n; i++)
        if (!b->t[i].left) b->first[nfirst++] = i;
    for (uint32_t k = 0; k < nfirst; k++)
        if (b->t[b->first[k]].real) b->waiting[b->nwaiting++] = b->first[k];
        else arrive(b, b->first[k], 0);
    for (uint32_t cycle = 0; b->nready || b->nwaiting; cycle++) {
        uint32_t kept = 0, issued = 0;
        for (uint32_t k = 0; k < b->nwaiting; k++)
            if (b->t[b->waiting[k]].ready <= cycle) b->ready[b->nready++] = b->waiting[k];
            else b->waiting[kept++] = b->waiting[k];
        b->nwaiting = kept;
        b->top = 0;
        for (uint32_t k = 0; k < b->nready; k++)
            if (b->t[b->ready[k]].height > b->top) b->top = b->t[b->ready[k]].height;
        for (uint32_t k = 0; k < b->nwaiting; k++)
            if (b->t[b->waiting[k]].height > b->top) b->top = b->t[b->waiting[k]].height;
        while (issued < ISSUE && b->nready) {
            uint32_t k = choose(b, false);
            if (k == OUTSIDE && !issued && !b->nwaiting) k = choose(b, true);
            if (k == OUTSIDE) break;
            issue(b, k, cycle);
            issued++;
        }
    }
    put(b, b->n - 1);
}

/* ---- few registers -------------------------------------------------------------------------------------------- */

/* The instruction that reads it, where it is one. OUTSIDE: none, or several. */
static uint32_t only_user(const body *b, uint32_t i) {
    const task *t = &b->t[i];
    return t->users == 1 && t->head && !b->next[t->head] ? b->user[t->head] : OUTSIDE;
}

/* What takes no register of its own: a load that is its one user's operand, and what is at once an accumulator. */
static void forget_operands(body *b) {
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t u = b->t[i].value ? only_user(b, i) : OUTSIDE;
        if (u == OUTSIDE) continue;
        kn_uop user = b->item[u];
        bool operand = b->item[i]->op == KN_LOAD && user->op == KN_INS;
        if (operand) b->t[i].real = false;
        if (operand || (user->op == KN_STORE && in_register(user->src[0]))) b->t[i].value = false;
    }
}

/* Ends of values at item i, as issue counts them. */
static void read_sources(body *b, uint32_t i) {
    for (uint32_t j = 0; j < b->item[i]->nsrc; j++) {
        uint32_t h = b->t[i].real ? holder(b, b->item[i]->src[j]) : OUTSIDE;
        if (h != OUTSIDE) b->t[h].users--;
    }
}

/* The most values that live at once, as the body stands in `order`. */
static int peak_of(body *b, kn_uop *order) {
    int live = 0, most = 0;
    uint32_t *users = b->stack; /* nobody else needs it now */
    for (uint32_t i = 0; i < b->n; i++) users[i] = b->t[i].users;
    for (uint32_t k = 0; k < b->n; k++) {
        uint32_t i = b->place[order[k]->id] - 1;
        if (b->t[i].real) live += growth(b, i);
        if (live > most) most = live;
        read_sources(b, i);
    }
    for (uint32_t i = 0; i < b->n; i++) b->t[i].users = users[i];
    return most;
}

/* `h` is there, or one instruction less reads it: what that changes for those that are to read it, and for what they read
 * beside it. A value's readers grow less in number, so that the least of them is kept up by comparing. */
static void tell_readers(body *b, uint32_t h) {
    uint32_t users = b->t[h].users;
    for (uint32_t k = b->t[h].head; k; k = b->next[k]) {
        uint32_t r = b->user[k];
        kn_uop u = b->item[r];
        if (b->t[r].out) continue;
        if (users <= u->nsrc) b->t[r].growth = (int8_t)growth(b, r);
        for (uint32_t j = 0; j < u->nsrc; j++) {
            uint32_t s = holder(b, u->src[j]);
            if (s != OUTSIDE && s != h && b->t[s].soonest > users) b->t[s].soonest = users;
        }
    }
}

static void issue_squeezed(body *b, uint32_t k) {
    uint32_t i = b->ready[k];
    kn_uop u = b->item[i];
    issue(b, k, 0);
    if (b->t[i].value) tell_readers(b, i);
    for (uint32_t j = 0; j < u->nsrc; j++) {
        uint32_t h = holder(b, u->src[j]);
        if (h != OUTSIDE) tell_readers(b, h);
    }
}

/* Of those ready, what ends most; of what begins a value, what is read beside one that is nearest to its end. */
static uint32_t choose_squeezed(const body *b) {
    uint32_t best = 0, soonest = OUTSIDE;
    int least = 2;
    for (uint32_t k = 0; k < b->nready; k++) {
        uint32_t i = b->ready[k];
        const task *t = &b->t[i];
        uint32_t s = t->growth > 0 ? t->soonest : OUTSIDE;
        if (t->growth > least) continue;
        if (t->growth == least && (s > soonest || (s == soonest && i > b->ready[best]))) continue;
        best = k, least = t->growth, soonest = s;
    }
    return best;
}

/* Into b->order, if that takes fewer registers than the body as it stands. */
static void squeeze(body *b) {
    uint32_t nfirst = 0, *users = b->first;
    forget_operands(b);
    int before = peak_of(b, b->item);
    if (before + b->held <= b->nvector) return;
    for (uint32_t i = 0; i < b->n; i++)
        if (!b->t[i].left) b->first[nfirst++] = i;
    for (uint32_t k = 0; k < nfirst; k++)
        if (b->t[b->first[k]].real) b->waiting[b->nwaiting++] = b->first[k];
        else arrive(b, b->first[k], 0);
    for (uint32_t i = 0; i < b->n; i++)
        users[i] = b->t[i].users, b->t[i].growth = (int8_t)growth(b, i), b->t[i].soonest = OUTSIDE;
    while (b->nwaiting || b->nready) {
        while (b->nwaiting) b->ready[b->nready++] = b->waiting[--b->nwaiting];
        issue_squeezed(b, choose_squeezed(b));
    }
    put(b, b->n - 1);
    for (uint32_t i = 0; i < b->n; i++) b->t[i].users = users[i];
    if (peak_of(b, b->order) >= before) b->m = 0;
}

static bool is_plain(kn_uop u) {
    return u->op != KN_RANGE && u->op != KN_IF && u->op != KN_ENDIF && u->op != KN_BARRIER && u->op != KN_ATOMICADD;
}

bool ki_schedule(ki_env *env, kn_uop *item, uint32_t n, uint32_t *place, unsigned nvector) {
    size_t edges = 1;
    uint32_t longest = 0;
    if (n > MOST) return true;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_plain(item[i])) return true;
        edges += item[i]->nsrc;
    }
    size_t bytes = n * (sizeof(task) + sizeof(kn_uop) + 4 * sizeof(uint32_t)) + 2 * edges * sizeof(uint32_t);
    body b = {.item = item, .n = n, .place = place, .budget = (int)nvector - 1, .nvector = (int)nvector};
    char *mem = ki_calloc(bytes, 1), *p = mem;
    if (!mem) return ki_fail(env, KI_E_NOMEM), false;
#define TAKE(field, count) (b.field = (void *)p, p += (count) * sizeof *b.field)
    TAKE(order, n), TAKE(t, n), TAKE(first, n), TAKE(ready, n), TAKE(waiting, n), TAKE(stack, n);
    TAKE(user, edges), TAKE(next, edges);
#undef TAKE
    for (uint32_t i = 0; i < n; i++) place[item[i]->id] = i + 1;
    read_body(&b, &longest);
    if (longest >= LONG) {
        heights(&b);
        schedule(&b);
    } else if (n <= MOST_SQUEEZED * (nvector > FEW ? 1 : 3)) squeeze(&b);
    for (uint32_t i = 0; i < n; i++) {
        place[item[i]->id] = 0;
        for (uint32_t k = 0; k < item[i]->nsrc; k++) place[item[i]->src[k]->id] = 0;
    }
    if (b.m == n) memcpy(item, b.order, n * sizeof *item);
    ki_free(mem);
    return true;
}

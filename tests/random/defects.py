"""Mistakes made by hand, for broken_stages.py: in the C or the rules of each stage, one that a person would make.

cpu: nothing but the C text (c) or the machine code (x86) is wrong, which the interpreter does not read, so programs run on the CPU
device as well."""
from typing import NamedTuple


class Defect(NamedTuple):
    stage: str
    name: str
    file: str
    before: str
    after: str
    cpu: str = ""

    def __str__(self):
        return f"{self.stage}: {self.name}"


S = "src/stages/"
CALLIFY = S + "1_callify/callify.c"
INLINE = "src/ir/inline.c"
PUSH = S + "2_rangeify/push.c"
OPT = S + "3_optimize/"
EXPAND = S + "4_expand/"
SELECT = S + "5_select/"
LINEARIZE = S + "6_linearize/linearize.c"
PLAN = S + "7_plan/"
RENDER = S + "8_render/"
X86 = RENDER + "x86/"

DEFECTS = [
    # ---- callify
    Defect("callify", "an inlined function takes the argument before its own", INLINE,
           "v = args[u->arg.param->slot];", "v = args[u->arg.param->slot > 0 ? u->arg.param->slot - 1 : 0];"),
    Defect("callify", "GETTUPLE takes element 0", INLINE, "v = s.v[0]->src[u->arg.i];", "v = s.v[0]->src[0];"),
    Defect("callify", "an empty maximum is 0", CALLIFY, "c = ki_is_float(t) ? ki_const_float(b->ir, t, t == KN_F8E4M3 ? -448.0 : -1.0 / 0.0)",
           "c = ki_is_float(t) ? ki_const_float(b->ir, t, 0)"),
    Defect("callify", "an index that is fixed starts at 0", CALLIFY, "off[k] = fixed ? src[k + 1] : ki_index(ir, 0);",
           "off[k] = ki_index(ir, 0); (void)fixed;"),
    Defect("callify", "a write forgets the view it goes through", CALLIFY, "stored[0] = place(ir, src[0]);",
           "stored[0] = src[0]->op == KN_FLIP ? src[0]->src[0] : place(ir, src[0]);"),
    # ---- rangeify
    Defect("rangeify", "permute takes the axis itself, not the inverse", PUSH,
           "if (p->v[k] == (int64_t)m->at) return node(out, arg[1].nodes[k]);",
           "if (k == (uint32_t)m->at) return node(out, arg[1].nodes[p->v[k]]);"),
    Defect("rangeify", "pad admits one element too many", PUSH, "hi = ki_op2(ir, KN_CMPLT, i, end);",
           "hi = ki_op2(ir, KN_CMPLT, i, ki_index_add(ir, end, ki_index(ir, 1)));"),
    Defect("rangeify", "flip counts from n instead of n - 1", PUSH,
           "ki_dim_uop(m->ir, t->type->dim[m->at]), ki_index(m->ir, -1));", "ki_dim_uop(m->ir, t->type->dim[m->at]), ki_index(m->ir, 0));"),
    Defect("rangeify", "stack chooses by < k for < k + 1", PUSH, "ki_op2(m->ir, KN_CMPLT, e.x, ki_index(m->ir, k + 1))",
           "ki_op2(m->ir, KN_CMPLT, e.x, ki_index(m->ir, k))"),
    Defect("rangeify", "parts of a bitcast in the wrong order", PUSH, "ki_const_int(ir, plain[b], k * (int64_t)(8 * a))",
           "ki_const_int(ir, plain[b], ((int64_t)(b / a) - k) * (int64_t)(8 * a))"),
    Defect("rangeify", "a kernel may overwrite what is still to be read", S + "2_rangeify/order.c",
           "if (x != d) ok = add_edge(o, a[x].kernel, a[d].kernel);", "if (x != d) ok = add_edge(o, a[d].kernel, a[x].kernel);"),
    Defect("rangeify", "a result is stored where another place of it is still read", S + "2_rangeify/inplace.c",
           "plain = u->op == KN_INDEX && u->nsrc == 2 && k == 0 && u->src[1] == at, read = u;",
           "plain = u->op == KN_INDEX && u->nsrc == 2 && k == 0, read = u;", "x86"),
    Defect("rangeify", "a value is stored with one that needs what is made of it", S + "2_rangeify/decide.c",
           "return !assigns && n->youngest < v->id;", "return !assigns;"),
    Defect("rangeify", "a value is stored in a nest that asks for it elsewhere too", S + "2_rangeify/decide.c",
           "if (!at || at != position(r, n->shape, n->axis)) return false;", "if (!at) return false;"),
    Defect("rangeify", "a carried sum of windows takes in the current element", S + "2_rangeify/scan.c", "k == 2 - n && n >= i->hi.i + 1",
           "(k == 2 - n || k == 1 - n) && n >= i->hi.i + 1"),
    Defect("rangeify", "a carried sum is not set anew for each row", S + "2_rangeify/scan.c",
           "kn_uop home = n ? ki_opn(ir, KN_AFTER, src, n + 1) : acc;", "kn_uop home = n > 9 ? ki_opn(ir, KN_AFTER, src, n + 1) : acc;"),
    Defect("rangeify", "a reshape's stride leaves out an axis", S + "indexing.c",
           "next = ki_index_mul(ir, next, ki_dim_uop(ir, shape->dim[k]));",
           "next = ki_index_mul(ir, next, ki_dim_uop(ir, shape->dim[k - 1]));"),
    Defect("rangeify", "a comparison solved for a range is rounded down", S + "2_rangeify/fold.c",
           "if (c < 0) up = ki_index_add(ir, up, ki_index(ir, 1));", "if (c < -1) up = ki_index_add(ir, up, ki_index(ir, 1));"),
    Defect("rangeify", "a gather takes what is past the end", S + "2_rangeify/fold.c", "ki_op2(ir, KN_CMPLT, s->equal, upper)", "ki_op2(ir, KN_CMPLE, s->equal, upper)"),
    Defect("rangeify", "a part of a buffer begins where another's does", S + "2_rangeify/kernels.c", "ki_index(r->ir, part[j].lo)}", "ki_index(r->ir, 0)}"),
    Defect("rangeify", "a part of a buffer ends before its last element", S + "2_rangeify/slots.c", "known ? i->hi.i + 1 : INT64_MAX", "known ? i->hi.i : INT64_MAX"),
    Defect("rangeify", "a twin has its buffers crosswise", S + "2_rangeify/twins.c", "k < n ? t->firsts.seen.buffer.name[k]",
           "k < n ? t->firsts.seen.buffer.name[n - 1 - k]"),
    Defect("rangeify", "nests that differ in a constant are twins", S + "2_rangeify/twins.c", "    *arg = ki_import_arg(to, u);\n    return arg->p || !u->arg.p;\n}\n\nstatic bool to_names",
           "    *arg = ki_import_arg(to, u);\n    if (u->op == KN_CONST && ki_is_float((kn_dtype)u->dtype)) arg->bits = 0;\n    return arg->p || !u->arg.p;\n}\n\nstatic bool to_names"),
    Defect("rangeify", "a nest written as another has its buffers crosswise", S + "2_rangeify/written.c", "return (version ? &s->seen.version : &s->seen.buffer)->name[k];",
           "return (version ? &s->seen.version : &s->seen.buffer)->name[n - 1 - k];"),
    Defect("rangeify", "of a value with several operands the first is not asked for", S + "2_rangeify/decide.c", "for (int i = 0; i < sources; i++)", "for (int i = sources > 1; i < sources; i++)"),
    # ---- optimize
    Defect("optimize", "a split multiplies by the wrong part", OPT + "opt.c", "o->top ? (n + f - 1) / f : f, inner", "o->top ? f : (n + f - 1) / f, inner"),
    Defect("optimize", "the last thread's share is one too long", OPT + "opt.c", "bound = ki_op2(ir, KN_ADD, cut, ki_index(ir, q));", "bound = ki_op2(ir, KN_ADD, cut, ki_index(ir, q + (q > 1)));"),
    Defect("optimize", "a padded reduce adds what lies beyond", OPT + "edit.c",
           "e.src[0] = ki_op3(ir, KN_WHERE, inside, e.src[0], none);", "(void)none;"),
    Defect("optimize", "padding is accessed", OPT + "edit.c", "if (!reg) e.src[1] = ki_element_if(", "if (reg) e.src[1] = ki_element_if("),
    Defect("optimize", "what a cut leaves over starts at 0", OPT + "cut.c", "x == r ? ki_op2(ir, KN_ADD, y, at) : y", "y"),
    Defect("optimize", "what a cut leaves over is one short", OPT + "cut.c", "ki_index(ir, n - o->arg)", "ki_index(ir, n - o->arg > 1 ? n - o->arg - 1 : 1)"),
    Defect("optimize", "vectors may run along a loop that carries", OPT + "nest.c", "if (u->op == KN_AFTER && carries(u, r)) return false;", "(void)carries;"),
    Defect("optimize", "two loops made one are taken apart by the wrong extent", OPT + "edit.c",
           "swap[1] = (ki_swap){inner, ki_op2(ir, KN_MOD, j, ki_index(ir, n)), {j, NULL}};",
           "swap[1] = (ki_swap){inner, ki_op2(ir, KN_MOD, j, ki_index(ir, n > 2 ? n - 1 : n)), {j, NULL}};"),
    Defect("optimize", "a sum counts both loops though they do not follow each other", OPT + "edit.c",
           "ki_affine_coef(f, outer) != up) return NULL;", "ki_affine_coef(f, outer) == 0) return NULL;"),
    Defect("optimize", "the second pair of a word stands where the first does", OPT + "dots.c", "int64_t by = 32 / g; g > 1;", "int64_t by = 16; g > 1;"),
    Defect("optimize", "signed bytes go as unsigned ones, uncorrected", OPT + "dots.c", "for (int pass = d->biased ? 0 : 1; pass < 2; pass++)", "for (int pass = 1; pass < 2; pass++)"),
    Defect("optimize", "the words of a tile overlap those of the next", OPT + "dots.c", "ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, to, lane->src[0]), lane)", "ki_op2(ir, KN_ADD, to, lane)"),
    Defect("optimize", "a scan leaves out the lane's own element", OPT + "scan.c", "ki_op2(ir, KN_CMPLT, m, ki_op2(ir, KN_ADD, l, ki_index(ir, 1)))", "ki_op2(ir, KN_CMPLT, m, l)"),
    Defect("optimize", "a scan stores all lanes where the first is", OPT + "scan.c", "to[2] = {now, ki_op2(ir, KN_ADD, first, l)};", "to[2] = {now, first};"),
    Defect("optimize", "the last of equals is the largest", OPT + "first.c", "ki_op2(ir, KN_CMPLE, y, m[0])) :", "ki_op2(ir, KN_CMPLT, y, m[0])) :"),
    Defect("optimize", "the place of the largest is a step behind", OPT + "first.c", "ki_op2(ir, KN_MUL, i, ki_index(ir, n * p.fall))", "ki_op2(ir, KN_MUL, i, ki_index(ir, p.fall))"),
    Defect("optimize", "places by rows count from the first row", OPT + "rows.c", "of_row(ir, x[i], i ? p->q : p->r, &s->c, w, m)", "of_row(ir, x[i], i ? p->q : p->r, &s->c, w, i ? 0 : m)"),
    # ---- expand
    Defect("expand", "a running sum across lanes lacks its last step", EXPAND + "prefix.c", "d < n && t && lane; d *= 2", "2 * d < n && t && lane; d *= 2"),
    Defect("expand", "a running sum goes on with its first lane", EXPAND + "prefix.c", "p->from->src[1]->arg.i)", "0)"),
    Defect("expand", "the accumulator starts at 0 for every op", EXPAND + "reduce.c",
           "ki_const_bits(ir, t, ki_scalar_identity(op, t, true));", "ki_const_int(ir, t, 0);"),
    Defect("expand", "the accumulator is set once, outside all loops", EXPAND + "reduce.c",
           "kn_uop result = ki_after(x->ir, buffer, loop, n);", "kn_uop result = buffer;"),
    Defect("expand", "the result does not wait for the loop", EXPAND + "reduce.c",
           "ki_op2(ir, KN_AFTER, a[j].buffer, end)", "ki_op2(ir, KN_AFTER, a[j].buffer, a[j].update)"),
    Defect("expand", "a load forgets its gate", EXPAND + "expand.c", "if (!gate) return ki_op1(ir, KN_LOAD, addr);",
           "if (!gate || addr->type->rank == 0) return ki_op1(ir, KN_LOAD, addr);"),
    Defect("expand", "lanes of an index count from 1", EXPAND + "lanes.c", "sum += (uint64_t)f->t[i].c * (uint64_t)at[a];",
           "sum += (uint64_t)f->t[i].c * (uint64_t)(at[a] + 1);"),
    Defect("expand", "a gate is that of the index chosen, not of the choice", EXPAND + "expand.c", "if (b && ki_is_const_int(b, 0)) return l;",
           "if (b && ki_is_const_int(b, 0)) return a ? a : l;"),
    Defect("expand", "<= for < between lanes", EXPAND + "lanes.c", "return neg ? ki_op2(x->ir, KN_CMPLT, lanes,", "return neg ? ki_op2(x->ir, KN_CMPLE, lanes,"),
    # ---- select
    Defect("select", "shift by one too few for a quotient", SELECT + "lower_index.c", "ki_const_int(l->ir, t, ki_ctz64((uint64_t)c))",
           "ki_const_int(l->ir, t, ki_ctz64((uint64_t)c) - (c > 2))"),
    Defect("select", "mask of c for a remainder, not c - 1", SELECT + "lower_index.c", "ki_const_int(l->ir, t, c - 1)", "ki_const_int(l->ir, t, c)"),
    Defect("select", "the second half of a vector is its first", SELECT + "devec.c", "progression(d, lanes / 2, 1, lanes / 2)", "progression(d, 0, 1, lanes / 2)"),
    Defect("select", "what is left of an axis is not reduced", SELECT + "devec.c", "c < chunks; c = end++) { /* full", "c < full; c = end++) { /* full"),
    Defect("select", "registers of an accumulator overlap", SELECT + "devec.c", "return at * ki_dim_n(i, v) + chunk.offset;", "return at * (ki_dim_n(i, v) > 1 ? ki_dim_n(i, v) - 1 : 1) + chunk.offset;"),
    Defect("select", "small floats are not rounded after a function", SELECT + "decomp.kr", "=> cast({op}(cast(x; f32)); [dtype(x)]) @fp(afn) @ends", "=> cast({op}(cast(x + x; f32)); [dtype(x)]) @fp(afn) @ends"),
    Defect("select", "elements of a word need not be neighbours", SELECT + "words.c", "if (p[k].at[j] != p[0].at[j] + k) return NULL;", "if (p[k].at[j] < p[0].at[j]) return NULL;"),
    Defect("select", "a word is read at its address without the constant", SELECT + "words.c", "base = base ? ki_op2(ir, KN_ADD, base, ki_index(ir, p[0].at[0])) :", "base = base ? base :"),
    Defect("select", "a word's elements are taken from the first one's place", SELECT + "words.c", "ki_index(ir, lanes == 1 ? k : p[k].at[j]);", "ki_index(ir, lanes == 1 ? k : p[0].at[j]);"),
    Defect("select", "a tile is read without the loop's part of its address", SELECT + "tiles.c", "if (base) list = ki_op2(t->ir, KN_ADD, t->map[base->id], list);", "(void)base;"),
    Defect("select", "tiles are stored column by column", SELECT + "tiles.c", "at[s->m] = q / s->columns * SIDE + i / SIDE, at[s->n] = i % SIDE;", "at[s->m] = q / s->columns * SIDE + i % SIDE, at[s->n] = i / SIDE;"),
    Defect("select", "a sum's rows add up by halves of another size", SELECT + "devec.c", "for (uint32_t half = len / step / 2; half; half /= 2)", "for (uint32_t half = len / step / 2; half > 1; half /= 2)"),
    # ---- linearize
    Defect("linearize", "a loop does not wait for what it reads", LINEARIZE, "if (!add_dep(l, loop, source_item(l, s))) return false;",
           "if (l->node[s]->op != KN_AFTER && !add_dep(l, loop, source_item(l, s))) return false;"),
    Defect("linearize", "an END closes its loops inside out", LINEARIZE, "for (uint32_t k = 1; k < u->nsrc; k++) {\n            uint32_t r = l->range_of",
           "for (uint32_t k = u->nsrc; k-- > 1;) {\n            uint32_t r = l->range_of"),
    Defect("linearize", "a value is placed in the outer loop", LINEARIZE, "l->block[i] = block;",
           "l->block[i] = block && l->node[i]->op == KN_LOAD ? l->parent[block] : block;"),
    Defect("linearize", "the last thing a loop waits for is lost", LINEARIZE, "if (l->dep_tail[r]) l->dep_next[l->dep_tail[r]] = d;", "if (l->dep_tail[r]) l->dep_next[l->dep_head[r]] = d;"),
    Defect("linearize", "what is put beside each other does not wait for its second source", S + "6_linearize/schedule.c",
           "b->t[user].left++;", "b->t[user].left = 1;", "x86"),
    # ---- plan
    Defect("plan", "memory is given back one call too soon", PLAN + "plan.c", "p->last[b->id] != i + 1 || !p->block[b->id]) continue;",
           "(p->last[b->id] != i + 1 && p->last[b->id] != i + 2) || !p->block[b->id]) continue;"),
    Defect("plan", "a part of a buffer lies where the buffer begins", S + "7_plan/plan.c", "if (arg != b) at += arg->src[1]->arg.i", "if (arg != b) at += 0"),
    Defect("plan", "a block is cut in the middle", PLAN + "offsets.c", "{.offset = k->offset + size, .size = k->size - size,", "{.offset = k->offset + size / 2, .size = k->size - size,"),
    Defect("plan", "the first call that reads ends the range", PLAN + "plan.c", "p->last[b->id] = i + 1;", "if (!p->last[b->id] || p->last[b->id] == p->first[b->id]) p->last[b->id] = i + 1;"),
    Defect("plan", "outputs are planned as intermediates are", PLAN + "plan.c", "if (b && b->id < p->top) p->first[b->id] = 0;", "if (b && b->id < p->top && !k) p->first[b->id] = 0;"),
    # ---- render
    Defect("render", "the gate of every lane is that of lane 0", RENDER + "c_mem.c", '"%s[%u] ? %s : %s", m, k, s, lane_alt', '"%s[%u] ? %s : %s", m, 0u, s, lane_alt', "c"),
    Defect("render", "> for >=", RENDER + "c_expr.c", 'case KN_CMPGE: return ">=";', 'case KN_CMPGE: return ">";', "c"),
    Defect("render", "vectors reversed wrongly", RENDER + "c_mem.c", 'for (unsigned k = n; k-- > 0;) ki_text_printf(&t, ", %u", k);', 'for (unsigned k = n; k-- > 0;) ki_text_printf(&t, ", %u", k ? k - 1 : 0);', "c"),
    Defect("render", "a strided access steps by one", RENDER + "c_mem.c", "offset(g, a, a->stride * (int64_t)k)", "offset(g, a, (int64_t)k)", "c"),
    Defect("render", "xor of bools is or", RENDER + "c_expr.c", 'case KN_CMPNE: return "(%s ^ %s)";', 'case KN_CMPNE: return "(%s | %s)";', "c"),
    # ---- machine code
    Defect("machine code", "a register is free one instruction too soon", X86 + "regs.c", "if (last < now) s->free[c]", "if (last < now + 2) s->free[c]", "x86"),
    Defect("machine code", "the larger of what competes goes to memory without its value", X86 + "emit.c", "else ki_asm_put(e->a, KI_X_MOV_EG, frame_at(v->slot, 8)",
           "else ki_asm_put(e->a, KI_X_MOV_EG, frame_at(v->slot + 8, 8)", "x86"),
    Defect("machine code", "a quotient of negatives is not floored", X86 + "index.c", "else KI_LPUT(l, KI_X_DEC, r64(r));", "else KI_LPUT(l, KI_X_INC, r64(r));", "x86"),
    Defect("machine code", "a multiply-add adds the wrong one of three", X86 + "ins.c", "copy_to(j, d, ki_lvector(l, x, all));\n        j->form = (ki_x86_id)fused[t].f213;",
           "copy_to(j, d, ki_lvector(l, x, all));", "x86"),
    Defect("machine code", "the upper half of a register is taken a lane too low", X86 + "lanes.c", "ki_mimm(from / 16));", "ki_mimm((from - 1) / 16));", "x86"),
    Defect("machine code", "a lane of a strided access is that of lane 0", X86 + "memory.c", "int64_t start = a->start + lane * a->stride;",
           "int64_t start = a->start + (lane > 1 ? 1 : lane) * a->stride;", "x86"),
    Defect("machine code", "what is asked for ahead is what is read", X86 + "memory.c", "ki_mop o = ki_laddress(l, a, 0);\n    ask_ahead(l, load, a, o);", "ki_mop o = ki_laddress(l, a, 0);\n    ask_ahead(l, load, a, o);\n    o.v += ki_lv(l, load)->ahead;", "x86"),
    Defect("machine code", "each copy of a loop's body reads what the first reads", X86 + "unroll.c", "o->v += nth * goes_on(l, p, o);",
           "o->v += 0 * nth * goes_on(l, p, o);", "x86"),
    Defect("machine code", "the terms that copies do not divide are left out", X86 + "unroll.c", "put_copies(l, p, (uint32_t)(p->bound->arg.i % copies), true);",
           "put_copies(l, p, (uint32_t)(p->bound->arg.i % 1 * copies), true);", "x86"),
    Defect("machine code", "an index goes on by one iteration for all copies", X86 + "induction.c", "ki_mimm(l->induction[k].step * times)",
           "ki_mimm(l->induction[k].step + 0 * times)", "x86"),
    # ---- interpreter: a wrong oracle is found as well
    Defect("interpreter", "pad ends one too late", "src/ir/eval_view.c", "v->lo[k] = off[k], v->hi[k] = off[k] + in[k];", "v->lo[k] = off[k], v->hi[k] = off[k] + in[k] - (in[k] > 1);"),
    Defect("interpreter", "a maximum starts at 0", "src/ir/eval_node.c", "op == KN_MAX ? -INFINITY :", "op == KN_MAX ? 0 :"),
    Defect("interpreter", "bounds of sums forget the terms' own", "src/ir/eval_bound.c", "        a->abs += m;\n        a->err += err;\n        if (x != 0)", "        a->abs += m;\n        if (x != 0)"),
    Defect("interpreter", "flip starts one too early", "src/ir/eval_view.c", "v->base += (out[k] - 1) * stride[k];", "v->base += (out[k] - 2) * stride[k];"),
]

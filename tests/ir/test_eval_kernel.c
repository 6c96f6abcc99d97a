/* test_eval_kernel.c: the interpreter on kernels in the form of every stage from rangeify to render, written by hand. */
#include "eval_util.h"

static lab L;
#define PORTS(n, m) "in \"x\" = %a : f32 [" #n "]\nout \"y\" = %b : f32 [" #m "]\n"

static void rangeify(void) {
    lab_iota(&L, 0, 1);
    CASE(&L, "rangeify: elementwise",
         "koine 1 rangeify\n%a = buffer 1 GLOBAL size=6 : f32\n%b = buffer 2 GLOBAL size=6 : f32\n%p = param slot=0 : "
         "f32 [6]\n%q = param slot=1 : f32 [6]\n"
         "%r = range 1 GLOBAL 6\n%i = index %q %r\n%v = mul %i 2.0\n%o = index %p %r\n%s = store %o %v\n%e = end %s "
         "%r\n%k = sink %e name=\"k\"\n%c = call %k %b %a\n%l = linear %c\n"
         "root %l\n" PORTS(6, 6),
         {0, 2, 4, 6, 8, 10});
    CASE(&L, "rangeify: pad, an invalid index reads 0",
         "koine 1 rangeify\n%a = buffer 1 GLOBAL size=3 : f32\n%b = buffer 2 GLOBAL size=5 : f32\n%p = param slot=0 : "
         "f32 [5]\n%q = param slot=1 : f32 [3]\n"
         "%r = range 1 GLOBAL 5\n%m = sub %r 1\n%g = lt %m 3\n%h = lt -1:index %m\n%v = and %g %h\n%w = where %v %m "
         "invalid\n%i = index %q %w\n%t = add %i 1.0\n%o = index %p %r\n%s = store %o %t\n%e = end %s %r\n"
         "%k = sink %e name=\"k\"\n%c = call %k %b %a\n%l = linear %c\nroot %l\n" PORTS(3, 5),
         {1, 1, 2, 3, 1});
    CASE(&L, "rangeify: softmax, three loops under the row",
         "koine 1 rangeify\n%a = buffer 1 GLOBAL size=6 : f32\n%b = buffer 2 GLOBAL size=6 : f32\n%p = param slot=0 : "
         "f32 [6]\n%q = param slot=1 : f32 [6]\n"
         "%r = range 1 GLOBAL 2\n%j = range 2 REDUCE 3\n%k = range 3 REDUCE 3\n%c = range 4 GLOBAL 3\n%r3 = mul %r "
         "3\n%ij = add %r3 %j\n%ik = add %r3 %k\n%ic = add %r3 %c\n"
         "%xj = index %q %ij\n%xk = index %q %ik\n%xc = index %q %ic\n%m = reduce max %xj %j\n%dk = sub %xk %m\n%zk = "
         "mul %dk 0.0\n%ek = add %zk 1.0\n%s = reduce add %ek %k\n%dc = sub %xc %m\n%y = mul %dc %s\n"
         "%o = index %p %ic\n%st = store %o %y\n%e = end %st %r %c\n%kk = sink %e name=\"k\"\n%cc = call %kk %b %a\n%l "
         "= linear %cc\nroot %l\n" PORTS(6, 6),
         {-6, -3, 0, -6, -3, 0});
    L.in[1][0] = 4;
    CASE(&L, "rangeify: two kernels through a buffer, a variable bound",
         "koine 1 rangeify\n%n = param \"n\" bounds=[1, 6] : index\n%a = buffer 1 GLOBAL size=6 : f32\n%t = buffer 3 "
         "GLOBAL size=6 : f32\n%b = buffer 2 GLOBAL size=1 : f32\n"
         "%p = param slot=0 : f32 [6]\n%q = param slot=1 : f32 [6]\n%r = range 1 GLOBAL %n\n%i = index %q %r\n%v = add "
         "%i 1.0\n%o = index %p %r\n%s = store %o %v\n%e = end %s %r\n%k = sink %e name=\"k1\"\n"
         "%p1 = param slot=0 : f32 [1]\n%q1 = param slot=1 : f32 [6]\n%r1 = range 2 REDUCE %n\n%i1 = index %q1 %r1\n%m "
         "= reduce add %i1 %r1\n%o1 = index %p1 0\n%s1 = store %o1 %m\n%k1 = sink %s1 name=\"k2\"\n"
         "%c = call %k %t %a %n\n%c1 = call %k1 %b %t %n\n%l = linear %c %c1\nroot %l\nin \"x\" = %a : f32 [6]\nin "
         "\"n\" = %n\nout \"y\" = %b : f32 [1]\n",
         {10});
    CASE(&L, "rangeify: a reduction over a variable range",
         "koine 1 rangeify\n%n = param \"n\" bounds=[1, 6] : index\n%a = buffer 1 GLOBAL size=6 : f32\n%b = buffer 2 "
         "GLOBAL size=1 : f32\n"
         "%p1 = param slot=0 : f32 [1]\n%q1 = param slot=1 : f32 [6]\n%r1 = range 2 REDUCE %n\n%i1 = index %q1 %r1\n%m "
         "= reduce add %i1 %r1\n%o1 = index %p1 0\n%s1 = store %o1 %m\n%k1 = sink %s1 name=\"k2\"\n"
         "%c1 = call %k1 %b %a %n\n%l = linear %c1\nroot %l\nin \"x\" = %a : f32 [6]\nin \"n\" = %n\nout \"y\" = %b : "
         "f32 [1]\n",
         {6});
    CASE(&L, "rangeify: cumsum as a carry in a register",
         "koine 1 rangeify\n%a = buffer 1 GLOBAL size=5 : f32\n%b = buffer 2 GLOBAL size=5 : f32\n%p = param slot=0 : "
         "f32 [5]\n%q = param slot=1 : f32 [5]\n"
         "%z = buffer 3 REG size=1 : f32\n%zi = index %z 0\n%s0 = store %zi 0.0\n%r = range 1 LOOP 5\n%z1 = after %z "
         "%s0 %r\n%zj = index %z1 0\n%old = load %zj\n%x = index %q %r\n%new = add %old %x\n%s1 = store %zj %new\n"
         "%z2 = after %z %s1\n%zk = index %z2 0\n%val = load %zk\n%o = index %p %r\n%s2 = store %o %val\n%e = end %s2 "
         "%r\n%k = sink %e name=\"k\"\n%c = call %k %b %a\n%l = linear %c\nroot %l\n" PORTS(5, 5),
         {0, 1, 3, 6, 10});
    CASE(&L, "rangeify: an empty reduction",
         "koine 1 rangeify\n%n = param \"n\" bounds=[0, 6] : index\n%a = buffer 1 GLOBAL size=6 : f32\n%b = buffer 2 "
         "GLOBAL size=1 : f32\n"
         "%p1 = param slot=0 : f32 [1]\n%q1 = param slot=1 : f32 [6]\n%r1 = range 2 REDUCE 0\n%i1 = index %q1 %r1\n%m "
         "= reduce add %i1 %r1\n%o1 = index %p1 0\n%s1 = store %o1 %m\n%k1 = sink %s1 name=\"k2\"\n"
         "%c1 = call %k1 %b %a\n%l = linear %c1\nroot %l\nin \"x\" = %a : f32 [6]\nout \"y\" = %b : f32 [1]\n",
         {0});
    CASE(&L, "rangeify: in place",
         "koine 1 rangeify\n%a = buffer 1 GLOBAL size=3 : f32\n%p = param slot=0 : f32 [3]\n%r = range 1 GLOBAL 3\n%i "
         "= index %p %r\n%v = add %i 1.0\n%s = store %i %v\n%e = end %s %r\n"
         "%k = sink %e name=\"k\"\n%c = call %k %a\n%l = linear %c\nroot %l\nin \"x\" = %a : f32 [3]\nout \"y\" = %a : "
         "f32 [3]\n",
         {1, 2, 3});
}

static void optimize(void) {
    lab_iota(&L, 0, 1);
    CASE(&L, "optimize: a LOCAL tile written, then read transposed",
         "koine 1 optimize\n%a = buffer 1 GLOBAL size=6 : f32\n%b = buffer 2 GLOBAL size=6 : f32\n%p = param slot=0 : "
         "f32 [6]\n%q = param slot=1 : f32 [6]\n"
         "%t = buffer 3 LOCAL size=6 : f32\n%r = range 1 LOOP 6\n%x = index %q %r\n%d = idiv %r 3\n%m = mod %r 3\n%m2 "
         "= mul %m 2\n%w = add %m2 %d\n%ti = index %t %w\n%s = store %ti %x\n%e = end %s %r\n"
         "%u = after %t %e\n%g = range 2 GLOBAL 6\n%y = index %u %g\n%o = index %p %g\n%s2 = store %o %y\n%e2 = end "
         "%s2 %g\n%k = sink %e2 name=\"k\"\n%c = call %k %b %a\n%l = linear %c\nroot %l\n" PORTS(6, 6),
         {0, 3, 1, 4, 2, 5});
    CASE(&L, "optimize: uneven split, the bound depends on an outer range",
         "koine 1 optimize\n%a = buffer 1 GLOBAL size=5 : f32\n%b = buffer 2 GLOBAL size=5 : f32\n%p = param slot=0 : "
         "f32 [5]\n%q = param slot=1 : f32 [5]\n"
         "%t = range 1 THREAD 2\n%t3 = mul %t 3\n%left = sub 5 %t3\n%c3 = lt %left 3\n%bd = where %c3 %left 3\n%r = "
         "range 2 GLOBAL %bd\n%i = add %t3 %r\n%x = index %q %i\n%v = neg %x\n%o = index %p %i\n%s = store %o %v\n%e = "
         "end %s %t %r\n"
         "%k = sink %e name=\"k\"\n%c = call %k %b %a\n%l = linear %c\nroot %l\n" PORTS(5, 5),
         {-0.0, -1, -2, -3, -4});
}

static void expand(void) {
    lab_iota(&L, 0, 1);
    CASE(&L, "expand: row sums, 2 rows in lanes, k unrolled by 2",
         "koine 1 expand\n%a = buffer 1 GLOBAL size=12 : f32\n%b = buffer 2 GLOBAL size=2 : f32\n%p = param slot=0 : "
         "f32 [2]\n%q = param slot=1 : f32 [12]\n"
         "%l0 = stack 0:index 1:index\n%u0 = reshape %l0 (2, 1)\n%u1 = reshape %l0 (1, 2)\n%acc = buffer 3 REG size=4 "
         ": f32\n%u02 = mul %u0 2\n%lane = add %u02 %u1\n%ai = index %acc %lane\n%z = store %ai -0.0\n"
         "%r = range 1 REDUCE 3\n%acc1 = after %acc %z %r\n%ai1 = index %acc1 %lane\n%old = load %ai1\n%row = mul %u0 "
         "6\n%r2 = mul %r 2\n%col = add %r2 %u1\n%at = add %row %col\n%xi = index %q %at\n%x = load %xi\n"
         "%new = add %old %x\n%up = store %ai1 %new\n%e = end %up %r\n%acc2 = after %acc %e\n%ai2 = index %acc2 "
         "%lane\n%part = load %ai2\n%sum = reduce add %part axes=(1)\n%o = index %p %u0\n%s = store %o %sum\n"
         "%k = sink %s name=\"k\"\n%c = call %k %b %a\n%l = linear %c\nroot %l\n" PORTS(12, 2),
         {15, 51});
    CASE(&L, "expand: a gated load and store",
         "koine 1 expand\n%a = buffer 1 GLOBAL size=3 : f32\n%b = buffer 2 GLOBAL size=3 : f32\n%p = param slot=0 : "
         "f32 [3]\n%q = param slot=1 : f32 [3]\n"
         "%i = stack 0:index 1:index 2:index 3:index\n%g = lt %i 3\n%xi = index %q %i\n%x = load %xi 9.0 %g\n%v = add "
         "%x 1.0\n%o = index %p %i\n%s = store %o %v %g\n%k = sink %s name=\"k\"\n%c = call %k %b %a\n%l = linear "
         "%c\nroot %l\n" PORTS(3, 3),
         {1, 2, 3});
}

static void select_and_on(void) {
    lab_iota(&L, 0, 1);
    CASE(&L, "select: vectors, extraction, threads",
         "koine 1 select\n%a = buffer 1 GLOBAL size=8 : f32\n%b = buffer 2 GLOBAL size=8 : f32\n%p = param slot=0 : "
         "f32 [8]\n%q = param slot=1 : f32 [8]\n"
         "%t = special \"thread\" 2\n%t4 = mul %t 4\n%v = stack 0:index 1:index 2:index 3:index\n%at = add %t4 %v\n%xi "
         "= index %q %at\n%x = load %xi\n%f = index %x 3\n%h = index %x 0\n%w = stack %f %h %f %h\n%y = add %x %w\n"
         "%o = index %p %at\n%s = store %o %y\n%k = sink %s name=\"k\" threads=2\n%c = call %k %b %a\n%l = linear "
         "%c\nroot %l\n" PORTS(8, 8),
         {3, 1, 5, 3, 11, 9, 13, 11});
    CASE(&L, "linearize: loops by RANGE and END, IF and ENDIF",
         "koine 1 linearize\n%a = buffer 1 GLOBAL size=6 : f32\n%b = buffer 2 GLOBAL size=6 : f32\n%p = param slot=0 : "
         "f32 [6]\n%q = param slot=1 : f32 [6]\n"
         "%r = range 1 LOOP 2\n%j = range 2 LOOP 3\n%r3 = mul %r 3\n%i = add %r3 %j\n%xi = index %q %i\n%x = load "
         "%xi\n%o = index %p %i\n%s0 = store %o 0.0\n%g = lt 2.0 %x\n%if = if %g\n%o1 = after %o %s0 %if\n%s = store "
         "%o1 %x\n%ei = endif %if\n"
         "%body = group %s %ei\n%e = end %body %r %j\n%ln = linear %p %q %r %j %r3 %i %xi %x %o %s0 %g %if %o1 %s %ei "
         "%body %e\n%k = sink %ln name=\"k\"\n%c = call %k %b %a\n%l = linear %c\nroot %l\n" PORTS(6, 6),
         {0, 0, 0, 3, 4, 5});
    CASE(&L, "plan: slices of an arena, a PROGRAM with its source",
         "koine 1 render\n%a = buffer 1 GLOBAL size=4 : f32\n%b = buffer 2 GLOBAL size=4 : f32\n%m = buffer 3 GLOBAL "
         "size=64 : u8\n%t = slice %m 32 size=4 : f32\n%p = param slot=0 : f32 [4]\n%q = param slot=1 : f32 [4]\n"
         "%r = range 1 LOOP 4\n%xi = index %q %r\n%x = load %xi\n%y = add %x 1.0\n%o = index %p %r\n%s = store %o "
         "%y\n%e = end %s %r\n%ln = linear %p %q %r %xi %x %y %o %s %e\n%src = source \"void k(void){}\\n\"\n%k = "
         "program %ln %src name=\"k\"\n"
         "%c = call %k %t %a\n%d = call %k %b %t\n%l = linear %c %d\nroot %l\n" PORTS(4, 4),
         {2, 3, 4, 5});
    CASE(&L, "atomicadd: a histogram",
         "koine 1 linearize\n%a = buffer 1 GLOBAL size=4 : f32\n%b = buffer 2 GLOBAL size=2 : f32\n%p = param slot=0 : "
         "f32 [2]\n%q = param slot=1 : f32 [4]\n"
         "%z = stack 0:index 1:index\n%zi = index %p %z\n%s = store %zi 0.0\n%p1 = after %p %s\n%r = range 1 LOOP "
         "4\n%xi = index %q %r\n%x = load %xi\n%m = mod %r 2\n%o = index %p1 %m\n%t = atomicadd %o %x\n%e = end %t "
         "%r\n%ln = linear %z %zi %s %p1 %r %xi %x %m %o %t %e\n"
         "%k = sink %ln name=\"k\"\n%c = call %k %b %a\n%l = linear %c\nroot %l\n" PORTS(4, 2),
         {2, 4});
    CASE(&L, "a graph atomicadd that does not depend on its loop runs each time",
         "koine 1 select\n%a = buffer 1 GLOBAL size=1 : f32\n%p = param slot=0 : f32 [1]\n%r = range 1 LOOP 5\n%o = "
         "index %p 0\n%t = atomicadd %o 2.0\n%e = end %t %r\n"
         "%k = sink %e name=\"k\"\n%c = call %k %a\n%l = linear %c\nroot %l\nin \"x\" = %a : f32 [1]\nout \"y\" = %a : "
         "f32 [1]\n",
         {10});
}

static void errors(void) {
    lab_iota(&L, 0, 1);
#define HEAD                                                                                                           \
    "koine 1 rangeify\n%a = buffer 1 GLOBAL size=3 : f32\n%b = buffer 2 GLOBAL size=3 : f32\n%p = param slot=0 : f32 " \
    "[3]\n%q = param slot=1 : f32 [3]\n"
#define TAIL "%k = sink %e name=\"k\"\n%c = call %k %b %a\n%l = linear %c\nroot %l\n" PORTS(3, 3)
    lab_fails(&L, "a load past the end names node, index and size", "KN4503",
              HEAD "%r = range 1 LOOP 4\n%i = index %q %r\n%o = index %p 0\n%s = store %o %i\n%e = end %s %r\n" TAIL,
              "index 3 is outside the 3 elements");
    lab_fails(&L, "a store before the start", "KN4503",
              HEAD "%r = range 1 LOOP 2\n%n = sub %r 1\n%i = index %q %r\n%o = index %p %n\n%s = store %o %i\n%e = end "
                   "%s %r\n" TAIL,
              "store");
    lab_fails(&L, "a range that no END closes", "KN4507",
              HEAD "%r = range 1 LOOP 2\n%i = index %q %r\n%o = index %p %r\n%e = store %o %i\n" TAIL,
              "RANGE that is not open");
    lab_fails(&L, "a list whose source comes later", "KN4507",
              "koine 1 linearize\n%a = buffer 1 GLOBAL size=3 : f32\n%b = buffer 2 GLOBAL size=3 : f32\n%p = param "
              "slot=0 : f32 [3]\n%q = param slot=1 : f32 [3]\n"
              "%i = index %q 0\n%x = load %i\n%o = index %p 0\n%s = store %o %x\n%ln = linear %i %o %s %x\n%k = sink "
              "%ln name=\"k\"\n%c = call %k %b %a\n%l = linear %c\nroot %l\n" PORTS(3, 3),
              "load");
    L.budget = 50;
    lab_fails(&L, "the budget of a kernel", "KN4504",
              HEAD "%r = range 1 LOOP 1000000\n%i = index %q 0\n%o = index %p 0\n%m = mod %r 3\n%o2 = index %p %m\n%s "
                   "= store %o2 %i\n%e = end %s %r\n" TAIL,
              "steps");
    L.budget = 0;
    lab_fails(&L, "a kernel that asks for more than its buffer has", "KN4508",
              "koine 1 rangeify\n%a = buffer 1 GLOBAL size=3 : f32\n%p = param slot=0 : f32 [4]\n%o = index %p 0\n%e = "
              "store %o 1.0\n%k = sink %e name=\"k\"\n%c = call %k %a\n%l = linear %c\nroot %l\n"
              "in \"x\" = %a : f32 [3]\nout \"y\" = %a : f32 [3]\n",
              "has 12 bytes, it needs 16");
}

static void starved(void) {
    lab_iota(&L, 0, 1);
    lab_starved(&L, "graph kernel",
                "koine 1 optimize\n%a = buffer 1 GLOBAL size=6 : f32\n%b = buffer 2 GLOBAL size=6 : f32\n%p = param "
                "slot=0 : f32 [6]\n%q = param slot=1 : f32 [6]\n"
                "%t = buffer 3 LOCAL size=6 : f32\n%r = range 1 LOOP 6\n%x = index %q %r\n%d = idiv %r 3\n%m = mod %r "
                "3\n%m2 = mul %m 2\n%w = add %m2 %d\n%ti = index %t %w\n%s = store %ti %x\n%e = end %s %r\n"
                "%u = after %t %e\n%g = range 2 GLOBAL 6\n%h = range 3 REDUCE 6\n%y = index %u %h\n%z = reduce add %y "
                "%h\n%o = index %p %g\n%s2 = store %o %z\n%e2 = end %s2 %g\n%k = sink %e2 name=\"k\"\n%c = call %k %b "
                "%a\n%l = linear %c\nroot %l\n" PORTS(6, 6));
    lab_starved(&L, "linear kernel",
                "koine 1 linearize\n%a = buffer 1 GLOBAL size=4 : f32\n%b = buffer 2 GLOBAL size=2 : f32\n%p = param "
                "slot=0 : f32 [2]\n%q = param slot=1 : f32 [4]\n"
                "%z = stack 0:index 1:index\n%zi = index %p %z\n%s = store %zi 0.0\n%p1 = after %p %s\n%r = range 1 "
                "LOOP 4\n%xi = index %q %r\n%x = load %xi\n%m = mod %r 2\n%o = index %p1 %m\n%t = atomicadd %o %x\n%e "
                "= end %t %r\n%ln = linear %z %zi %s %p1 %r %xi %x %m %o %t %e\n"
                "%k = sink %ln name=\"k\"\n%c = call %k %b %a\n%l = linear %c\nroot %l\n" PORTS(4, 2));
}

int main(void) {
    rangeify();
    optimize();
    expand();
    select_and_on();
    errors();
    starved();
    return tap_done();
}

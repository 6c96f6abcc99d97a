/* test_x86_ins.c: INS in programs: the interpreter takes an instruction for what it means, in tensor programs, in kernels as
 * graphs and as lists; what is no instruction, or not with these operands, is refused by name. */
#include "../ir/eval_util.h"
#include "stages/x86/x86.h"

static lab L;

static void run(const char *name, const char *text, const double *want, int n) {
    bool ok = lab_parse(&L, text);
    L.env.ins = ki_x86_understand;
    ok = ok && lab_run(&L);
    if (!ok && L.env.message.s) printf("# %s\n", L.env.message.s);
    for (int k = 0; ok && k < n; k++)
        if (L.out[0][k] != want[k]) ok = (printf("# element %d is %g, want %g\n", k, L.out[0][k], want[k]), false);
    CHECK(ok, "%s", name);
    lab_close(&L);
}

static void refused(const char *name, const char *ins, const char *message) {
    char text[512];
    snprintf(text, sizeof text,
             "koine 1 tensor\n%%x = param \"x\" : f32 [4]\n%%h = param \"h\" : f16 [4]\n%%y = %s\nout \"y\" = %%y\n",
             ins);
    bool ok = lab_parse(&L, text);
    L.env.ins = ki_x86_understand;
    ok = ok && !lab_run(&L) && L.env.err == KI_E_X86_INS && strstr(L.env.message.s, message);
    if (!ok) printf("# %s\n", L.env.message.s ? L.env.message.s : "no message");
    CHECK(ok, "refused: %s", name);
    lab_close(&L);
}

#define PORTS "in \"x\" = %a : f32 [4]\nout \"y\" = %b : f32 [4]\n"
#define OPEN(stage)                                                                                                    \
    "koine 1 " stage                                                                                                   \
    "\n%a = buffer 1 GLOBAL size=4 : f32\n%b = buffer 2 GLOBAL size=4 : f32\n%p = param slot=0 : f32 "                 \
    "[4]\n%q = param slot=1 : f32 [4]\n"

int main(void) {
    lab_iota(&L, 0, 1);
    static const double plain[] = {0, 3, 8, 15}, nested[] = {1, 4, 9, 16}, swapped[] = {1, 0, 3, 2},
                        doubled[] = {1, 3, 5, 7};
    run("x * (x + 2) in two instructions",
        "koine 1 tensor\n%x = param \"x\" : f32 [4]\n%a = ins \"vaddps\" %x 2.0:f32 : f32 [4]\n%y = ins \"vmulps\" %x "
        "%a : f32 [4]\nout \"y\" = %y\n",
        plain, 4);
    run("mulacc: the destination is the first source",
        "koine 1 tensor\n%x = param \"x\" : f32 [4]\n%a = add %x 2.0\n%b = ins \"vfmadd231ps\" 1.0:f32 %x %a : f32 "
        "[4]\nout \"y\" = %b\n",
        nested, 4);
    run("lanes change places, by the immediate",
        "koine 1 tensor\n%x = param \"x\" : f32 [4]\n%y = ins \"vpermilps\" %x 177:i32 : f32 [4]\nout \"y\" = %y\n",
        swapped, 4);
    run("vscalef: an infinite power of a quiet NaN is the power",
        "koine 1 tensor\n%x = param \"x\" : f32 [4]\n%n = add %x nan:f32\n%a = ins \"vscalefps\" %n -inf:f32 : f32 "
        "[4]\nout \"b\" = %a\n",
        (const double[]){0, 0, 0, 0}, 4);
    run("a kernel as a graph",
        OPEN("select") "%r = range 1 LOOP 4\n%k = cast %r : i64\n%i = index %q %k\n%v = load %i\n%w = ins \"vaddss\" "
                       "%v %v : f32\n"
                       "%z = ins \"vaddss\" %w 1.0:f32 : f32\n%o = index %p %k\n%s = store %o %z\n%e = end %s %r\n%n = "
                       "sink %e name=\"k\"\n"
                       "%c = call %n %b %a\n%l = linear %c\nroot %l\n" PORTS,
        doubled, 4);
    run("a kernel as a list",
        OPEN("linearize") "%f = const 4 : index\n%h = const 1.0 : f32\n%r = range 1 LOOP %f\n%k = cast %r : i64\n%i = "
                          "index %q %k\n%v = load %i\n"
                          "%w = ins \"vaddss\" %v %v : f32\n%z = ins \"vaddss\" %w %h : f32\n%o = index %p %k\n%s = "
                          "store %o %z\n%e = end %s %r\n"
                          "%m = linear %f %h %p %q %r %k %i %v %w %z %o %s %e\n%n = sink %m name=\"k\"\n%c = call %n "
                          "%b %a\n%l = linear %c\nroot %l\n" PORTS,
        doubled, 4);
    run("a meaning of several nodes stands in the list where the instruction stood",
        OPEN("linearize") "%f = const 4 : index\n%h = const 1.0 : f32\n%g = const 9.0 : f32\n%r = range 1 LOOP %f\n%k "
                          "= cast %r : i64\n%i = index %q %k\n%v = load %i\n"
                          "%w = ins \"vfnmadd231ss\" %h %v %v : f32\n%u = ins \"vfnmadd213ss\" %w %h %v : f32\n%x = "
                          "ins \"vmaxss\" %u %v : f32\n%z = ins \"vaddss\" %x %v : f32\n%o = index %p %k\n%s = store "
                          "%o %z\n%e = end %s %r\n"
                          "%m = linear %f %h %g %p %q %r %k %i %v %w %u %x %z %o %s %e\n%n = sink %m name=\"k\"\n%c = "
                          "call %n %b %a\n%l = linear %c\nroot %l\n" PORTS,
        (const double[]){0, 2, 7, 14}, 4);
    run("registers know no dtype, and bits no width",
        "koine 1 tensor\n%x = param \"x\" : f32 [4]\n%h = cast %x : i16\n%a = ins \"vpandd\" %h 2:i16 : i16 [4]\n%b = "
        "cast %a : f32\n%s = "
        "ins \"vxorps\" %x -0.0:f32 : f32 [4]\n%m = gt %x 1.0\n%k = ins \"knotq\" %m : bool [4]\n%y = where %k %s "
        "%b\nout \"y\" = %y\n",
        (const double[]){-0.0, -1, 2, 2}, 4);
    refused("no such instruction", "ins \"vaddfs\" %x %x : f32 [4]", "no such row");
    refused("no meaning", "ins \"vrcp14ps\" %x : f32 [4]", "no meaning");
    refused("a source too many", "ins \"vaddps\" %x %x %x : f32 [4]", "number of sources");
    refused("another dtype", "ins \"vaddps\" %x %h : f32 [4]", "a source has another dtype");
    refused("another result", "ins \"vaddps\" %x %x : f64 [4]", "result has another dtype");
    return tap_done();
}

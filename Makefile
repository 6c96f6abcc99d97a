# koine: `make run` does the main job, `make test` proves it. Everything lands in build/.
#
#   make            library (static and shared) and the command build/koine
#   make run        trains the digits network: the main job
#   make test       the whole suite (sets up build/venv; OFFLINE=1: run what can be run without it)
#   make check      the same under ASan and UBSan, built in build/asan
#   make tidy       layers, forbidden calls, lengths, recursion, format
#   make bench      kernels, compile time and speed, side by side with numpy, PyTorch and tinygrad (ROWS='matmul conv': some of it)
#   make zoo        build/zoo/NAME: whole networks with random weights
#   make accuracy   errors of the mathematical functions over all f32 inputs (T='exp sin:f64': some of them)
#   make install    PREFIX=/usr/local DESTDIR=
#
# Variables: CC, CFLAGS, B (build folder), T (test files or pytest arguments), DEFECTS (all: every stage broken in every
# way of tests/random/defects.py, not one a stage), PYTHON, CPU_MOST (a level but amx: built for no better processor, in build/$(CPU_MOST)).

CC      ?= cc
CFLAGS  ?= -O2 -g
WARN    ?= -Wall -Wextra -Wpedantic -Werror
B       ?= build$(CPU_MOST:%=/%)
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
PYTHON  ?= python3
VENV    ?= build/venv
BENCHVENV ?= build/bench-venv
VERSION := $(shell sed -n 's/^\#define KN_VERSION_M[A-Z]* //p;s/^\#define KN_VERSION_PATCH //p' include/koine/base.h | paste -sd.)
SOVER   := 0

CPPFLAGS += -Iinclude -Isrc -Ibench -I$(B)/gen -DKN_BUILD -D_GNU_SOURCE
CPPFLAGS += $(CPU_MOST:%=-DKI_CPU_MOST=KI_CPU_$(shell echo $(CPU_MOST) | tr a-z A-Z)_LEVEL)
# gcc 12, making vectors of what stands beside each other, forgets that two values were rounded to float on one of two ways.
KCFLAGS := -std=gnu17 -fPIC -fvisibility=hidden -ffp-contract=off -fno-tree-slp-vectorize $(WARN)
LDLIBS  := -lm -lpthread -ldl

LIBSRC  := $(sort $(shell find src -name '*.c'))
ZOOSRC  := $(sort $(filter-out bench/zoo/main.c,$(wildcard bench/zoo/*.c)))
CLISRC  := $(sort $(wildcard cli/*.c)) $(ZOOSRC)
TESTSRC := $(sort $(shell find tests -name 'test_*.c'))
EXSRC   := $(sort $(wildcard examples/*.c))
KRSRC   := $(sort $(shell find src -name '*.kr'))

LIBOBJ  := $(LIBSRC:%.c=$(B)/%.o)
CLIOBJ  := $(CLISRC:%.c=$(B)/%.o)
TESTBIN := $(TESTSRC:%.c=$(B)/%)
EXBIN   := $(EXSRC:%.c=$(B)/%)
ZOOOBJ  := $(ZOOSRC:%.c=$(B)/%.o)
ZOOBIN  := $(addprefix $(B)/zoo/,resnet50_forward resnet50_train gpt2_forward gpt2_train gpt2_decode llama_decode \
             vit_forward vit_train lstm_forward lstm_train unet_forward unet_train moe_forward moe_train)
BENCHBIN := $(addprefix $(B)/bench/,libprobe.so libstep.so dispatch again)
LIBA    := $(B)/libkoine.a
LIBSO   := $(B)/libkoine.so.$(VERSION)

# All cores, unless told otherwise.
ifeq ($(filter -j% --jobserver%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif

all: $(LIBA) $(LIBSO) $(B)/koine

# ---- objects: dependencies are tracked, and other flags or another compiler rebuild everything ----

# V=1 shows the commands; where JSON=1 is asked for, nothing else is printed.
ifeq ($(V),1)
say = @:
Q   =
else ifeq ($(JSON),1)
say = @:
Q   = @
else
say = @printf '  %-4s %s\n'
Q   = @
endif

FLAGS := $(CC) $(CPPFLAGS) $(KCFLAGS) $(CFLAGS)
ifneq ($(shell mkdir -p $(B); cat $(B)/flags 2>/dev/null),$(FLAGS))
$(shell printf '%s\n' '$(FLAGS)' >$(B)/flags)
endif

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(say) cc $<
	$(Q)$(CC) $(CPPFLAGS) $(KCFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/tests/%.o: CPPFLAGS += -Itests

# ---- rules: every .kr becomes constant tables in build/gen ----
# GENSRC and the rule for build/gen/%.c are in src/rules/rules.mk; the objects join the library.
-include src/rules/rules.mk
# Each table in a section of its own: what only people read of rules is in no library that is linked without it.
GENOBJ  := $(GENSRC:%.c=%.o)
$(B)/gen/%.o: $(B)/gen/%.c $(B)/flags
	$(say) cc $<
	$(Q)$(CC) $(CPPFLAGS) $(KCFLAGS) $(CFLAGS) -fdata-sections -MMD -MP -c $< -o $@

# ---- which C functions of the stages build nodes, for `koine rules` ----
$(B)/builders: tools/builders.c $(B)/flags
	$(Q)$(CC) $(CPPFLAGS) $(KCFLAGS) $(CFLAGS) $(LDFLAGS) $< -o $@
$(B)/gen/builders.h: $(B)/builders $(filter src/stages/%,$(LIBSRC))
	@mkdir -p $(@D)
	$(Q)$(B)/builders $@ $(filter %.c,$^)
$(B)/cli/rules.o: | $(B)/gen/builders.h

# ---- libraries and programs ----

$(LIBA): $(LIBOBJ) $(GENOBJ)
	@rm -f $@
	$(say) ar $@
	$(Q)$(AR) rcs $@ $^

# What runs once a call of the user's or once a kernel, not once a node, is built small; so is what reads and writes text and files and
# what searches, which waits for clocks.
$(addprefix $(B)/src/,tensor/unary.o tensor/binary.o tensor/view.o tensor/reduce.o tensor/network.o stages/8_render/c_helpers.o \
    stages/verify.o stages/8_render/c.o stages/8_render/c_expr.o stages/8_render/c_mem.o ir/eval_launch.o ir/eval_reach.o ir/print.o ir/parse_lex.o ir/parse_node.o ir/parse_arg.o \
    rules/parse.o rules/terms.o rules/pattern.o rules/check.o rules/compile.o rules/mutate.o \
    stages/3_optimize/cost.o stages/3_optimize/moves.o stages/3_optimize/search.o stages/3_optimize/where.o stages/3_optimize/strips.o \
    $(addprefix stages/3_optimize/,dots.o stage.o tiled.o late.o pipelined.o deal.o first.o windows.o scan.o) stages/5_select/tiles.o \
    $(addprefix run/search/,bench.o child.o record.o sample.o tune.o) $(addprefix device/cpu/,cache.o cc.o code.o) \
    $(addprefix tensor/,index.o count.o sort.o loss.o fft.o einsum.o solve.o svd.o qr.o eigen.o user_rules.o)): \
    private CFLAGS += -Os
# What runs once a node, in every compilation, is built as fast as it gets.
$(addprefix $(B)/src/,ir/uop.o ir/graph.o ir/make.o ir/type.o ir/bounds.o rules/rewrite.o rules/match.o rules/build.o rules/expr.o \
    stages/affine.o stages/5_select/devec.o stages/5_select/lanes.o stages/5_select/lower_index.o \
    stages/6_linearize/linearize.o stages/8_render/locals.o \
    $(addprefix stages/8_render/x86/,lower.o memory.o ins.o value.o index.o mir.o regs.o emit.o encode.o asm.o)): \
    private CFLAGS += -O3
# Digits are drawn in rows of pixels, tens of thousands of times: worth vectors.
$(B)/src/nn/digits.o: private CFLAGS += -ftree-vectorize -fno-math-errno -fno-trapping-math

# Tables of rules are full of pointers: packed, what the loader must add to them is a fiftieth. Old linkers cannot.
RELR := $(shell $(CC) -Wl,--help 2>/dev/null | grep -q pack-relative-relocs && echo -Wl,-z,pack-relative-relocs)

# What only the command and the tests call (the prover of rules, mutation) stays in the static library.
$(LIBSO): $(LIBOBJ) $(GENOBJ) tools/libkoine.map
	$(say) ld $@
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,libkoine.so.$(SOVER) -Wl,--version-script=tools/libkoine.map -Wl,-z,defs \
	    $(RELR) -Wl,--gc-sections -Wl,--as-needed $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) -o $@
	@ln -sf $(@F) $(B)/libkoine.so.$(SOVER)
	@ln -sf $(@F) $(B)/libkoine.so

$(B)/koine: $(CLIOBJ) $(LIBA)
	$(say) ld $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(CLIOBJ) $(LIBA) $(LDLIBS) -o $@

$(B)/tests/%: $(B)/tests/%.o $(LIBA)
	$(say) ld $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(LIBA) $(LDLIBS) -o $@

$(B)/examples/%: $(B)/examples/%.o $(LIBA)
	$(say) ld $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(LIBA) $(LDLIBS) -o $@

# bench/zoo: networks the benches measure; the command has them too.
$(B)/zoo/%: bench/zoo/main.c $(ZOOOBJ) $(LIBA)
	@mkdir -p $(@D)
	$(say) ld $@
	$(Q)$(CC) $(CPPFLAGS) $(KCFLAGS) $(CFLAGS) $(LDFLAGS) '-DZOO="$*"' $< $(ZOOOBJ) $(LIBA) $(LDLIBS) -o $@

zoo: $(ZOOBIN)

tests: all $(TESTBIN) $(EXBIN) zoo $(BENCHBIN)

# ---- the main job ----

run: $(B)/koine
	$(B)/koine train digits

# ---- tests: pytest is the one runner; C test programs print TAP and become items of it ----

T ?= tests
test: tests
	@PYTHON='$(PYTHON)' VENV='$(VENV)' KOINE_BUILD='$(abspath $(B))' CC='$(CC)' tools/runtests $(T)

SAN := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
check:
	@$(MAKE) --no-print-directory B=build/asan CFLAGS='-O1 -g $(SAN)' KOINE_SAN=1 test

# What the bench itself runs: the machine's ceilings (for the machine it is on), koine's steps, the rows dispatch and again.
$(B)/bench/libprobe.so: bench/probe.c
	@mkdir -p $(@D)
	$(Q)$(CC) -O3 -march=native $(WARN) -fPIC -shared -pthread $< -o $@
$(B)/bench/libstep.so: bench/step.c $(LIBSO)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(KCFLAGS) $(CFLAGS) -shared $< $(LIBSO) -Wl,-rpath,'$(abspath $(B))' -o $@
$(B)/bench/dispatch $(B)/bench/again: $(B)/bench/%: bench/%.c $(LIBA)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(KCFLAGS) $(CFLAGS) $(LDFLAGS) $< $(LIBA) $(LDLIBS) -o $@

# ROWS='matmul conv': rows whose names begin so. JSON=1: one object a line. BEAM=n, THREADS=1,2. The peers come from the network once, into
# build/bench-venv; OFFLINE=1: only those that are there.
bench: all zoo $(BENCHBIN)
	@PYTHON='$(PYTHON)' VENV='$(BENCHVENV)' KOINE_BUILD='$(abspath $(B))' JSON='$(JSON)' OFFLINE='$(OFFLINE)' ROWS='$(ROWS)' BEAM='$(BEAM)' \
	    THREADS='$(THREADS)' bench/run

# All inputs of the f32 functions, samples of the others: minutes a function. T: functions (exp, sin:f64, ...).
accuracy: $(B)/tests/math/accuracy
	@nice -n 10 $< $(filter-out tests,$(T))

# ---- house rules ----

tidy:
	@$(PYTHON) tools/tidy.py

format:
	clang-format -i $(shell git ls-files '*.c')

docs: $(B)/koine $(B)/opdoc $(B)/tests/docs/test_functions
	$(B)/koine help --man >docs/koine.1
	$(B)/opdoc >docs/ops.md
	$(PYTHON) tools/functions.py $(B)/tests/docs/test_functions >$(B)/functions.md && cp $(B)/functions.md docs/functions.md

$(B)/opdoc: tools/opdoc.c src/ir/ops.def $(B)/flags
	$(Q)$(CC) $(CPPFLAGS) $(KCFLAGS) $(CFLAGS) $< -o $@

# ---- install ----

I := $(DESTDIR)$(PREFIX)
L := $(DESTDIR)$(LIBDIR)
install: all
	install -d $(I)/bin $(I)/include/koine $(L)/pkgconfig $(L)/cmake/koine $(I)/share/man/man1 $(I)/share/doc/koine
	install -m 755 $(B)/koine $(I)/bin/koine
	install -m 644 include/koine/*.h $(I)/include/koine/
	install -m 644 $(LIBA) $(L)/libkoine.a
	install -m 755 $(LIBSO) $(L)/$(notdir $(LIBSO))
	ln -sf $(notdir $(LIBSO)) $(L)/libkoine.so.$(SOVER)
	ln -sf $(notdir $(LIBSO)) $(L)/libkoine.so
	sed 's|@PREFIX@|$(PREFIX)|;s|@LIBDIR@|$(LIBDIR)|;s|@VERSION@|$(VERSION)|' tools/koine.pc.in >$(L)/pkgconfig/koine.pc
	sed 's|@VERSION@|$(VERSION)|;s|@SOVER@|$(SOVER)|' tools/koine-config.cmake.in >$(L)/cmake/koine/koine-config.cmake
	sed 's|@VERSION@|$(VERSION)|' tools/koine-config-version.cmake.in >$(L)/cmake/koine/koine-config-version.cmake
	$(B)/koine help --man >$(I)/share/man/man1/koine.1
	install -m 644 LICENSE README.md $(I)/share/doc/koine/

uninstall:
	rm -f $(I)/bin/koine $(L)/libkoine.* $(L)/pkgconfig/koine.pc $(I)/share/man/man1/koine.1
	rm -rf $(I)/include/koine $(L)/cmake/koine $(I)/share/doc/koine

clean:
	rm -rf $(B)

-include $(LIBOBJ:.o=.d) $(CLIOBJ:.o=.d) $(GENOBJ:.o=.d) $(sort $(KRCOBJ:.o=.d) $(SELGENOBJ:.o=.d)) $(TESTBIN:%=%.d) $(EXBIN:%=%.d)
.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: all tests zoo run test check bench tidy format docs install uninstall clean

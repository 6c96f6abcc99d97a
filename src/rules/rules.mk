# Rules: krc turns every .kr into constant tables. Included by the Makefile, which compiles $(GENSRC) into the library.
KRCSRC := tools/krc.c $(addprefix src/rules/,lex.c parse.c infer.c pattern.c terms.c check.c dispatch.c compile.c meant.c) \
          $(wildcard src/base/*.c) $(filter-out src/ir/eval% src/ir/agree%,$(wildcard src/ir/*.c))
KRCOBJ := $(KRCSRC:%.c=$(B)/%.o)
GENSRC := $(foreach k,$(KRSRC),$(B)/gen/$(subst /,_,$(k:src/%.kr=%)).c) $(B)/gen/x86.c

$(B)/krc: $(KRCOBJ)
	$(say) ld $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

$(B)/gen/rules.h: $(KRSRC) $(B)/gen/x86.kr $(B)/krc
	@mkdir -p $(@D)
	$(Q)$(B)/krc -h $@.new $(KRSRC) $(B)/gen/x86.kr
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

define KR_RULE
$(B)/gen/$(subst /,_,$(1:src/%.kr=%)).c: $(1) $(B)/krc
	@mkdir -p $$(@D)
	$(say) krc $(1)
	$(Q)$(B)/krc $(1) $$@
endef
$(foreach k,$(KRSRC),$(eval $(call KR_RULE,$(k))))

# The table of instructions read backwards: rules that select them (tools/selgen.c).
SELGENOBJ := $(B)/tools/selgen.o $(B)/src/stages/x86/table.o $(B)/src/base/cpuid.o $(filter $(B)/src/base/% $(B)/src/ir/%,$(KRCOBJ))
$(B)/selgen: $(sort $(SELGENOBJ))
	$(say) ld $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(B)/gen/x86.kr: $(B)/selgen
	@mkdir -p $(@D)
	$(Q)$< $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(B)/gen/x86.c: $(B)/gen/x86.kr $(B)/krc
	$(say) krc $<
	$(Q)$(B)/krc $< $@

# Whoever includes <rules.h> of build/gen waits for it; its own dependencies are tracked from then on.
$(filter-out $(KRCOBJ) $(SELGENOBJ),$(LIBOBJ) $(CLIOBJ) $(TESTBIN:%=%.o)): | $(B)/gen/rules.h

# What nobody waits for is small: reading rules, changing them, graphs and text for proofs.
$(addprefix $(B)/src/rules/,parse.o pattern.o terms.o infer.o check.o mutate.o prove_smt.o prove_gen.o prove_mutate.o): private CFLAGS += -Os

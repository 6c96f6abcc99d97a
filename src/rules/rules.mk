# Rules: krc turns every .kr into constant tables. Included by the Makefile, which compiles $(GENSRC) into the library.
KRCSRC := tools/krc.c $(addprefix src/rules/,lex.c parse.c infer.c pattern.c terms.c check.c dispatch.c compile.c) \
          $(wildcard src/base/*.c) $(filter-out src/ir/eval% src/ir/agree%,$(wildcard src/ir/*.c))
KRCOBJ := $(KRCSRC:%.c=$(B)/%.o)
GENSRC := $(foreach k,$(KRSRC),$(B)/gen/$(subst /,_,$(k:src/%.kr=%)).c)

$(B)/krc: $(KRCOBJ)
	$(say) ld $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

$(B)/gen/rules.h: $(KRSRC) $(B)/krc
	@mkdir -p $(@D)
	$(Q)$(B)/krc -h $@.new $(KRSRC)
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

define KR_RULE
$(B)/gen/$(subst /,_,$(1:src/%.kr=%)).c: $(1) $(B)/krc
	@mkdir -p $$(@D)
	$(say) krc $(1)
	$(Q)$(B)/krc $(1) $$@
endef
$(foreach k,$(KRSRC),$(eval $(call KR_RULE,$(k))))

# Whoever includes <rules.h> of build/gen waits for it; its own dependencies are tracked from then on.
$(filter-out $(KRCOBJ),$(LIBOBJ) $(CLIOBJ) $(TESTBIN:%=%.o)): | $(B)/gen/rules.h

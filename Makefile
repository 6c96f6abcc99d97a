# koine: `make run` does the main job, `make test` proves it. Everything lands in build/.
CC      ?= cc
CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wpedantic -Werror
B       ?= build
CPPFLAGS += -Iinclude -Isrc -I$(B)/gen -DKN_BUILD -D_GNU_SOURCE
KCFLAGS := -std=gnu17 -fPIC -fvisibility=hidden -ffp-contract=off $(WARN)
LIBSRC  := $(sort $(shell find src -name '*.c'))
LIBOBJ  := $(LIBSRC:%.c=$(B)/%.o)
CLISRC  := $(sort $(wildcard cli/*.c))
CLIOBJ  := $(CLISRC:%.c=$(B)/%.o)
LDLIBS  := -lm -lpthread -ldl

all: $(B)/libkoine.a

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(KCFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/libkoine.a: $(LIBOBJ)
	@rm -f $@
	$(AR) rcs $@ $^

clean:
	rm -rf $(B)

-include $(LIBOBJ:.o=.d) $(CLIOBJ:.o=.d)
.PHONY: all clean

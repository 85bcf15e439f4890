# moesim: discrete-event simulator and parallelism planner for MoE and dense training.
#   make                 build/moesim
#   make check           quick tier and full tier; `make smallcheck` is the quick one (< 30 s)
#   make check SANITIZE=address,undefined
#   make golden-update   writes the expected output of tests/golden anew: read the diff before you commit it
#   make plots           predicted against measured, through gnuplot
#   make accuracy-update writes the figures anew that `make check` guards
#   make bench           speed of moesim itself (never part of check)
#   make install PREFIX=/usr/local
# DEV=1 turns warnings into errors. Objects and dependencies live in $(BUILD).

comma   := ,
BUILD   ?= build$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))
PREFIX  ?= /usr/local
DESTDIR ?=
PKGS    := glib-2.0 gobject-2.0 gio-2.0 json-glib-1.0 gsl
CC      ?= cc
OPT     ?= -O2 -g
CPPFLAGS += -Isrc -D_GNU_SOURCE -DG_LOG_DOMAIN='"moesim"' -DMS_SOURCE_DIR='"$(CURDIR)"' \
            -DMS_DATA_DIR='"$(PREFIX)/share/moesim"' $(shell pkg-config --cflags $(PKGS))
# -ffp-contract=off: the same input gives the same bits whatever the optimiser does.
CFLAGS  += -std=c11 $(OPT) -ffp-contract=off -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes \
           -Wmissing-prototypes -Wwrite-strings -Wpointer-arith -Wno-missing-field-initializers -fno-common \
           $(if $(DEV),-Werror)
LDLIBS  += $(shell pkg-config --libs $(PKGS)) -lm -lpthread -ldl
ifdef SANITIZE
CFLAGS  += -fsanitize=$(SANITIZE) -fno-sanitize-recover=$(SANITIZE) -fno-omit-frame-pointer
LDFLAGS += -fsanitize=$(SANITIZE)
endif

SRC     := $(sort $(wildcard src/*/*.c))
LIBOBJ  := $(patsubst %.c,$(BUILD)/%.o,$(filter-out src/cli/main.c,$(SRC)))
UNIT    := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/unit/*.c)))
TESTLIB := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/lib/*.c)))
BENCH   := $(patsubst bench/%.c,$(BUILD)/bench/%,$(sort $(wildcard bench/*.c)))

.PHONY: all check golden-update smallcheck bigcheck check-layers bench plots accuracy-update install uninstall clean fuzz profiles published format
.SECONDARY:

all: $(BUILD)/moesim

$(BUILD)/moesim: $(BUILD)/src/cli/main.o $(BUILD)/libmoesim.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/libmoesim.a: $(LIBOBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%: $(BUILD)/tests/unit/%.o $(TESTLIB) $(BUILD)/libmoesim.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

$(BUILD)/tests/unit/%.o: CPPFLAGS += -Itests
$(BUILD)/tests/lib/%.o: CPPFLAGS += -Itests
$(BUILD)/bench/%.o: CPPFLAGS += -Itests

$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/tests/lib/unshared.o $(BUILD)/libmoesim.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

check-layers:
	@awk -f mk/layers.awk mk/layers $(wildcard src/*/*.c src/*/*.h)

smallcheck: all check-layers $(UNIT)
	@tests/run.sh $(BUILD) quick

check: all check-layers $(UNIT)
	@tests/run.sh $(BUILD) full

# Curves of every machine that shared measurements exist for, made anew: the same tables give the same bytes. DATE is written to them.
MEASUREMENTS ?= ../shared/measurements
PROFILE_DATE ?= 2026-11-21
PROFILES := a100-sxm-80g:a100-pcie-80g a100-pcie-80g: h100-sxm: h200-sxm: b200-sxm: b300-sxm:b200-sxm gb200-nvl72:b200-sxm gb300-nvl72:b200-sxm
PROFILE_TABLES := gemm_consensus.csv.gz gemm.csv.gz moe_grouped_gemm.csv.gz attention_prefill_causal.csv.gz mla_prefill.csv.gz \
  collectives_nccl.csv.gz deepep_normal.csv.gz alltoall_gb200_trtllm.csv.gz quantize_fp8.csv.gz train_te_gemm.csv train_te_sdpa.csv
profiles: all
	@if [ ! -d $(MEASUREMENTS) ]; then echo "make profiles: no folder $(MEASUREMENTS), nothing to fit to; hardware/ stays as it is"; exit 0; fi; \
	for p in $(PROFILES); do name=$${p%%:*}; like=$${p#*:}; echo "== $$name"; \
	  $(BUILD)/moesim fit --hardware $$name $${like:+--like $$like} --date $(PROFILE_DATE) --out hardware/$$name.json \
	    $(addprefix $(MEASUREMENTS)/,$(PROFILE_TABLES)) 2>/dev/null || exit 1; done

# libFuzzer targets of the parsers, in build-fuzz (needs clang): fuzz_json, fuzz_scenario.
FUZZ := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz:
	@$(MAKE) CC=clang BUILD=build-fuzz SANITIZE=fuzzer-no-link,address,undefined build-fuzz/libmoesim.a $(FUZZ:%=build-fuzz/fuzz/%)
build-fuzz/fuzz/%: tests/fuzz/%.c $(TESTLIB) $(BUILD)/libmoesim.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests $(CFLAGS) -fsanitize=fuzzer,address,undefined $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

golden-update: all
	@tests/run.sh $(BUILD) golden-update

bench: all $(BENCH)
	@for b in $(BENCH); do $$b || exit 1; done

# Needs gnuplot. VALIDATION is a folder of runs with `measured`.
VALIDATION ?= scenarios/published
plots: all
	$(BUILD)/moesim validate --csv $(BUILD)/validation.csv --plot $(BUILD)/validation.svg $(VALIDATION)
	@echo "wrote $(BUILD)/validation.svg and $(BUILD)/validation.csv"

# Rewrites tests/data/accuracy.json with the figures of this tree: read the diff before you commit it.
accuracy-update: $(BUILD)/tests/test_full_accuracy
	$(BUILD)/tests/test_full_accuracy --update

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/moesim
	install -m 755 $(BUILD)/moesim $(DESTDIR)$(PREFIX)/bin/moesim
	cp -R models hardware software scenarios plots $(DESTDIR)$(PREFIX)/share/moesim/

uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/bin/moesim $(DESTDIR)$(PREFIX)/share/moesim

format:
	clang-format -i $(wildcard src/*/*.[ch] tests/*/*.[ch] bench/*.c)

clean:
	rm -rf build build-*

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# moesim: discrete-event simulator and parallelism planner for MoE and dense training.
#   make                 build/moesim
#   make check           quick tier and full tier; `make smallcheck` is the quick one (< 30 s)
#   make check SANITIZE=address,undefined
#   make check-units   own kernels on every vector unit, those of other CPUs under qemu-user
#   make golden-update   writes the expected output of tests/golden, docs/reference.md and docs/json.md anew: read the
#                        diff
#   make plots           the figures of README and docs, in docs/figures
#   make accuracy-update writes the figures anew that `make check` guards
#   make predictions-update  accepts the predictions of this tree: writes scenarios/check/baseline.json anew
#   make studies-update  writes the figures of scenarios/whatif/README.md and scenarios/tour/README.md anew
#   make soak            properties of random requests and runs, other seeds each time (SEED=N SOAK_S=SECONDS of each),
#                        and every model on every machine (minutes)
#   make mutants         deliberate mistakes in planner and engine: which test catches which (minutes)
#   make machines        docs/machines.md: every shipped machine with plans of five kinds
#   make bench           speed of moesim itself (never part of check)
#   make install PREFIX=/usr/local   program, data, man page, completions, libmoesim with header and pkg-config file
#   make deb             a Debian package in build-deb
#   make wheel           a wheel of the Python package in build/wheel, with library and data; needs python3, no network
# DEV=1 turns warnings into errors. Objects and dependencies live in $(BUILD).

comma   := ,
BUILD   ?= build$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))
PREFIX  ?= /usr/local
DESTDIR ?=
VERSION := 0.1.0
PKGS    := glib-2.0 gobject-2.0 gio-2.0 json-glib-1.0 gsl yaml-0.1
# moesim serve needs libsoup 3; without it the verb says so.
SOUP    := $(shell pkg-config --exists libsoup-3.0 && echo libsoup-3.0)
CC      ?= cc
OPT     ?= -O2 -g
CPPFLAGS += -Isrc -D_GNU_SOURCE -DG_LOG_DOMAIN='"moesim"' -DMS_VERSION='"$(VERSION)"' \
            $(shell pkg-config --cflags $(PKGS))
# -ffp-contract=off: the same input gives the same bits whatever the optimiser does.
CFLAGS  += -std=c11 $(OPT) -ffp-contract=off -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes \
           -Wmissing-prototypes -Wwrite-strings -Wpointer-arith -Wno-missing-field-initializers -fno-common \
           -fPIC -fvisibility=hidden -fno-semantic-interposition $(if $(DEV),-Werror)
LDLIBS  += $(shell pkg-config --libs $(PKGS)) -lm -lpthread -ldl
# Of moesim-all, of which moesim is the part that starts fast: src/cli/beside.c.
ALLLIBS := $(if $(SOUP),$(shell pkg-config --libs $(SOUP)))
ifdef SANITIZE
CFLAGS  += -fsanitize=$(SANITIZE) -fno-sanitize-recover=$(SANITIZE) -fno-omit-frame-pointer \
           '-DMS_LCMA_UNROLL="GCC unroll 1"'
LDFLAGS += -fsanitize=$(SANITIZE)
endif

# Ranks under mpirun, where Open MPI is installed (MPI=0 leaves it out); else their serial twin.
MPI     ?= $(shell pkg-config --exists ompi-c && echo 1 || echo 0)
ifeq ($(MPI),1)
CPPFLAGS += $(shell pkg-config --cflags ompi-c)
ALLLIBS  += $(shell pkg-config --libs ompi-c)
endif

# Objects are made anew when the compiler or its flags change (not for -Werror, which changes nothing in them).
STAMP := $(strip $(CC) $(CPPFLAGS) $(filter-out -Werror,$(CFLAGS)))
$(shell mkdir -p $(BUILD))
ifneq ($(strip $(file <$(BUILD)/flags)),$(STAMP))
$(file >$(BUILD)/flags,$(STAMP))
endif
# Folders stand only in the objects that name them, so that trees in other places share the others (ccache).
SOURCE_DIR := -DMS_SOURCE_DIR='"$(CURDIR)"'
ifneq ($(strip $(file <$(BUILD)/prefix)),$(PREFIX) $(CURDIR))
$(file >$(BUILD)/prefix,$(PREFIX) $(CURDIR))
endif

MPISRC  := src/base/ranks_mpi.c src/exec/comm_mpi.c
ALLSRC  := $(if $(filter 1,$(MPI)),$(MPISRC)) $(if $(SOUP),src/serve/serve.c)
SRC     := $(filter-out $(MPISRC) src/serve/serve.c,$(sort $(wildcard src/*/*.c)))
ALLOBJ  := $(ALLSRC:%.c=$(BUILD)/%.o)
LIBOBJ  := $(patsubst %.c,$(BUILD)/%.o,$(filter-out src/cli/main.c,$(SRC))) $(BUILD)/gen/page_text.o
PAGE    := $(addprefix src/report/page/,page.html page.css base.js figure.js summary.js steps.js memory.js map.js \
             diff.js layouts.js traffic.js fabric.js roofline.js curves.js live.js whatif.js main.js)
UNIT    := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/unit/*.c)))
TESTLIB := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/lib/*.c)))
NAMED   := $(wildcard README.md docs/*.md docs/*/*.md scenarios/*/*.md \
             $(foreach e,c h def inc,src/*/*.$(e) tests/*/*.$(e) bench/*.$(e) examples/*.$(e)))
BENCH   := $(patsubst bench/%.c,$(BUILD)/bench/%,$(sort $(wildcard bench/*.c)))

.PHONY: all deb python wheel reference check golden-update smallcheck bigcheck check-layers check-format \
        check-references check-circles \
        check-symbols check-units bench \
        headline plots accuracy-update studies-update predictions-update install uninstall clean fuzz \
        profiles published format machines
.SECONDARY:

PYTHON ?= python3
all: $(BUILD)/moesim $(if $(ALLSRC),$(BUILD)/moesim-all) $(BUILD)/libmoesim.so.0 \
     $(BUILD)/libmoesim_lcma.so.0 $(BUILD)/libmoesim_lcma.a \
     $(if $(shell command -v $(PYTHON)),$(BUILD)/python/made)

# It starts a quarter sooner at a fixed address, where no table of pointers has to be written anew. The package, which
# is hardened, and sanitizers leave QUICK empty.
QUICK ?= $(if $(SANITIZE),,-no-pie)
$(BUILD)/moesim: $(BUILD)/src/cli/main.o $(BUILD)/libmoesim.a
	$(CC) $(LDFLAGS) $(QUICK) -o $@ $^ $(LDLIBS)
# Its own objects stand before the archive, whose twins of them then stay out.
$(BUILD)/moesim-all: $(BUILD)/src/cli/main.o $(ALLOBJ) $(BUILD)/libmoesim.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) $(ALLLIBS)

$(BUILD)/libmoesim.a: $(LIBOBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/src/base/io.o: CPPFLAGS += -DMS_DATA_DIR='"$(PREFIX)/share/moesim"' $(SOURCE_DIR)
PLACED := $(patsubst %.c,$(BUILD)/%.o,$(shell grep -l MS_SOURCE_DIR tests/*/*.c bench/*.c))
$(PLACED): CPPFLAGS += $(SOURCE_DIR)
$(BUILD)/src/base/io.o $(PLACED): $(BUILD)/prefix

# What a program of others links to: only the functions of src/api/moesim.h are visible.
NOTLIB := $(addprefix $(BUILD)/src/,cli/% serve/% lcma/lcma.o lcma/bench.o)
SHAREDOBJ := $(filter-out $(NOTLIB),$(LIBOBJ))
SHAREDLIBS = $(shell pkg-config --libs $(PKGS)) -lm -lpthread -ldl
$(BUILD)/libmoesim.so.0: $(SHAREDOBJ)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libmoesim.so.0 $(if $(SANITIZE),,-Wl,--no-undefined) -Wl,--as-needed \
	  -o $@ $^ $(SHAREDLIBS)

# Matrix multiplication by itself, for programs that want nothing else of moesim: src/lcma/lcma.h.
LCMAOBJ := $(patsubst %.c,$(BUILD)/%.o,$(filter-out src/lcma/bench.c,$(wildcard src/lcma/*.c)) \
             $(wildcard src/blas/*.c) src/base/err.c src/base/vector.c)
LCMALIBS = $(shell pkg-config --libs glib-2.0) -lm -lpthread -ldl
$(BUILD)/libmoesim_lcma.so.0: $(LCMAOBJ)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libmoesim_lcma.so.0 $(if $(SANITIZE),,-Wl,--no-undefined) -o $@ $^ $(LCMALIBS)
$(BUILD)/libmoesim_lcma.a: $(LCMAOBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# Own kernels: loops are vectorised, for several vector units in one file (src/exec/kernel_units.inc). Neither flag
# changes a result.
$(BUILD)/src/exec/kernel_f32.o $(BUILD)/src/exec/kernel_f64.o: CFLAGS += $(if $(SANITIZE),-O1,-O3) \
  -fno-math-errno -fno-trapping-math $(if $(findstring clang,$(CC)),-Wno-pass-failed)

# What a plan spends its time in: bounds and simulations of the layouts are 4 to 6 % faster.
HOT := src/sched/walk.c $(foreach d,work cost engine step bound sim plan,$(wildcard src/$d/*.c))
$(HOT:%.c=$(BUILD)/%.o): CFLAGS += $(if $(SANITIZE),,-O3)

# The HTML page's markup, style and script as C strings; edit them in src/report/page/.
$(BUILD)/gen/page_text.c: $(PAGE) mk/embed.awk
	@mkdir -p $(@D)
	LC_ALL=C awk -f mk/embed.awk $(PAGE) >$@.tmp && mv $@.tmp $@
$(BUILD)/src/serve/serve.o: CPPFLAGS += $(if $(SOUP),$(shell pkg-config --cflags $(SOUP)))
$(BUILD)/src/serve/absent.o: CPPFLAGS += $(if $(SOUP),-DMS_HAVE_SOUP)
$(BUILD)/src/base/ranks_serial.o: CPPFLAGS += $(if $(filter 1,$(MPI)),-DMS_HAVE_MPI)
$(BUILD)/gen/page_text.o: $(BUILD)/gen/page_text.c $(BUILD)/flags
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%: $(BUILD)/tests/unit/%.o $(TESTLIB) $(BUILD)/libmoesim.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) $(LDLIBS) -lcmocka

# A rank itself; its objects before the archive, as those of moesim-all.
$(BUILD)/tests/test_full_exec: $(filter-out %/serve.o,$(ALLOBJ))
$(BUILD)/tests/test_full_exec: LDLIBS += $(ALLLIBS)

# A GPU on paper, for test_gpu.
$(BUILD)/tests/test_gpu: $(BUILD)/tests/fake-cuda.so $(BUILD)/tests/fake-musa.so
$(BUILD)/tests/fake-%.so: tests/fake/fake_gpu.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(if $(filter musa,$*),-DFAKE_MUSA) -Wno-missing-prototypes -shared $(LDFLAGS) -o $@ $<

$(BUILD)/tests/unit/%.o: CPPFLAGS += -Itests
$(BUILD)/tests/lib/%.o: CPPFLAGS += -Itests
$(BUILD)/bench/%.o: CPPFLAGS += -Itests

$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/tests/lib/unshared.o $(BUILD)/libmoesim.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# Every page, section, function, type and test that a file names is there; README has the errors of docs/accuracy.md.
check-references:
	@mk/references.sh
	@printf '%s\n' $(NAMED) | awk -f mk/names.awk - \
	  $(filter-out %.md,$(NAMED)) $(filter %.md,$(NAMED))
	@awk -f mk/headline.awk docs/accuracy.md README.md

check-layers:
	@awk -f mk/layers.awk mk/layers $(wildcard src/*/*.[ch] tests/*/*.[ch] bench/*.[ch] examples/*.c)

.PHONY: check-literals
check-literals:
	@awk -f mk/literals.awk mk/literals \
	  $(foreach d,layout fabric sched cost work memory step engine bound sim,$(wildcard src/$(d)/*.[ch]))

check-circles: all
	@mk/circles.sh $(BUILD)

# Functions and tables of src/ that other files can see but none uses, tests included: make them static, or remove them.
check-symbols: all $(UNIT)
	@{ nm -A $(BUILD)/libmoesim.a $(BUILD)/src/cli/main.o $(ALLOBJ) $(UNIT:$(BUILD)/tests/%=$(BUILD)/tests/unit/%.o) \
	  $(TESTLIB) || echo failed; } 2>/dev/null | awk -f mk/symbols.awk

# The Debian package in a root of its own (needs root, lintian, debootstrap and the network).
.PHONY: check-package
check-package: all
	@tests/package.sh

# Vector units that this CPU lacks run under qemu-user.
check-units:
	@tests/units.sh $(BUILD)

smallcheck: all check-layers check-circles check-literals check-references check-mutants check-format \
            $(if $(SOUP),$(if $(filter 1,$(MPI)),check-symbols)) $(UNIT)
	@tests/run.sh $(BUILD) quick

check: all check-layers check-circles check-literals check-references check-mutants check-format \
            $(if $(SOUP),$(if $(filter 1,$(MPI)),check-symbols)) $(UNIT)
	@tests/run.sh $(BUILD) full

# Curves of every machine that shared measurements exist for, made anew: the same tables give the same bytes. DATE is
# written to them.
MEASUREMENTS ?=
PROFILE_DATE ?= 2026-11-21
PROFILES := a100-sxm-80g:a100-pcie-80g a100-pcie-80g: h100-sxm: h200-sxm: b200-sxm: b300-sxm:b200-sxm \
  gb200-nvl72:b200-sxm gb300-nvl72:b200-sxm
PROFILE_TABLES := gemm_consensus.csv.gz gemm.csv.gz moe_grouped_gemm.csv.gz attention_prefill_causal.csv.gz \
  mla_prefill.csv.gz collectives_nccl.csv.gz deepep_normal.csv.gz alltoall_gb200_trtllm.csv.gz quantize_fp8.csv.gz \
  train_te_gemm.csv train_te_sdpa.csv
# In a fit of its own, so that the provenance of the other curves does not name it; a machine without rows there
# keeps what it has.
PROFILE_TABLES_ALONE := linear_attention_prefill.csv.gz
# Attention of a training library, carried; last, as its few rows move the curves that are there or take their place.
ATTENTION_DATE ?= 2026-11-28
ATTENTION_PROFILES := gb200-nvl72: gb300-nvl72: b200-sxm:gb200-nvl72 b300-sxm:gb300-nvl72
ATTENTION_TABLES := $(addprefix hardware/tables/,cudnn_attention.csv cudnn_mla.csv cudnn_attention_backward.csv)
profiles: all
	@if [ ! -d "$(MEASUREMENTS)" ]; then \
	  echo "make profiles: MEASUREMENTS names no folder of tables (docs/theory/costs.md 1); hardware/ stays as it is"; \
	  exit 0; fi; \
	for p in $(PROFILES); do name=$${p%%:*}; like=$${p#*:}; echo "== $$name"; \
	  $(BUILD)/moesim fit --hardware $$name $${like:+--like $$like} --date $(PROFILE_DATE) --out hardware/$$name.json \
	    $(addprefix $(MEASUREMENTS)/,$(PROFILE_TABLES)) 2>/dev/null || exit 1; \
	  $(BUILD)/moesim fit --hardware $$name --date $(PROFILE_DATE) --out hardware/$$name.json \
	    $(addprefix $(MEASUREMENTS)/,$(PROFILE_TABLES_ALONE)) 2>/dev/null || test $$? = 3 || exit 1; done; \
	for p in $(ATTENTION_PROFILES); do name=$${p%%:*}; like=$${p#*:}; \
	  $(BUILD)/moesim fit --hardware $$name $${like:+--like $$like} --date $(ATTENTION_DATE) --out hardware/$$name.json \
	    $(ATTENTION_TABLES) 2>/dev/null || exit 1; done

# libFuzzer targets of the parsers, in build-fuzz (needs clang): fuzz_json, fuzz_scenario, fuzz_import, fuzz_dump,
# fuzz_table, fuzz_logs, fuzz_trace, and of products: fuzz_lcma.
FUZZ := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz:
	@$(MAKE) CC=clang BUILD=build-fuzz SANITIZE=fuzzer-no-link,address,undefined build-fuzz/libmoesim.a \
	  $(FUZZ:%=build-fuzz/fuzz/%)
build-fuzz/fuzz/%: tests/fuzz/%.c $(TESTLIB) $(BUILD)/libmoesim.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests $(CFLAGS) -fsanitize=fuzzer,address,undefined $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

# For programs that are linked to the library by other means (tests/rows.sh).
link-flags:
	@echo '$(LDFLAGS) $(LDLIBS)'
.PHONY: link-flags

# Exported launches through the parser and the models of a checkout of Megatron-LM, given as MEGATRON=FOLDER; needs a
# PyTorch of 2.1 or later, numpy, einops, packaging and yaml, no GPU: tests/real/torch.sh makes one where the
# distribution's is older, and TORCH_PYTHON names it. TECHNIQUES: all, or some of tests/real/cases.py.
TORCH_PYTHON ?= python3
.PHONY: check-real
check-real: all
	@if [ -z "$(MEGATRON)" ]; then echo "skipped: MEGATRON=FOLDER names no checkout of Megatron-LM"; \
	elif ! $(TORCH_PYTHON) -c "import torch.testing._internal.distributed.fake_pg" 2>$(BUILD)/real.log; then \
	  echo "skipped: $(TORCH_PYTHON) has no PyTorch of 2.1 or later (tests/real/torch.sh makes one)"; \
	else rm -rf $(BUILD)/real && python3 tests/real/cases.py $(BUILD)/moesim $(BUILD)/real $(TECHNIQUES) && \
	  $(TORCH_PYTHON) tests/real/check.py $(MEGATRON) $(BUILD)/real/*.json; fi

# The same for TorchTitan: TORCHTITAN=FOLDER is a checkout of before 9810191b, whose configurations are TOML.
.PHONY: check-titan
check-titan: all
	@if [ -z "$(TORCHTITAN)" ]; then echo "skipped: TORCHTITAN=FOLDER names no checkout of TorchTitan"; \
	else $(TORCH_PYTHON) tests/real/titan.py $(BUILD)/moesim $(TORCHTITAN); fi

# Launches for MT-MegatronLM through its patches: MT=FOLDER is a checkout of it, MT_MEGATRON=FOLDER one of the
# Megatron-LM that it patches (d0df563d). And imports of config.json beside what Megatron-Bridge makes of them:
# BRIDGE=FOLDER, MEGATRON=FOLDER as above; CONFIGS: the files.
.PHONY: check-mt check-bridge
check-mt: all
	@if [ -z "$(MT)" ] || [ -z "$(MT_MEGATRON)" ]; then \
	  echo "skipped: MT=FOLDER and MT_MEGATRON=FOLDER name no checkouts of MT-MegatronLM and its Megatron-LM"; \
	else $(TORCH_PYTHON) tests/real/mt.py $(BUILD)/moesim $(MT) $(MT_MEGATRON); fi
CONFIGS ?= $(filter-out %.words.json,$(wildcard tests/data/hf/*.json))
check-bridge: all
	@if [ -z "$(BRIDGE)" ] || [ -z "$(MEGATRON)" ]; then \
	  echo "skipped: BRIDGE=FOLDER and MEGATRON=FOLDER name no checkouts of Megatron-Bridge and Megatron-LM"; \
	else $(TORCH_PYTHON) tests/real/bridge.py $(BUILD)/moesim $(BRIDGE) $(MEGATRON) $(CONFIGS); fi

# The page of all keys, from the field tables.
reference: all
	$(BUILD)/moesim schema --markdown >docs/reference.md
	$(BUILD)/moesim schema --output --markdown >docs/json.md

# What every shipped machine would do, docs/machines.md.
machines: all
	$(PYTHON) mk/machines.py $(BUILD)/moesim >$(BUILD)/machines && mv $(BUILD)/machines docs/machines.md

golden-update: all reference
	@tests/run.sh $(BUILD) golden-update

# The laws, clocks, host times and stacks that RUNS ask for, fitted together: a table, and in build/fitted the files of
# hardware/ and software/ that change. To take them: `cp -r build/fitted/* .`, then `make accuracy-update` and what that
# asks for.
RUNS ?= scenarios/published
FITTED := $(BUILD)/fitted
.PHONY: laws
laws: all
	@rm -rf $(FITTED)
	$(BUILD)/moesim validate --cross-validate --write-fitted $(FITTED) $(RUNS)
	@for f in $$(cd $(FITTED) && find . -name '*.json' | sort); do diff -u0 $$f $(FITTED)/$$f | grep '^[-+]' || true; done

# Each property for SOAK_S seconds; a counterexample is kept as a file in the temporary folder.
SEED   ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
SOAK_S ?= 300
.PHONY: soak mutants check-mutants
SOAKED := $(addprefix $(BUILD)/tests/,test_properties test_fidelities test_cuts test_tree)
soak: $(SOAKED) $(BUILD)/tests/test_machines
	for t in $(SOAKED); do MOESIM_SEED=$(SEED) MOESIM_SOAK_S=$(SOAK_S) $$t || exit 1; done
	MOESIM_SOAK_S=$(SOAK_S) $(BUILD)/tests/test_machines
mutants:
	@tests/mutate.sh
check-mutants:
	@tests/mutate.sh --apply

bench: all $(BENCH)
	@for b in $(BENCH); do $$b || exit 1; done

# The figures of README and docs, in docs/figures. Needs gnuplot, and for the picture of the page a browser
# (./bootstrap --tests).
VALIDATION ?= scenarios/published
FIGURES := docs/figures
plots: all
	@mkdir -p $(FIGURES)
	$(BUILD)/moesim validate --exact --plot $(FIGURES)/validation.svg $(VALIDATION) >$(BUILD)/validation.txt
	$(BUILD)/moesim whatif --plot $(FIGURES)/whatif-nic.svg scenarios/whatif/nic.json >$(BUILD)/whatif-nic.txt
	$(BUILD)/moesim whatif --plot $(FIGURES)/whatif-fabric.svg scenarios/whatif/fabric-oversubscription.json \
	  >$(BUILD)/whatif-fabric.txt
	for s in fabric-rails fabric-placement nvl72-segments slow-nics; do $(BUILD)/moesim whatif --plot \
	  $(FIGURES)/whatif-$${s#fabric-}.svg scenarios/whatif/$$s.json >$(BUILD)/whatif-$$s.txt || exit 1; done
	$(BUILD)/moesim show schedule dualpipe --stages 8 --microbatches 20 --svg $(FIGURES)/dualpipe.svg \
	  >$(BUILD)/dualpipe.txt
	$(BUILD)/moesim report --no-validation scenarios/run-deepseek-v3-2048-pp16.json --html $(BUILD)/page.html
	@if [ -d tests/browser/node_modules ]; then \
	  node mk/page-picture.mjs $(BUILD)/page.html $(FIGURES)/page.png summary timeline overlap map; \
	  else echo "no picture of the page: ./bootstrap --tests installs the browser"; fi
	@ls -l $(FIGURES)

# What experts chose for the published headline runs beside the winner of a plan, as the table of docs/planner.md
# (minutes).
headline: $(BUILD)/tests/test_full_headline
	@$(BUILD)/tests/test_full_headline --table

# Rewrites tests/data/accuracy.json with the figures of this tree: read the diff before you commit it.
accuracy-update: $(BUILD)/tests/test_full_accuracy
	$(BUILD)/tests/test_full_accuracy --update

# What test_full_predictions guards: read the diff, `git diff scenarios/check`, before you commit it.
predictions-update: all
	$(BUILD)/moesim check --update scenarios/check/baseline.json

# Rewrites the figures of scenarios/whatif/README.md with what its studies print.
studies-update: $(BUILD)/tests/test_full_studies
	$(BUILD)/tests/test_full_studies --update

LIBDIR ?= $(PREFIX)/lib
SHARE   := $(DESTDIR)$(PREFIX)/share
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(LIBDIR)/pkgconfig \
	  $(SHARE)/moesim $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/vendor-completions \
	  $(SHARE)/fish/vendor_completions.d $(SHARE)/doc/moesim
	install -m 755 $(BUILD)/moesim $(DESTDIR)$(PREFIX)/bin/moesim
	$(if $(ALLSRC),install -D -m 755 $(BUILD)/moesim-all $(DESTDIR)$(PREFIX)/libexec/moesim/moesim-all)
	cp -R models hardware software reliability scenarios plots $(SHARE)/moesim/
	$(BUILD)/moesim help --man >$(SHARE)/man/man1/moesim.1
	$(BUILD)/moesim help --completion bash >$(SHARE)/bash-completion/completions/moesim
	$(BUILD)/moesim help --completion zsh >$(SHARE)/zsh/vendor-completions/_moesim
	$(BUILD)/moesim help --completion fish >$(SHARE)/fish/vendor_completions.d/moesim.fish
	install -m 644 src/api/moesim.h $(DESTDIR)$(PREFIX)/include/moesim.h
	install -m 644 src/lcma/lcma.h $(DESTDIR)$(PREFIX)/include/moesim_lcma.h
	install -m 755 $(BUILD)/libmoesim_lcma.so.0 $(DESTDIR)$(LIBDIR)/libmoesim_lcma.so.0
	ln -sf libmoesim_lcma.so.0 $(DESTDIR)$(LIBDIR)/libmoesim_lcma.so
	install -m 644 $(BUILD)/libmoesim_lcma.a $(DESTDIR)$(LIBDIR)/libmoesim_lcma.a
	sed -e 's|@prefix@|$(PREFIX)|; s|@libdir@|$(LIBDIR)|; s|@version@|$(VERSION)|; s|@private@|$(LCMALIBS)|' \
	  mk/moesim_lcma.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/moesim_lcma.pc
	install -m 755 $(BUILD)/libmoesim.so.0 $(DESTDIR)$(LIBDIR)/libmoesim.so.0
	ln -sf libmoesim.so.0 $(DESTDIR)$(LIBDIR)/libmoesim.so
	install -m 644 $(BUILD)/libmoesim.a $(DESTDIR)$(LIBDIR)/libmoesim.a
	sed -e 's|@prefix@|$(PREFIX)|; s|@libdir@|$(LIBDIR)|; s|@version@|$(VERSION)|; s|@private@|$(LDLIBS)|' \
	  mk/moesim.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/moesim.pc
	@if command -v $(PYTHON) >/dev/null; then \
	  install -d $(DESTDIR)$(PYTHONDIR)/moesim && \
	  install -m 644 $(BUILD)/python/moesim/* $(DESTDIR)$(PYTHONDIR)/moesim/; \
	else echo "no Python package: $(PYTHON) is not installed"; fi
	cp LICENSE README.md $(SHARE)/doc/moesim/
	cp -R docs examples $(SHARE)/doc/moesim/

uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/bin/moesim $(DESTDIR)$(PREFIX)/libexec/moesim $(DESTDIR)$(PYTHONDIR)/moesim \
	  $(DESTDIR)$(PREFIX)/include/moesim.h \
	  $(DESTDIR)$(LIBDIR)/libmoesim.so.0 $(DESTDIR)$(LIBDIR)/libmoesim.so \
	  $(DESTDIR)$(LIBDIR)/libmoesim.a $(DESTDIR)$(LIBDIR)/pkgconfig/moesim.pc \
	  $(DESTDIR)$(PREFIX)/include/moesim_lcma.h \
	  $(DESTDIR)$(LIBDIR)/libmoesim_lcma.so.0 $(DESTDIR)$(LIBDIR)/libmoesim_lcma.so \
	  $(DESTDIR)$(LIBDIR)/libmoesim_lcma.a $(DESTDIR)$(LIBDIR)/pkgconfig/moesim_lcma.pc \
	  $(SHARE)/moesim $(SHARE)/doc/moesim $(SHARE)/man/man1/moesim.1 $(SHARE)/bash-completion/completions/moesim \
	  $(SHARE)/zsh/vendor-completions/_moesim $(SHARE)/fish/vendor_completions.d/moesim.fish

# The Python package with the classes that are made from the tables, in build/python; the wheel adds library and data.
PYTHONDIR ?= $(PREFIX)/lib/python3/dist-packages
$(BUILD)/python/made: $(wildcard python/moesim/*) mk/shapes.py $(BUILD)/moesim
	@rm -rf $(@D) && mkdir -p $(@D)/moesim
	@cp python/moesim/*.py python/moesim/py.typed $(@D)/moesim/
	$(PYTHON) mk/shapes.py $(BUILD)/moesim $(@D)/moesim
	@touch $@
python: $(BUILD)/python/made $(BUILD)/libmoesim.so.0
wheel: $(BUILD)/python/made $(BUILD)/libmoesim.so.0
	@$(PYTHON) mk/wheel.py $(VERSION) $(BUILD)/python/moesim $(BUILD)/libmoesim.so.0 $(BUILD)/wheel

# Built for PREFIX=/usr in a tree of its own, since the data folder is compiled in.
deb:
	@mk/deb.sh $(VERSION) build-deb

# Form: .clang-format (version 14) where it is installed; no line above 120 columns, of pages but for their tables.
FORMATTED := $(wildcard src/*/*.[ch] src/*/*.def tests/*/*.[ch] bench/*.[ch] bench/*/*.[ch] examples/*.c)
LINED := Makefile bootstrap README.md $(filter-out docs/reference.md,$(wildcard docs/*.md docs/*/*.md)) $(wildcard \
  mk/* src/*/*.inc python/moesim/*.py tests/python/*.py src/report/page/*.js src/report/page/*.css tests/*.sh \
  tests/browser/*.mjs bench/*.sh bench/*.py)
format:
	@clang-format -i $(FORMATTED)
check-format: $(BUILD)/formatted
	@awk 'length > 120 && !(FILENAME ~ /md$$/ && /^\|/) { printf "%s:%d: %d columns\n", FILENAME, FNR, length; bad = 1 } \
	  END { exit bad }' $(FORMATTED) $(LINED)
# Files that changed since they were well formed.
$(BUILD)/formatted: $(FORMATTED) .clang-format
	@if command -v clang-format >/dev/null && clang-format --version | grep -q 'version 14'; then \
	  clang-format --dry-run -Werror $(if $(filter .clang-format,$?),$(FORMATTED),$?) && touch $@; \
	else echo "check-format: no clang-format 14, lines only"; fi

clean:
	rm -rf build build-*

-include $(shell find $(BUILD) -type f -name '*.d' 2>/dev/null)

# make            builds ./vitrain, on all processors                     make help      prints these lines
# make demo       trains a small model on a synthetic atmosphere          make test      every test
# make install    into PREFIX (/usr/local), below DESTDIR; uninstall      make dist      vitrain-VERSION.tar.gz
# make gpu        for every GPU from A100 on (GPU_ARCH=all)               make gpu-check what only a GPU can show: docs/gpu.md
# make gpu-bring  packs it for a machine without the libraries            make bench     speed, beside PyTorch if there is one
# make sanitize   every test under ASan and UBSan                         make tsan      threads, under ThreadSanitizer
# make fuzz       libFuzzer, FUZZ_SECONDS each                            make faults    every kind of fault
# make long-test  the tests that take long                                make memcheck  a short run under valgrind
# make coverage   lines and branches of each room that tests reach        make exercise  a layer over ranks: docs/lab.md
# make test-arm   a cross build for ARM, its tests under qemu: docs/arm.md
# make lint       clang-format, clang-tidy, cppcheck                      make docs      docs/options.md from the option table
# make deps       installs the libraries that are missing (apt)           make clean, make defaults (forgets settings)
#
# Settings: CC, CXX, AR, CPPFLAGS, CFLAGS, LDFLAGS, BUILD (the build folder), MPI=no, MPI=yes (fails without MPI; by default it
# is left out if none is found), MPICC, NVCC (NVCC= builds without CUDA), GPU_ARCH (sm_90, "sm_80 sm_90", all), PKG_CONFIG, and
# each line of build/found.mk, which lists what was found: make HDF5_CFLAGS=-I... HDF5_LIBS='-L... -lhdf5'.
# FILTER=unit runs the tests of that folder of tests/, FILTER=loader those whose names contain the word; several are allowed.
# V=1 prints whole commands. A setting also applies to later calls; when it changes, what depends on it is built again: docs/install.md.

BUILD ?= build

# Goals that need no libraries, or install them first.
WITHOUT_LIBRARIES := deps demo test sanitize tsan coverage fuzz faults long-test memcheck bench gpu-check gpu-bring clean help \
    defaults uninstall dist version test-arm
GOALS := $(filter-out $(WITHOUT_LIBRARIES),$(or $(MAKECMDGOALS),vitrain))

include make/settings.mk

CC ?= cc
CXX ?= g++
AR ?= ar
CFLAGS ?= -O2 -g1
WARNINGS ?= -Wall -Wextra -Wshadow -Wconversion
MPI ?= auto
FILTER :=

VERSION := $(shell make/version.sh $(BUILD)/stamps/version)
SOURCES := $(sort $(shell find src -name '*.c'))
KERNEL_SOURCES := $(filter src/backend/cpu/vector/%,$(SOURCES))
TILE_SOURCES := $(filter src/backend/cpu/amx/%,$(SOURCES))
TEST_SOURCES := $(sort $(shell find tests -name '*.c' -not -path 'tests/fuzz/*' -not -path tests/faults/shim.c -not -path tests/faults/eio.c -not -path 'tests/gpu/*' -not -path 'tests/coverage/*' -not -path 'tests/tenant/*' -not -path 'tests/exercise/*'))
CUDA_KERNELS := $(sort $(wildcard cuda/*.cu))
CUDA_OBJECTS = $(if $(NVCC),$(patsubst cuda/%,$(BUILD)/cuda/%.o,$(CUDA_KERNELS_BUILT) $(wildcard cuda/*.c)))

# `make clean vitrain` cleans before it builds.
ifneq ($(and $(filter clean,$(MAKECMDGOALS)),$(filter-out clean,$(MAKECMDGOALS))),)
.NOTPARALLEL:
endif

.PHONY: all demo lint docs clean help run-demo
all: vitrain
.DEFAULT_GOAL := vitrain

# The probes come first, because the lists of the other files depend on what was found, and on the GPUs.
include make/probes.mk make/cuda.mk
include $(filter-out make/settings.mk make/probes.mk make/cuda.mk,$(sort $(wildcard make/*.mk)))

help:
	@sed -n '/^\#/!q; s/^\# \{0,1\}//p' Makefile

demo: deps
	@$(MAKE) --no-print-directory run-demo

PROGRAM := $(if $(filter build,$(BUILD)),./vitrain,$(BUILD)/vitrain)
run-demo: vitrain
	@[ -e data/demo/stats/global_means.npy ] || $(PROGRAM) synth data/demo --img_size=[32,64] --channels=8 --years=1 --valid_steps=365 --force
	$(PROGRAM) --config=demo
	@echo
	@run=$$(ls -td runs/demo/*/* | head -n 1); set -- "$$run" --rollout=8 --every=16 --output="$$run/evaluation/demo"; \
	echo "$(PROGRAM) evaluate $$*"; $(PROGRAM) evaluate "$$@" | sed -n '/^skill horizon/,/^all lead/{/^all lead/!p}'
	@echo
	@echo "That was a vision transformer learning six-hour forecasts of a synthetic atmosphere. Fed with its own forecasts, it"
	@echo "is useful up to its skill horizon (above); after two days it is worse than seasonal means. What to try next:"
	@echo "  $(PROGRAM) --config=demo-forecast                           a forecast that holds for longer: docs/forecasting.md"
	@echo "  $(PROGRAM) --config=demo --embed_dim=192 --num_epochs=8     a larger model, for longer"
	@echo "  $(PROGRAM) options                                          everything that can be set"
	@echo "  README.md, \"Data of your own\"                              real weather, and what you have"

docs: vitrain
	$(PROGRAM) options --markdown > docs/options.md
	$(PROGRAM) options --rules > $(BUILD)/rules
	sed -i -e '/^| property | `accept` |/,/^$$/{/^$$/!d}' docs/data.md
	sed -i -e '/are compared by this table:/{n;r $(BUILD)/rules' -e '}' docs/data.md

lint: $(BUILD)/generated/event.pb-c.h
	@for tool in clang-format clang-tidy cppcheck; do command -v $$tool >/dev/null || \
	    { echo "make lint needs $$tool: apt-get install clang-format clang-tidy cppcheck" >&2; exit 1; }; done
	tests/rooms
	clang-format --dry-run --Werror $$(find src cuda tests bench -name '*.[ch]' -o -name '*.cu')
	cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr --enable=warning,performance,portability \
	    --suppress=missingIncludeSystem --suppress=ctunullpointer \
	    --suppress=unknownMacro:src/backend/operations.def -DVT_ISA=baseline -Isrc src
	clang-tidy --quiet $(filter-out $(KERNEL_SOURCES) $(TILE_SOURCES),$(SOURCES)) -- -std=gnu11 -Isrc -isystem $(BUILD)/generated \
	    $(HDF5_CFLAGS) $(DEFLATE_CFLAGS) $(YAML_CFLAGS) $(PROTOBUF_CFLAGS) $(PNG_CFLAGS) $(OPENMP_CFLAGS) \
	    $(if $(MPI_LIBS),-DVT_HAS_MPI $(MPI_CFLAGS))

clean:
	rm -rf build vitrain

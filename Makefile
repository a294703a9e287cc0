# make            builds ./vitrain
# make demo       trains a small model on a synthetic atmosphere          make test      runs every test
# make sanitize   every test under ASan and UBSan                         make bench     speed, beside PyTorch if it is there; ranks; plans
# make tsan       threads, under ThreadSanitizer                           make fuzz      libFuzzer, FUZZ_SECONDS each
# make faults     crashes, failing calls and memory, every one            make long-test 20,000 steps; make memcheck: valgrind
# make lint       clang-format, clang-tidy, cppcheck                      make docs      docs/options.md from the option table
# make gpu-check  what only a GPU can show (STEP=...): docs/gpu.md          make gpu-bring  packs it for a machine without the libraries
# make deps       installs the libraries that are missing (apt)           make clean
#
# What was found stands in build/found.mk; every line of it can be overridden: make HDF5_CFLAGS=... HDF5_LIBS=...
# Others: CC, CXX, CFLAGS, BUILD (the build folder), FILTER (only the tests whose name contains it), MPICC, MPI=no (without MPI;
# it is also left out where none is found), NVCC (NVCC= for none, as where it isn't found), GPU_ARCH.

CC ?= cc
ifeq ($(origin CC),default)
CC := cc
endif
BUILD ?= build
CFLAGS ?= -O2 -g
WARNINGS := -Wall -Wextra -Wshadow -Wconversion
PROTOC_C ?= protoc-c
MPICC ?= mpicc
MPI ?= yes
SANITIZE :=
FILTER :=

SOURCES := $(sort $(shell find src -name '*.c'))
KERNEL_SOURCES := $(filter src/backend/cpu/vector/%,$(SOURCES))
TILE_SOURCES := $(filter src/backend/cpu/amx/%,$(SOURCES))
TEST_SOURCES := $(sort $(shell find tests -name '*.c' -not -path 'tests/fuzz/*' -not -path tests/faults/shim.c -not -path tests/faults/eio.c -not -path 'tests/gpu/*'))
CUDA_KERNELS := $(sort $(wildcard cuda/*.cu))
CUDA_OBJECTS = $(if $(NVCC),$(patsubst cuda/%,$(BUILD)/cuda/%.o,$(CUDA_KERNELS) $(wildcard cuda/*.c)))

# Goals that need no library, or install them first.
WITHOUT_LIBRARIES := deps demo test sanitize tsan fuzz faults long-test memcheck bench gpu-check gpu-bring clean help
GOALS := $(filter-out $(WITHOUT_LIBRARIES),$(or $(MAKECMDGOALS),vitrain))
ifneq ($(GOALS),)
include $(BUILD)/found.mk
endif

.PHONY: all demo lint docs clean help run-demo
all: vitrain
.DEFAULT_GOAL := vitrain

# Lists of files stand above, so that the order of these does not matter.
include $(sort $(wildcard make/*.mk))

demo: deps
	@$(MAKE) --no-print-directory run-demo

run-demo: vitrain
	@[ -e data/demo/stats/global_means.npy ] || ./vitrain synth data/demo --img_size=[32,64] --channels=8 --years=1 --valid_steps=365 --force
	./vitrain --config=demo
	@echo
	@echo "That was a vision transformer learning six-hour forecasts of a synthetic atmosphere; the last line above compares"
	@echo "it with persistence, the forecast that nothing changes. What to try next:"
	@echo "  ./vitrain --config=demo --embed_dim=192 --num_epochs=8     a larger model, for longer"
	@echo "  ./vitrain options                                          everything that can be set"
	@echo "  ./vitrain --config=ncep --data_dir=DIR                     real data: README.md says where they are"

docs: vitrain
	./vitrain options --markdown > docs/options.md

lint: $(BUILD)/generated/event.pb-c.h
	@for tool in clang-format clang-tidy cppcheck; do command -v $$tool >/dev/null || \
	    { echo "make lint needs $$tool: apt-get install clang-format clang-tidy cppcheck" >&2; exit 1; }; done
	clang-format --dry-run --Werror $$(find src cuda tests bench -name '*.[ch]' -o -name '*.cu')
	cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr --enable=warning,performance,portability \
	    --suppress=missingIncludeSystem --suppress=ctunullpointer -DVT_ISA=baseline -Isrc src
	clang-tidy --quiet $(filter-out $(KERNEL_SOURCES) $(TILE_SOURCES),$(SOURCES)) -- -std=gnu11 -Isrc -isystem $(BUILD)/generated \
	    $(HDF5_CFLAGS) $(DEFLATE_CFLAGS) $(YAML_CFLAGS) $(DNNL_CFLAGS) $(PROTOBUF_CFLAGS) $(PNG_CFLAGS) $(OPENMP_CFLAGS) \
	    $(if $(MPI_LIBS),-DVT_HAS_MPI $(MPI_CFLAGS))

clean:
	rm -rf build vitrain

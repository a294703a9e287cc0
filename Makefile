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

PACKAGES := libhdf5-dev libyaml-dev libdnnl-dev libprotobuf-c-dev protobuf-c-compiler libpng-dev libdeflate-dev \
    $(if $(filter-out no,$(MPI)),libopenmpi-dev openmpi-bin)
SOURCES := $(sort $(shell find src -name '*.c'))
KERNEL_SOURCES := $(filter src/backend/cpu/vector/%,$(SOURCES))
TILE_SOURCES := $(filter src/backend/cpu/amx/%,$(SOURCES))
TEST_SOURCES := $(sort $(shell find tests -name '*.c' -not -path 'tests/fuzz/*' -not -path tests/faults/shim.c -not -path tests/faults/eio.c -not -path 'tests/gpu/*'))
CUDA_KERNELS := $(sort $(wildcard cuda/*.cu))
FUZZ_TARGETS := $(filter-out fuzz,$(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/*.c))))

# Goals that need no library, or install them first.
WITHOUT_LIBRARIES := deps demo test sanitize tsan fuzz faults long-test memcheck bench gpu-check gpu-bring clean help
GOALS := $(filter-out $(WITHOUT_LIBRARIES),$(or $(MAKECMDGOALS),vitrain))
ifneq ($(GOALS),)
include $(BUILD)/found.mk
endif

.PHONY: all deps demo test sanitize tsan fuzz faults long-test memcheck bench gpu-check gpu-bring gpu-programs lint docs clean help run-tests run-demo \
    run-bench run-fuzz run-faults run-gpu-bring always
all: vitrain
.DEFAULT_GOAL := vitrain

# ---- finding the libraries: each candidate is tried by compiling and linking a probe ----

MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
define PROBE_SCRIPT
probe() { # NAME "program" then pairs "cflags|libs"
    name=$$1; program=$$2; shift 2
    for pair in "$$@"; do
        cflags=$${pair%%|*}; libs=$${pair#*|}
        if printf '%s\n' "$$program" | $(CC) $$cflags -x c - -o $(BUILD)/probe $$libs >/dev/null 2>&1; then
            echo "$${name}_CFLAGS ?= $$cflags"; echo "$${name}_LIBS ?= $$libs"; return
        fi
    done
    missing="$$missing $$name"
}
missing=
probe HDF5 '#include <hdf5.h>
int main(void) { return H5open(); }' "$(HDF5_CFLAGS)|$(or $(HDF5_LIBS),-lhdf5)" \
    "-I/usr/include/hdf5/serial|-L/usr/lib/$(MULTIARCH)/hdf5/serial -lhdf5" \
    "$$(pkg-config --cflags hdf5 2>/dev/null)|$$(pkg-config --libs hdf5 2>/dev/null)"
probe HDF5_HL '#include <hdf5_hl.h>
int main(void) { return H5DSis_scale(0); }' "$(HDF5_CFLAGS)|$(or $(HDF5_HL_LIBS),-lhdf5_hl) $(or $(HDF5_LIBS),-lhdf5)" \
    "-I/usr/include/hdf5/serial|-L/usr/lib/$(MULTIARCH)/hdf5/serial -lhdf5_hl -lhdf5" \
    "$$(pkg-config --cflags hdf5 2>/dev/null)|-lhdf5_hl $$(pkg-config --libs hdf5 2>/dev/null)"
probe YAML '#include <yaml.h>
int main(void) { return yaml_get_version_string() == 0; }' "$(YAML_CFLAGS)|$(or $(YAML_LIBS),-lyaml)"
probe DEFLATE '#include <libdeflate.h>
int main(void) { return libdeflate_alloc_decompressor() == 0; }' "$(DEFLATE_CFLAGS)|$(or $(DEFLATE_LIBS),-ldeflate)" \
    "$$(pkg-config --cflags libdeflate 2>/dev/null)|$$(pkg-config --libs libdeflate 2>/dev/null)"
probe DNNL '#include <dnnl.h>
int main(void) { return dnnl_version() == 0; }' "$(DNNL_CFLAGS)|$(or $(DNNL_LIBS),-ldnnl)"
probe PROTOBUF '#include <protobuf-c/protobuf-c.h>
int main(void) { return protobuf_c_version_number() == 0; }' "$(PROTOBUF_CFLAGS)|$(or $(PROTOBUF_LIBS),-lprotobuf-c)"
probe PNG '#include <png.h>
int main(void) { return png_access_version_number() == 0; }' "$(PNG_CFLAGS)|$(or $(PNG_LIBS),-lpng)" \
    "$$(pkg-config --cflags libpng 2>/dev/null)|$$(pkg-config --libs libpng 2>/dev/null)"
command -v $(PROTOC_C) >/dev/null || missing="$$missing PROTOC_C"
probe OPENMP '#include <omp.h>
int main(void) { return omp_get_max_threads() == 0; }' "$(or $(OPENMP_CFLAGS),-fopenmp)|$(or $(OPENMP_LIBS),-fopenmp)"
probe X86 '#ifndef __x86_64__
#error
#endif
int main(void) { return __builtin_cpu_supports("avx512f"); }' "-march=x86-64-v4|"
probe AMX '#include <immintrin.h>
int main(int n, char **a) { if (n > 9) { _tile_zero(0); _tile_dpbf16ps(0, 1, 2); } return n + !a; }' \
    "-march=x86-64-v4 -mavx512bf16 -mamx-tile -mamx-bf16|"
if echo 'template <int n> int f() { return n; } int main() { return f<0>(); }' | \
    $(CXX) -std=gnu++20 -x c++ -o $(BUILD)/probe - >/dev/null 2>&1; then echo 'HOST_CUDA ?= yes'; fi
for nvcc in $(if $(filter undefined,$(origin NVCC)),"$$(command -v nvcc)" "$$CUDA_HOME/bin/nvcc" /usr/local/cuda/bin/nvcc,"$(NVCC)"); do
    nvcc=$$(command -v "$$nvcc") || continue
    home=$$(dirname "$$(dirname "$$(readlink -f "$$nvcc")")")
    for folder in "$$home/lib64" "$$home/lib" "$$home/targets/x86_64-linux/lib"; do
        libs="-L$$folder -lcudart_static -ldl -lrt -lpthread"
        cflags="-isystem $$home/include"
        if printf '#include <cuda_runtime_api.h>\n#include <cublasLt.h>\nint main(void) { int n; return cudaGetDeviceCount(&n); }' | \
            $(CC) $$cflags -x c - -o $(BUILD)/probe $$libs >/dev/null 2>&1; then
            for header in cudnn nccl; do
                if echo "#include <$$header.h>" | $(CC) $$cflags -fsyntax-only -x c - >/dev/null 2>&1; then
                    cflags="$$cflags -DVT_HAS_$$(echo $$header | tr a-z A-Z)"; fi
            done
            echo "NVCC ?= $$nvcc"; echo "CUDA_CFLAGS ?= $$cflags"; echo "CUDA_LIBS ?= $$libs"; break 2
        fi
    done
done
# Of what MPI's compiler would run only what finds MPI itself: no hardening or optimisation of the distribution's.
mpi_flags() { # PATTERN|PATTERN...
    for word in $$($(MPICC) -show 2>/dev/null); do
        case "$$1" in
        compile) case $$word in -I*|-D*|-pthread) printf '%s ' "$$word" ;; esac ;;
        *) case $$word in -L*|-l*|-Wl,-rpath*|-Wl,/*|-pthread) printf '%s ' "$$word" ;; esac ;;
        esac
    done
}
[ "$(MPI)" = no ] || probe MPI '#include <mpi.h>
int main(void) { return MPI_Init(0, 0); }' "$(MPI_CFLAGS)|$(MPI_LIBS)" "$$(mpi_flags compile)|$$(mpi_flags link)" \
    "$$(pkg-config --cflags ompi-c 2>/dev/null)|$$(pkg-config --libs ompi-c 2>/dev/null)" \
    "$$(pkg-config --cflags mpich 2>/dev/null)|$$(pkg-config --libs mpich 2>/dev/null)"
rm -f $(BUILD)/probe
required=
for name in $$missing; do case $$name in X86|AMX|MPI) ;; *) required="$$required $$name" ;; esac; done
endef
export PROBE_SCRIPT

$(BUILD)/found.mk: Makefile
	@mkdir -p $(BUILD)
	@eval "$$PROBE_SCRIPT" > $@.new; \
	if [ -n "$$required" ]; then rm -f $@.new; \
	    echo "not found:$$required (looked for by compiling a probe with $(CC))." >&2; \
	    echo "'make deps' installs them (Debian, Ubuntu); elsewhere name their flags: make HDF5_CFLAGS=-I... HDF5_LIBS='-L... -lhdf5'" >&2; \
	    exit 1; fi; mv $@.new $@

# MPI is wanted, but where it can't be installed all else goes on without it.
HAS_MPI := grep -q '^MPI_LIBS' $(BUILD)/found.mk
deps:
	@if $(MAKE) -s $(BUILD)/found.mk >/dev/null 2>&1; then \
	    if [ "$(MPI)" = no ] || $(HAS_MPI); then exit 0; fi; \
	    can_do_without() { echo "Going on without MPI: runs of one rank only." >&2; exit 0; }; \
	else can_do_without() { exit 1; }; fi; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	command="apt-get install -y --no-install-recommends $(PACKAGES)"; \
	if ! command -v apt-get >/dev/null || { [ -n "$$sudo" ] && ! command -v sudo >/dev/null; }; then \
	    echo "Some libraries are missing and can't be installed from here. As root, on Debian or Ubuntu: $$command" >&2; can_do_without; fi; \
	echo "$$sudo $$command"; \
	{ $$sudo apt-get update -q && DEBIAN_FRONTEND=noninteractive $$sudo $$command; } >$${TMPDIR:-/tmp}/vitrain-deps.$$$$ 2>&1 || \
	    { tail -n 20 $${TMPDIR:-/tmp}/vitrain-deps.$$$$ >&2; echo "that failed; run it by hand: $$sudo $$command" >&2; can_do_without; }; \
	rm -f $${TMPDIR:-/tmp}/vitrain-deps.$$$$ $(BUILD)/found.mk; \
	$(MAKE) -s $(BUILD)/found.mk

# ---- building ----

COMPILE = $(CC) -std=gnu11 $(WARNINGS) $(CFLAGS) $(SANITIZE) -Isrc $(OPENMP_CFLAGS) $(LOCAL_CFLAGS) -MMD -MP
LIBS = $(SANITIZE) $(HDF5_HL_LIBS) $(HDF5_LIBS) $(DEFLATE_LIBS) $(YAML_LIBS) $(DNNL_LIBS) $(PROTOBUF_LIBS) $(PNG_LIBS) $(MPI_LIBS) $(OPENMP_LIBS) -lpthread -lm
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

# The vector kernels are compiled once for each instruction set; src/backend/cpu/backend.c chooses at run time. -mprfchw: memory is
# asked for to be written; on a processor that does not know it the instruction does nothing.
ISAS := baseline $(if $(X86_CFLAGS),avx2 avx512) $(if $(AMX_CFLAGS),amx)
ISA_FLAGS_baseline :=
ISA_FLAGS_avx2 := -march=x86-64-v3 -mprfchw
ISA_FLAGS_avx512 := -march=x86-64-v4 -mprfchw -mprefer-vector-width=512
ISA_FLAGS_amx = $(AMX_CFLAGS) -mprfchw -mprefer-vector-width=512

OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(KERNEL_SOURCES) $(TILE_SOURCES) src/main.c,$(SOURCES)))
KERNEL_OBJECTS = $(foreach isa,$(ISAS),$(patsubst %.c,$(BUILD)/%.$(isa).o,$(KERNEL_SOURCES))) \
    $(if $(AMX_CFLAGS),$(TILE_SOURCES:%.c=$(BUILD)/%.amx.o))

vitrain: $(BUILD)/vitrain
	@[ $(BUILD) != build ] || ln -sf build/vitrain vitrain

$(BUILD)/vitrain: $(BUILD)/src/main.o $(BUILD)/libvitrain.a
	$(CC) $(CFLAGS) -o $@ $^ $(LIBS)

# The CUDA back end, where nvcc was found (make NVCC= leaves it out). GPU_ARCH: what to compile for; the last also as PTX,
# which newer GPUs' drivers compile themselves.
GPU_ARCH ?= sm_80 sm_90 sm_100
GPU_CODE = $(foreach arch,$(GPU_ARCH),-gencode arch=$(arch:sm_%=compute_%),code=$(arch)) \
    -gencode arch=$(patsubst sm_%,compute_%,$(lastword $(GPU_ARCH))),code=$(patsubst sm_%,compute_%,$(lastword $(GPU_ARCH)))
CUDA_OBJECTS = $(if $(NVCC),$(patsubst cuda/%,$(BUILD)/cuda/%.o,$(CUDA_KERNELS) $(wildcard cuda/*.c)))

# Written when it changes: what was compiled for other GPUs is compiled anew.
$(BUILD)/cuda/arch: always
	@mkdir -p $(@D)
	@echo "$(GPU_ARCH)" | cmp -s - $@ || echo "$(GPU_ARCH)" >$@

$(BUILD)/cuda/%.cu.o: cuda/%.cu $(BUILD)/found.mk $(BUILD)/cuda/arch
	@mkdir -p $(@D)
	$(NVCC) -std=c++20 -O3 -g -ccbin $(CXX) -Xcompiler -fno-exceptions,-fno-rtti,-fno-threadsafe-statics \
	    $(GPU_CODE) -Isrc -Icuda -MMD -MP -c $< -o $@

$(BUILD)/cuda/%.c.o: cuda/%.c $(BUILD)/found.mk
	@mkdir -p $(@D)
	$(COMPILE) -Icuda $(CUDA_CFLAGS) -c $< -o $@

$(BUILD)/src/backend/open.o: LOCAL_CFLAGS += $(if $(NVCC),-DVT_HAS_CUDA)
$(BUILD)/src/report/profile.o: LOCAL_CFLAGS += $(if $(NVCC),-DVT_HAS_CUDA $(CUDA_CFLAGS))
$(addprefix $(BUILD)/src/parallel/,nccl.o nccl_operations.o): LOCAL_CFLAGS += $(if $(NVCC),-Icuda $(CUDA_CFLAGS))
LIBS += $(if $(NVCC),$(CUDA_LIBS))

$(BUILD)/libvitrain.a: $(OBJECTS) $(KERNEL_OBJECTS) $(CUDA_OBJECTS) $(BUILD)/generated/event.pb-c.o
	@rm -f $@
	ar rcs $@ $^

# The CUDA kernels once more, for the host and its tests (cuda/host_cuda.h); no C++ library is needed for them.
HOST_CUDA_OBJECTS = $(if $(HOST_CUDA),$(patsubst cuda/%.cu,$(BUILD)/tests/cuda/%.o,$(CUDA_KERNELS)))

$(BUILD)/tests/cuda/%.o: cuda/%.cu $(BUILD)/found.mk
	@mkdir -p $(@D)
	$(CXX) -x c++ -std=gnu++20 $(WARNINGS) -Wno-conversion -Wno-missing-field-initializers -Wno-unknown-pragmas $(CFLAGS) \
	    $(SANITIZE) -fno-exceptions -fno-rtti -fno-strict-aliasing -DVT_HOST_CUDA -Isrc -Icuda $(OPENMP_CFLAGS) -MMD -MP -c $< -o $@

# The kernels on tiles once more, over a model of the tiles (tests/operations/tiles_model.h).
TILES_MODEL_OBJECTS = $(TILE_SOURCES:src/backend/cpu/amx/%.c=$(BUILD)/tests/tiles/%.o)

$(BUILD)/tests/tiles/%.o: src/backend/cpu/amx/%.c $(BUILD)/found.mk
	@mkdir -p $(@D)
	$(COMPILE) -O3 -fno-math-errno -Itests -DVT_TILES_MODEL -DVT_ISA=model -c $< -o $@

$(BUILD)/tests/vitrain-tests: $(patsubst %.c,$(BUILD)/%.o,$(TEST_SOURCES)) $(HOST_CUDA_OBJECTS) $(TILES_MODEL_OBJECTS) $(BUILD)/libvitrain.a
	$(CC) $(CFLAGS) -o $@ $^ $(LIBS)

# Preloaded by tests/faults; never sanitized, for it replaces malloc and catches system calls.
$(BUILD)/tests/fault_shim.so: tests/faults/shim.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(WARNINGS) -O2 -fPIC -shared -o $@ $< -lpthread

.SECONDARY: $(FUZZ_TARGETS:%=$(BUILD)/tests/fuzz/%.o)
$(BUILD)/fuzz-%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/fuzz.o $(BUILD)/libvitrain.a
	$(CC) $(CFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

# Preloaded by tests/commands/reader.sh.
$(BUILD)/tests/eio.so: tests/faults/eio.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(WARNINGS) $(CFLAGS) -shared -fPIC -o $@ $< -ldl

# NVTX_INJECTION64_PATH of tests/commands/gpu.sh.
$(BUILD)/tests/nvtx_listener.so: tests/gpu/listener.c $(BUILD)/found.mk
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(WARNINGS) $(CFLAGS) $(CUDA_CFLAGS) -shared -fPIC -o $@ $<

# In place of a driver, for tests/operations/cuda_libraries.c.
$(BUILD)/tests/driver/libcuda.so.1: tests/gpu/driver.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(WARNINGS) -Wno-missing-prototypes $(CFLAGS) -shared -fPIC -Wl,-soname,libcuda.so.1 -o $@ $<

$(BUILD)/src/command/version.o: LOCAL_CFLAGS += -DVT_VERSION='"$(VERSION)"'
$(BUILD)/src/data/%.o: LOCAL_CFLAGS += $(HDF5_CFLAGS) $(DEFLATE_CFLAGS)
$(BUILD)/src/config/%.o: LOCAL_CFLAGS += $(YAML_CFLAGS)
$(BUILD)/src/backend/cpu/onednn.o: LOCAL_CFLAGS += $(DNNL_CFLAGS)
$(addprefix $(BUILD)/src/parallel/,mpi.o mpi_operations.o mpi_wait.o): LOCAL_CFLAGS += $(if $(filter-out undefined,$(origin MPI_LIBS)),-DVT_HAS_MPI $(MPI_CFLAGS))
$(BUILD)/src/report/%.o: LOCAL_CFLAGS += $(PNG_CFLAGS) $(PROTOBUF_CFLAGS) -I$(BUILD)/generated
$(BUILD)/tests/operations/cuda_libraries.o $(BUILD)/tests/operations/cuda_fused_attention.o: LOCAL_CFLAGS += -I. -Icuda $(if $(NVCC),-DVT_HAS_CUDA $(CUDA_CFLAGS))
$(addprefix $(BUILD)/tests/operations/,cuda_products.o cuda_trials.o cuda_streams.o fake_runtime.o): LOCAL_CFLAGS += -I. -Icuda $(if $(NVCC),-DVT_HAS_CUDA $(CUDA_CFLAGS)) $(if $(HOST_CUDA),-DVT_HAS_HOST_CUDA)
$(BUILD)/tests/operations/host_cuda.o $(BUILD)/tests/operations/cuda_kernels.o: LOCAL_CFLAGS += -I. -DVT_HOST_CUDA $(if $(HOST_CUDA),-DVT_HAS_HOST_CUDA)
$(BUILD)/tests/%.o: LOCAL_CFLAGS += $(HDF5_CFLAGS) $(PNG_CFLAGS) $(PROTOBUF_CFLAGS) -Itests -I$(BUILD)/generated

$(BUILD)/%.o: %.c $(BUILD)/found.mk
	@mkdir -p $(@D)
	$(COMPILE) -c $< -o $@

# The messages of TensorBoard's event file; what protoc-c writes is not ours to warn about.
$(BUILD)/generated/event.pb-c.c: src/report/event.proto $(BUILD)/found.mk
	@mkdir -p $(@D)
	$(PROTOC_C) --proto_path=src/report --c_out=$(@D) event.proto

$(BUILD)/generated/event.pb-c.h: $(BUILD)/generated/event.pb-c.c ;

$(BUILD)/generated/event.pb-c.o: $(BUILD)/generated/event.pb-c.c
	$(CC) -std=gnu11 $(CFLAGS) -w $(SANITIZE) $(PROTOBUF_CFLAGS) -c $< -o $@

$(BUILD)/src/report/tensorboard.o $(BUILD)/tests/unit/report_tensorboard.o: | $(BUILD)/generated/event.pb-c.h

define ISA_RULE
$$(BUILD)/src/backend/cpu/vector/%.$(1).o: src/backend/cpu/vector/%.c $$(BUILD)/found.mk
	@mkdir -p $$(@D)
	$$(COMPILE) -O3 -fno-math-errno $$(ISA_FLAGS_$(1)) -DVT_ISA=$(1) -c $$< -o $$@
endef
$(foreach isa,baseline avx2 avx512 amx,$(eval $(call ISA_RULE,$(isa))))

# The kernels on AMX's tiles, where the compiler knows them.
$(BUILD)/src/backend/cpu/amx/%.amx.o: src/backend/cpu/amx/%.c $(BUILD)/found.mk
	@mkdir -p $(@D)
	$(COMPILE) -O3 -fno-math-errno $(ISA_FLAGS_amx) -DVT_ISA=amx -c $< -o $@

$(BUILD)/src/backend/cpu/backend.o: LOCAL_CFLAGS += $(if $(AMX_CFLAGS),-DVT_HAS_AMX)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# ---- using ----

test: deps
	@$(MAKE) --no-print-directory run-tests

sanitize: deps
	@$(MAKE) --no-print-directory run-tests BUILD=$(BUILD)/sanitize NVCC= CFLAGS='-O1 -g -fno-omit-frame-pointer' \
	    SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined'

# The loader's, the log's and the communication's threads under ThreadSanitizer. OpenMP has one thread: libgomp is not
# built for TSan, which would take its barriers for races (tests/tsan.supp).
TSAN_TESTS ?= data_loader data_cache report_ unit/training unit/checkpoint commands/checkpoint/stopped commands/train/log \
    commands/reader/cache_on_two_ranks
tsan: deps
	@OMP_NUM_THREADS=1 TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.supp:halt_on_error=0:exitcode=66:history_size=4" \
	    $(MAKE) --no-print-directory run-tests BUILD=$(BUILD)/tsan NVCC= HOST_CUDA= CFLAGS='-O1 -g -fno-omit-frame-pointer' \
	    SANITIZE=-fsanitize=thread FILTER='$(or $(FILTER),$(TSAN_TESTS))'

# Every n of tests/faults, which `make test` takes some of.
faults: deps
	@$(MAKE) --no-print-directory run-faults

run-faults: $(BUILD)/vitrain $(BUILD)/tests/vitrain-tests $(BUILD)/tests/fault_shim.so
	@tests/faults/run $(BUILD) crash 1000
	@tests/faults/run $(BUILD) io 1
	@tests/faults/run $(BUILD) memory 1 499

# A short run under valgrind.
memcheck: deps
	@$(MAKE) --no-print-directory vitrain
	@tests/faults/run $(BUILD) memcheck

# Memory, open files and the time of a step over 20,000 steps.
long-test: deps
	@$(MAKE) --no-print-directory vitrain
	@tests/faults/run $(BUILD) long 20000

# libFuzzer's targets, each for FUZZ_SECONDS, all at once with FUZZ_JOBS: tests/fuzz/run. FILTER chooses among them.
FUZZ_SECONDS ?= 60
FUZZ_CC ?= clang
fuzz: deps
	@command -v $(FUZZ_CC) >/dev/null || { echo "make fuzz needs clang with its libFuzzer (FUZZ_CC=...)" >&2; exit 1; }
	@$(MAKE) --no-print-directory run-fuzz BUILD=$(BUILD)/fuzz CC=$(FUZZ_CC) CFLAGS='-O1 -g -fno-omit-frame-pointer' MPI=no WARNINGS=-w \
	    SANITIZE='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined'

run-fuzz: $(FUZZ_TARGETS:%=$(BUILD)/fuzz-%)
	@tests/fuzz/run $(BUILD) $(FUZZ_SECONDS) $(or $(FILTER),$(FUZZ_TARGETS))

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

bench: deps
	@$(MAKE) --no-print-directory run-bench

# The other side needs a Python with torch: make bench PYTHON=/path/to/venv/bin/python
PYTHON ?= $(shell python3 -c 'import torch' 2>/dev/null && echo python3)
run-bench: $(BUILD)/vitrain $(BUILD)/bench/step $(BUILD)/bench/products $(BUILD)/bench/accuracy $(BUILD)/bench/scaling \
    $(BUILD)/bench/plan_layout
	@[ -n "$(PYTHON)" ] || echo "no Python with torch found (PYTHON=...): timing vitrain alone"
	@$(BUILD)/bench/step --python=$(PYTHON)
	@$(BUILD)/bench/products
	@$(BUILD)/bench/accuracy
	@if reason=$$(tests/mpirun -np 1 true 2>&1); then $(BUILD)/bench/scaling; else echo "scaling over ranks: not timed: $$reason"; fi
	@bench/plan $(BUILD) || echo "plan: see the lines that say OUTSIDE"
	@bench/io $(BUILD) $(PYTHON)

$(BUILD)/bench/gpu_questions.o $(BUILD)/bench/gpu_step.o: LOCAL_CFLAGS += $(if $(NVCC),-DVT_HAS_CUDA -Icuda $(CUDA_CFLAGS))
$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libvitrain.a
	$(CC) $(CFLAGS) -o $@ $^ $(LIBS)

# ---- a machine with a GPU: tests/gpu/check runs there; what it lacks is packed here ----

gpu-check:
	@tests/gpu/check $(STEP)

GPU_PROGRAMS := $(BUILD)/gpu-programs
GPU_LINK = $(CC) -s -o $@ $(filter-out $(BUILD)/found.mk,$^) $(LIBS)
gpu-programs: $(GPU_PROGRAMS)/vitrain $(GPU_PROGRAMS)/vitrain-tests $(GPU_PROGRAMS)/gpu_step $(GPU_PROGRAMS)/gpu_questions

$(GPU_PROGRAMS)/vitrain: $(BUILD)/src/main.o $(BUILD)/libvitrain.a
	@mkdir -p $(@D)
	$(GPU_LINK)

$(GPU_PROGRAMS)/vitrain-tests: $(patsubst %.c,$(BUILD)/%.o,$(TEST_SOURCES)) $(HOST_CUDA_OBJECTS) $(TILES_MODEL_OBJECTS) $(BUILD)/libvitrain.a
	@mkdir -p $(@D)
	$(GPU_LINK)

$(GPU_PROGRAMS)/%: $(BUILD)/bench/%.o $(BUILD)/libvitrain.a
	@mkdir -p $(@D)
	$(GPU_LINK)

gpu-bring: deps
	@$(MAKE) --no-print-directory run-gpu-bring

run-gpu-bring:
	@[ -n "$(NVCC)" ] || { echo "make gpu-bring needs nvcc (NVCC=...)" >&2; exit 1; }
	@$(MAKE) --no-print-directory gpu-programs
	@tests/gpu/bring $(GPU_PROGRAMS) $(CURDIR)/.carry/gpu.tar.gz $(BUILD)/generated

run-tests: vitrain $(BUILD)/vitrain $(BUILD)/tests/vitrain-tests $(BUILD)/bench/plan_layout $(BUILD)/tests/fault_shim.so $(BUILD)/tests/eio.so $(if $(NVCC),$(BUILD)/tests/nvtx_listener.so $(BUILD)/tests/driver/libcuda.so.1)
	@tests/run $(BUILD) $(FILTER)

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

# The tests, and other ways to run them.
.PHONY: test sanitize tsan coverage faults long-test memcheck fuzz run-tests run-coverage run-faults run-fuzz

FUZZ_TARGETS := $(filter-out fuzz,$(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/*.c))))

# The CUDA kernels, compiled for the host and its tests (cuda/host_cuda.h); they need no C++ library.
HOST_COMPILE = $(CXX) -x c++ -std=gnu++20 $(WARNINGS) -Wno-conversion -Wno-missing-field-initializers -Wno-unknown-pragmas $(CFLAGS) \
	    $(SANITIZE) -fno-exceptions -fno-rtti -fno-strict-aliasing -DVT_HOST_CUDA -Isrc -Icuda $(OPENMP_CFLAGS) $(CPPFLAGS)
HOST_SETTINGS = $(HOST_CUDA) $(HOST_COMPILE) $(TEST_SOURCES)
$(eval $(call stamp,host,HOST_SETTINGS))
HOST_CUDA_OBJECTS = $(if $(HOST_CUDA),$(patsubst cuda/%.cu,$(BUILD)/tests/cuda/%.o,$(CUDA_KERNELS)))

$(BUILD)/tests/cuda/%.o: cuda/%.cu $(STAMPS)/host
	@mkdir -p $(@D)
	$(QUIET)$(HOST_COMPILE) -MMD -MP -c $< -o $@

# The kernels on tiles, compiled over a model of the tiles (tests/operations/tiles_model.h).
TILES_MODEL_OBJECTS = $(TILE_SOURCES:src/backend/cpu/amx/%.c=$(BUILD)/tests/tiles/%.o)

$(BUILD)/tests/tiles/%.o: src/backend/cpu/amx/%.c $(STAMPS)/compile
	@mkdir -p $(@D)
	$(QUIET)$(COMPILE) $(KERNEL_FLAGS) -Itests -DVT_TILES_MODEL -DVT_ISA=model -c $< -o $@

TESTS_OF_C = $(patsubst %.c,$(BUILD)/%.o,$(filter-out tests/unit/data_source.c,$(TEST_SOURCES))) $(TILES_MODEL_OBJECTS)
$(BUILD)/tests/vitrain-tests: $(TESTS_OF_C) $(HOST_CUDA_OBJECTS) $(BUILD)/libvitrain.a $(STAMPS)/link $(STAMPS)/host
	$(QUIET)$(LINK) -o $@ $(filter %.o %.a,$^) $(LIBS)

# The same tests with the CUDA kernels under ThreadSanitizer, for tests/races, which sets the folders for its mutants.
RACES ?= $(BUILD)/races
RACE_KERNELS ?= cuda
RACE_OBJECTS = $(patsubst cuda/%.cu,$(RACES)/%.o,$(CUDA_KERNELS))

$(RACES)/%.o: $(RACE_KERNELS)/%.cu $(STAMPS)/host
	@mkdir -p $(@D)
	$(QUIET)$(HOST_COMPILE) -O1 -w -fsanitize=thread -MMD -MP -c $< -o $@

$(RACES)/race-tests: $(TESTS_OF_C) $(RACE_OBJECTS) $(BUILD)/libvitrain.a $(STAMPS)/link $(STAMPS)/host
	$(QUIET)$(LINK) -fsanitize=thread -o $@ $(filter %.o %.a,$^) $(LIBS)

# An exercise of docs/lab.md: $(EXERCISE)/mlp.c, which is made once, is the student's, and `make clean` leaves it alone.
EXERCISE ?= exercise
.PHONY: exercise
exercise: $(EXERCISE)/exercise
	tests/mpirun -np 2 $<

$(EXERCISE)/mlp.c:
	@mkdir -p $(@D)
	sed -f tests/exercise/without_regions.sed src/model/mlp.c >$@

$(EXERCISE)/%.o: $(EXERCISE)/%.c $(STAMPS)/compile
	$(QUIET)$(COMPILE) -c $< -o $@

$(EXERCISE)/exercise: $(BUILD)/tests/exercise/exercise.o $(EXERCISE)/mlp.o $(BUILD)/libvitrain.a $(STAMPS)/link
	$(QUIET)$(LINK) -o $@ $(filter %.o %.a,$^) $(LIBS)

# The program and the tests of the tables with rows of the tests' own (tests/tenant): files that expand the lists of kinds.def
# are compiled again, with tests/tenant/config/kinds.def in place of the product's.
TENANT_TABLES := $(shell find src -name '*.c' -exec grep -lE \
    'VT_(MODELS|MODEL_PRESETS|TASKS|SOURCES|STORES|LOSSES|OPTIMIZERS)[^_A-Z]|config/options.def' {} +)
TENANT_TESTS := tests/unit/model.c tests/unit/data_source.c
TENANT_OBJECTS := $(patsubst %.c,$(BUILD)/tenant/%.o,$(TENANT_TABLES) $(sort $(wildcard tests/tenant/*.c)))

$(BUILD)/tenant/%.o: %.c $(STAMPS)/compile
	@mkdir -p $(@D)
	$(subst -Isrc,-Itests/tenant -Isrc -Itests,$(COMPILE)) -c $< -o $@

$(BUILD)/tenant/tests/%.o: LOCAL_CFLAGS += $(HDF5_CFLAGS)

$(BUILD)/tests/vitrain-tenant: $(BUILD)/src/main.o $(TENANT_OBJECTS) $(BUILD)/libvitrain.a $(STAMPS)/link
	$(QUIET)$(LINK) -o $@ $(filter %.o %.a,$^) $(LIBS)

$(BUILD)/tests/tenant-tests: $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(TENANT_TESTS),$(TEST_SOURCES))) $(HOST_CUDA_OBJECTS) \
    $(TILES_MODEL_OBJECTS) $(TENANT_TESTS:%.c=$(BUILD)/tenant/%.o) $(TENANT_OBJECTS) $(BUILD)/libvitrain.a $(STAMPS)/link $(STAMPS)/host
	$(QUIET)$(LINK) -o $@ $(filter %.o %.a,$^) $(LIBS)

# An operation that the product doesn't have (tests/tenant/operation): files that depend on the table of operations are
# compiled again, with its row. All others come from the library; its tests don't run the vector kernels.
OPERATION_OBJECTS := $(patsubst %.c,$(BUILD)/operation/%.o,$(filter-out src/backend/open.c $(KERNEL_SOURCES) $(TILE_SOURCES),\
    $(filter src/backend/%,$(SOURCES))) $(addprefix tests/,main.c operations/mirror.c operations/guarded.c) \
    $(sort $(shell find tests/tenant/operation -name '*.c')))

$(BUILD)/operation/%.o: %.c $(STAMPS)/compile
	@mkdir -p $(@D)
	$(subst -Isrc,-Itests/tenant/operation -Isrc -Itests,$(COMPILE)) -O0 -c $< -o $@

$(BUILD)/tests/operation-tests: $(OPERATION_OBJECTS) $(BUILD)/tests/values.o $(BUILD)/tests/damage.o $(BUILD)/libvitrain.a $(STAMPS)/link
	$(QUIET)$(LINK) -o $@ $(filter %.o %.a,$^) $(LIBS)

# Preloaded by tests/faults; never sanitized, because it replaces malloc and catches system calls.
$(BUILD)/tests/fault_shim.so: tests/faults/shim.c
	@mkdir -p $(@D)
	$(QUIET)$(CC) -std=gnu11 $(WARNINGS) -O2 -fPIC -shared -o $@ $< -lpthread

.SECONDARY: $(FUZZ_TARGETS:%=$(BUILD)/tests/fuzz/%.o)
$(BUILD)/fuzz-%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/fuzz.o $(BUILD)/libvitrain.a $(STAMPS)/link
	$(QUIET)$(LINK) -fsanitize=fuzzer -o $@ $(filter %.o %.a,$^) $(LIBS)

# Preloaded by tests/commands/reader.sh.
$(BUILD)/tests/eio.so: tests/faults/eio.c
	@mkdir -p $(@D)
	$(QUIET)$(CC) -std=gnu11 $(WARNINGS) $(CFLAGS) -shared -fPIC -o $@ $< -ldl

# NVTX_INJECTION64_PATH of tests/commands/gpu.sh.
$(BUILD)/tests/nvtx_listener.so: tests/gpu/listener.c $(STAMPS)/compile
	@mkdir -p $(@D)
	$(QUIET)$(CC) -std=gnu11 $(WARNINGS) $(CFLAGS) $(CUDA_CFLAGS) -shared -fPIC -o $@ $<

# A stand-in for a driver, for tests/operations/cuda_libraries.c.
$(BUILD)/tests/driver/libcuda.so.1: tests/gpu/driver.c
	@mkdir -p $(@D)
	$(QUIET)$(CC) -std=gnu11 $(WARNINGS) -Wno-missing-prototypes $(CFLAGS) -shared -fPIC -Wl,-soname,libcuda.so.1 -o $@ $<

$(addprefix $(BUILD)/tests/operations/,$(addsuffix .o,cuda_libraries cuda_fused_attention cuda_convolution cuda_gelu_products cuda_products cuda_trials cuda_streams fake_runtime nccl_stages host_cuda cuda_kernels cuda_wgmma)): $(STAMPS)/cuda $(STAMPS)/host
$(addprefix $(BUILD)/tests/operations/,cuda_libraries.o cuda_fused_attention.o paths.o): LOCAL_CFLAGS += -I. -Icuda $(if $(NVCC),-DVT_HAS_CUDA $(CUDA_CFLAGS))
$(addprefix $(BUILD)/tests/operations/,cuda_convolution.o cuda_gelu_products.o cuda_products.o cuda_trials.o cuda_streams.o fake_runtime.o nccl_stages.o): LOCAL_CFLAGS += -I. -Icuda $(if $(NVCC),-DVT_HAS_CUDA $(CUDA_CFLAGS)) $(if $(HOST_CUDA),-DVT_HAS_HOST_CUDA)
$(addprefix $(BUILD)/tests/operations/,host_cuda.o cuda_kernels.o cuda_wgmma.o): LOCAL_CFLAGS += -I. -DVT_HOST_CUDA $(if $(HOST_CUDA),-DVT_HAS_HOST_CUDA)
# Loops must not become calls of memcpy, which ThreadSanitizer sees (clang has no such flag).
$(addprefix $(BUILD)/tests/operations/,host_wgmma.o host_wgmma_products.o): LOCAL_CFLAGS += -I. -O3 $(if $(findstring clang,$(CC_VERSION)),,-fno-tree-loop-distribute-patterns)
$(BUILD)/tests/%.o: LOCAL_CFLAGS += $(HDF5_CFLAGS) $(PNG_CFLAGS) $(PROTOBUF_CFLAGS) -Itests -I$(BUILD)/generated

test: test-deps
	@$(MAKE) --no-print-directory run-tests

sanitize: test-deps
	@$(MAKE) --no-print-directory run-tests BUILD=$(BUILD)/sanitize NVCC= CFLAGS='-O1 -g -fno-omit-frame-pointer' \
	    SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined'

# The loader's, the log's and the communication's threads under ThreadSanitizer, and the CUDA kernels (tests/races). OpenMP
# has one thread: libgomp is not built for TSan, which would take its barriers for races (tests/tsan.supp).
TSAN_TESTS ?= data_loader data_cache report_ unit/training unit/checkpoint commands/checkpoint/stopped commands/train/log \
    commands/reader/cache_on_two_ranks
tsan: deps
	@OMP_NUM_THREADS=1 TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.supp:halt_on_error=0:exitcode=66:history_size=4" \
	    $(MAKE) --no-print-directory run-tests BUILD=$(BUILD)/tsan NVCC= HOST_CUDA= CFLAGS='-O1 -g -fno-omit-frame-pointer' \
	    SANITIZE=-fsanitize=thread FILTER='$(or $(FILTER),$(TSAN_TESTS))'
	@tests/races $(BUILD)

# What the tests reach of each room, by gcov (tests/coverage/table): after a run of all tests, or of FILTER's. Functions are
# counted before they are inlined (always_inline is taken away), so that each has its branches once. OpenMP has one thread: those
# of a team would wait for one another at each count, and take five times as long.
# The table is also printed if a test failed.
coverage: test-deps
	@command -v gcov >/dev/null || { echo "make coverage needs gcc and its gcov" >&2; exit 1; }
	@$(MAKE) --no-print-directory run-coverage BUILD=$(BUILD)/coverage NVCC= CFLAGS='-O2 -g1 -fno-early-inlining -Dalways_inline=__unused__' \
	    SANITIZE='--coverage -fprofile-update=prefer-atomic' LDFLAGS='-Wl,--wrap=_exit,--wrap=MPI_Abort'

run-coverage:
	@find $(BUILD) -name '*.gcda' -delete
	@status=0; OMP_THREAD_LIMIT=1 OMP_PROC_BIND=false $(MAKE) --no-print-directory run-tests || status=1; \
	tests/coverage/table $(BUILD) && exit $$status

ifneq ($(findstring --coverage,$(SANITIZE)),)
$(BUILD)/tests/coverage/exit.o: LOCAL_CFLAGS += $(if $(HAS_MPI),-DVT_HAS_MPI $(MPI_CFLAGS))
$(addprefix $(BUILD)/,vitrain tests/vitrain-tests tests/vitrain-tenant tests/tenant-tests tests/operation-tests bench/plan_layout): $(BUILD)/tests/coverage/exit.o
endif

# All faults of tests/faults; `make test` tries some of them.
faults: deps
	@$(MAKE) --no-print-directory run-faults

run-faults: $(BUILD)/vitrain $(BUILD)/tests/vitrain-tests $(BUILD)/tests/fault_shim.so
	@tests/faults/run $(BUILD) crash 300
	@tests/faults/run $(BUILD) kinds 25 30 499
	@tests/faults/run $(BUILD) io 1
	@MORE=--async_checkpoint tests/faults/run $(BUILD) io 1
	@tests/faults/run $(BUILD) memory 1 499
	@tests/faults/run $(BUILD) zarr 1

# A short run under valgrind.
memcheck: deps
	@$(MAKE) --no-print-directory vitrain
	@tests/faults/run $(BUILD) memcheck

# What takes long and adds to what a shorter test shows: every path of the slow tests, more kills, 20,000 steps, the kernels' races,
# predicted times; as root with debootstrap also README's commands on bare systems (tests/newcomer).
long-test: test-deps
	@VITRAIN_TEST_LONG=1 $(MAKE) --no-print-directory run-tests

# libFuzzer's targets, each for FUZZ_SECONDS, all at once with FUZZ_JOBS: tests/fuzz/run. FILTER chooses among them.
FUZZ_SECONDS ?= 60
FUZZ_CC ?= clang
fuzz: deps
	@command -v $(FUZZ_CC) >/dev/null || { echo "make fuzz needs clang with its libFuzzer (FUZZ_CC=...)" >&2; exit 1; }
	@$(MAKE) --no-print-directory run-fuzz BUILD=$(BUILD)/fuzz CC=$(FUZZ_CC) CFLAGS='-O1 -g -fno-omit-frame-pointer' MPI=no WARNINGS=-w \
	    SANITIZE='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined'

run-fuzz: $(FUZZ_TARGETS:%=$(BUILD)/fuzz-%)
	@tests/fuzz/run $(BUILD) $(FUZZ_SECONDS) $(or $(FILTER),$(FUZZ_TARGETS))

run-tests: vitrain $(BUILD)/vitrain $(BUILD)/tests/vitrain-tests $(BUILD)/tests/vitrain-tenant $(BUILD)/tests/tenant-tests $(BUILD)/tests/operation-tests $(BUILD)/bench/plan_layout $(BENCH_OBJECTS) $(BUILD)/tests/fault_shim.so $(BUILD)/tests/eio.so $(if $(NVCC),$(BUILD)/tests/nvtx_listener.so $(BUILD)/tests/driver/libcuda.so.1)
	@tests/run $(BUILD) $(FILTER)

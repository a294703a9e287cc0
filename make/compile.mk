# Objects, the vector kernels of each instruction set, the library and the program.

# clang warns of each loop that it doesn't vectorise although a pragma asks for it, of enumerators in formulas, of empty formats.
CLANG_WARNINGS = $(if $(findstring clang,$(CC_VERSION)),-Wno-pass-failed -Wno-enum-float-conversion -Wno-format-zero-length)
COMPILE = $(CC) -std=gnu11 $(WARNINGS) $(CLANG_WARNINGS) $(CFLAGS) $(SANITIZE) -Isrc $(OPENMP_CFLAGS) $(LOCAL_CFLAGS) $(CPPFLAGS) -MMD -MP
# avoid-fma-max-bits: gcc 14 would split some multiply-adds for AVX2 in two, and not the same ones in every copy of a function, so
# that the bits would depend on which copy runs.
KERNEL_FLAGS = -O3 -fno-math-errno $(if $(findstring clang,$(CC_VERSION)),,--param=avoid-fma-max-bits=0)
LINK = $(CC) $(CFLAGS) $(LDFLAGS)
HAS_UNISTRING := $(if $(filter-out undefined,$(origin UNISTRING_LIBS)),yes)
HAS_UDUNITS := $(if $(UDUNITS_LIBS),yes)
HAS_MPI := $(if $(filter-out undefined,$(origin MPI_LIBS)),yes)
# What was found of the codecs of Zarr stores; each may be missing, or left out by an empty setting (BLOSC_LIBS=).
FOR_ZARR := $(strip $(foreach library,BLOSC ZSTD LZ4,$(if $($(library)_LIBS),$(library))))
LIBS = $(SANITIZE) $(HDF5_HL_LIBS) $(HDF5_LIBS) $(DEFLATE_LIBS) $(YAML_LIBS) $(PROTOBUF_LIBS) $(PNG_LIBS) $(JANSSON_LIBS) \
    $(UNISTRING_LIBS) $(UDUNITS_LIBS) $(foreach library,$(FOR_ZARR),$($(library)_LIBS)) \
    $(if $(HAS_MPI),$(MPI_LIBS)) $(if $(NVCC),$(CUDA_LIBS)) $(OPENMP_LIBS) -lpthread -lm

# The settings that objects depend on: `stamp` in make/settings.mk.
COMPILE_SETTINGS = $(CC_VERSION) $(COMPILE) $(KERNEL_FLAGS) $(foreach library,HDF5 DEFLATE YAML PNG PROTOBUF JANSSON UNISTRING UDUNITS BF16 AMX,$($(library)_CFLAGS))
LINK_SETTINGS = $(LINK) $(AR) $(LIBS) $(OBJECTS) $(KERNEL_OBJECTS) $(CUDA_OBJECTS)
MPI_SETTINGS = $(HAS_MPI) $(MPI_CFLAGS)
ZARR_FLAGS = $(foreach library,$(FOR_ZARR),-DVT_HAS_$(library) $($(library)_CFLAGS))
$(eval $(call stamp,compile,COMPILE_SETTINGS))
$(eval $(call stamp,mpi,MPI_SETTINGS))
$(eval $(call stamp,zarr,ZARR_FLAGS))

# The vector kernels are compiled once for each instruction set; src/backend/cpu/backend.c chooses at run time. -mprfchw: prefetches
# for writing; processors that don't know the instruction ignore it.
ISAS := baseline $(if $(X86_CFLAGS),avx2 avx512) $(if $(BF16_CFLAGS),bf16) $(if $(AMX_CFLAGS),amx)
# 32 registers hold a tile's sums only if gcc neither loads numbers far ahead (which it does on ARM) nor keeps constants in registers.
ISA_FLAGS_baseline := $(if $(X86_CFLAGS)$(findstring clang,$(CC_VERSION)),,-fno-schedule-insns -fira-loop-pressure)
ISA_FLAGS_avx2 := -march=x86-64-v3 -mprfchw
ISA_FLAGS_avx512 := -march=x86-64-v4 -mprfchw -mprefer-vector-width=512
ISA_FLAGS_bf16 = $(BF16_CFLAGS) $(if $(X86_CFLAGS),-mprfchw -mprefer-vector-width=512,$(ISA_FLAGS_baseline)) -DVT_PAIRS
ISA_FLAGS_amx = $(AMX_CFLAGS) -mprfchw -mprefer-vector-width=512

OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(KERNEL_SOURCES) $(TILE_SOURCES) src/main.c,$(SOURCES)))
# Kernels for which tiles have replacements are not compiled for AMX: src/backend/cpu/vector/table.c.
BESIDE_TILES := $(addprefix src/backend/cpu/vector/,attention_backward.c attention_forward.c convolution.c \
    few_rows.c limits.c product.c product_panels.c)
# Only products are compiled for pairs of bfloat16.
FOR_PAIRS := $(addprefix src/backend/cpu/vector/,few_rows.c limits.c product.c product_panels.c table.c)
kernels_of = $(if $(filter bf16,$(1)),$(FOR_PAIRS),$(filter-out $(if $(filter amx,$(1)),$(BESIDE_TILES)),$(KERNEL_SOURCES)))
KERNEL_OBJECTS = $(foreach isa,$(ISAS),$(patsubst %.c,$(BUILD)/%.$(isa).o,$(call kernels_of,$(isa)))) \
    $(if $(AMX_CFLAGS),$(TILE_SOURCES:%.c=$(BUILD)/%.amx.o))

$(eval $(call stamp,link,LINK_SETTINGS))

# The last line of output says what the program contains.
GPUS_SERVED = $(if $(filter-out compute_%,$(GPU_TARGETS)),for $(filter-out compute_%,$(GPU_TARGETS)) and$(comma) by its PTX$(comma) newer \
    ones,only PTX for $(GPU_PTX:compute_%=sm_%) and newer: the first start compiles it; make gpu avoids that)
WITH = $(if $(HAS_MPI),MPI$(comma) )$(if $(NVCC),CUDA ($(GPUS_SERVED))$(comma) )kernels for $(ISAS)
NO_CODECS = $(if $(filter-out 3,$(words $(FOR_ZARR))),; without some codecs of Zarr stores (found: $(or $(FOR_ZARR),none)))
WITHOUT = $(if $(HAS_MPI),,; built without MPI: one rank only)$(if $(HAS_UNISTRING),,; built without libunistring: lower case of A to Z \
    only)$(if $(HAS_UDUNITS),,; built without UDUNITS: units agree only where they are spelled alike)$(if $(NVCC),,; built \
    without CUDA: CPU only)$(NO_CODECS)
BUILT = built with $(WITH)$(WITHOUT)
VERSION_SETTINGS = $(VERSION) $(BUILT)
$(eval $(call stamp,version,VERSION_SETTINGS))
.PHONY: vitrain
vitrain: $(BUILD)/vitrain
	@[ $(BUILD) != build ] || [ "$$(readlink vitrain)" = build/vitrain ] || ln -sf build/vitrain vitrain
	@echo "$(PROGRAM) $(VERSION): $(BUILT)"

$(BUILD)/vitrain: $(BUILD)/src/main.o $(BUILD)/libvitrain.a $(STAMPS)/link
	$(QUIET)$(LINK) -o $@ $(filter %.o %.a,$^) $(LIBS)

# Objects that take long to compile come first, so that make begins with them.
$(BUILD)/libvitrain.a: $(CUDA_OBJECTS) $(KERNEL_OBJECTS) $(OBJECTS) $(BUILD)/generated/event.pb-c.o $(STAMPS)/link
	@rm -f $@
	@$(AR) rcs $@ $(filter %.o,$^)

$(BUILD)/src/base/version.o: $(STAMPS)/version
$(addprefix $(BUILD)/src/parallel/,mpi.o mpi_wait.o): $(STAMPS)/mpi
$(BUILD)/src/base/version.o: LOCAL_CFLAGS += -DVT_VERSION='"$(VERSION)"' -DVT_BUILT='"$(strip $(BUILT))"'
$(addprefix $(BUILD)/src/,storage/%.o source/%.o forecast/%.o): LOCAL_CFLAGS += $(HDF5_CFLAGS) $(DEFLATE_CFLAGS)
$(BUILD)/src/source/text/split.o: LOCAL_CFLAGS += $(if $(HAS_UNISTRING),-DVT_HAS_UNISTRING $(UNISTRING_CFLAGS))
$(BUILD)/src/source/fields/about_units.o: LOCAL_CFLAGS += $(if $(HAS_UDUNITS),-DVT_HAS_UDUNITS $(UDUNITS_CFLAGS))
$(addprefix $(BUILD)/src/,source/fields/about_json.o storage/safetensors.o storage/zarr_%.o): LOCAL_CFLAGS += $(JANSSON_CFLAGS)
$(BUILD)/src/storage/decode.o: LOCAL_CFLAGS += $(ZARR_FLAGS)
$(BUILD)/src/storage/decode.o: $(STAMPS)/zarr
$(BUILD)/src/config/%.o: LOCAL_CFLAGS += $(YAML_CFLAGS)
$(addprefix $(BUILD)/src/parallel/,mpi.o mpi_wait.o): LOCAL_CFLAGS += $(if $(HAS_MPI),-DVT_HAS_MPI $(MPI_CFLAGS))
$(BUILD)/src/report/%.o: LOCAL_CFLAGS += $(PNG_CFLAGS) $(PROTOBUF_CFLAGS) -I$(BUILD)/generated

$(BUILD)/%.o: %.c $(STAMPS)/compile
	@mkdir -p $(@D)
	$(QUIET)$(COMPILE) -c $< -o $@

# The messages of TensorBoard's event file. protoc-c's code is compiled without warnings.
$(BUILD)/generated/event.pb-c.c: src/report/event.proto $(STAMPS)/compile
	@mkdir -p $(@D)
	$(QUIET)$(PROTOC_C) --proto_path=src/report --c_out=$(@D) event.proto

$(BUILD)/generated/event.pb-c.h: $(BUILD)/generated/event.pb-c.c ;

$(BUILD)/generated/event.pb-c.o: $(BUILD)/generated/event.pb-c.c $(STAMPS)/compile
	$(QUIET)$(CC) -std=gnu11 $(CFLAGS) $(CPPFLAGS) -w $(SANITIZE) $(PROTOBUF_CFLAGS) -c $< -o $@

$(BUILD)/src/report/tensorboard.o $(BUILD)/tests/unit/report_tensorboard.o: | $(BUILD)/generated/event.pb-c.h

define ISA_RULE
$$(BUILD)/src/backend/cpu/vector/%.$(1).o: src/backend/cpu/vector/%.c $$(STAMPS)/compile
	@mkdir -p $$(@D)
	$$(QUIET)$$(COMPILE) $$(KERNEL_FLAGS) $$(ISA_FLAGS_$(1)) -DVT_ISA=$(1) -c $$< -o $$@
endef
$(foreach isa,baseline avx2 avx512 bf16 amx,$(eval $(call ISA_RULE,$(isa))))

# The kernels on AMX's tiles, where the compiler knows them.
$(BUILD)/src/backend/cpu/amx/%.amx.o: src/backend/cpu/amx/%.c $(STAMPS)/compile
	@mkdir -p $(@D)
	$(QUIET)$(COMPILE) $(KERNEL_FLAGS) $(ISA_FLAGS_amx) -DVT_ISA=amx -c $< -o $@

$(BUILD)/src/backend/cpu/backend.o: LOCAL_CFLAGS += $(if $(BF16_CFLAGS),-DVT_HAS_BF16) $(if $(AMX_CFLAGS),-DVT_HAS_AMX)

-include $(shell find $(BUILD) -name sysroot -prune -o -name '*.d' -print 2>/dev/null)

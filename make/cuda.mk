# The CUDA back end, where nvcc was found (make NVCC= leaves it out).
.PHONY: always

# GPU_ARCH: what to compile for; the last also as PTX,
# which newer GPUs' drivers compile themselves.
GPU_ARCH ?= sm_80 sm_90 sm_100
GPU_CODE = $(foreach arch,$(GPU_ARCH),-gencode arch=$(arch:sm_%=compute_%),code=$(arch)) \
    -gencode arch=$(patsubst sm_%,compute_%,$(lastword $(GPU_ARCH))),code=$(patsubst sm_%,compute_%,$(lastword $(GPU_ARCH)))

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

# The CUDA back end, where nvcc was found (make NVCC= leaves it out).

# What to compile for: this machine's GPUs, and PTX for the newest of them; drivers of newer GPUs compile this PTX when the
# program starts for the first time. If there are no GPUs, only PTX (compute_80), because ptxas takes long.
GPU_ARCH ?= $(GPU_ARCH_FOUND)
GPU_TARGETS = $(if $(filter all,$(GPU_ARCH)),sm_80 sm_90 sm_100,$(GPU_ARCH))
GPU_PTX = $(sort $(filter compute_%,$(GPU_TARGETS)) $(patsubst sm_%,compute_%,$(lastword $(GPU_TARGETS))))
GPU_CODE = $(foreach arch,$(filter-out compute_%,$(GPU_TARGETS)),-gencode arch=$(arch:sm_%=compute_%),code=$(arch)) \
    $(foreach arch,$(GPU_PTX),-gencode arch=$(arch),code=$(arch))
# C++14: from C++17 on CUDA's headers include far more of the C++ library, which doubles the time of small files.
NVCC_COMPILE = $(NVCC) -std=c++14 -O3 -ccbin $(CXX) -Xcompiler -fno-exceptions,-fno-rtti,-fno-threadsafe-statics \
    $(GPU_CODE) -Isrc -Icuda $(CPPFLAGS)


# Kernels for wgmma exist only for compute capability 9.0: their instructions need code of architecture sm_90a, and there is
# no PTX for newer GPUs. Here no -Icuda: <cuda.h> is the driver's header, not cuda/cuda.h.
WGMMA_KERNELS := $(filter cuda/wgmma_%,$(CUDA_KERNELS))
HAS_WGMMA = $(if $(NVCC),$(filter sm_90 sm_90a,$(GPU_TARGETS)))
WGMMA_COMPILE = $(filter-out -Icuda,$(subst $(GPU_CODE),-gencode arch=compute_90a$(comma)code=sm_90a,$(NVCC_COMPILE)))
CUDA_KERNELS_BUILT = $(filter-out $(if $(HAS_WGMMA),,$(WGMMA_KERNELS)),$(CUDA_KERNELS))

NVCC_SETTINGS = $(NVCC_COMPILE)
CUDA_SETTINGS = $(if $(NVCC),$(CUDA_CFLAGS) -DVT_HAS_CUDA $(if $(HAS_WGMMA),-DVT_HAS_WGMMA))
$(eval $(call stamp,nvcc,NVCC_SETTINGS))
$(eval $(call stamp,cuda,CUDA_SETTINGS))

$(BUILD)/cuda/%.cu.o: cuda/%.cu $(STAMPS)/nvcc
	@mkdir -p $(@D)
	$(QUIET)$(NVCC_COMPILE) -MMD -MP -c $< -o $@

$(WGMMA_KERNELS:cuda/%=$(BUILD)/cuda/%.o): $(BUILD)/cuda/%.o: cuda/% $(STAMPS)/nvcc
	@mkdir -p $(@D)
	$(QUIET)$(WGMMA_COMPILE) -MMD -MP -c $< -o $@

$(BUILD)/cuda/%.c.o: cuda/%.c $(STAMPS)/compile $(STAMPS)/cuda
	@mkdir -p $(@D)
	$(QUIET)$(COMPILE) -Icuda $(CUDA_CFLAGS) $(if $(HAS_WGMMA),-DVT_HAS_WGMMA) -c $< -o $@

USE_CUDA := $(addprefix $(BUILD)/src/,backend/open.o base/profile.o parallel/nccl.o parallel/nccl_operations.o)
$(USE_CUDA): $(STAMPS)/cuda
$(BUILD)/src/backend/open.o: LOCAL_CFLAGS += $(if $(NVCC),-DVT_HAS_CUDA)
$(BUILD)/src/base/profile.o: LOCAL_CFLAGS += $(if $(NVCC),-DVT_HAS_CUDA $(CUDA_CFLAGS))
$(addprefix $(BUILD)/src/parallel/,nccl.o nccl_operations.o): LOCAL_CFLAGS += $(if $(NVCC),-Icuda $(CUDA_CFLAGS))

# For every kind of GPU.
.PHONY: gpu
gpu:
	@$(MAKE) --no-print-directory vitrain GPU_ARCH=all

# A cross build for 64-bit ARM, run by qemu: docs/arm.md.
.PHONY: test-arm

ARM_TESTS ?= golden unit operations/against_plain operations/attention_blocks operations/blocks operations/half \
    operations/half_conversions operations/half_products operations/patches operations/steps
ARM_CC ?= aarch64-linux-gnu-gcc
ARM_QEMU ?= qemu-aarch64
ARM_BUILD := $(BUILD)/arm
# The root of an aarch64 system with headers and libraries; by default Debian's are fetched.
ARM_SYSROOT ?= $(ARM_BUILD)/sysroot/root
# HDF5's folder, in which the compiler does not look by itself.
ARM_HDF5 := $(abspath $(ARM_SYSROOT))/usr
ARM_SETTINGS = BUILD=$(ARM_BUILD) NVCC= MPI=no HOST_CUDA= PKG_CONFIG=false CC='$(ARM_CC) --sysroot=$(abspath $(ARM_SYSROOT))' \
    CXX=false AR=$(ARM_CC:%gcc=%ar) HDF5_CFLAGS='-isystem $(ARM_HDF5)/include/hdf5/serial' \
    HDF5_LIBS='-L$(ARM_HDF5)/lib/aarch64-linux-gnu/hdf5/serial -lhdf5'

test-arm: deps
	@tests/arm/tools $(ARM_CC) $(ARM_QEMU)
	@[ $(ARM_SYSROOT) != $(ARM_BUILD)/sysroot/root ] || tests/arm/sysroot $(ARM_BUILD)/sysroot
	@$(MAKE) --no-print-directory vitrain
	@$(MAKE) --no-print-directory $(ARM_BUILD)/vitrain $(ARM_BUILD)/tests/vitrain-tests $(ARM_SETTINGS)
	@tests/arm/run $(BUILD) '$(ARM_QEMU) -L $(abspath $(ARM_SYSROOT))' $(ARM_CC:%gcc=%objdump) $(or $(FILTER),$(ARM_TESTS))

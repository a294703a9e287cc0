# Settings: the number of jobs, what was set on the command line, and what must be built again when a setting changes.

# One job a processor, if memory permits (1 GB a job), unless -j or MAKEFLAGS set a number.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell make/jobs.sh)
endif

# Settings on the command line also apply to later calls, until they are set again: $(BUILD)/settings.mk.
# `make defaults` and `make clean` forget them.
LIBRARIES := HDF5 HDF5_HL YAML DEFLATE PROTOBUF PNG JANSSON UNISTRING UDUNITS OPENMP BLOSC ZSTD LZ4 MPI CUDA X86 BF16 AMX
SETTINGS := CC CXX AR CPPFLAGS CFLAGS LDFLAGS WARNINGS SANITIZE MPI MPICC NVCC GPU_ARCH HOST_CUDA PKG_CONFIG PROTOC_C PREFIX \
    $(LIBRARIES:%=%_CFLAGS) $(LIBRARIES:%=%_LIBS)

# make has defaults of its own for these, which would count as set.
$(foreach name,CC CXX AR,$(if $(filter default,$(origin $(name))),$(eval undefine $(name))))
GIVEN := $(foreach name,$(SETTINGS),$(if $(filter command,$(origin $(name))),$(name)))
REMEMBERED :=
-include $(BUILD)/settings.mk
GIVEN := $(strip $(GIVEN))
KEPT := $(filter-out $(GIVEN),$(REMEMBERED))

# A line a file that is made; with V=1 the whole command.
QUIET = $(if $(V),,@echo '  $@'; )

comma := ,
quoted = '$(subst ','\'',$(1))'
define newline


endef
kept_line = REMEMBERED += $(1)$(newline)$(1) ?= $(subst \#,\\\#,$(value $(1)))$(newline)

# $(eval $(call stamp,NAME,VARIABLE)): targets that depend on the text of VARIABLE depend on $(BUILD)/stamps/NAME, which is
# written when that text changes. It is written while make reads this file if the libraries are known: targets that wait
# for a recipe would start last, and those that take long should start first. A dry run never writes it.
write_stamp = mkdir -p $(BUILD)/stamps && printf '%s\n' $(call quoted,$(strip $($(2)))) >$(BUILD)/stamps/$(1)
define stamp
$(BUILD)/stamps/$(1):
	@$$(call write_stamp,$(1),$(2))
ifneq ($$(strip $$($(2))),$$(strip $$(file <$(BUILD)/stamps/$(1))))
ifeq ($$(PROBED)$$(DRY_RUN),yes)
$$(shell $$(call write_stamp,$(1),$(2)))
else
.PHONY: $(BUILD)/stamps/$(1)
endif
endif
endef
OPTIONS_OF_MAKE := $(filter-out --%,$(firstword -$(MAKEFLAGS)))
DRY_RUN := $(findstring n,$(OPTIONS_OF_MAKE))
PROBED :=
STAMPS := $(BUILD)/stamps

.PHONY: defaults
defaults:
	rm -f $(BUILD)/settings.mk

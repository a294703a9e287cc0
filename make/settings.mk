# Settings: how many jobs, what was given by hand, and what must be built anew when a setting changes.

# All processors, as memory permits (1 GB a job), unless -j or MAKEFLAGS say otherwise.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell make/jobs.sh)
endif

# What was given on the command line holds for later calls, too, until it is given anew: $(BUILD)/settings.mk.
# `make defaults` forgets it, as `make clean` does.
LIBRARIES := HDF5 HDF5_HL YAML DEFLATE PROTOBUF PNG OPENMP MPI CUDA X86 AMX
SETTINGS := CC CXX AR CPPFLAGS CFLAGS LDFLAGS WARNINGS SANITIZE MPI MPICC NVCC GPU_ARCH HOST_CUDA PKG_CONFIG PROTOC_C PREFIX \
    $(LIBRARIES:%=%_CFLAGS) $(LIBRARIES:%=%_LIBS)

# make's own defaults for these hide whether they were given.
$(foreach name,CC CXX AR,$(if $(filter default,$(origin $(name))),$(eval undefine $(name))))
GIVEN := $(foreach name,$(SETTINGS),$(if $(filter command,$(origin $(name))),$(name)))
REMEMBERED :=
-include $(BUILD)/settings.mk
GIVEN := $(strip $(GIVEN))
KEPT := $(filter-out $(GIVEN),$(REMEMBERED))

comma := ,
quoted = '$(subst ','\'',$(1))'
define newline


endef
kept_line = REMEMBERED += $(1)$(newline)$(1) ?= $(subst \#,\\\#,$(value $(1)))$(newline)

# $(eval $(call stamp,NAME,VARIABLE)): what is made with the text of VARIABLE depends on $(BUILD)/stamps/NAME, which is
# written when that text changes: at once when the libraries are known (make takes up last what waits for a recipe, and
# what takes long is to be taken up first), but by no dry run.
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

# Settings: how many jobs, what was given by hand, and what must be built anew when a setting changes.

# All processors, as memory permits (1 GB a job), unless -j or MAKEFLAGS say otherwise.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell make/jobs.sh)
endif

# What was given on the command line holds for later calls, too, until it is given anew: $(BUILD)/settings.mk.
# `make defaults` forgets it, as `make clean` does.
LIBRARIES := HDF5 HDF5_HL YAML DEFLATE DNNL PROTOBUF PNG OPENMP MPI CUDA X86 AMX
SETTINGS := CC CXX AR CPPFLAGS CFLAGS LDFLAGS WARNINGS SANITIZE MPI MPICC NVCC GPU_ARCH HOST_CUDA PKG_CONFIG PROTOC_C PREFIX \
    $(LIBRARIES:%=%_CFLAGS) $(LIBRARIES:%=%_LIBS)

# make's own defaults for these hide whether they were given.
$(foreach name,CC CXX AR,$(if $(filter default,$(origin $(name))),$(eval undefine $(name))))
GIVEN := $(foreach name,$(SETTINGS),$(if $(filter command,$(origin $(name))),$(name)))
REMEMBERED :=
-include $(BUILD)/settings.mk
KEPT := $(filter-out $(GIVEN),$(REMEMBERED))

comma := ,
quoted = '$(subst ','\'',$(1))'
define newline


endef

IS_DRY_RUN := $(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
IS_SILENT := $(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
ifneq ($(GOALS),)
ifneq ($(KEPT)$(IS_SILENT),$(IS_SILENT))
$(info With the settings of an earlier call: $(foreach name,$(KEPT),$(name)=$(call quoted,$(value $(name)))) ('make defaults' forgets them))
endif
SETTINGS_TEXT := REMEMBERED := $(KEPT) $(GIVEN)$(newline)$(foreach name,$(KEPT) $(GIVEN),$(name) ?= $(subst \#,\\\#,$(value $(name)))$(newline))
ifneq ($(GIVEN),)
ifeq ($(IS_DRY_RUN),)
$(shell mkdir -p $(BUILD))
$(file >$(BUILD)/settings.mk,$(value SETTINGS_TEXT))
endif
endif
endif

# $(eval $(call stamp,NAME,VARIABLE)): what is made with the text of VARIABLE depends on $(BUILD)/stamps/NAME, which is
# written when that text changes.
define stamp
$(BUILD)/stamps/$(1):
	@mkdir -p $$(@D)
	@printf '%s\n' $$(call quoted,$$(strip $$($(2)))) >$$@
ifneq ($$(strip $$($(2))),$$(strip $$(file <$(BUILD)/stamps/$(1))))
.PHONY: $(BUILD)/stamps/$(1)
endif
endef
STAMPS := $(BUILD)/stamps

.PHONY: defaults
defaults:
	rm -f $(BUILD)/settings.mk

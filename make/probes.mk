# The libraries: make/probe.sh tries each candidate by compiling and linking a program, and writes what it found to
# $(BUILD)/found.mk.
.PHONY: deps test-deps

PROTOC_C ?= protoc-c
MPICC ?= mpicc
PKG_CONFIG ?= pkg-config
# Debian's packages of what make/probe.sh looks for.
PACKAGES := HDF5=libhdf5-dev HDF5_HL=libhdf5-dev YAML=libyaml-dev PROTOBUF=libprotobuf-c-dev PROTOC_C=protobuf-c-compiler \
    PNG=libpng-dev DEFLATE=libdeflate-dev JANSSON=libjansson-dev UNISTRING=libunistring-dev UDUNITS=libudunits2-dev \
    BLOSC=libblosc-dev ZSTD=libzstd-dev LZ4=liblz4-dev MPI=libopenmpi-dev MPI=openmpi-bin

# Flags that were set for a library, on the command line or in the environment, are tried first.
PROBE_NAMES := CC CXX CPPFLAGS LDFLAGS MPI MPICC PKG_CONFIG PROTOC_C BUILD $(LIBRARIES:%=%_CFLAGS) $(LIBRARIES:%=%_LIBS)
PROBE_NVCC := $(if $(filter undefined,$(origin NVCC)),search,$(NVCC))
CC_VERSION := $(if $(GOALS),$(shell $(CC) --version 2>&1 | head -n 1))
PROBE_SETTINGS := $(CC_VERSION) NVCC=$(PROBE_NVCC) $(foreach name,$(PROBE_NAMES),$(name)=$($(name)))
PROBE_ENVIRONMENT := PROBE_NVCC=$(call quoted,$(PROBE_NVCC)) $(foreach name,$(PROBE_NAMES),$(name)=$(call quoted,$($(name))))
$(eval $(call stamp,probes,PROBE_SETTINGS))

$(BUILD)/found.mk: make/probe.sh $(STAMPS)/probes
	@$(PROBE_ENVIRONMENT) make/probe.sh >$@.new || { rm -f $@.new $(STAMPS)/probes; exit 1; }
	@mv $@.new $@

ifneq ($(GOALS),)
ifneq ($(shell mkdir -p $(call quoted,$(BUILD)) 2>&1),)
$(error the folder '$(BUILD)' can't be made or used; name another one, where you may write: make BUILD=FOLDER)
endif
include $(BUILD)/found.mk

# If everything was found with these settings, they are kept; those of an earlier call are printed.
ifeq ($(strip $(PROBE_SETTINGS)),$(strip $(file <$(STAMPS)/probes)))
PROBED := yes
ifneq ($(KEPT),)
ifeq ($(findstring s,$(OPTIONS_OF_MAKE)),)
$(info With the settings of an earlier call ('make defaults' forgets them): $(foreach name,$(KEPT),$(name)=$(call quoted,$(value $(name)))))
endif
endif
ifneq ($(GIVEN),)
ifeq ($(DRY_RUN),)
$(file >$(BUILD)/settings.mk,$(subst $(newline) ,$(newline),$(foreach name,$(sort $(KEPT) $(GIVEN)),$(call kept_line,$(name)))))
endif
endif
endif
endif

# Installs the packages of what is missing, and leaves another MPI or HDF5 that works as it is. If only optional libraries
# can't be installed, the build continues without them.
deps:
	@if $(MAKE) -s $(BUILD)/found.mk >/dev/null 2>&1; then \
	    lacks=$$(sed -n 's/^# lacks://p' $(BUILD)/found.mk); \
	    give_up() { echo "Continuing without" $$packages "(MPI is for several ranks, UDUNITS for names of units, the others are for texts and Zarr stores)" >&2; exit 0; }; \
	else \
	    lacks=$$($(PROBE_ENVIRONMENT) make/probe.sh 2>/dev/null | sed -n 's/^# lacks://p'); \
	    give_up() { exit 1; }; \
	fi; \
	packages=$$(for library in $$lacks; do for pair in $(PACKAGES); do \
	    case $$pair in $$library=*) echo "$${pair#*=}" ;; esac; done; done | sort -u); \
	[ -z "$$packages" ] || { make/packages.sh sudo $$packages || give_up; rm -f $(BUILD)/found.mk; }; \
	$(MAKE) -s $(BUILD)/found.mk

# What tests look at files, pages and scripts with. A test that finds one of them missing is skipped, or fails where CI=true.
TEST_PACKAGES := hdf5-tools netcdf-bin python3-h5py python3-xarray python3-netcdf4 python3-numcodecs zsh groff strace git g++

# Where sudo would ask for a password, tests do without. Afterwards the probes run again, for g++; found.mk stays till
# then, because without its flags all would be compiled anew.
test-deps: deps
	@wanted="$(TEST_PACKAGES)"; ! apt-cache show chromium >/dev/null 2>&1 || wanted="$$wanted chromium"; \
	dpkg-query -W -f '$${db:Status-Abbrev}\n' $$wanted 2>&1 | grep -qv '^ii' || ! command -v dpkg-query >/dev/null || exit 0; \
	if make/packages.sh "sudo -n" $$wanted; then touch $(STAMPS)/probes; \
	else echo "Continuing without them: tests that need one are skipped." >&2; fi

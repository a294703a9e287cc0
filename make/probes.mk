# The libraries: each candidate is tried by compiling and linking a probe; what was found stands in $(BUILD)/found.mk.
.PHONY: deps

PACKAGES := libhdf5-dev libyaml-dev libdnnl-dev libprotobuf-c-dev protobuf-c-compiler libpng-dev libdeflate-dev \
    $(if $(filter-out no,$(MPI)),libopenmpi-dev openmpi-bin)

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

$(BUILD)/found.mk: Makefile make/probes.mk
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

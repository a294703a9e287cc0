#!/bin/sh
# Prints build/found.mk: for each library the first pair of compiler and linker flags with which a program compiles and links.
# make passes its settings as variables of the same names; those of a library (HDF5_CFLAGS, HDF5_LIBS) are tried first. If
# libraries are missing, it fails with one message that names all of them.
program=$BUILD/probe.$$
trap 'rm -f "$program"' EXIT

# shellcheck disable=SC2086 # flags are words
compiles() { # CFLAGS LIBS <SOURCE
    $CC $CPPFLAGS $1 -x c - -o "$program" $LDFLAGS $2 >/dev/null 2>&1
}

# probe NAME PROGRAM "CFLAGS|LIBS"...
probe() {
    name=$1 source=$2
    shift 2
    for pair in "$@"; do
        cflags=${pair%%|*} libs=${pair#*|}
        if printf '%s\n' "$source" | compiles "$cflags" "$libs"; then
            echo "${name}_CFLAGS ?= $cflags"
            echo "${name}_LIBS ?= $libs"
            return
        fi
    done
    missing="$missing $name"
}

pc() { # PACKAGE [LIBS THAT GO FIRST]: "CFLAGS|LIBS" of pkg-config
    echo "$($PKG_CONFIG --cflags "$1" 2>/dev/null)|$2 $($PKG_CONFIG --libs "$1" 2>/dev/null)"
}

command -v "${CC%% *}" >/dev/null || {
    echo "there is no C compiler '$CC' (Debian, Ubuntu: apt-get install gcc; another one: make CC=...)" >&2
    exit 1
}
multiarch=$($CC -print-multiarch 2>/dev/null)
serial="-I/usr/include/hdf5/serial|-L/usr/lib/$multiarch/hdf5/serial"
missing=
mkdir -p "$BUILD"
probe HDF5 '#include <hdf5.h>
int main(void) { return H5Dget_num_chunks(0, 0, 0); }' "$HDF5_CFLAGS|${HDF5_LIBS:--lhdf5}" "$serial -lhdf5" "$(pc hdf5)" "$(pc hdf5-serial)"
probe HDF5_HL '#include <hdf5_hl.h>
int main(void) { return H5DSis_scale(0); }' "${HDF5_HL_CFLAGS:-$HDF5_CFLAGS}|${HDF5_HL_LIBS:--lhdf5_hl} ${HDF5_LIBS:--lhdf5}" \
    "$serial -lhdf5_hl -lhdf5" "$(pc hdf5_hl)" "$(pc hdf5 -lhdf5_hl)" "$(pc hdf5-serial -lhdf5_hl)"
probe YAML '#include <yaml.h>
int main(void) { return yaml_get_version_string() == 0; }' "$YAML_CFLAGS|${YAML_LIBS:--lyaml}" "$(pc yaml-0.1)"
probe DEFLATE '#include <libdeflate.h>
int main(void) { return libdeflate_alloc_decompressor() == 0; }' "$DEFLATE_CFLAGS|${DEFLATE_LIBS:--ldeflate}" "$(pc libdeflate)"
probe JANSSON '#include <jansson.h>
int main(void) { return json_object() == 0; }' "$JANSSON_CFLAGS|${JANSSON_LIBS:--ljansson}" "$(pc jansson)"
probe PROTOBUF '#include <protobuf-c/protobuf-c.h>
int main(void) { return protobuf_c_version_number() == 0; }' "$PROTOBUF_CFLAGS|${PROTOBUF_LIBS:--lprotobuf-c}" "$(pc libprotobuf-c)"
probe PNG '#include <png.h>
int main(void) { return png_access_version_number() == 0; }' "$PNG_CFLAGS|${PNG_LIBS:--lpng}" "$(pc libpng)"
command -v "$PROTOC_C" >/dev/null || missing="$missing PROTOC_C"
probe OPENMP '#include <omp.h>
int main(void) { return omp_get_max_threads() == 0; }' "${OPENMP_CFLAGS:--fopenmp}|${OPENMP_LIBS:--fopenmp}"
required=$missing missing=

# ---- optional ----

probe UNISTRING '#include <unicase.h>
int main(void) { size_t n = 0; return u8_tolower(0, 0, 0, 0, 0, &n) == 0; }' "$UNISTRING_CFLAGS|${UNISTRING_LIBS:--lunistring}"
probe UDUNITS '#include <udunits2.h>
int main(void) { return ut_read_xml(0) == 0; }' "$UDUNITS_CFLAGS|${UDUNITS_LIBS:--ludunits2}" \
    "-I/usr/include/udunits2|-ludunits2" "$(pc udunits)"
probe X86 '#ifndef __x86_64__
#error
#endif
int main(void) { return __builtin_cpu_supports("avx512f"); }' "-march=x86-64-v4|"
probe BF16 '#if defined(__aarch64__)
#include <arm_neon.h>
int main(int n, char **a) { float32x4_t s = vdupq_n_f32((float)n); bfloat16x8_t b = vreinterpretq_bf16_f32(s);
    return n + !a + (int)vgetq_lane_f32(vbfdotq_f32(s, b, b), 0); }
#else
#include <immintrin.h>
int main(int n, char **a) { __m512 s = _mm512_set1_ps((float)n);
    return n + !a + (int)_mm512_cvtss_f32(_mm512_dpbf16_ps(s, (__m512bh)s, (__m512bh)s)); }
#endif' "-march=x86-64-v4 -mavx512bf16|" "-march=armv8.2-a+bf16|"
probe AMX '#include <immintrin.h>
int main(int n, char **a) { if (n > 9) { _tile_zero(0); _tile_dpbf16ps(0, 1, 2); } return n + !a; }' \
    "-march=x86-64-v4 -mavx512bf16 -mamx-tile -mamx-bf16|"

# For Zarr stores: the codecs of their chunks.
probe BLOSC '#include <blosc.h>
int main(void) { size_t n; return blosc_cbuffer_validate("", 0, &n); }' "$BLOSC_CFLAGS|${BLOSC_LIBS:--lblosc}" "$(pc blosc)"
probe ZSTD '#include <zstd.h>
int main(void) { return ZSTD_createDCtx() == 0; }' "$ZSTD_CFLAGS|${ZSTD_LIBS:--lzstd}" "$(pc libzstd)"
probe LZ4 '#include <lz4.h>
int main(void) { return LZ4_versionNumber() == 0; }' "$LZ4_CFLAGS|${LZ4_LIBS:--llz4}" "$(pc liblz4)"

# From the command of MPI's compiler only the flags that find MPI, without the distribution's hardening or optimisation.
mpi_flags() { # compile|link
    for word in $("$MPICC" -show 2>/dev/null); do
        case $1 in
        compile) case $word in -I* | -D* | -pthread) printf '%s ' "$word" ;; esac ;;
        *) case $word in -L* | -l* | -Wl,-rpath* | -Wl,/* | -pthread) printf '%s ' "$word" ;; esac ;;
        esac
    done
}
optional=$missing
if [ "$MPI" != no ]; then
    missing=
    probe MPI '#include <mpi.h>
int main(void) { return MPI_Init(0, 0); }' "$MPI_CFLAGS|$MPI_LIBS" "$(mpi_flags compile)|$(mpi_flags link)" \
        "$(pc ompi-c)" "$(pc ompi)" "$(pc mpich)" "$(pc mpi-c)"
    [ "$MPI" != yes ] || required=$required$missing
    optional=$optional$missing
fi
echo "# lacks:$required$optional"

# The kernels of CUDA for the host's tests.
if echo 'template <int n> int f() { return n; } int main() { return f<0>(); }' | \
    $CXX -std=gnu++20 -x c++ -o "$program" - >/dev/null 2>&1; then echo 'HOST_CUDA ?= yes'; fi

# gpu_arch NVCC: this machine's GPUs that nvcc knows; PTX for the oldest that is supported if there are none.
gpu_arch() {
    known=$("$1" --list-gpu-code 2>/dev/null) found=
    for capability in $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -n -u); do
        case "$known " in *"sm_$capability"[!0-9a-z]*) [ "$capability" -lt 80 ] || found="$found sm_$capability" ;; esac
    done
    echo "GPU_ARCH_FOUND ?= ${found:-compute_80}"
}

cuda() { # NVCC
    home=$(dirname "$(dirname "$(readlink -f "$1")")")
    for folder in "$home/lib64" "$home/lib" "$home"/targets/*/lib; do
        include=$home/include
        [ -e "$include/cuda_runtime_api.h" ] || include=${folder%/lib}/include
        libs="-L$folder -lcudart_static -ldl -lrt -lpthread" cflags="-isystem $include"
        printf '#include <cuda_runtime_api.h>\n#include <cublasLt.h>\nint main(void) { int n; return cudaGetDeviceCount(&n); }' |
            compiles "$cflags" "$libs" || continue
        for header in cudnn:CUDNN nccl:NCCL; do
            if echo "#include <${header%:*}.h>" | $CC $CPPFLAGS $cflags -fsyntax-only -x c - >/dev/null 2>&1; then
                cflags="$cflags -DVT_HAS_${header#*:}"
            fi
        done
        echo "NVCC ?= $1"
        echo "CUDA_CFLAGS ?= $cflags"
        echo "CUDA_LIBS ?= $libs"
        gpu_arch "$1"
        return
    done
    return 1
}
if [ "$PROBE_NVCC" = search ]; then
    for nvcc in "$(command -v nvcc)" "$CUDA_HOME/bin/nvcc" /usr/local/cuda/bin/nvcc; do
        [ -x "$nvcc" ] && cuda "$nvcc" && break
    done
elif [ -n "$PROBE_NVCC" ]; then
    nvcc=$(command -v "$PROBE_NVCC") || { echo "NVCC=$PROBE_NVCC: there is no such program" >&2; exit 1; }
    cuda "$nvcc" || { echo "NVCC=$nvcc: a program with cuda_runtime_api.h, cublasLt.h and libcudart_static does not compile with the headers and libraries beside it" >&2; exit 1; }
fi

if [ -n "$required" ]; then
    echo "not found:$required (looked for by compiling a probe with $CC, and with pkg-config)." >&2
    echo "'make deps' installs them (Debian, Ubuntu); elsewhere name their flags: make HDF5_CFLAGS=-I... HDF5_LIBS='-L... -lhdf5'" >&2
    case $required in *MPI*) echo "MPI=yes was given; without it make builds for one rank." >&2 ;; esac
    exit 1
fi

#!/usr/bin/env bash
# Run by conda-build, which sets PREFIX, CC, CFLAGS, CPPFLAGS and LDFLAGS; mpi is the variant. By hand: docs/packaging.md.
set -eu
settings=(BUILD=build/conda "PREFIX=$PREFIX" NVCC= HOST_CUDA= "CC=${CC:-cc}" "CFLAGS=${CFLAGS:--O2}"
    "CPPFLAGS=${CPPFLAGS:-}" "LDFLAGS=${LDFLAGS:-}")
case ${mpi:-nompi} in
nompi) settings+=(MPI=no) ;;
*) settings+=(MPI=yes "MPICC=$PREFIX/bin/mpicc") ;;
esac
make "-j${CPU_COUNT:-1}" vitrain "${settings[@]}"
make install "${settings[@]}"

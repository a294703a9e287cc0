# The build system, in a copy of the sources: a compiler that only leaves empty files, so that a build takes seconds.

# tools: bin/cc, bin/ar, cuda/bin/nvcc and others, each of which appends its arguments to `calls`. A program that bin/cc links is $VITRAIN.
# If the file no_mpi exists, programs with mpi.h don't compile.
tools() {
    mkdir -p bin cuda/bin cuda/lib64 cuda/include
    touch cuda/include/cuda_runtime_api.h
    cat >bin/cc <<'CC'
#!/bin/sh
here=${0%/bin/*}
case $* in *--version*) echo "${0##*/} 1.0"; exit ;; *-print-multiarch*) exit ;; esac
case $* in *"-x c -"*) if [ -e "$here/no_mpi" ] && grep -q mpi.h; then exit 1; fi ;; *) echo "${0##*/} $* # $MAKEFLAGS" >>"$here/calls" ;; esac
while [ $# -gt 1 ]; do
    if [ "$1" = -o ]; then case $2 in */vitrain) cp "$VITRAIN" "$2" ;; *) : >"$2" ;; esac; fi
    shift
done
CC
    cat >cuda/bin/nvcc <<'NVCC'
#!/bin/sh
case $* in *--list-gpu-code*) printf 'sm_75\nsm_80\nsm_90\nsm_100\n'; exit ;; esac
exec "${0%/cuda/bin/*}/bin/cc" "nvcc $@"
NVCC
    printf '#!/bin/sh\necho "ar $*" >>"%s/calls"\n: >"$2"\n' "$PWD" >bin/ar
    printf '#!/bin/sh\nfor word; do case $word in --c_out=*) touch "${word#*=}/event.pb-c.c" "${word#*=}/event.pb-c.h" ;; esac; done\n' >bin/protoc-c
    printf '#!/bin/sh\nexit 1\n' | tee bin/nvidia-smi bin/pkg-config >bin/mpicc
    chmod +x bin/* cuda/bin/nvcc
    cp bin/cc bin/other-cc
    cp bin/cc bin/g++
    export PATH=$PWD/cuda/bin:$PWD/bin:$PATH CUDA_HOME=$PWD/cuda
    unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES CC CXX CFLAGS CPPFLAGS LDFLAGS NVCC MPI GPU_ARCH BUILD
}

# sources: a copy of them in ./source, where the test continues.
sources() {
    tools
    mkdir source
    (cd "$TOP" && tar -cf - Makefile make VERSION README.md CHANGELOG.md CITATION.cff LICENSE src cuda config docs submit tests bench) |
        tar -xf - -C source
    cd source
}

# build ARGUMENT...: runs make; $output has its output, `calls` the commands it ran.
build() {
    : >../calls
    output=$(make "$@" 2>&1) || { echo "make $*: $output"; return 1; }
}

# compiled WORD: the objects whose command has the word; `compiled .` of all.
compiled() { grep -e ' -c ' ../calls | grep -c -e "$1" || true; }

long_settings() {
    sources
    local all
    build
    refuted grep -e ' -c ' <<<"$output" # a line a file, not its command
    all=$(compiled .)
    [ "$all" -gt 200 ] || { echo "only $all objects"; return 1; }
    contains "$(printf '%s' "$output" | tail -n 1)" "built with MPI, CUDA (only PTX for sm_80 and newer: the first start compiles it; make gpu avoids that), kernels for baseline"
    contains "$(cat ../calls)" "-gencode arch=compute_80,code=compute_80"
    refuted grep code=sm_ ../calls
    contains "$(cat ../calls)" " -j$(make/jobs.sh)"
    build
    [ "$(compiled .)" -eq 0 ] || { echo "compiled again: "; cat ../calls; return 1; }
    build NVCC=
    [ "$(compiled .)" -eq 5 ] || { echo "NVCC= compiles"; cat ../calls; return 1; }
    contains "$output" "; built without CUDA: CPU only"
    refuted grep 'ar .*cuda/' ../calls
    build -j1
    contains "$output" "With the settings of an earlier call ('make defaults' forgets them): NVCC=''" "; built without CUDA: CPU only"
    contains "$(cat ../calls) -j1" " -j1"
    [ "$(compiled .)" -eq 0 ]
    build MPI=no
    [ "$(compiled src/parallel/mpi)" -eq 3 ] && [ "$(compiled .)" -eq 4 ] || { echo "MPI=no compiles"; cat ../calls; return 1; }
    contains "$output" "; built without MPI: one rank only"
    build CC=other-cc
    [ "$(compiled ^other-cc)" -eq "$(compiled .)" ] && [ "$(compiled .)" -gt 200 ] || { echo "CC= compiled $(compiled .)"; return 1; }
    build CFLAGS=-O3 CPPFLAGS=-DGIVEN LDFLAGS=-Lgiven AR=ar
    [ "$(compiled '-O3 .*-DGIVEN')" -eq "$(compiled .)" ] || { echo "not all compiled with CFLAGS and CPPFLAGS"; return 1; }
    contains "$(cat ../calls)" "-O3 -Lgiven -o build/vitrain"
    build UDUNITS_LIBS= BLOSC_LIBS=
    contains "$output" "built without UDUNITS: units agree only where they are spelled alike" "(found: ZSTD LZ4)"
    refuted grep -e '-ludunits2' ../calls
    build defaults
    build
    [ "$(compiled .)" -gt 200 ]
    contains "$output" "built with MPI, CUDA"
}

long_mpi_that_is_missing() {
    sources
    touch ../no_mpi
    build NVCC=
    contains "$output" "built without MPI: one rank only"
    fails 2 make MPI=yes
    contains "$output" "not found: MPI" "MPI=yes was given; without it make builds for one rank"
    build # what failed is not remembered
    fails 2 make BUILD=/proc/none
    contains "$output" "the folder '/proc/none' can't be made or used; name another one, where you may write: make BUILD=FOLDER"
    fails 2 make NVCC="$PWD/none"
    contains "$output" "NVCC=$PWD/none: there is no such program"
}

long_architectures() {
    sources
    printf '#!/bin/sh\nprintf "9.0\\n9.0\\n"\n' >../bin/nvidia-smi
    build MPI=no
    contains "$output" "CUDA (for sm_90 and"
    contains "$(cat ../calls)" "-gencode arch=compute_90,code=compute_90"
    refuted grep sm_80 ../calls
    build gpu
    contains "$output" "CUDA (for sm_80 sm_90 sm_100 and"
    [ "$(compiled .)" -eq "$(($(ls cuda/*.cu | wc -l) + 1))" ] # and version.o
    build GPU_ARCH="compute_80 sm_90"
    contains "$output" "CUDA (for sm_90 and, by its PTX, newer ones)"
    contains "$(cat ../calls)" \
        "-gencode arch=compute_90,code=sm_90 -gencode arch=compute_80,code=compute_80 -gencode arch=compute_90,code=compute_90 "
}

# Only what is missing is installed: what works, as another MPI, stays.
test_deps() {
    sources
    printf '#!/bin/sh\necho "apt-get $*" >>"%s/calls"\n' "$(dirname "$PWD")" >../bin/apt-get
    printf '#!/bin/sh\nexec "$@"\n' >../bin/sudo
    chmod +x ../bin/apt-get ../bin/sudo
    build deps
    refuted grep apt-get ../calls
    touch ../no_mpi
    build defaults
    rm -r build
    build deps
    contains "$(grep apt-get ../calls)" "apt-get install -y --no-install-recommends libopenmpi-dev openmpi-bin"
    refuted grep -E 'libhdf5|libblosc' ../calls
    build deps MPI=no
    refuted grep apt-get ../calls
    # a compiler of C++ that comes with the tests' packages is found
    printf '#!/bin/sh\necho un\n' >../bin/dpkg-query
    printf '#!/bin/sh\ncp "%s/cc" "%s/later"\n' "$PWD/../bin" "$PWD/../bin" >../bin/apt-get
    chmod +x ../bin/dpkg-query
    build deps CXX=later
    refuted grep HOST_CUDA build/found.mk
    build build/stamps/compile
    cp -p build/stamps/compile ../before
    build test-deps
    build build/stamps/compile
    grep -q '^HOST_CUDA ?= yes' build/found.mk
    [ ! build/stamps/compile -nt ../before ] || { echo "all would be compiled again"; return 1; }
}

# Containers install what `make deps` does, besides what README.md asks for, and both recipes run the same commands.
test_containers() {
    local folder=$TOP/docs/packaging/container
    sed -n 's/^RUN //p' "$folder/Dockerfile" >docker
    sed -n '/^%post/,/^%runscript/s/^    //p' "$folder/vitrain.def" | grep -vE '^(cd|rm) |^GPU_ARCH=' >apptainer
    cmp docker apptainer
    cmp <(grep -E '^(apt-get|make)' docker | sed 's/ MPI=.*//; s/ PREFIX=.*//') <(printf '%s\n' "apt-get update" \
        "apt-get install -y --no-install-recommends make gcc" "make deps" "make vitrain" "make install")
    contains "$(cat "$TOP/README.md")" "with gcc and make"
    [ "$(sed -n 's/^ARG BASE=//p' "$folder/Dockerfile")" = "$(sed -n 's/^    BASE=//p' "$folder/vitrain.def")" ]
}

test_install() {
    sources
    build NVCC= PREFIX=/usr
    build install DESTDIR="$PWD/../place"
    contains "$output" "'make uninstall DESTDIR=$PWD/../place' removes it"
    fails 2 make install DESTDIR="$PWD/../two words"
    contains "$output" "must not have blanks"
    local place=$PWD/../place/usr
    for file in bin/vitrain share/vitrain/config/ViT.yaml share/vitrain/config/UNet.yaml share/vitrain/config/hardware.yaml share/doc/vitrain/README.md; do
        [ -e "$place/$file" ] || { echo "$file is not installed"; return 1; }
    done
    for page in --man:share/man/man1/vitrain.1 --completion=bash:share/bash-completion/completions/vitrain \
        --completion=zsh:share/zsh/site-functions/_vitrain; do
        if "$VITRAIN" options "${page%%:*}" >../page 2>/dev/null; then
            cmp ../page "$place/${page#*:}"
        else
            contains "$output" "left out"
        fi
    done
    local page target links=0
    for page in "$place"/share/doc/vitrain/*.md "$place"/share/doc/vitrain/docs/*.md; do
        for target in $(sed 's/`[^`]*`//g' "$page" | grep -oE '\]\([^)# ]+' | cut -c3- | grep -v ://); do
            [ -e "$(dirname "$page")/$target" ] || { echo "$page: $target is not installed"; return 1; }
            links=$((links + 1))
        done
    done
    [ "$links" -gt 50 ] || { echo "only $links links"; return 1; }
    mkdir ../elsewhere
    (cd ../elsewhere && "$place/bin/vitrain" layout --ranks=2 --config=demo >layout) || { cat ../elsewhere/layout; return 1; }
    contains "$(cat ../elsewhere/layout)" "demo"
    [ "$(env -u VITRAIN "$place/share/vitrain/submit/local.sh" version)" = "$("$VITRAIN" version)" ]
    build uninstall DESTDIR="$PWD/../place"
    [ -z "$(find "$place" -type f)" ] || { find "$place" -type f; return 1; }
}

test_version() {
    sources
    needs git git
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b HOME=$PWD
    local release commit
    release=$(cat VERSION)
    cp "$TOP/.gitattributes" .
    git -C .. init -q # another's repository, of which this is a folder
    [ "$(make -s version)" = "$release" ] || { echo "in a foreign checkout: $(make -s version)"; return 1; }
    git init -q
    printf '/build/\n/*.tar.gz\n' >.gitignore
    git add . && git commit -qm first
    commit=$(git rev-parse --short HEAD)
    build dist
    contains "$output" "vitrain-$release+g$commit.tar.gz"
    touch -d 2001-01-01 README.md # another date is no other file
    [ "$(make -s version)" = "$release+g$commit" ]
    echo >>README.md
    [ "$(make -s version)" = "$release+g$commit.dirty" ]
    git checkout -q README.md
    git tag "v$release"
    [ "$(make -s version)" = "$release" ]
    build dist
    tar -xzf "vitrain-$release.tar.gz" -C ..
    cd "../vitrain-$release"
    [ "$(make -s version)" = "$release" ] || { echo "in a release's tarball: $(make -s version)"; return 1; }
    tar -xzf "../source/vitrain-$release+g$commit.tar.gz" -C ..
    cd "../vitrain-$release+g$commit"
    [ "$(make -s version)" = "$release+g$commit" ] || { echo "in a tarball: $(make -s version)"; return 1; }
}

test_filter() {
    local names
    names=$("$TESTS" --list unit)
    [ -n "$names" ]
    refuted grep -v '^unit/' <<<"$names"
    names=$("$TESTS" --list of_the_unit_interval)
    contains "$names" uniform_is_inside_of_the_unit_interval
}

# The program's use of configurations: exit status, messages on standard error, files found, help.

# error COMMAND...: fails with status 1 and prints one line on standard error, which is then in $message.
error() {
    local got=0
    "$@" >stdout 2>stderr || got=$?
    message=$(cat stderr)
    [ "$got" -eq 1 ] || { echo "exit status $got, expected 1: $*"; cat stdout stderr; return 1; }
    [ "$(wc -l <stderr)" -eq 1 ] || { echo "expected one line on standard error:"; cat stderr; return 1; }
    case $message in "vitrain: "*) ;; *) echo "expected 'vitrain: ...': $message"; return 1 ;; esac
}

test_help_and_version() {
    contains "$("$VITRAIN" --help)" "usage: vitrain [subcommand]"
    contains "$("$VITRAIN" -h)" "synth "
    contains "$("$VITRAIN" help)" "options "
    contains "$("$VITRAIN" help options)" "usage: vitrain options [--markdown |"
    contains "$("$VITRAIN" train --help)" "usage: vitrain [train]"
    contains "$("$VITRAIN" --config=demo --help)" "vitrain options"
    for words in version --version "train --version" "--config=short --version"; do
        case $("$VITRAIN" $words) in "vitrain "?*) ;; *) return 1 ;; esac
    done
    [ "$("$VITRAIN" version)" = "$("$VITRAIN" --version)" ]
    contains "$("$VITRAIN" help version)" "prints the version"
    error "$VITRAIN" version 2
    contains "$message" "version takes no arguments, but got '2'"
    error "$VITRAIN" trian
    contains "$message" "'trian' is not a subcommand; did you mean 'train'?"
    error "$VITRAIN" help nothing_like_it
    contains "$message" "'nothing_like_it' is not a subcommand"
    error "$VITRAIN" options --html
    contains "$message" "unknown flag --html"
}

test_options() {
    "$VITRAIN" options >text
    "$VITRAIN" options --markdown >markdown
    cmp markdown "$TOP/docs/options.md" || { echo "docs/options.md is old: make docs"; return 1; }
    local width
    width=$(LC_ALL=C.UTF-8 wc -L <text)
    [ "$width" -le 100 ] || { echo "$width columns, expected at most 100"; return 1; }
    for name in embed_dim lr img_size yaml_config enable_apex; do
        contains "$(cat text)" "--$name"
        contains "$(cat markdown)" "\`$name\`"
    done
}

test_output_that_cannot_be_written() {
    [ -w /dev/full ] || skip "no /dev/full"
    for arguments in --help --version options "options --markdown"; do
        error sh -c "exec '$VITRAIN' $arguments >/dev/full" || return 1
        contains "$message" "standard output can't be written: No space left on device" || return 1
        error sh -c "exec '$VITRAIN' $arguments >&-" || return 1
        contains "$message" "standard output can't be written: Bad file descriptor" || return 1
    done
}

test_place_of_an_error() {
    error "$VITRAIN" --embed_dim=x
    local output
    output=$(VITRAIN_DEBUG=1 "$VITRAIN" --embed_dim=x 2>&1) && return 1
    contains "$output" "noted at src/config/"
}

test_flag_errors() {
    error "$VITRAIN" --embd_dim=64
    contains "$message" "unknown flag --embd_dim; did you mean --embed_dim?"
    for words in "layout --rank=3 --ranks" "plan --rank=3 --ranks" "evaluate --rolout=2 --rollout" "predict --step=2 --steps"; do
        set -- $words # a subcommand's own flags are looked at, too
        fails 1 "$VITRAIN" $1 $2
        contains "$output" "$1: unknown flag ${2%=*}; did you mean $3? \`vitrain $1 --help\` says which there are"
    done
    # an option's name, slightly wrong: still the subcommand's help
    error "$VITRAIN" evaluate --embd_dim=64
    contains "$message" "evaluate: unknown flag --embd_dim; did you mean --embed_dim? \`vitrain evaluate --help\` says"
    for words in "export --ouput=x --output" "report --ouput=x --output" "inspect --verfy --verify" "synth --chanels=3 --channels"; do
        set -- $words
        error "$VITRAIN" $1 $2
        contains "$message" "$1: unknown flag ${2%=*}; did you mean $3? \`vitrain $1 --help\` lists all"
    done
    error "$VITRAIN" bench kernels --thread=2
    contains "$message" "did you mean --threads? \`vitrain bench kernels --help\` lists all"
    error "$VITRAIN" train --embed_dim=abc
    contains "$message" "--embed_dim=abc: 'abc' is not a whole number (expected 1 to 65536)"
    error "$VITRAIN" --enable_jit false
    contains "$message" "--enable_jit=false"
    error "$VITRAIN" --expdir="$(printf '%05000d' 0)"
    contains "$message" "has 5000 bytes, too many for a path"
    error env OMP_NUM_THREADS=100000 "$VITRAIN" bench kernels --rounds=1
    contains "$message" "OMP_NUM_THREADS=100000: expected 1 to 4096"
    error "$VITRAIN" --yaml_config="$TOP/config/ViT.yaml" --config=shrt
    contains "$message" "did you mean 'short'?"
}

# Model parallelism of 2023 had a second axis, of which only 1 was possible.
test_column_axis() {
    "$VITRAIN" layout --yaml_config="$TOP/config/ViT.yaml" --ranks=2 --config=mp --col_parallel_size=1 --row_parallel_size=2 >/dev/null
    error "$VITRAIN" --yaml_config="$TOP/config/ViT.yaml" --config=mp --col_parallel_size=2
    contains "$message" "--col_parallel_size=2: only 1 is possible, as layers are split over one axis of ranks; --tensor_parallel"
}

test_file_errors() {
    printf 'base:\n  depth: 3\n  embd_dim: 64\n' >unknown.yaml
    error "$VITRAIN" --yaml_config=unknown.yaml
    contains "$message" "unknown.yaml:3:3: unknown key 'embd_dim' in configuration 'base'; did you mean 'embed_dim'?"
    printf 'base:\n  embed_dim: abc\n' >bad.yaml
    error "$VITRAIN" --yaml_config bad.yaml
    contains "$message" "bad.yaml:2:14: embed_dim: 'abc' is not a whole number (expected 1 to 65536)"
    printf 'base: {depth: [3\n' >syntax.yaml
    error "$VITRAIN" --yaml_config=syntax.yaml
    contains "$message" "syntax.yaml:2:1: "
    : >empty.yaml
    error "$VITRAIN" --yaml_config=empty.yaml
    contains "$message" "empty.yaml:1:1: the file is empty"
    error "$VITRAIN" --yaml_config=.
    contains "$message" ".: is a directory"
    error "$VITRAIN" --yaml_config=missing.yaml
    contains "$message" "missing.yaml: No such file or directory"
    head -c 3000 "$VITRAIN" >binary.yaml
    error "$VITRAIN" --yaml_config=binary.yaml
    contains "$message" "binary.yaml:1:1: not a text file"
}

test_no_permission() {
    [ "$(id -u)" -ne 0 ] || skip "root may read everything"
    echo 'base: {}' >closed.yaml
    chmod 0 closed.yaml
    error "$VITRAIN" --yaml_config=closed.yaml
    contains "$message" "closed.yaml: Permission denied"
}

# The error about a missing configuration shows which file was read.
test_where_the_file_is_found() {
    local program
    mkdir -p beside/config beside/build away here/config
    cp "$VITRAIN" beside/build/vitrain
    ln -s build/vitrain beside/vitrain
    echo 'base: {embed_dim: beside}' >beside/config/ViT.yaml
    echo 'base: {embed_dim: here}' >here/config/ViT.yaml
    program=$PWD/beside/vitrain
    cd away
    error "$program"
    contains "$message" "/beside/config/ViT.yaml:1:19: embed_dim: 'beside'"
    cd ../here
    error "$program"
    contains "$message" "vitrain: config/ViT.yaml:1:19: embed_dim: 'here'"
    error "$program" --yaml_config=../beside/config/ViT.yaml
    contains "$message" "vitrain: ../beside/config/ViT.yaml:1:19: "
    mkdir ../beside/build/config
    echo 'base: {embed_dim: nearest}' >../beside/build/config/ViT.yaml
    cd ../away
    error "$program"
    contains "$message" "/beside/build/config/ViT.yaml:1:19: embed_dim: 'nearest'"
    rm -r ../beside/build/config ../beside/config
    error "$program"
    contains "$message" "there is no config/ViT.yaml here, nor beside the program; name a file of configurations with --yaml_config=PATH"
}

# A pipe is read as well as a file.
test_file_from_a_pipe() {
    local got=0
    echo 'base: {embed_dim: piped}' | "$VITRAIN" --yaml_config=/dev/stdin >stdout 2>stderr || got=$?
    [ "$got" -eq 1 ]
    contains "$(cat stderr)" "/dev/stdin:1:19: embed_dim: 'piped' is not a whole number"
}

# The tutorials' file, whose data are not here: the error is about the data, not about a key.
test_tutorial_file() {
    for name in base short short_opt older wide wide_te; do
        error "$VITRAIN" --yaml_config="$TOP/tests/commands/tutorial.yaml" --config=$name --amp_mode=none \
            --data_dir=./nowhere --expdir=./runs || return 1
        contains "$message" "./nowhere" || return 1
    done
    error "$VITRAIN" --yaml_config="$TOP/tests/commands/tutorial.yaml" --config=unused
    contains "$message" "tutorial.yaml:" "found a list"
}

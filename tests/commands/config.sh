# The program's use of configurations: exit status, messages on standard error, files found, help.

# error PART... -- COMMAND...: fails with status 1 and prints one line on standard error, which contains every PART.
error() {
    local got=0 parts=() message
    while [ "$1" != -- ]; do parts+=("$1"); shift; done
    shift
    "$@" >stdout 2>stderr || got=$?
    message=$(cat stderr)
    [ "$got" -eq 1 ] || { echo "exit status $got, expected 1: $*"; cat stdout stderr; return 1; }
    [ "$(wc -l <stderr)" -eq 1 ] || { echo "expected one line on standard error:"; cat stderr; return 1; }
    case $message in "vitrain: "*) ;; *) echo "expected 'vitrain: ...': $message"; return 1 ;; esac
    contains "$message" "${parts[@]}"
}

test_help_and_version() {
    contains "$("$VITRAIN" --help)" "usage: vitrain [subcommand]"
    contains "$("$VITRAIN" -h)" "synth "
    contains "$("$VITRAIN" help)" "options "
    contains "$("$VITRAIN" help options)" "usage: vitrain options [--name=value"
    contains "$("$VITRAIN" train --help)" "usage: vitrain [train]"
    contains "$("$VITRAIN" --config=demo --help)" "vitrain options"
    for words in version --version "train --version" "--config=short --version"; do
        case $("$VITRAIN" $words) in "vitrain "?*) ;; *) return 1 ;; esac
    done
    [ "$("$VITRAIN" version)" = "$("$VITRAIN" --version)" ]
    says "built with" "kernels for baseline" "HDF5 1." -- "$VITRAIN" version
    contains "$("$VITRAIN" help version)" "Print the version"
    error "version: unknown argument '2'" -- "$VITRAIN" version 2
    error "'trian' is not a subcommand; did you mean 'train'?" -- "$VITRAIN" trian
    error "'bnch' is not a subcommand; did you mean 'bench'?" -- "$VITRAIN" bnch
    error "'nothing_like_it' is not a subcommand" -- "$VITRAIN" help nothing_like_it
    error "unknown flag --html" -- "$VITRAIN" options --html
}

# The flags of subcommands take the forms that options take, and no others.
test_values_mean_the_same_everywhere() {
    local word command
    export SOURCE_DATE_EPOCH=0 # the date of the statistics
    "$VITRAIN" synth a --img_size=8,16 --channels=1 --years=1 --steps_per_year=5 --valid_steps=2 --seed=10 --noise=0.1 >/dev/null
    "$VITRAIN" synth b --img_size=0.8e1,1.6e1 --channels=1e0 --years=1 --steps_per_year=5 --valid_steps=2.0 --seed=1e1 --noise=1e-1 >/dev/null
    diff -r a b
    "$VITRAIN" synth b --img_size=8,16 --channels=1 --force=Yes >/dev/null
    for word in nan,64 0x10,64 1e2,64.5 "[8,16" 8,16,; do
        for command in "synth c" train; do
            error "--img_size=$word: '$word' is not two whole numbers" -- "$VITRAIN" $command --img_size="$word"
        done
    done
    for word in inf nan 0x1p-3 ' 0.1'; do
        error "synth: --noise=$word: '$word' is not a number (expected 0 to 10)" -- "$VITRAIN" synth c --noise="$word"
        error "--lr=$word: '$word' is not a number" -- "$VITRAIN" --lr="$word"
    done
    for word in '[nan,3]' '[0x1,3]' '[1,inf]'; do
        for command in "stats a" train; do error "--lat_range=$word: '$word' is not two numbers" -- "$VITRAIN" $command --lat_range="$word"; done
    done
    error "inspect: --verify=maybe: 'maybe' is not a switch (expected true or false)" -- "$VITRAIN" inspect a --verify=maybe
    for word in yes on 1 True; do says "all of it was read: no faults" -- "$VITRAIN" inspect a --verify=$word; done
    says "(--verify reads every value)" -- "$VITRAIN" inspect a --verify=off
    says " layouts, " -- "$VITRAIN" plan --rules=no --calibrate=no --yaml_config="$TOP/config/ViT.yaml" --hardware="$TOP/config/hardware.yaml:cpu" \
        --config=demo --ranks=1
    for command in "" train synth plan "bench io" version help; do
        "$VITRAIN" $command --help >asked
        cmp asked <("$VITRAIN" $command --help=true) # so is it without a value
        error "--help=maybe: expected true or false" -- "$VITRAIN" $command --help=maybe
    done
    [ "$("$VITRAIN" --version=yes)" = "$("$VITRAIN" --version)" ]
    error "synth: no DIR given" -- "$VITRAIN" synth --help=no
    printf 'short: {}\nnames: [a, b]\nlong: {}\n' >own.yaml
    mkdir config && cp "$TOP/config/hardware.yaml" config # which plan and layout look for here
    for command in train plan "bench io" layout; do
        error "--config=nope: no such configuration in own.yaml; it holds short, long" -- "$VITRAIN" $command --config=nope --yaml_config=own.yaml
    done
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
    # what models have for themselves
    contains "$(grep '^| `lr` ' markdown)" '| `5e-4`; unet3d: `2e-4`; transformer, encoder: `2e-3` |'
    contains "$(grep '^| `lr_schedule` ' markdown)" '; transformer, encoder: `none` |'
    contains "$(grep '^| `optimizer` ' markdown)" '; transformer, encoder: `AdamW` |'
    contains "$(grep '^| `global_batch_size` ' markdown)" '| `16`; unet3d: `64`; transformer, encoder: `128` |'
    contains "$(grep '^| `attention_scale` ' markdown)" '; encoder: `none` |'
    contains "$(tr -s ' \n' ' ' <text)" "default of unet3d: 2e-4; transformer, encoder: 2e-3)"
    contains "$("$VITRAIN" options --man | tr -s ' \n' ' ')" "default of unet3d: 2e"
}

test_output_that_cannot_be_written() {
    [ -w /dev/full ] || skip "no /dev/full"
    for arguments in --help --version options "options --markdown"; do
        error "standard output can't be written: No space left on device" -- sh -c "exec '$VITRAIN' $arguments >/dev/full"
        error "standard output can't be written: Bad file descriptor" -- sh -c "exec '$VITRAIN' $arguments >&-"
    done
}

# Control characters of a value don't reach the terminal.
test_messages_are_one_line() {
    error "--lr=1\\n2: '1\\n2' is not a number" -- "$VITRAIN" --lr=$'1\n2'
    error "synth: --years=\\x1b[2J: '\\x1b[2J' is not a whole number" -- "$VITRAIN" synth a --years=$'\033[2J'
    error "inspect: no\\nwhere: No such file" -- "$VITRAIN" inspect $'no\nwhere'
}

test_place_of_an_error() {
    error -- "$VITRAIN" --embed_dim=x
    local output
    output=$(VITRAIN_DEBUG=1 "$VITRAIN" --embed_dim=x 2>&1) && return 1
    contains "$output" "noted at src/config/"
}

test_flag_errors() {
    error "unknown flag --embd_dim; did you mean --embed_dim?" -- "$VITRAIN" --embd_dim=64
    for words in "layout --rank=3 --ranks" "plan --rank=3 --ranks" "evaluate --rolout=2 --rollout" "predict --step=2 --steps" "inspect --verfy=1 --verify"; do
        set -- $words # a subcommand's own flags are looked at, too
        refuses "$1: unknown flag ${2%=*}; did you mean $3? \`vitrain $1 --help\` says which there are" -- "$VITRAIN" $1 $2
    done
    # an option's name, slightly wrong: still the subcommand's help
    error "evaluate: unknown flag --embd_dim; did you mean --embed_dim? \`vitrain evaluate --help\` says" -- "$VITRAIN" evaluate --embd_dim=64
    for words in "export --ouput=x --output" "report --ouput=x --output" "synth --chanels=3 --channels"; do
        set -- $words
        error "$1: unknown flag ${2%=*}; did you mean $3? \`vitrain $1 --help\` lists all" -- "$VITRAIN" $1 $2
    done
    error "did you mean --threads? \`vitrain bench kernels --help\` lists all" -- "$VITRAIN" bench kernels --thread=2
    error "--embed_dim=abc: 'abc' is not a whole number (expected 1 to 65536)" -- "$VITRAIN" train --embed_dim=abc
    error "--enable_jit=false" -- "$VITRAIN" --enable_jit false
    error "has 5000 bytes, too many for a path" -- "$VITRAIN" --expdir="$(printf '%05000d' 0)"
    error "OMP_NUM_THREADS=100000: expected 1 to 4096" -- env OMP_NUM_THREADS=100000 "$VITRAIN" bench kernels --rounds=1
    error "did you mean 'short'?" -- "$VITRAIN" --yaml_config="$TOP/config/ViT.yaml" --config=shrt
    # what other programs call it; a far name is no suggestion
    error "evaluate: unknown flag --gpus; a launcher starts the ranks: submit/local.sh 4" -- "$VITRAIN" evaluate --gpus=2
    error "layout: unknown flag --load_ckpt; did you mean --resume? " -- "$VITRAIN" layout --load_ckpt=x
    error "synth: unknown flag --gpus; \`vitrain synth --help\` lists all" -- "$VITRAIN" synth --gpus=2
    # every row of the table: its words are no options, and what they lead to is one
    local word option count=0
    while IFS='"' read -r _ words _ option _; do
        "$VITRAIN" options | grep -q "^[* ] --$option\b" || { echo "--$option is no option"; return 1; }
        for word in ${words//|/ }; do
            refuses "unknown flag --$word; did you mean --$option?" -- "$VITRAIN" layout --$word=1
            count=$((count + 1))
        done
    done < <(sed -n '/^} synonyms/,/^};/{/", NULL},$/p}' "$TOP/src/config/option.c")
    [ "$count" -gt 50 ]
}

# What a newcomer types first.
test_first_minute() {
    cmp <("$VITRAIN") <("$VITRAIN" --help)
    cp -r "$TOP/config" config
    error "data_dir './data/demo': no such directory" "\`vitrain synth ./data/demo --img_size=[32,64] --channels=8\` makes" -- "$VITRAIN" --config=demo
    error "\`vitrain synth ./data/unet_demo --model=unet3d\`" -- "$VITRAIN" --config=unet_demo
    error "\`vitrain synth ./data/x --model=unet3d --npy\`" -- "$VITRAIN" --config=unet_demo --data_dir=./data/x --data_loader_config=dali-lowmem
    error "\`vitrain synth --text ./data/lm_demo\`" -- "$VITRAIN" --config=lm_demo
    error "--config=unet_dem: no such configuration in the files of the models; did you mean 'unet_demo'?" -- "$VITRAIN" --config=unet_dem
    echo 'lr: 1e-3' >flat.yaml
    error "flat.yaml: its keys, such as lr, belong to no configuration; put a line \`base:\` above them" -- "$VITRAIN" --yaml_config=flat.yaml
    # the command that it names makes what the configuration needs
    "$VITRAIN" synth ./data/demo --img_size=[32,64] --channels=8 --steps_per_year=9 --valid_steps=5 >/dev/null
    "$VITRAIN" --config=demo --num_iters=1 --global_batch_size=4 >/dev/null
}

# Model parallelism of 2023 had a second axis, of which only 1 was possible.
test_column_axis() {
    "$VITRAIN" layout --yaml_config="$TOP/config/ViT.yaml" --ranks=2 --config=mp --col_parallel_size=1 --row_parallel_size=2 >/dev/null
    error "--col_parallel_size=2: only 1 is possible, as layers are split over one axis of ranks; --tensor_parallel" -- \
        "$VITRAIN" --yaml_config="$TOP/config/ViT.yaml" --config=mp --col_parallel_size=2
}

# tests/unit/config_yaml.c has all the errors of a file.
test_file_errors() {
    printf 'base:\n  depth: 3\n  embd_dim: 64\n' >unknown.yaml
    error "unknown.yaml:3:3: unknown key 'embd_dim' in configuration 'base'; did you mean 'embed_dim'?" -- "$VITRAIN" --yaml_config=unknown.yaml
    error "missing.yaml: No such file or directory" -- "$VITRAIN" --yaml_config missing.yaml
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
    error "/beside/config/ViT.yaml:1:19: embed_dim: 'beside'" -- "$program" train
    cd ../here
    error "vitrain: config/ViT.yaml:1:19: embed_dim: 'here'" -- "$program" train
    error "vitrain: ../beside/config/ViT.yaml:1:19: " -- "$program" --yaml_config=../beside/config/ViT.yaml
    mkdir ../beside/build/config
    echo 'base: {embed_dim: nearest}' >../beside/build/config/ViT.yaml
    cd ../away
    error "/beside/build/config/ViT.yaml:1:19: embed_dim: 'nearest'" -- "$program" train
    rm -r ../beside/build/config ../beside/config
    error "there is no config/ViT.yaml here, nor beside the program; name a file of configurations with --yaml_config=PATH" -- "$program" train
}

# A pipe is read as well as a file.
test_file_from_a_pipe() {
    local got=0
    echo 'base: {embed_dim: piped}' | "$VITRAIN" --yaml_config=/dev/stdin >stdout 2>stderr || got=$?
    [ "$got" -eq 1 ]
    contains "$(cat stderr)" "/dev/stdin:1:19: embed_dim: 'piped' is not a whole number"
}


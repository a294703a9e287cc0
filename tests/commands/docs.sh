# README.md and docs/*.md: every command of these pages runs, on less data and with a smaller model, or not_run says why it
# doesn't. In these pages a block that is indented by four spaces holds commands; output, code and formulas stand between lines of
# ```. Numbers in columns marked ✓, and in a block below <!-- ✓ -->, are those that the program prints.

pages() { (cd "$TOP" && ls README.md docs/*.md); }

# commands_of PAGE: "LINE<tab>COMMAND", each on one line, without its comment
commands_of() {
    awk '
        /^```/ { fenced = !fenced; blank = 1; next }
        fenced { next }
        /^ *$/ { blank = 1; next }
        !/^    / || !(blank || inside) { inside = blank = 0; next }
        {
            inside = 1; blank = 0
            sub(/^ +/, ""); sub(/ +# .*/, "")
            if (command == "") line = FNR
            command = command (command == "" ? "" : " ") $0
            if (sub(/ *\\$/, "", command)) next
            if (command !~ /^#/) print line "\t" command
            command = ""
        }' "$TOP/$1"
}

# not_run COMMAND: sets $why to the reason for which the tests don't run it: none, or "unknown" if it is no command
not_run() {
    local words=$1
    while [[ $words =~ ^[A-Z_]+=([^\ \"\$]+|\"[^\"]*\"|\$\([^\)]*\))\ (.*) ]]; do words=${BASH_REMATCH[2]}; done
    case $words in
    make | "make "*) why="builds, installs or tests" ;;
    "srun "* | "sbatch "*) why="needs Slurm" ;;
    "apt-get "* | "docker "* | "apptainer "* | "spack "* | "conda "*) why="installs or packs" ;;
    "python "* | "torchrun "* | "tensorboard "* | *python3*) why="a program of others" ;;
    bench/* | build/bench/*) why="measures times" ;;
    *--device=cuda*) why="needs a GPU" ;;
    *=…* | [a-z.]*" [--"* | *"<"*">"*) why="has parts to be filled in" ;;
    ./vitrain\ [a-z-]* | vitrain\ [a-z-]* | submit/* | "mpirun "* | "for "* | done | export\ [A-Z]*) why= ;;
    *) [[ $words =~ ^[A-Z_]+=[^\ ] ]] && why='' || why=unknown ;;
    esac
}

# Every command is known, nothing between ``` is one, and a function long_* runs the page.
test_blocks() {
    local page line command why count=0
    for page in $(pages); do
        while IFS=$'\t' read -r line command <&3; do
            not_run "$command"
            [ "$why" != unknown ] || echo "$page:$line: is this a command? Then not_run lacks it. If not, put it between lines of \`\`\`: $command"
            [ -n "$why" ] || grep -Eq "^ *run_page $page( |\$)" "$TOP/tests/commands/docs.sh" || echo "$page:$line: no test runs this page"
            count=$((count + 1))
        done 3< <(commands_of "$page")
        while IFS=$'\t' read -r line command <&3; do
            not_run "$command"
            [ "$why" = unknown ] || echo "$page:$line: a command between lines of \`\`\`; indent it by four spaces: $command"
        done 3< <(awk '/^```/ { open = !open; plain = open && $0 == "```"; next } plain { sub(/^ +/, ""); print FNR "\t" $0 }' "$TOP/$page")
        grep -nE '^ *~~~|^ +```|^```.' "$TOP/$page" | sed "/:\`\`\`python\$/d; s|^|$page: write \`\`\` or \`\`\`python instead: |"
    done >bad
    cat bad
    [ ! -s bad ]
    [ "$count" -gt 150 ]
}

# calls_of PAGE: "LINE<tab>ARGUMENTS" of each call of the program, in blocks and in prose between `` (LINE 0)
calls_of() {
    { commands_of "$1"; awk '/^```/ { fenced = !fenced; next } !fenced && !/^    /' "$TOP/$1" | tr '\n' ' ' | grep -o '`[^`]*`' | sed 's/^`/0\t/; s/`$//'; } |
        sed -nE '/vitrain (was|stores) /d; s/^([0-9]+\t)(.*[ (])?((\.\/)?vitrain|submit\/[a-z]+\.sh( [0-9]+)?) ([^|>;&)]*).*/\1\6/p'
}

# check_call ARGUMENT...: its subcommand, flags and configuration exist
check_call() {
    local subcommand=train word name
    case $1 in
    bench) subcommand="bench ${2:-}" ;;
    [a-z]*) subcommand=$1 ;;
    esac
    if [ -z "${known[$subcommand]:-}" ]; then
        "$VITRAIN" $subcommand --help >/dev/null || return 1
        for name in $("$VITRAIN" options --names="${subcommand// /$'\n'}"$'\n--' | sed -n 's/^--\([A-Za-z0-9_.]*\).*/\1/p') help version; do known[$subcommand $name]=1; done
        known[$subcommand]=1
    fi
    for word; do
        [[ $word =~ ^\[?--([A-Za-z0-9_.-]+)(=([a-z][a-z0-9_-]*))? ]] || continue
        name=${BASH_REMATCH[1]//-/_}
        [ -n "${known[$subcommand $name]:-}" ] || { echo "$subcommand has no flag $word"; return 1; }
        [ "$name" != config ] || [ -z "${BASH_REMATCH[3]}" ] || [ -n "${known[--config=${BASH_REMATCH[3]}]:-}" ] || { echo "there is no $word"; return 1; }
    done
}

# Subcommands, flags, configurations, files and goals that commands name exist.
test_names() {
    local page line words list name count=0
    local -A known
    for name in $(sed -n 's/^\([a-z][A-Za-z0-9_-]*\):.*/\1/p' "$TOP"/config/*.yaml); do known[--config=$name]=1; done
    for page in $(pages); do
        while IFS=$'\t' read -r line words <&3; do
            read -ra list <<<"$words"
            check_call "${list[@]}" 2>&1 || echo "... $page:$line: vitrain $words"
            count=$((count + 1))
        done 3< <(calls_of "$page")
        for name in $(commands_of "$page" | grep -oE '(submit|bench|tests|docs)/[a-z][A-Za-z0-9_./]*'); do
            [ -e "$TOP/$name" ] || [ -e "$TOP/$name.c" ] || echo "$page: there is no $name"
        done
        for name in $(commands_of "$page" | cut -f2 | grep -E '^([A-Z_]+=[^ ]* )?make( |$)' | grep -oE ' [a-z-]+( |$)'); do
            grep -Eq "^([^#]* )?$name( [a-z -]*)?:" "$TOP"/Makefile "$TOP"/make/*.mk || [ "$name" = make ] || echo "$page: there is no goal $name"
        done
    done >bad
    cat bad
    [ ! -s bad ]
    [ "$count" -gt 200 ]
}

# ---- the columns marked ✓: what takes longest begins first ----

table_flags() {
    cat <<'FLAGS'
*--embed_dim=256*) set -- "$@" --limit_nsamples_val=16 --num_iters=1 ;;
--config=lab*) set -- "$@" --limit_nsamples_val=16 ;;
--config=lm_demo*) set -- "$@" --limit_nsamples_val=32 --num_iters=2 ;;
FLAGS
}

# cells_of PAGE KEY: of the rows that begin with KEY, a line "COLUMN=CELL" for each column that is marked
cells_of() {
    awk -F ' *[|] *' -v key="| $2" '
        /^[|]/ && !inside { inside = 1; split($0, head, / *[|] */); next }
        /^[|]/ && !/^[|]-/ && index($0, key) == 1 {
            for (i = 2; i < NF; i++) if (head[i] ~ / ✓$/) print substr(head[i], 1, length(head[i]) - length(" ✓")) "=" $i
        }
        !/^[|]/ { inside = 0 }' "$TOP/$1"
}

# rounds_to CELL NUMBER WHERE: the number, with as many decimals as the cell has
rounds_to() {
    awk -v cell="$1" -v found="$2" 'BEGIN { sub(/ .*/, "", cell); point = index(cell, "."); exit sprintf("%." (point ? length(cell) - point : 0) "f", found) != cell }' ||
        { echo "$3: the page says $1, the program $2"; return 1; }
    echo "$3" >>compared
}

# all_compared PAGE: no marked cell was forgotten
all_compared() {
    [ "$(sort -u compared | wc -l)" -eq "$(cells_of "$1" "" | wc -l)" ] || { echo "$1: other cells are marked than these:"; sort -u compared; return 1; }
    rm compared
}

# as_the_page_says RUN: memory in the log `printed`, and losses, whose last digits rounding may change
as_the_page_says() {
    local column cell found
    while IFS='=' read -r column cell <&4; do
        case $column in
        "loss of step "*)
            for found in runs/*/*/"$1"; do
                awk -F, -v step="${column##* }" -v cell="$cell" '
                    $1 == step { change = $3 / cell - 1; ok = change < 1e-6 && change > -1e-6 }
                    END { exit !ok }' "$found/metrics.csv" || { echo "$1, $column: not $cell, but $(tail -n 1 "$found/metrics.csv")"; return 1; }
            done
            echo "$1, $column" >>compared ;;
        *) rounds_to "$cell" "$(sed -n "s/.*memory the run needs: .*$column \([0-9.]*\) MB.*/\1/p" printed)" "$1, $column" ;;
        esac
    done 4< <(cells_of docs/lab.md "\`$1\`")
}

long_tables_of_the_lab() {
    wrapped_vitrain table_flags
    [ -n "$has_mpi" ] || skip "no MPI"
    local line command name number
    while IFS=$'\t' read -r line command <&3; do
        name=${command#*--run_num=} name=${name%% *}
        case $command in
        *"plan --rules"*) bash -c "$command" >>rules ;;
        *"synth data/lab"* | *"synth --text"*) bash -c "$command"; rm -f data/lm_demo/test.txt ;;
        *--run_num=*)
            case $(cells_of docs/lab.md "\`$name\`") in
            '') continue ;;
            *loss*) bash -c "$command" >printed 2>&1 || { tail -n 5 printed; return 1; } ;;
            *) # of memory alone, which is known before the first step
                rm -f printed
                bash -c "exec $command" >printed 2>&1 &
                wait_until grep "memory the run needs.*FLOP" printed
                kill $! || true
                wait $! || true ;;
            esac
            as_the_page_says "$name" ;;
        esac
    done 3< <(commands_of docs/lab.md)
    while IFS='=' read -r line command <&3; do
        for number in $(grep -oE '[0-9]+(\.[0-9]+)?' <<<"$command"); do
            grep -qwF "$number" rules || { echo "$number of '$command' is not in what plan --rules prints"; return 1; }
        done
        echo "$command" >>compared
    done 3< <(cells_of docs/lab.md "" | grep '^answer=')
    all_compared docs/lab.md
}

# as_planned PAGE KEY EXPRESSION FLAG...: the marked cell of a row is this expression of the columns of plan --csv
as_planned() {
    local cell found
    cell=$(cells_of "$1" "$2") cell=${cell##*=}
    found=$("$VITRAIN" plan --yaml_config="$TOP/config/ViT.yaml" --csv "${@:4}" | awk -F, -v cell="$cell" '
        function of(name) { return $at[name] }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        NR == 2 { printf "%.9g", '"$3"' }')
    rounds_to "$cell" "$found" "$1, $2"
}

long_tables_of_plans() {
    local key axis flags row state='(of("parameters") + of("gradients") + of("optimizer"))' whole="--tensor_parallel=1 --context_parallel=1 --pipeline_parallel=1"
    cp -r "$TOP/config" config
    for key in 0 1 2 3; do
        as_planned docs/parallelism.md "$key" "$state / 1e9" --config=mp --amp_mode=none --ranks=8 --zero_stage=$key $whole
    done
    all_compared docs/parallelism.md
    for key in Adam Adam8bit AdamW AdamW8bit Muon Adafactor SGD; do
        as_planned docs/optimizers.md "\`$key\`" 'of("optimizer") / (cell ~ /KB/ ? 2^10 : 2^20)' --config=ncep --optimizer=$key
    done
    all_compared docs/optimizers.md
    as_planned docs/performance.md small "$state / 2^20" --img_size=[32,64] --patch_size=4 --embed_dim=128 --depth=4 --num_heads=4
    as_planned docs/performance.md medium "$state / 2^20" --img_size=[90,180] --patch_size=6 --embed_dim=256 --depth=6 --num_heads=8
    for key in 1 16; do as_planned docs/performance.md "full, batch $key |" "$state / 2^20" --global_batch_size=$key; done
    all_compared docs/performance.md
    while IFS='|' read -r _ key row _ <&3; do
        flags="--config=${key//[\` ]/} --recompute=none --zero_stage=0 --grad_accumulation=1 --sequence_parallel=false --pipeline_parallel=1"
        for axis in tp:tensor cp:context; do
            [[ $row =~ ${axis%:*}\ ([0-9]+) ]] && flags+=" --${axis#*:}_parallel=${BASH_REMATCH[1]}" || flags+=" --${axis#*:}_parallel=1"
        done
        [[ $row == *H100* ]] && flags+=" --hardware=h100-nvl" || flags+=" --hardware=a100-40"
        flags+=" --ranks=$(grep -oE '[tcd]p [0-9]+' <<<"$row" | awk 'BEGIN { n = 1 } { n *= $2 } END { print n }')"
        as_planned docs/planning.md "${key# }|$row" 'of("samples_per_second")' $flags
    done 3< <(sed -n '/^| configuration | layout, GPUs/,/^$/p' "$TOP/docs/planning.md" | grep '^| `')
    all_compared docs/planning.md
}

long_marked_block() {
    wrapped_vitrain true
    commands_of docs/tour.md | sed -n '1,2s/^[0-9]*\t//p' >commands
    . ./commands >printed
    awk '/^<!-- ✓ -->/ { marked = 1 } /^```/ { open = !open; if (!open) marked = 0; next } open && marked && !/…/' "$TOP/docs/tour.md" >block
    [ "$(wc -l <block)" -gt 10 ]
    refuted grep -vxFf printed block
}

# Every mark is one that is compared.
test_marks() {
    local pages="docs/lab.md docs/optimizers.md docs/parallelism.md docs/performance.md docs/planning.md"
    [ "$(cd "$TOP" && grep -lE '^\|.* ✓ \|' README.md docs/*.md | tr '\n' ' ')" = "$pages " ]
    [ "$(cd "$TOP" && grep -lx '<!-- ✓ -->' README.md docs/*.md)" = docs/tour.md ]
    [ "$(grep -cx '<!-- ✓ -->' "$TOP/docs/tour.md")" -eq 1 ]
}

# ---- the commands run ----

# wrapped_vitrain FUNCTION: makes ./vitrain as the pages call it, with flags that the function prints as cases of sh. If a flag is
# repeated, the last one counts.
wrapped_vitrain() {
    { printf '#!/bin/sh\ncase $* in\n'; "$1"; printf 'esac\nexec "$REAL" "$@"\n'; } >vitrain
    chmod +x vitrain
    export REAL=$VITRAIN VITRAIN=$PWD/vitrain PATH=$PWD:$PATH
    cp -r "$TOP/config" config # a page writes a file there
    chmod u+w config
    ln -s config their
    ln -s "$TOP/submit" submit
    unset NVTX_INJECTION64_PATH
    has_mpi=1
    "$TESTS" --has-mpi >/dev/null && "$TOP/tests/mpirun" -np 1 true >/dev/null 2>&1 || has_mpi=
}
mpirun() { "$TOP/tests/mpirun" "$@"; }

small_flags() {
    cat <<'FLAGS'
synth*--text*) set -- "$@" --tokens=4000 ;;
synth*unet3d*) set -- "$@" --box_size=[32,32] ;;
synth*) set -- "$@" --img_size=[32,64] --steps_per_year=81 --valid_steps=37 --force ;;
init*) set -- "$@" --hours=0.02 --force ;;
*yaml_config=data.yaml*) set -- "$@" --limit_nsamples=16 --limit_nsamples_val=16 --rollout=1 --lr_restarts=None --num_epochs=1 ;;
plan*scaling*) set -- "$@" --scaling=1,2 ;;
plan*calibrate*) set -- "$@" --embed_dim=16 --depth=1 ;;
evaluate*lm/* | evaluate*unet*) ;;
evaluate*) set -- "$@" --rollout=3 --limit_nsamples_val=4 ;;
*--run_num=huge*) set -- "$@" --img_size=[32,64] ;;
*--config=lm* | *--config=wikitext*)
    set -- "$@" --embed_dim=16 --ffn_dim=32 --depth=1 --limit_nsamples=128 --limit_nsamples_val=32
    case $* in *--num_iters*) set -- "$@" --num_iters=2 ;; *) set -- "$@" --num_epochs=1 ;; esac ;;
--*unet_demo* | --*UNet.yaml*)
    set -- "$@" --full_scale=false --data_size=32 --box_size=None --unet_width=4 --global_batch_size=4 --Nsamples=16 --Nsamples_val=16 --num_epochs=1 ;;
--config=lab*)
    set -- "$@" --img_size=[32,64] --embed_dim=16 --depth=1 --limit_nsamples=64 --limit_nsamples_val=16 --num_iters=4 ;;
"bench io"*unet*) set -- "$@" --num_iters=4 ;;
*unet*) ;;
--* | "bench io"*)
    set -- "$@" --embed_dim=16 --depth=1 --num_heads=4 --patch_size=4 --global_batch_size=8 --limit_nsamples=8 --limit_nsamples_val=8
    case $* in *pipeline*) set -- "$@" --depth=4 ;; *ncep-ensemble*) set -- "$@" --crps_scales=1,2 ;; esac
    case $* in *--config=demo* | *--config=ncep*) ;; *) set -- "$@" --num_iters=2 ;; esac
    case $* in
    *_range=*) set -- "$@" --patch_size=1 ;;
    *z@500*) set -- "$@" --img_size=[8,12] --n_in_channels=2 --n_out_channels=2 ;;
    *) set -- "$@" --img_size=[32,64] ;;
    esac ;;
FLAGS
}

# run_page PAGE [SED]: its commands in their order, after this change of what stands for something else, such as DIR
run_page() {
    local line command why
    while IFS=$'\t' read -r line command; do
        not_run "$command"
        [ -n "$why" ] || printf '%s\n' "$command"
    done < <(commands_of "$1") | sed -E "s/ (…|\.\.\.)\$//; $([ -n "$has_mpi" ] || echo '/^(submit|mpirun)|2MP/d;') ${2:-}" >commands
    [ -s commands ]
    set -x
    . ./commands
    set +x
}

weather() { ./vitrain synth data --channels=20 && ./vitrain synth data/demo; }
netcdf() { # DIR, with train_2001.nc and train_2002.nc
    tar -xzf "$TOP/tests/zarr/stores.tar.gz" train_2001.nc train_2002.nc
    mkdir -p "$1/train" "$1/valid"
    mv train_2001.nc "$1/train"
    mv train_2002.nc "$1/valid"
}

long_lab() {
    wrapped_vitrain small_flags
    run_page docs/lab.md "s/.*--run_num=huge.*/fails 1 &/; $(command -v nsys >/dev/null && echo '/^ENABLE_PROFILING/d' || echo 's/^ENABLE_PROFILING.*/fails 1 env &/')"
    [ -s compare.html ]
    # the page's claim about the readers: the same numbers to the bit
    for run in workers dali cache; do
        cmp <(cut -d, -f1-5 runs/lab/1CPU/serial/metrics.csv) <(cut -d, -f1-5 runs/lab/1CPU/$run/metrics.csv)
    done
    [ -n "$has_mpi" ] || return 0
    [ -s runs/lab/2CPU/buckets/logs/comm-1.csv ]
    contains "$(cat runs/lab/2MP/bubble4/report.html)" "20.0 % by (p - 1)/(m + p - 1), with 2 stages and 4 micro-batches.<"
}

long_first_pages() {
    wrapped_vitrain small_flags
    run_page docs/tour.md
    rm -r runs forecast.nc
    weather
    netcdf ncep
    run_page README.md 's/stats DIR/& --force/; s/DIR/data/g; s/RUN/runs\/demo\/1CPU\/00/g; s/\[air\]/[t2m]/'
    rm -r runs
    run_page docs/checkpoints.md 's/step-00000128/step-00000002/
        s/.*2MP.*/submit\/local.sh 2 --config=demo --tensor_parallel=2 --num_epochs=2\n&/
        s/.*init_from=model.*/.\/vitrain export runs\/short\/1CPU\/00 --output=model.safetensors\n&\nrm model.safetensors/'
}

long_data_and_forecasts() {
    wrapped_vitrain small_flags
    weather
    netcdf set
    rm -r data/stats
    mkdir together
    cp data/train/2001.h5 data/valid/2002.h5 together
    tar -xzf "$TOP/tests/zarr/stores.tar.gz" v2_train.zarr
    "$VITRAIN" inspect v2_train.zarr >inspected || true
    grep -q 'was built without' inspected && zarr='/era5.zarr/d;' || zarr=
    run_page docs/data.md "$zarr"'s/era5.zarr/v2_train.zarr/; /variables/s/DIR/set/; /period/s/DIR/together/; s/DIR/data/
        s/u10,v10,//; s/1979..2015/2001/; s/2016-01-01..2017-06-30|2016..2017/2002/; s/tp=/u10=/g; s/q@850=/v10=/'
    netcdf ncep
    WINDOW="--variables=[t2m] --lat_range=[17.5,75] --lon_range=[200,317.5]"
    ./vitrain stats ncep $WINDOW
    run_page docs/forecasting.md 's/2014-01-05T06/2002-01-02T00/'
    ./vitrain --config=demo
    ./vitrain synth air --channels=1
    ./vitrain predict runs/demo/1CPU/00 --time=2002-01-02T00:00 --rollout=1 --output=air/invariant.nc
    run_page docs/inputs.md 's/DIR/air/g; s/\[z,lsm\]/[u10,v10]/'
    run_page docs/performance.md
}

long_other_models() {
    wrapped_vitrain small_flags
    run_page docs/lm.md 's/the history of/kunila/; s/DIR/data\/lm_demo/'
    run_page docs/unet3d.md 's/DIR/data\/unet_demo/'
    weather
    ./vitrain synth box --model=unet3d --npy
    echo '{"train_batch_size": 4}' >ds_config.json
    run_page docs/migration.md 's/DIR --batch/data\/lm_demo --batch/; s/DIR/data/; s/--yaml_config=config\/UNet.yaml/& --data_dir=box/'
}

long_several_ranks() {
    wrapped_vitrain small_flags
    weather
    run_page docs/parallelism.md 's/mpirun.sh 8/mpirun.sh 2/'
    run_page docs/planning.md 's/NAME/demo/'
}

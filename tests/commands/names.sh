# Names and other text of files, of YAML and of flags: control characters and bytes that are not UTF-8 reach no terminal, no log
# and no table as they are, and what a run writes can be read again.

# rename NAME NAME NAME: of the channels, three bytes each, as sed writes them
rename() { LC_ALL=C sed -i "s/u10v10t2m/$1$2$3/" data/*/*.h5 && "$VITRAIN" stats data --force; }

# clean FILE...: text in UTF-8, without control characters
clean() {
    iconv -f UTF-8 -t UTF-8 "$@" >/dev/null || { echo "not UTF-8: $*"; return 1; }
    refuted env LC_ALL=C.UTF-8 grep -naP '[\x00-\x08\x0b-\x1f\x7f-\x9f]' "$@"
}

ESC=$'\e'

test_channels() {
    local run=$RUNS/00
    synth
    rename '=\xff,' 'u\n1' 't\x1b\n' >said
    {
        "$VITRAIN" inspect data
        train --num_epochs=1 --channel_weights=auto
        train --num_epochs=2 --channel_weights=auto --resume
        "$VITRAIN" inspect $run
        "$VITRAIN" inspect $run/checkpoints/best
        "$VITRAIN" evaluate $run --rollout=2 --output=scores
        "$VITRAIN" predict $run --time=2002-01-02T00:00 --steps=2 --output=forecast.nc
        "$VITRAIN" inspect forecast.nc
        "$VITRAIN" report $run
    } >>said
    contains "$(cat said)" 'channels: =\xff, u\n1 t\x1b' 'resuming from' ' t\x1b '
    clean said $run/out.log $run/*.csv $run/report.html $run/config.yaml $run/checkpoints/best/about.json data/stats/about.json scores/*.csv scores/*.html
    # as text in tables, and as the name itself in what reads them
    contains "$(head -n 1 $run/epochs.csv)" ',"rmse_=\xff,",rmse_u\n1,rmse_t\x1b,"persistence_rmse_=\xff,",'
    for table in scores horizons spectra; do contains "$(cat scores/$table.csv)" $'\n'"\"'=\\xff,\"," $'\n''u\n1,'; done
    for page in scores/scores.html $run/report.html; do
        contains "$(cat $page)" '<figcaption>=\xff,<'
        refuted grep -F "'=" $page
    done
    # protobuf's strings are UTF-8
    cat $run/logs/events.* | grep -aqF 'RMSE(=\xff,)/valid'
    # statistics of an earlier version, which kept the raw name
    sed -i 's/"t\\\\x1b"/"t\\u001b\\n"/' data/stats/about.json
    grep -qF '"t\u001b\n"' data/stats/about.json
    train --num_epochs=1 --normalise=climatology --run_num=raw >said
}

test_channels_that_would_be_one() {
    synth
    refuses "channels' of 'fields' names channels 0 and 1 both 'u1'; each needs a name of its own" -- rename 'u1 ' 'u1\n' t2m
}

test_a_channel_that_is_called_like_a_coordinate() {
    synth
    rename lat v10 t2m >said
    train --num_epochs=1 >said
    refuses_once "can't make the variable 'lat' of x.nc: a coordinate or another channel has that name; give channel 0 another one in the data" -- "$VITRAIN" predict $RUNS/00 --time=2002-01-02T00:00 --steps=1 --output=x.nc
    [ ! -e x.nc ]
}

test_names_of_a_run() {
    local name
    synth
    for name in $'a\nb' "a${ESC}[31m" $'a\u009b' $'a\t'; do
        refuses_once "it names a directory, so it can't hold control characters" -- train --run_num="$name"
        clean - <<<"$output"
    done
    refuses 'a\xff' "is not text in UTF-8" -- train --run_num=$'a\xff'
    [ ! -e runs ]
}

# Paths, YAML, a log and a configuration that someone else wrote.
test_other_text() {
    local run=$RUNS/00 red="${ESC}[31m"
    synth
    mv data "data$red"
    ln -s "data$red" data
    printf 'base: &base\n  data_dir: "data\\e[31m"\n  img_size: [16, 32]\n  n_in_channels: 3\n  n_out_channels: 3\n  embed_dim: 16\n  depth: 1\n  num_heads: 2\n  patch_size: 4\n  num_epochs: 1\n  global_batch_size: 8\n"new\\e[31m":\n  <<: *base\n' >own.yaml
    own() { "$VITRAIN" --yaml_config=own.yaml --config=base "$@"; }
    own >said
    contains "$(cat said)" 'data_dir: data\x1b[31m' 'data: data\x1b[31m/train'
    "$VITRAIN" options --configurations --yaml_config=own.yaml >>said 2>&1 || true
    "$VITRAIN" inspect "data$red" >>said
    "$VITRAIN" evaluate runs/base/1CPU/00 --rollout=1 --output="s$red" >>said
    "$VITRAIN" predict runs/base/1CPU/00 --time=2002-01-02T00:00 --steps=1 --output="f$red.nc" >>said
    "$VITRAIN" plan --yaml_config=own.yaml --ranks=1 --hardware="$TOP/config/hardware.yaml:cpu" >>said
    for flags in "--valid_data_path=none$red" "--variables=[$red]" "--lr=$red" "--$red=1" "--config=new$red"; do
        fails 1 own "$flags"
        echo "$output" >>said
    done
    for words in "inspect none$red" "report none$red" "watch none$red" "none$red"; do
        fails 1 "$VITRAIN" $words
        echo "$output" >>said
    done
    run=runs/base/1CPU/00
    sed -i 's/^\( *patch_size:\).*/\1 "\\e[31m"/' $run/config.yaml
    echo "2026-01-01 00:00:00,000 - root - INFO - ${red}the run is finished" >>$run/out.log
    { "$VITRAIN" inspect $run; timeout $HANG "$VITRAIN" watch $run; } >>said
    contains "$(cat said)" 'patch_size "\e[31m"' 'ended: INFO - \x1b[31mthe run is finished'
    sed -i '$d' $run/out.log
    clean said $run/out.log $run/*.csv
}

# The words of a language model are those of its text.
test_words() {
    local number
    mkdir text
    for number in {1..200}; do echo "one ${ESC}[31mtwo three four five"; done >text/train.txt
    cp text/train.txt text/valid.txt
    "$VITRAIN" --yaml_config="$TOP/config/LM.yaml" --config=lm_demo --data_dir=text --num_iters=2 >said 2>&1 || { tail -n 3 said; return 1; }
    "$VITRAIN" generate runs/lm_demo/1CPU/00 --prompt="${ESC}[31mtwo" --tokens=3 >>said
    contains "$(cat said)" '\x1b[31mtwo'
    clean said
}

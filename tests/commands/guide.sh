# The man page and the completions that `vitrain options` prints.

test_man_page() {
    local name tool
    SOURCE_DATE_EPOCH=86400 "$VITRAIN" options --man >vitrain.1
    contains "$(head -n 1 vitrain.1)" '.TH VITRAIN 1 "1970-01-02" "vitrain '
    for name in NAME SYNOPSIS DESCRIPTION SUBCOMMANDS OPTIONS FILES ENVIRONMENT '"EXIT STATUS"' EXAMPLES; do
        grep -Eq "^\.SH \"?${name//\"/}\"?$" vitrain.1 || { echo "no section $name"; return 1; }
    done
    # every option and every subcommand's flag
    for name in $("$VITRAIN" options | sed -n 's/^[* ] --\([A-Za-z0-9_.]*\).*/\1/p') map_channel chunk_times rollout interval; do
        grep -q "^.fB.-.-$name" vitrain.1 || { echo "--$name is not in the page"; return 1; }
    done
    for name in $("$VITRAIN" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
        [ "$name" = help ] || grep -q "^\.SS \"vitrain $name" vitrain.1 || { echo "$name is not in the page"; return 1; }
    done
    [ "$(wc -L <vitrain.1)" -le 120 ] || { echo "lines of $(wc -L <vitrain.1) columns"; return 1; }
    # parsed by the tools that are installed
    tool=
    if command -v groff >/dev/null; then
        tool=groff
        groff -ww -man -Kutf8 -Tutf8 -P-cbou vitrain.1 >page 2>complaints
        [ ! -s complaints ] || { cat complaints; return 1; }
        contains "$(cat page)" "EXAMPLES"
    fi
    if command -v mandoc >/dev/null; then
        tool=mandoc
        mandoc -Tlint vitrain.1 >complaints 2>&1 || true
        [ ! -s complaints ] || { cat complaints; return 1; }
    fi
    [ -n "$tool" ] || lacks groff "groff or mandoc"
}

# offers LINE: what bash offers at the end of this line, sorted, on one line; computed by the function of the script.
offers() {
    local PATH=$(dirname "$VITRAIN"):$PATH # of the `vitrain` in LINE
    compopt() { manners="$manners $2"; } # there is a true one only while readline completes
    COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=() manners=
    _vitrain
    offered=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | tr '\n' ' ')
    offered=${offered% }
}

# expect_offers LINE "WORD WORD"
expect_offers() {
    offers "$1"
    [ "$offered" = "$2" ] || { echo "'$1' is offered '$offered', expected '$2'"; return 1; }
}

test_completion_bash() {
    "$VITRAIN" options --completion=bash >script
    bash -n script
    . ./script
    contains "$(complete -p vitrain)" "-F _vitrain vitrain"
    expect_offers "vitrain pre" predict
    expect_offers "vitrain be" bench
    expect_offers "vitrain bench " "--help io kernels"
    expect_offers "vitrain bench i" io
    expect_offers "vitrain bench nothing_like_it --" --help
    expect_offers "vitrain help lay" layout
    # names of flags, with '=' where a value must follow
    expect_offers "vitrain --embed_d" --embed_dim=
    [ "$manners" = " nospace" ]
    expect_offers "vitrain train --embed_d" --embed_dim=
    expect_offers "vitrain bench io --embed_d" --embed_dim=
    expect_offers "vitrain --enable_j" --enable_jit
    [ "$manners" = "" ]
    expect_offers "vitrain evaluate --r" "--recompute= --restart_warmup= --resume --resume_newest --roles= --rollout= --rollout_gradient= --rotate_vectors --row_parallel_size= --run_num="
    expect_offers "vitrain export --o" --output=
    expect_offers "vitrain export --embed_d" ""
    expect_offers "vitrain stats --outp" --output=
    expect_offers "vitrain evaluate --conf" ""
    expect_offers "vitrain plan --conf" --config=
    # values
    expect_offers "vitrain --device=" "auto cpu cuda"
    expect_offers "vitrain --device=c" "cpu cuda"
    expect_offers "vitrain --lr=1e-3 --device c" "cpu cuda"
    expect_offers "vitrain evaluate --split=" "test valid"
    expect_offers "vitrain bench kernels --device=cu" cuda
    expect_offers "vitrain --shuffle=" "false true"
    expect_offers "vitrain --row_parallel_size=" ""
    expect_offers "vitrain options --completion=z" zsh
    local COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}
    expect_offers "vitrain --device=cu" --device=cuda
}

test_completion_of_paths() {
    "$VITRAIN" options --completion=bash >script
    . ./script
    mkdir -p data/train "data/two words" && : >data/trial.yaml
    expect_offers "vitrain --data_dir=data/tr" "data/train data/trial.yaml"
    expect_offers "vitrain --data_dir data/tr" "data/train data/trial.yaml"
    expect_offers "vitrain --data_dir=data/two\\ w" "data/two words"
    expect_offers "vitrain --resume=data/tri" data/trial.yaml
    [ "$manners" = " filenames" ]
    expect_offers "vitrain stats data/tr" data/train
    expect_offers "vitrain stats data/train --output=data/tri" data/trial.yaml
    expect_offers "vitrain --expdir=nothing_like_it" ""
}

# The names in the files in which --config would be looked up, each once.
test_completion_of_configurations() {
    "$VITRAIN" options --completion=bash >script
    . ./script
    cp -r "$TOP/config" config # the sanitizers' program has none beside it
    expect_offers "$VITRAIN --config=dem" "demo demo-forecast"
    expect_offers "$VITRAIN --config=l" "lab lm lm_demo"
    expect_offers "$VITRAIN --config=unet" unet_demo
    [ "$("$VITRAIN" options --configurations | sort | uniq -d)" = "" ]
    printf '%s\n' 'tiny: {lr: 1}' 'tall: {lr: 2}' "'\$(touch executed)': {lr: 3}" 'text: not a configuration' >config/ViT.yaml
    printf '%s\n' 'tiny: {lr: 1}' 'unet: {lr: 2}' >config/UNet.yaml
    printf '%s\n' 'words: {lr: 1}' >config/LM.yaml
    printf '%s\n' 'other: {lr: 1}' >file.yaml
    [ "$("$VITRAIN" options --configurations | tr '\n' ' ')" = "tiny tall \$(touch executed) unet words " ] # each once, and no text
    expect_offers "$VITRAIN --config=t" "tall tiny"
    expect_offers "$VITRAIN --config " '\$\(touch\ executed\) tall tiny unet words'
    [ ! -e executed ] || { echo "the name of a configuration was executed"; return 1; }
    expect_offers "$VITRAIN --yaml_config=file.yaml --config=" other
    expect_offers "$VITRAIN plan --yaml_config file.yaml --config=" other
    expect_offers "$VITRAIN --yaml_config=missing.yaml --config=" ""
    refuses_once "missing.yaml" -- "$VITRAIN" options --configurations --yaml_config=missing.yaml
}

test_completion_zsh() {
    cp -r "$TOP/config" config
    "$VITRAIN" options --completion=zsh >_vitrain
    [ "$(head -n 1 _vitrain)" = "#compdef vitrain" ]
    needs zsh zsh
    zsh -n _vitrain
    zsh -f -c 'zmodload zsh/zpty' 2>/dev/null || skip "this zsh has no zpty: the script was not run"
    # A zsh behind a pseudo-terminal gets lines with a tab at each ^; control-X shows what they became.
    cat >ask.zsh <<'ASK'
autoload -Uz compinit && compinit -u -D
source ./_vitrain
show() { print -r -- "GOT<$BUFFER>"; BUFFER=; zle accept-line; }
zle -N show
bindkey '^I' complete-word
bindkey '^X' show
PS1=
print rea''dy
ASK
    cat >drive.zsh <<'DRIVE'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "path=(${VITRAIN:h} \$path); source ./ask.zsh"
expect() {
    local text all=
    while zpty -r -m shell text "*$1*"; do all+=$text; [[ $all == *$1* ]] && return 0; done
    return 1
}
expect ready
tab=$'\t'
while IFS='>' read -r line want; do
    zpty -w -n shell "${line//^/$tab}"$'\x18'
    all=
    while zpty -r shell text; do all+=$text; [[ $all == *GOT\<*\>* ]] && break; done
    got=${${all##*GOT\<}%%\>*}
    [[ $got == $want ]] || { print -r -- "'$line' became '$got', expected '$want'"; zpty -d shell; exit 1; }
done
zpty -d shell
DRIVE
    mkdir some_directory
    timeout $HANG zsh -f drive.zsh <<'LINES'
vitrain predi^>vitrain predict 
vitrain --embed_d^>vitrain --embed_dim=
vitrain --device=cu^>vitrain --device=cuda 
vitrain evaluate --split=va^>vitrain evaluate --split=valid 
vitrain bench ke^--rou^>vitrain bench kernels --rounds=
vitrain --config=smal^>vitrain --config=small 
vitrain --enable_j^ --shuf^fal^>vitrain --enable_jit --shuffle=false 
vitrain export --forc^ >vitrain export --force 
vitrain train --data_dir=some_d^>vitrain train --data_dir=some_directory/
vitrain stats some_d^>vitrain stats some_directory/
vitrain export --embed^>vitrain export --embed
LINES
}

test_options_refuses() {
    local arguments
    for arguments in "--man --markdown" "--completion=fish" "--completion" "--names= --man" "--yaml_config=x" "--man=2" demo; do
        refuses_once "options: " -- "$VITRAIN" options $arguments
    done
}

# Fine-tuning as a user meets it: what --init_from takes of another model, and --freeze.

synth
SMALL="$SMALL --keep_last=99"

# Early units, behind which backward ends; and some in the middle.
EARLY="--freeze=[patch_embed.*,pos_embed,blocks.0.*]" MIDDLE="--freeze=[blocks.1.attn.*,blocks.2.*,*bias]"

# same_names TAG CHECKPOINT CHECKPOINT: the parameters of the run TAG that are the same in both, to the bit.
same_names() {
    local name
    for name in $(tail -n +2 runs/*/*/"$1"/parameters.csv | cut -d, -f1); do
        ! cmp -s <(values "$2" "parameters/$name") <(values "$3" "parameters/$name") || echo "$name"
    done
}
# marked TAG true|false: those that its table says are frozen, or not.
marked() { grep ",$2\$" runs/*/*/"$1"/parameters.csv | cut -d, -f1; }
newest() { ls runs/*/*/"$1"/checkpoints/step-*/shard-00000-of-00001.h5 | tail -n 1; }

test_frozen_parameters() {
    train --num_epochs=1 >/dev/null
    says "model: 8656 parameters, 4576 of them frozen: " -- \
        train --num_epochs=2 --run_num=tuned --init_from=$RUNS/00/checkpoints/best $EARLY --ema_decay=0.5
    grep -E ' - pos_embed .*  frozen$' $RUNS/tuned/out.log >/dev/null
    [ "$(marked tuned true | wc -l) $(marked tuned false | wc -l)" = "19 19" ]
    diff <(same_names tuned "$(newest 00)" "$(newest tuned)") <(marked tuned true)
    # nothing is kept of them, and they are their own average
    local last; last=$(dirname "$(newest tuned)")
    cmp <(values "$last/checkpoint.h5" average/pos_embed) <(values "$last/checkpoint.h5" parameters/pos_embed)
    refuted cmp -s <(values "$last/checkpoint.h5" average/head.weight) <(values "$last/checkpoint.h5" parameters/head.weight)
    values "$(newest tuned)" optimizer/moment1/head.weight >/dev/null
    fails any values "$(newest tuned)" optimizer/moment1/pos_embed
    fails any values "$(newest tuned)" average/pos_embed
    says "average: of 8656 parameters (ema_decay 0.5)" "8160 moments" -- "$VITRAIN" inspect --verify "$last"
    says "averaged weights" -- "$VITRAIN" evaluate $RUNS/tuned --data_dir=data --rollout=1 --output=scores
    "$VITRAIN" export $RUNS/tuned --output=average.safetensors >/dev/null
    train --num_epochs=1 --run_num=again --init_from=average.safetensors >printed
    refuted grep 'init_from: [^.]*parameters are taken' printed # all of them
    refuses "freeze: 'blocks.2.*' matches no parameter of the model" -- train --run_num=bad --freeze='blocks.2.*'
    refuses "all 38 parameters of the model are frozen" -- train --run_num=bad --freeze='*'
    [ ! -e $RUNS/bad ]
}

test_frozen_by_a_file() {
    printf 'mine:\n  freeze: ["blocks.[01].*", pos_embed]\nnext:\n  freeze:\n  - blocks.[0].*\n  - head.weight\n' >own.yaml
    local flags; flags=$(echo $SMALL | sed 's/--yaml_config=[^ ]* --config=demo//')
    "$VITRAIN" $flags --yaml_config=own.yaml --config=mine --num_epochs=1 >/dev/null
    [ "$(marked 00 true | wc -l)" -eq 33 ]
    "$VITRAIN" $flags --yaml_config=runs/mine/1CPU/00/config.yaml --config=mine --num_epochs=1 --run_num=b >/dev/null
    cmp <(figures 00) <(figures b)
    "$VITRAIN" $flags --yaml_config=own.yaml --config=next --num_epochs=1 --run_num=c >/dev/null
    [ "$(marked c true | wc -l)" -eq 17 ]
}

# bytes CATEGORY FLAG...: what plan counts on one rank.
bytes() {
    local what=$1; shift
    "$VITRAIN" plan --csv $SMALL "$@" >plan.csv
    sed -n 2p plan.csv | cut -d, -f"$(head -n 1 plan.csv | tr , '\n' | grep -nx "$what" | cut -d: -f1)"
}

# A gradient and two moments fewer of a block, all of whose tensors are multiples of 16 numbers, so that nothing is padding.
test_plan_counts_less() {
    local block=$((4 * (2 * 2 * 16 + 4 * (16 * 16 + 16) + 2 * 16 * 64 + 64 + 16)))
    [ $(($(bytes gradients) - $(bytes gradients --freeze='blocks.1.*'))) -eq $block ]
    [ $(($(bytes optimizer) - $(bytes optimizer --freeze='blocks.1.*'))) -eq $((2 * block)) ]
    [ "$(bytes parameters)" -eq "$(bytes parameters --freeze='blocks.1.*')" ]
    [ "$(bytes activations $EARLY)" -lt "$(bytes activations)" ]
}

test_resumed_to_the_bit() {
    local flags common="--depth=3 --num_epochs=2 --lr_schedule=none"
    for flags in "$MIDDLE --optimizer=Muon --ema_decay=0.5" "$EARLY --optimizer=Adafactor" "$MIDDLE --optimizer=Adam8bit --embed_dim=64" \
        "$EARLY --amp_mode=bf16 --async_checkpoint"; do
        same_bits 1 $common $flags || { echo "with $flags"; return 1; }
    done
    common="--expdir=whole --depth=3 --num_epochs=4 --lr_schedule=none --amp_mode=bf16 --resume"
    refuses "was made with freeze [patch_embed.*,pos_embed,blocks.0.*], by which patch_embed.proj.weight is frozen, and here it is trained" \
        "--init_from=" -- train $common
    refuses ", by which blocks.1.norm1.weight is trained, and here it is frozen" -- \
        train $common --freeze='[patch_embed.*,pos_embed,blocks.[01].*]'
    says "resuming from " -- train $common --freeze='p*, blocks.[!12].*' # the same ones by other patterns
}

# Every layout has the figures of one rank, as without frozen parameters.
# over_ranks LAYOUT...: losses and norms are those of one rank
over_ranks() {
    needs_mpi
    local freeze layout alone=0 common="--depth=4 --num_epochs=1 --lr_schedule=none"
    for freeze in "$EARLY" "$MIDDLE"; do
        ranks 1 alone$((++alone)) $common "$freeze"
        for layout; do
            rm -rf several
            ranks 2 several $common "$freeze" $layout
            as_promised <(figures_of several) <(figures_of alone$alone) || { echo "$layout $freeze"; return 1; }
        done
        ranks 1 one$alone $common --num_epochs=2 "$freeze" --resume="$(step_of several 7)" # what another layout wrote
    done
}
test_over_ranks() {
    over_ranks "--zero_stage=3 --bucket_cap_mb=0.01" --tensor_parallel=2 "--pipeline_parallel=2 --pipeline_split=[1,3] --grad_accumulation=2"
}
long_over_ranks() {
    local layout
    over_ranks --zero_stage=0 --zero_stage=1 "--zero_stage=2 --grad_accumulation=2" "--tensor_parallel=2 --sequence_parallel=true" \
        --context_parallel=2 "--pipeline_parallel=2 --grad_accumulation=4"
    for layout in "--zero_stage=3 --ema_decay=0.5" "--pipeline_parallel=2 --grad_accumulation=2"; do
        same_bits 2 --depth=4 --num_epochs=2 --lr_schedule=none "$MIDDLE" $layout
    done
}

# Only what is trained is summed, and no backward runs below it.
test_messages() {
    needs_mpi
    local block=$((4 * (2 * 2 * 16 + 4 * (16 * 16 + 16) + 2 * 16 * 64 + 64 + 16))) head=$((4 * 48 * 16)) case
    for case in "$EARLY $((block + head + 4 * 2 * 16)) 2" "--freeze=[blocks.0.*,head.weight] $((4 * 8656 - block - head)) 0"; do
        set -- $case
        rm -rf traced
        ranks 2 traced --num_epochs=1 "$1" --comm_trace
        awk -F, -v trained="$2" -v first="$3" '$1 == 1 && $2 == "bucket" { bytes += $4 } $2 == "backward" { seen[$3] }
            END { exit bytes != trained || !(first in seen) || first - 1 in seen }' "$(directory_of traced)"/logs/comm-0.csv
    done
    # the second of two stages, with which the trained part begins, sends no gradient to the first
    rm -rf traced
    ranks 2 traced --num_epochs=1 $EARLY --pipeline_parallel=2 --pipeline_split=[1,1] --grad_accumulation=2 --comm_trace
    grep -q ,receive, "$(directory_of traced)"/logs/comm-1.csv
    refuted grep ,receive, "$(directory_of traced)"/logs/comm-0.csv
}

# norms PROGRAM... -- PATTERNS PATTERNS: both together freeze everything, so the squares of the first step's norms add up.
norms() {
    local program=() i=0 freeze
    while [ "$1" != -- ]; do program+=("$1"); shift; done
    shift
    for freeze in None "$@"; do
        rm -rf runs/*/*/n$i
        "${program[@]}" --num_iters=1 --run_num=n$i --freeze="$freeze" >/dev/null
        sed -n 2p runs/*/*/n$((i++))/metrics.csv
    done >norms
    awk -F, '{ loss[NR] = $3; norm[NR] = $5 } END { exit NR != 3 || loss[1] != loss[2] || loss[1] != loss[3] ||
        ((norm[2] ^ 2 + norm[3] ^ 2) / norm[1] ^ 2 - 1) ^ 2 > 1e-10 || norm[2] * norm[3] == 0 }' norms || { cat norms; return 1; }
}

test_other_models() {
    needs_kernels
    "$VITRAIN" synth --text words --tokens=6000 >/dev/null
    "$VITRAIN" synth cubes --model=unet3d --box_size=[40,36] --npy >/dev/null
    local lm="--yaml_config=$TOP/config/LM.yaml --data_dir=words --expdir=runs --embed_dim=16 --ffn_dim=32 --num_heads=2 --seq_len=8
        --num_threads=1 --stride=1 --limit_nsamples=62 --limit_nsamples_val=30"
    local unet="--yaml_config=$TOP/config/UNet.yaml --config=unet_demo --data_dir=cubes --box_size=None --data_size=32 --full_scale=false
        --unet_width=4 --expdir=runs --num_threads=1 --Nsamples=8 --Nsamples_val=2 --local_batch_size=2"
    norms "$VITRAIN" $lm --config=wikitext_a -- '*.encoder.*' '[embed.*, *.decoder.*, fc.*]'
    norms "$VITRAIN" $lm --config=wikitext_a --recompute=block -- '[embed.*, fc.bias]' '[*.encoder.*, *.decoder.*, fc.weight]'
    norms "$VITRAIN" $lm --config=wikitext_b -- '*bias' '*weight'
    norms "$VITRAIN" $lm --config=wikitext_b -- '[embed.*, layers.0.*]' '[layers.[!0].*, norm.*, fc.*]'
    norms "$VITRAIN" $unet -- 'conv_down*' '[conv_up*, conv_last.*]'
    norms "$VITRAIN" $unet --recompute=block -- '*bias' '*weight'
}

# Parameters of a model of another depth, patch or number of channels, whatever form they have.
test_parameters_of_another_model() {
    train --num_epochs=1 >/dev/null
    "$VITRAIN" export $RUNS/00 --output=model.safetensors >/dev/null
    local from
    for from in $RUNS/00 model.safetensors; do
        says "init_from: 38 of 70 parameters are taken" "init_from: begins anew: 32 of blocks.2 to blocks.3, such as blocks.2.norm1.weight (not there)" -- \
            train --num_epochs=1 --run_num=deep --init_from=$from --depth=4 --lr=0
        diff <(same_names 00 "$(newest 00)" "$(newest deep)") <(tail -n +2 $RUNS/00/parameters.csv | cut -d, -f1)
        says "init_from: not used: 16 of blocks.1, such as blocks.1.attn.k.bias" -- train --num_epochs=1 --run_num=deep --init_from=$from --depth=1
        says "pos_embed is interpolated from 4×8 tokens to 8×16" "init_from: begins anew: head.weight ([48, 16] there, [12, 16] here)" -- \
            train --num_epochs=1 --run_num=fine --init_from=$from --patch_size=2
        says "begins anew: patch_embed.proj.weight ([16, 3, 4, 4] there, [16, 2, 4, 4] here)" -- \
            train --num_epochs=1 --run_num=few --init_from=$from --n_in_channels=2 --n_out_channels=2
        refuses "none of its 38 tensors fits a parameter of the model" -- train --run_num=wide --init_from=$from --embed_dim=32
    done
    [ ! -e $RUNS/wide ]
    grep 'init_from: 38 of 70' $RUNS/deep*/out.log >/dev/null # the log of the run has it, too
    "$VITRAIN" synth wide --img_size=[16,64] --channels=3 --years=1 --steps_per_year=61 --valid_steps=13 >/dev/null
    says "pos_embed is interpolated from 4×8 tokens to 4×16" -- \
        train --num_epochs=1 --run_num=wide --init_from=$RUNS/00 --data_dir=wide --img_size=[16,64]
    says "begins anew: pos_embed ([1, 32, 16] there, [1, 64, 16] here, and on a grid of tokens that is not known)" -- \
        train --num_epochs=1 --run_num=wide --init_from=model.safetensors --data_dir=wide --img_size=[16,64]
    says "WARNING - init_from: it was made with num_heads 2, not 4" -- train --num_epochs=1 --run_num=heads --init_from=$RUNS/00 --num_heads=4
    # what goes on needs the same model, as before
    refuses "holds 38 parameters, the model has 70" -- train --num_epochs=2 --resume=$RUNS/00/checkpoints/best --depth=4
}

# Two ranks take what one takes, also of a checkpoint with averages.
test_parameters_over_ranks() {
    needs_mpi
    ranks 1 first --num_epochs=1 --ema_decay=0.5
    local layout common="--num_epochs=1 --depth=4 --patch_size=2 --init_from=$(directory_of first)"
    ranks 1 alone $common
    for layout in --zero_stage=3 --tensor_parallel=2 --context_parallel=2 "--pipeline_parallel=2 --grad_accumulation=2"; do
        rm -rf several
        ranks 2 several $common $layout
        contains "$(cat several.printed)" "the average of its weights" "pos_embed is interpolated from 4×8 tokens to 8×16" "36 of 70"
        as_promised <(figures_of several) <(figures_of alone) || { echo "$layout"; return 1; }
    done
}

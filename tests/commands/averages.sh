# Averaged weights (ema_decay) as a user meets them: validation, checkpoints, what uses those, and resuming.

SMALL="$SMALL --dropout=0.1 --ema_decay=0.8"

synth

test_what_uses_the_average() {
    says "dropout 0.1, averaged weights (ema_decay 0.8), float32" -- train --num_epochs=1
    says "  average: of " " parameters (ema_decay 0.8); evaluate, predict, export and --init_from use it" -- "$VITRAIN" inspect --verify $RUNS/00/checkpoints/step-00000007
    says "step 7, epoch 1, averaged weights" -- "$VITRAIN" evaluate $RUNS/00 --data_dir=data --rollout=2 --output=average
    says "step 7, epoch 1, live weights" -- "$VITRAIN" evaluate $RUNS/00 --data_dir=data --rollout=2 --weights=live --output=live
    # the loss of the validation, and with it `best`, is the average's
    local logged; logged=$(grep -o 'Avg val loss=[0-9.]*' $RUNS/00/out.log | cut -d= -f2)
    awk -F, -v logged="$logged" 'END { exit !($3 - logged < 1e-6 && logged - $3 < 1e-6) }' average/loss.csv
    refuted cmp average/loss.csv live/loss.csv
    train --num_epochs=1 --ema_validate=false --run_num=live >/dev/null
    refuted cmp <(grep -o 'Avg val loss=.*' $RUNS/00/out.log) <(grep -o 'Avg val loss=.*' $RUNS/live/out.log)
    cmp <(figures 00) <(figures live)
    says "averaged parameters of" -- "$VITRAIN" export $RUNS/00 --output=average.safetensors
    says ": the parameters of" -- "$VITRAIN" export $RUNS/00 --weights=live --output=live.safetensors
    refuted cmp average.safetensors live.safetensors
    says "the average of its weights (--weights=live: not)" -- train --num_epochs=1 --lr=0 --init_from=$RUNS/00 --run_num=from
    "$VITRAIN" export $RUNS/from --output=again.safetensors >/dev/null
    cmp average.safetensors again.safetensors
    "$VITRAIN" predict $RUNS/00 --weights=live --data_dir=data --time=2002-01-01T00:00 --rollout=1 --output=live.nc >/dev/null
    grep -aq 'step 7, epoch 1, live weights' live.nc
}

test_resumed_to_the_bit() {
    train --num_epochs=3 --lr_schedule=none --run_num=whole >/dev/null
    train --num_epochs=2 --lr_schedule=none --run_num=parts --checkpoint_every=5 --keep_last=9 >/dev/null
    train --num_epochs=3 --lr_schedule=none --run_num=parts --resume=$RUNS/parts/checkpoints/step-00000005 >/dev/null
    cmp <(figures parts) <(figures whole)
    cmp <(tensors $RUNS/parts/checkpoints/step-00000021) <(tensors $RUNS/whole/checkpoints/step-00000021)
}

# A run that begins to average does so with the weights that it has.
test_begun_later() {
    train --num_epochs=1 --ema_decay=None >/dev/null
    refuted sh -c "'$VITRAIN' inspect $RUNS/00/checkpoints/step-00000007 | grep average"
    says "ema_decay: $RUNS/00/checkpoints/step-00000007 holds no average, so it begins with the weights there" -- train --num_epochs=2 --resume
    says "(ema_decay 0.8)" -- "$VITRAIN" inspect $RUNS/00/checkpoints/step-00000014
    train --num_epochs=3 --ema_decay=None --resume >/dev/null
    refuted sh -c "'$VITRAIN' inspect $RUNS/00/checkpoints/step-00000021 | grep average"
}

test_bad_decays() {
    refuses_once "ema_decay" "1 is out of range (expected 0 to 0.9999999" -- train --ema_decay=1
    refuses_once "weights" "both" "average|live" -- train --weights=both
}

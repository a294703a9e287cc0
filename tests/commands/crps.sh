# Models that make ensembles of their own (loss crps), from training to scores.

# 21 times for training: with two input times and two targets 18 samples, which are 4 steps an epoch.
CRPS="$SMALL --config=base --depth=1 --img_size=[8,12] --n_in_channels=6 --n_history=1 --global_batch_size=4 --num_epochs=4 \
    --predict=tendency --normalise=climatology --augment=sign --input_noise=0.1 --forcings=[cos_zenith,sin_day] --dropout=0.1 \
    --rollout=1,2@2 --lr=1e-3 --lr_restarts=5e-4@1 --restart_warmup=2 --ema_decay=0.9"
LATER=$CRPS CRPS="$CRPS --loss=mse,crps@1 --crps_scales=1,2,4 --noise_dim=3"
RUNS=runs/base/1CPU

learn() { "$VITRAIN" $CRPS --expdir=runs "$@"; }

data_and_crps_run() {
    synth --img_size=[8,12] --steps_per_year=21 --valid_steps=13
    learn --run_num=whole >printed
}
made_once data_and_crps_run

test_resumed_to_the_bit() {
    contains "$(cat printed)" "noise_embed.weight" "loss: mse,crps@1"
    # where crps begins, and in an epoch of it
    for step in 4 6; do
        learn --run_num=cut$step --checkpoint_every=$step --keep_last=9 >/dev/null
        learn --run_num=cut$step --resume=$RUNS/cut$step/checkpoints/step-0000000$step >/dev/null
        cmp <(figures whole) <(figures cut$step)
        cmp <(tensors $RUNS/whole/checkpoints/step-00000016) <(tensors $RUNS/cut$step/checkpoints/step-00000016)
    done
    learn --run_num=parts --grad_accumulation=2 --cache=host >/dev/null
    near <(figures parts | cut -d, -f2) <(figures whole | cut -d, -f2) 1e-5
}

# What was trained without members goes on with them, as if the run had been meant to from the start.
test_a_deterministic_run_goes_on() {
    # with a decay that would make the weights of the noise small before they are used
    local even="--lr_schedule=none --rollout=1 --lr_restarts=None --optimizer=AdamW --weight_decay=0.5"
    "$VITRAIN" $LATER $even --expdir=runs --run_num=plain --loss=mse --num_epochs=1 >/dev/null
    refuted sh -c "'$VITRAIN' inspect $RUNS/plain | grep noise_embed"
    learn $even --run_num=both --num_epochs=2 >/dev/null
    says "noise_embed.weight is not in $RUNS/plain/checkpoints/step-00000004, so it begins anew" -- \
        learn $even --run_num=plain --num_epochs=2 --resume
    cmp <(figures both) <(figures plain)
    cmp <(tensors $RUNS/both/checkpoints/step-00000008) <(tensors $RUNS/plain/checkpoints/step-00000008)
    # the losses before, of another kind, were smaller
    [ "$(readlink $RUNS/both/checkpoints/best)" = step-00000008 ]
    says "noise_embed.weight" -- learn $even --run_num=from --loss=crps --init_from=$RUNS/plain/checkpoints/step-00000004
}

# By the date, the member and the step, whatever else is forecast with it.
test_members_are_the_same_however_they_are_made() {
    local evaluate="$VITRAIN evaluate $RUNS/whole --rollout=3 --data_dir=data"
    says "ensemble: 4 members, by the model's noise; its mean" -- $evaluate --members=4 --output=four
    awk -v crps="$(column four crps)" -v mae="$(column four mae)" -v spread="$(column four spread)" 'BEGIN { exit !(crps > 0 && crps < mae && spread > 0) }'
    for most in 1 3; do
        $evaluate --members=4 --local_batch_size=$most --output=batches --force >/dev/null
        near <(sed 's/[^0-9.,eE+-]//g' batches/scores.csv | sed 1d) <(sed 's/[^0-9.,eE+-]//g' four/scores.csv | sed 1d) 1e-5
    done
    says "by the model's noise, 4 with input_noise 0.5 on the initial state" -- $evaluate --members=4 --input_noise=0.5 --output=noisy
    awk -v a="$(column four spread)" -v b="$(column noisy spread)" 'BEGIN { exit !(b > 1.01 * a) }'
    # a checkpoint of the epoch without members makes equal ones only
    learn --run_num=early --checkpoint_every=4 --keep_last=9 >/dev/null
    refuses_once "--members=4: the members of a checkpoint differ by noise" "or train a model on loss crps" -- \
        "$VITRAIN" evaluate $RUNS/early/checkpoints/step-00000004 --members=4 --input_noise=0 --output=x
    needs hdf5-tools h5dump
    local predict="$VITRAIN predict $RUNS/whole --rollout=3 --time=2002-01-02T06"
    $predict --members=5 --output=five.nc >/dev/null
    $predict --members=3 --local_batch_size=2 --output=three.nc >/dev/null
    $predict --output=one.nc >/dev/null
    for member in 0 1 2; do
        values five.nc t2m $((96 * (3 * member + 2))) 96 >five.$member
        values three.nc t2m $((96 * (3 * member + 2))) 96 >three.$member
        near <(tr ',' '\n' <three.$member | sed '/^ *$/d') <(tr ',' '\n' <five.$member | sed '/^ *$/d') 1e-5
    done
    refuted cmp five.0 five.1
    refuted cmp five.1 five.2
    values one.nc t2m $((96 * 2)) 96 >one
    near <(tr ',' '\n' <one | sed '/^ *$/d') <(tr ',' '\n' <five.0 | sed '/^ *$/d') 1e-5
    needs_mpi
    for ranks in 2 3; do
        "$TOP/tests/mpirun" -np $ranks $evaluate --members=4 --output=shared --force >/dev/null
        cmp four/scores.csv shared/scores.csv
    done
}

# The loss that evaluate finds is that of the last validation, on any number of ranks.
test_the_loss_of_a_validation() {
    "$VITRAIN" evaluate $RUNS/whole --rollout=1 --data_dir=data --output=again >/dev/null
    local logged; logged=$(grep -o 'Avg val loss=[-0-9.e]*' printed | tail -n 1 | cut -d= -f2)
    awk -F, -v logged="$logged" 'END { d = $3 - logged; if (logged < 0) logged = -logged; exit !(d < 1e-5 * logged && d > -1e-5 * logged) }' again/loss.csv
    needs_mpi
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" $CRPS --expdir=runs2 --run_num=two >/dev/null
    near <(tail -n +2 runs2/base/2CPU/two/metrics.csv | cut -d, -f3) <(tail -n +2 $RUNS/whole/metrics.csv | cut -d, -f3) 1e-5
}

test_what_is_refused() {
    refuses_once "--ensemble_size=1: 1 is out of range (expected 2 to 16" -- learn --ensemble_size=1
    refuses_once "--noise_dim=0: 0 is out of range (expected 1 to 1024" -- learn --noise_dim=0
    refuses_once "--ensemble_size=3 is an option of loss crps, but loss is mse" -- "$VITRAIN" $SMALL --loss=mse --ensemble_size=3
    refuses_once "crps_scales '1,5': '5' does not divide the 8×12 points of the grid" -- learn --crps_scales=1,5
    refuses_once "crps_scales '0'" -- learn --crps_scales=0
    refuses_once "loss 'mse, crps@0': 'crps@0' must come after more epochs" -- learn --loss="mse, crps@0"
    refuses_once "loss 'crps@2': the first value, 'crps@2', must hold from the start on" -- learn --loss=crps@2
    refuses_once "'mse,crsp@2' is not one of the choices (expected relative_l2|mse|mae|crps" -- learn --loss=mse,crsp@2
    needs_mpi
    fails any "$TOP/tests/mpirun" -np 2 "$VITRAIN" $CRPS --context_parallel=2 --expdir=runs2
    contains "$output" "blocks of points would lie on several ranks; use --crps_scales=1"
}

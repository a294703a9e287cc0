# Losses and their weights as a user meets them.

synth

test_a_weighted_loss() {
    cp data/stats/global_stds.npy data/stats/time_diff_stds.npy # every channel changes as much as it varies: all weights are 1
    says "loss: mse; points count by their latitude, and by channel_weights auto" -- train --num_epochs=1 --loss=mse --latitude_weights=true --channel_weights=auto
    local logged; logged=$(grep -o 'Avg val loss=[0-9.]*' $RUNS/00/out.log | cut -d= -f2)
    says "(mse, weighted, over 12 samples, as training logs it)" -- "$VITRAIN" evaluate $RUNS/00 --data_dir=data --rollout=1 --output=scores
    awk -F, -v logged="$logged" 'END { exit !(($3 - logged) ^ 2 < 1e-12) }' scores/loss.csv || { cat scores/loss.csv; echo "logged $logged"; return 1; }
    train --num_epochs=1 --loss=mse --latitude_weights=true --channel_weights=2,2,2 --run_num=alike >/dev/null
    cmp <(figures 00) <(figures alike)
    train --num_epochs=1 --loss=mse --run_num=unweighted >/dev/null
    refuted cmp <(figures 00) <(figures unweighted)
    says "loss: mae" -- train --loss=mae --num_epochs=1 --run_num=mae
}

test_bad_weights() {
    refuses_once "channel_weights: '1,2' holds 2 weights, but 3 channels are forecast (n_out_channels)" -- train --channel_weights=1,2
    refuses_once "channel_weights: 'x' of '1,x,2' is no weight" -- train --channel_weights=1,x,2
    rm data/stats/time_diff_stds.npy
    refuses_once "data/stats/time_diff_stds.npy" "time_diff_stds_path (\`vitrain stats\` makes such a file)" -- train --channel_weights=auto
    refuses_once "loss" "huber" "relative_l2|mse|mae" -- train --loss=huber
    [ ! -e runs ]
}

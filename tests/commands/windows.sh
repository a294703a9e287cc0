# Windows by lat_range and lon_range, from training to forecasts.

# train NAME FLAGS...: a run on synthetic data of 16 x 32 points, from 90 to -90 in steps of 12 degrees and from 0 to 348.75.
train() {
    local name=$1; shift
    [ -d data ] || "$VITRAIN" synth data --img_size=[16,32] --channels=3 --years=1 --steps_per_year=41 --valid_steps=21 >/dev/null
    ${mpirun-} "$VITRAIN" --yaml_config="$TOP/config/ViT.yaml" --config=demo --data_dir=data --n_in_channels=3 --n_out_channels=3 \
        --embed_dim=16 --depth=1 --num_heads=2 --patch_size=4 --global_batch_size=4 --expdir="$name" --num_epochs=2 "$@" >"$name.log"
}

losses() { sed -n 's/.*\(Avg [a-z]* loss=.*\)/\1/p' "$1.log"; }

# A window that lies at the top left is the one of img_size.
test_window_at_the_top_left() {
    train size --img_size=[8,12]
    train ranges --lat_range=[0,90] --lon_range=[0,125]
    contains "$(cat ranges.log)" "img_size: [8, 12]"
    losses size >a
    losses ranges >b
    [ "$(wc -l <a)" -eq 4 ]
    cmp a b
}

# One across the meridian where the columns begin: written in either way, read in either way, alone and by several ranks.
test_window_across_the_seam() {
    train a --lat_range=[-60,30] --lon_range=[-90,40]
    contains "$(cat a.log)" "img_size: [8, 12]"
    losses a >expected
    [ "$(wc -l <expected)" -eq 4 ]
    train b --lat_range=[-60,30] --lon_range=[270,40] --img_size=[8,12] --data_loader_config=native
    losses b | cmp - expected
    train c --lat_range=[-60,30] --lon_range=[-90,40] --cache=host
    losses c | cmp - expected
    needs_mpi
    mpirun="$TOP/tests/mpirun -np 2" train d --lat_range=[-60,30] --lon_range=[-90,40] --context_parallel=2 --num_threads=1
    losses d >two
    [ "$(wc -l <two)" -eq 4 ]
    paste -d= expected two | awk -F= '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1 }'
}

# Evaluation and prediction take the window of the checkpoint, with a climatology of the whole grid or of the window.
test_window_of_a_checkpoint() {
    train a --lat_range=[-60,30] --lon_range=[-90,40]
    local best=a/demo/1CPU/00/checkpoints/best
    contains "$("$VITRAIN" inspect $best)" ", lat_range [-60, 30]"
    contains "$("$VITRAIN" inspect a/demo/1CPU/00)" "lon_range [-90, 40]"
    "$VITRAIN" evaluate --checkpoint=$best --rollout=2 --output=whole >said
    "$VITRAIN" stats data --output=own --lat_range=[-60,30] --lon_range=[-90,40] >/dev/null
    "$VITRAIN" evaluate --checkpoint=$best --rollout=2 --output=window --time_means_path=own/time_means.npy --climatology_path=own/climatology.h5 >said
    cmp whole/scores.csv window/scores.csv
    "$VITRAIN" predict --checkpoint=$best --time=2002-01-02 --output=f.nc >/dev/null
    [ "$(values f.nc lat 0 8 | paste -sd ' ')" = "30 18 6 -6 -18 -30 -42 -54" ]
    [ "$(values f.nc lon 0 10 | paste -sd ' ')" = "-90 -78.75 -67.5 -56.25 -45 -33.75 -22.5 -11.25 0 11.25" ]
    refuses "was made with lat_range [-60, 30], not [0, 80]" -- "$VITRAIN" evaluate --checkpoint=$best --lat_range=[0,80] --output=other
}

# The last column of the grid is its first meridian once more, behind which the window goes on: a resumed run, statistics and
# a climatology of the whole grid have the same window.
test_window_over_a_meridian_that_comes_twice() {
    train size --img_size=[8,12] --num_epochs=1
    in_python <<'PYTHON'
for name in glob.glob("data/*/*.h5"):
    with h5py.File(name, "r+") as f:
        if "fields" in f: f["lon"][:] = np.linspace(0, 360, 32)
PYTHON
    "$VITRAIN" stats data --force >/dev/null
    train a --lat_range=[-60,30] --lon_range=[-90,50]
    contains "$(cat a.log)" "img_size: [8, 12]"
    train a --lat_range=[-60,30] --lon_range=[-90,50] --num_epochs=3 --resume
    train b --lat_range=[-60,30] --lon_range=[-90,50] --normalise=climatology --num_epochs=1
    "$VITRAIN" evaluate --checkpoint=a/demo/1CPU/00/checkpoints/best --rollout=2 --output=scores >said
    contains "$(cat said)" "climatology: a mean for each of 4 times of day"
}

test_windows_that_do_not_fit() {
    train a --img_size=[8,12] --num_epochs=1
    refused() { fails 1 train b "$@"; }
    refused --lat_range=[-48,30] --lon_range=[-90,40]
    contains "$output" "patch_size 4 does not divide both of img_size [7, 12]" "lat_range [-54, 30] would be 8 rows"
    refused --lat_range=[-60,30] --lon_range=[-90,40] --img_size=[8,8]
    contains "$output" "lon_range [-90, 40] holds 12 columns, but img_size says 8; set --img_size=[8,12]"
    refused --lat_range=[31,41]
    contains "$output" "lat_range [31, 41]: no row of data/train/2001.h5 is within; its latitudes go from 90 to -90"
    refused --lat_range=[-60,30] --data_loader_config=synthetic
    contains "$output" "data_loader_config synthetic reads none"
    refuses "--lat_range=30: '30' is not two numbers (expected [a, b], each -90 to 90" -- "$VITRAIN" stats data --lat_range=30
}

# Times that are in two sets are told at the start, by evaluate and by inspect; a misnamed file stops all of them.
test_times_in_two_sets_are_reported() {
    train a --num_epochs=1 --img_size=[16,32]
    refuted contains "$(cat a.log)" "overlap"
    cp data/train/2001.h5 data/valid/2001.h5
    train b --num_epochs=1 --img_size=[16,32]
    contains "$(cat b.log)" "WARNING - training and validation overlap: the times from 2001-01-01 00:00 to 2001-01-11 00:00 are in both"
    contains "$("$VITRAIN" inspect data)" "WARNING: training and validation overlap: the times from 2001-01-01 00:00 to "
    contains "$("$VITRAIN" evaluate --checkpoint=b/demo/1CPU/00/checkpoints/best --rollout=1 --output=scores 2>&1)" "the times of data/valid, 2001-01-01 00:00 to 2002-01-06 00:00, and those that the checkpoint b/demo/1CPU/00/checkpoints/step-00000010 was trained on, 2001-01-01 00:00 to 2001-01-11 00:00, overlap"
    mkdir -p data/test
    mv data/valid/2001.h5 data/test/2001.h5
    train d --num_epochs=1 --img_size=[16,32]
    refuted contains "$(cat d.log)" "training and validation overlap"
    contains "$(cat d.log)" "WARNING - training and test overlap: the times from 2001-01-01 00:00 to 2001-01-11 00:00 are in both"
    cp data/valid/*.h5 data/test
    rm data/test/2001.h5
    train e --num_epochs=1 --img_size=[16,32]
    contains "$(cat e.log)" "WARNING - validation and test overlap: "
    rm -r data/test
    cp data/train/2001.h5 data/train/2002_final.h5
    refuses "train_data_path 'data/train': 2002_final.h5 would not be read" "The files that would be read: 2001.h5" -- train c --num_epochs=1 --img_size=[16,32]
    refuses "FAULT: train 'data/train': 2002_final.h5 would not be read" -- "$VITRAIN" inspect data
    refuses "2002_final.h5 would not be read" -- "$VITRAIN" stats data --force
}

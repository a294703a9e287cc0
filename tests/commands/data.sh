# `vitrain synth` and `vitrain stats` from outside: what they write, what they refuse, and what remains after a full disk.

# No unfinished file remains below DIR.
no_remains() {
    local left
    left=$(find "$1" -name '.*.partial')
    [ -z "$left" ] || { echo "left behind: $left"; return 1; }
}

small() { "$VITRAIN" synth "$@" --img_size=[6,12] --channels=3 --steps_per_year=20 --valid_steps=5; }

test_synth_and_stats() {
    contains "$(small data --years 2 --test_steps=4)" "statistics of the training years: data/stats"
    for file in train/2001.h5 train/2002.h5 valid/2003.h5 test/2004.h5 stats/time_means.npy; do [ -s "data/$file" ]; done
    no_remains data
    says "40 times of data/train; written to again" "t2m" -- "$VITRAIN" stats data --output=again
    for name in global_means.npy global_stds.npy time_means.npy time_diff_stds.npy climatology.h5; do cmp "data/stats/$name" "again/$name"; done
}

test_stats_find_their_place() {
    small data >/dev/null
    rm -r data/stats
    "$VITRAIN" stats data/train/ >/dev/null
    [ -s data/stats/global_means.npy ]
    "$VITRAIN" stats data/valid >/dev/null
    [ -s data/valid/stats/global_means.npy ]
    refuses "data/stats/global_means.npy exists already; give --force" -- "$VITRAIN" stats data
    "$VITRAIN" stats data --force >/dev/null
    # a set that has only the files of earlier versions gets the others, and keeps its own
    rm data/stats/climatology.h5 data/stats/time_diff_stds.npy
    cp data/stats/time_means.npy data/stats/global_means.npy
    says "the .npy files that were there stay as they are" "climatology.h5: a mean for each of 4 times of day alone, as the times leave" -- "$VITRAIN" stats data
    cmp data/stats/time_means.npy data/stats/global_means.npy
    refuses "--harmonics=5" -- "$VITRAIN" stats data --force --harmonics=5
    refuses "time_step: 'soon' is no length of time" -- "$VITRAIN" stats data --force --time_step=soon
}

test_synth_is_repeatable() {
    export SOURCE_DATE_EPOCH=0
    small a >/dev/null
    OMP_NUM_THREADS=1 small b >/dev/null
    small c --seed=334 >/dev/null
    diff -r a b
    refuted cmp a/train/2001.h5 c/train/2001.h5
    small d --compress=6 --chunk_times=8 >/dev/null
    "$VITRAIN" stats d --output=d_stats >/dev/null
    cmp a/stats/global_stds.npy d_stats/global_stds.npy
}

test_synth_loses_nothing() {
    small data >/dev/null
    cp data/train/2001.h5 before
    refuses "data/train/2001.h5 exists already" -- small data --seed=1
    cmp before data/train/2001.h5
    small data --seed=1 --force >/dev/null
    refuted cmp before data/train/2001.h5
}

test_wrong_arguments() {
    refuses "synth: no DIR given; see \`vitrain synth --help\`" -- "$VITRAIN" synth
    refuses "'b' after 'a': expected one DIR" -- "$VITRAIN" synth a b
    refuses "unknown flag --chanels; did you mean --channels?" -- "$VITRAIN" synth a --chanels=3
    refuses "--channels=21: 21 is out of range (expected 1 to 20)" -- "$VITRAIN" synth a --channels=21
    refuses "--img_size=32: '32' is not two whole numbers" -- "$VITRAIN" synth a --img_size=32
    refuses "--noise=much: 'much' is not a number" -- "$VITRAIN" synth a --noise=much
    refuses "--force=maybe: 'maybe' is not a switch (expected true or false)" -- "$VITRAIN" synth a --force=maybe
    refuses "synth: --seed: its value is missing" -- "$VITRAIN" synth a --seed
    refuses "at most --steps_per_year, 1460" -- "$VITRAIN" synth a --valid_steps=2000
    [ ! -e a ]
    refuses "data directory 'nowhere': no such directory" -- "$VITRAIN" stats nowhere
    contains "$("$VITRAIN" synth --help)" "u10 v10 t2m sp msl t850 u1000 v1000 z1000 u850 v850 z850 u500 v500 z500 t500 z50 r500 r850 tcwv"
    contains "$("$VITRAIN" stats --help)" "DIR/train is read"
}

test_no_permission() {
    [ "$(id -u)" -ne 0 ] || skip "root may write everywhere"
    mkdir closed
    chmod a-w closed
    refuses "can't make the directory closed/train: Permission denied" -- small closed
    refuses "Permission denied" -- small closed/data
}

test_no_space() {
    refuses "are free on that disk" -- "$VITRAIN" synth data --img_size=[4000,8000] --channels=20 --steps_per_year=900000 --years=7000
    no_remains .
    [ ! -e data ]
    # each file would fit, but not all of them
    refuses "data: the set needs" -- "$VITRAIN" synth data --img_size=[360,720] --channels=20 --years=7000
    no_remains .
}

# A limit on the size of files simulates a disk that fills up: the write fails within a file.
test_disk_fills_up() {
    refuses "can't write data/train/2001.h5 at time" "File too large" -- bash -c 'trap "" XFSZ; ulimit -f 64; exec "$0" synth data --years=1' "$VITRAIN"
    no_remains .
    [ ! -e data/train/2001.h5 ]
    [ ! -e data/stats ]
    refuses "File too large" -- bash -c 'trap "" XFSZ; ulimit -f 64; exec "$0" synth data --years=1 --compress=1' "$VITRAIN"
    no_remains .
    # HDF5's message has the path before the cause
    local part=$(printf '%0100d' 1) path
    path=$part/$part/$part/$part
    mkdir -p $path
    refuses "at time" "File too large" -- bash -c 'trap "" XFSZ; ulimit -f 64; exec "$0" synth "$1" --years=1' "$VITRAIN" $path/data
}

# Zarr stores from outside, and periods: statistics, training, scores and forecasts are to the bit those of netCDF copies of
# the same fields, on one rank and several; what can't be read is told in one sentence.

VARIABLES=--variables=[t2m,z@500]
PERIODS="--train_period=2001 --valid_period=2002"

stores() { # NAME...: of the archive; the netCDF copies in netcdf/
    tar -xzf "$TOP/tests/zarr/stores.tar.gz" train_2001.nc train_2002.nc "$@"
    mkdir netcdf; mv train_200?.nc netcdf/
    "$VITRAIN" inspect "$1" $VARIABLES >inspected || ! grep -q 'was built without' inspected || lacks "libjansson-dev libblosc-dev libzstd-dev liblz4-dev" "codec: $(grep 'was built' inspected)"
}

train() { # NAME FLAG...
    "$VITRAIN" --device=cpu --yaml_config="$TOP/config/ViT.yaml" --config=demo --img_size=[8,12] --embed_dim=8 --depth=1 --num_heads=1 \
        --patch_size=4 --global_batch_size=4 --num_epochs=2 --n_in_channels=2 --n_out_channels=2 --num_threads=1 $VARIABLES $PERIODS \
        --expdir=runs --run_num="$1" "${@:2}" >"$1.said" 2>&1 || { cat "$1.said"; return 1; }
}
losses() { cut -d, -f1-5 "runs/demo/1CPU/$1/metrics.csv"; }

test_a_store_is_what_its_netcdf_copy_is() {
    stores v2_train.zarr v3_train.zarr
    "$VITRAIN" stats netcdf $VARIABLES --train_period=2001 >/dev/null
    train netcdf --data_dir=netcdf
    for version in v2 v3; do
        says "48 times of ${version}_train.zarr; written to ${version}_train.stats" -- "$VITRAIN" stats ${version}_train.zarr $VARIABLES --train_period=2001
        for name in global_means.npy global_stds.npy time_means.npy time_diff_stds.npy; do cmp netcdf/stats/$name ${version}_train.stats/$name; done
        train $version --data_dir=${version}_train.zarr
        cmp <(losses netcdf) <(losses $version)
    done
    contains "$(cat v2.said)" "reading: chunk by chunk" "times: 2001-12-20 00:00 to 2001-12-31 18:00, every 6 h"
    train paths --train_data_path=v2_train.zarr --valid_data_path=v3_train.zarr # statistics of the training store
    cmp <(losses netcdf) <(losses paths)
    # through the store's own function, and by several threads
    train library --data_dir=v2_train.zarr --data_loader_config=native
    cmp <(losses netcdf) <(losses library)
    train workers --data_dir=v2_train.zarr --num_data_workers=3
    cmp <(losses netcdf) <(losses workers)
    for form in netcdf v2; do
        "$VITRAIN" evaluate runs/demo/1CPU/$form/checkpoints/best --rollout=3 --output=scores-$form >/dev/null 2>&1
        "$VITRAIN" predict runs/demo/1CPU/$form/checkpoints/best --time=2002-01-01T06:00 --rollout=2 --output=$form.nc >/dev/null 2>&1
        [ "$(values $form.nc pressure_500),$(values $form.nc height_2m)" = 500,2 ] # of z@500 and t2m
    done
    cmp scores-netcdf/scores.csv scores-v2/scores.csv
    says "2 channels of [8, 12]" "valid: 1 file v2_train.zarr, 12 times" "z: zarr, chunks of [8, 2, 12, 5], blosc (lz4), 16 of 16 chunks written" "no faults" -- \
        "$VITRAIN" inspect v2_train.zarr $VARIABLES $PERIODS --verify
    says "t2m [time 60, lon 12, lat 8] float, 4 bytes: chunks of [8, 12, 5], blosc (lz4)" -- "$VITRAIN" inspect v2_train.zarr
}

test_a_store_on_several_ranks() {
    needs_mpi
    stores v3_train.zarr v2_train.zarr
    "$VITRAIN" stats v2_train.zarr $VARIABLES --train_period=2001 >/dev/null
    ranks() { "$TOP/tests/mpirun" -np 2 "$VITRAIN" --device=cpu --yaml_config="$TOP/config/ViT.yaml" --config=demo --img_size=[8,12] --embed_dim=8 --depth=1 \
        --num_heads=1 --patch_size=4 --global_batch_size=4 --num_epochs=1 --n_in_channels=2 --n_out_channels=2 --num_threads=1 $VARIABLES $PERIODS \
        --global_means_path=v2_train.stats/global_means.npy --global_stds_path=v2_train.stats/global_stds.npy --expdir="$1" "${@:2}" >said 2>&1 || { cat said; return 1; }; }
    for layout in "" --context_parallel=2; do
        rm -rf netcdf-runs zarr-runs
        ranks netcdf-runs --data_dir=netcdf $layout
        ranks zarr-runs --data_dir=v2_train.zarr $layout
        cmp <(cut -d, -f1-5 netcdf-runs/demo/*/00/metrics.csv) <(cut -d, -f1-5 zarr-runs/demo/*/00/metrics.csv)
    done
}

test_ranks_share_what_one_decodes() {
    needs_mpi
    # 17 chunks, of HDF5 and of one time each: one rank decodes each for every batch that needs it
    "$VITRAIN" synth data --img_size=[8,12] --channels=2 --steps_per_year=17 --years=1 --valid_steps=5 --compress=1 >/dev/null
    ranks() { # RANKS FLAG...: prints how many chunks they decode together
        rm -rf runs
        "$TOP/tests/mpirun" -np "$1" "$VITRAIN" --device=cpu --yaml_config="$TOP/config/ViT.yaml" --config=demo --img_size=[8,12] --embed_dim=8 --depth=1 --num_heads=2 \
            --patch_size=4 --global_batch_size=4 --num_epochs=2 --n_in_channels=2 --n_out_channels=2 --num_threads=1 --expdir=runs "${@:2}" >said 2>&1 || { cat said; return 1; }
        sed -n 's/.*chunks: \([0-9]*\) were decoded, .*/\1/p' said
    }
    [ "$(ranks 1 --data_dir=data)" -ge 34 ] # in each epoch
    for layout in "2 --tensor_parallel=2" "2 --context_parallel=2" "4 --tensor_parallel=2 --context_parallel=2"; do
        [ "$(ranks $layout --data_dir=data)" -eq 17 ]
    done
    export VITRAIN_RANKS_PER_NODE=1
    [ "$(ranks 2 --tensor_parallel=2 --data_dir=data)" -ge 68 ] # on two nodes they share no memory
    unset VITRAIN_RANKS_PER_NODE
    says "reader " "chunks: 17 were decoded" -- "$TOP/tests/mpirun" -np 2 "$VITRAIN" bench io --yaml_config="$TOP/config/ViT.yaml" --config=demo --img_size=[8,12] --patch_size=4 \
        --n_in_channels=2 --n_out_channels=2 --global_batch_size=4 --num_iters=4 --data_dir=data --context_parallel=2
    # damaged: one sentence, and no rank waits
    stores v2_train.zarr
    "$VITRAIN" stats v2_train.zarr $VARIABLES --train_period=2001 >/dev/null
    printf x >>v2_train.zarr/t2m/2.0.0
    STORE="--data_dir=v2_train.zarr $VARIABLES $PERIODS"
    fails any ranks 2 $STORE --tensor_parallel=2
    says_once "v2_train.zarr/t2m/2.0.0: the chunk is damaged"
    ranks 2 $STORE --tensor_parallel=2 --skip_bad_samples >/dev/null
    contains "$(cat said)" "skipped: "
}

test_stores_beside_one_another() {
    stores v2_train.zarr v2_zstd.zarr
    mkdir -p years
    mv v2_train.zarr years/era5_2001.zarr
    cp -r v2_zstd.zarr years/era5_2002.zarr
    says "67 times of years; written to a" -- "$VITRAIN" stats years $VARIABLES --output=a
    # of another shape in another year: 5 rows of the 8
    for file in years/era5_2002.zarr/{.zmetadata,*/.zarray}; do
        tr -d ' \n' <"$file" |
            sed 's/"shape":\[8\]/"shape":[5]/; s/"shape":\[7,8,12\]/"shape":[7,5,12]/; s/"shape":\[7,2,8,12\]/"shape":[7,2,5,12]/' >metadata
        cp metadata "$file"
    done
    refuses "years/era5_2002.zarr has a grid of [5, 12], the files before it one of [8, 12]; they can't be used together" -- "$VITRAIN" stats years $VARIABLES --output=b
}

# What the log says of data, in bytes.
planned() {
    sed -n 's/.*memory the run needs: .* data \([0-9.]* [KM]B\).*/\1/p' "$1.said" | head -1 | awk '{ print $1 * ($2 == "MB" ? 1024 : 1) * 1024 }'
}

# Chunks of 8 times stay decoded: 6 in training and 2 in validation, each of three times 8 x (12 x 8, or 10 with what lies
# behind the edge) numbers of 4 bytes, 92160 bytes in all
test_decoded_chunks_are_in_the_plan() {
    stores v2_train.zarr v2_apart.zarr
    "$VITRAIN" stats netcdf $VARIABLES --train_period=2001 >/dev/null
    STATS="--global_means_path=netcdf/stats/global_means.npy --global_stds_path=netcdf/stats/global_stds.npy"
    train store --data_dir=v2_train.zarr $STATS
    train library --data_dir=v2_train.zarr $STATS --data_loader_config=native # keeps none itself
    planned store >a; planned library >b; paste a b
    awk -v more=$(($(cat a | cut -d. -f1) - $(cat b | cut -d. -f1))) 'BEGIN { print more; exit !(more > 91000 && more < 93500) }'
}

test_metadata_that_no_version_has() {
    stores v2_apart.zarr v2_zstd.zarr
    cp v2_apart.zarr/t2m/.zarray good
    while IFS='|' read -r from to message; do
        sed "s#$from#$to#" good >v2_apart.zarr/t2m/.zarray
        refuted cmp -s good v2_apart.zarr/t2m/.zarray
        refuses "v2_apart.zarr: 't2m': $message" -- "$VITRAIN" stats v2_apart.zarr $VARIABLES --output=a
    done <<'END'
"order": "C"|"order": "Z"|its order is neither C nor F
"filters": null|"filters": "delta"|its filters are no list
"zarr_format": 2|"zarr_format": 4|its zarr_format is not 2, as the store's is
"zarr_format": 2|"dimension_separator": "-", "zarr_format": 2|the separator of its chunks' names is not . or /
"compressor": {|"compressor": "zstd", "else": {|its compressor has no settings
END
    for type in '|b1' '<c8'; do # types of other things than numbers
        sed "s/<f4/$type/" good >v2_apart.zarr/t2m/.zarray
        refuses "packed integers, but holds $type" -- "$VITRAIN" stats v2_apart.zarr $VARIABLES --output=a
    done
    sed "s/<f4/|b1/" good >v2_apart.zarr/t2m/.zarray
    says "t2m [time 7, lat 8, lon 12] |b1" -- "$VITRAIN" inspect v2_apart.zarr
    echo '{"metadata": []}' >v2_zstd.zarr/.zmetadata
    refuses "v2_zstd.zarr/.zmetadata is no Zarr metadata: it has no object 'metadata'" -- "$VITRAIN" stats v2_zstd.zarr $VARIABLES --output=b
    cp good v2_apart.zarr/t2m/.zarray
    sed -i 's/proleptic_gregorian/julian/' v2_apart.zarr/time/.zattrs
    refuses "train_period can't choose its times: v2_apart.zarr: 'time' has the calendar 'julian'; standard" -- "$VITRAIN" stats v2_apart.zarr $VARIABLES --train_period=2001 --output=c
}

test_what_is_refused() {
    stores v2_train.zarr v2_filter.zarr v2_anemoi.zarr
    says "channels: 2t" ", latitudes 70 to 0, longitudes 0 to 330" -- "$VITRAIN" inspect v2_anemoi.zarr --verify
    mkdir runs
    flags="--device=cpu --yaml_config=$TOP/config/ViT.yaml --config=demo --img_size=[8,12] --patch_size=4 $VARIABLES"
    refuses "train_data_path 'v2_train.zarr' is one store for all sets: --train_period=1979..2015 and --valid_period=2016..2017" -- \
        "$VITRAIN" $flags --data_dir=v2_train.zarr --global_means_path=a --global_stds_path=b
    says_remote() { refuses "$1 is a remote store, and only files on disk are read; copy the part that you need first" -- "$VITRAIN" stats "$1" $VARIABLES --output=c; }
    for address in gs://weatherbench2/era5.zarr s3://era5/a.zarr https://example.org/a.zarr file://host/a.zarr; do says_remote $address; done
    echo x >era5.zarr.zip
    refuses "era5.zarr.zip is a file, but a Zarr store is a directory; unzip it" -- "$VITRAIN" stats era5.zarr.zip $VARIABLES --output=c
    # but that of a file on this machine is a path
    says "48 times of $PWD/v2_train.zarr; written to $PWD/v2_train.stats" -- "$VITRAIN" stats "file://$PWD/v2_train.zarr" $VARIABLES --train_period=2001
    says "2 channels of [8, 12]" -- "$VITRAIN" inspect "file://localhost$PWD/v2_train.zarr" $VARIABLES
    train address --data_dir="file://$PWD/v2_train.zarr"
    train paths --train_data_path="file://$PWD/v2_train.zarr" --valid_data_path="file://$PWD/v2_train.zarr" \
        --global_means_path=v2_train.stats/global_means.npy --global_stds_path=v2_train.stats/global_stds.npy
    cmp <(losses address) <(losses paths)
    rm -r runs/demo
    refuses "train_data_path 'v2_train.zarr': none of its times lies in train_period 1979..2000" -- \
        "$VITRAIN" $flags --data_dir=v2_train.zarr --train_period=1979..2000 --valid_period=2002 --global_means_path=a --global_stds_path=b
    refuses "data directory 'netcdf': none of its times lies in train_period 1950" -- "$VITRAIN" stats netcdf $VARIABLES --train_period=1950 --output=d
    refuses "filter 'delta', which is not read" -- "$VITRAIN" stats v2_filter.zarr $VARIABLES --output=e
    refuses "FAULT" "filter 'delta'" -- "$VITRAIN" inspect v2_filter.zarr
    printf x >>v2_train.zarr/t2m/2.0.0
    refuses "v2_train.zarr/t2m/2.0.0: the chunk is damaged" -- "$VITRAIN" stats v2_train.zarr $VARIABLES --output=f
    mkdir years
    "$VITRAIN" synth years/synth --img_size=[8,12] --channels=2 --steps_per_year=8 --valid_steps=2 --years=2 >/dev/null
    # files without a time coordinate: all of one, or nothing
    says "8 times of years/synth/train" -- "$VITRAIN" stats years/synth/train --train_period=2002 --output=g
    refuses "2001.h5: it has no time coordinate, so train_period can only choose all of it or nothing" -- \
        "$VITRAIN" stats years/synth/train --train_period=2001-06..2003 --output=h
}

# vitrain layout: the grid of ranks.

layout() { "$VITRAIN" layout --yaml_config="$TOP/config/ViT.yaml" "$@"; }

test_table_and_groups() {
    layout --ranks=8 --tensor_parallel=4 >text
    contains "$(cat text)" "8 ranks: tp 4 x cp 1 x dp 2, order tp-cp-dp"
    contains "$(cat text)" "heads    8, 2 on each rank (of width 48; 384 of the MLP's 1536 columns)" "samples  16 a step, 8 on each dp rank"
    contains "$(tr -s ' ' <text)" " 6 2 0 1 8-15 0-4049"
    contains "$(tr -s ' \n' ' ' <text)" "tp share each layer [0 1 2 3] [4 5 6 7] cp"
    contains "$(tr -s ' \n' ' ' <text)" "dp share each batch [0 4] [1 5] [2 6] [3 7] tp-cp one model [0 1 2 3] [4 5 6 7]"
    contains "$(tr -s ' ' <text)" " tp 3.34 GB in 48 operations"
    contains "$(tr -s ' ' <text)" " gradients "
    [ "$(wc -L <text)" -le 100 ]
    refuted grep ' $' text
    layout --ranks 6 --tensor_parallel 2 --parallel_order=dp-tp-cp --global_batch_size=9 >text
    contains "$(tr -s ' \n' ' ' <text)" "dp share each batch [0 1 2] [3 4 5] "
    contains "$(tr -s ' \n' ' ' <text)" "dp-cp have the same part of the layers: sum gradients [0 1 2] [3 4 5]"
    layout --ranks=48 --tensor_parallel=8 --global_batch_size=48 | grep ' \[' >groups # lines break between groups
    [ "$(wc -l <groups)" -gt 8 ]
    refuted grep -v '^ *\(\[[0-9 ]*\] \?\)*$' groups
}

test_tokens() {
    layout --ranks=4 --context_parallel=4 >text
    contains "$(cat text)" "tokens   4050 a sample, on the cp ranks 1013 1013 1013 1011"
    contains "$(tr -s ' ' <text)" " 3 0 3 0 0-15 3039-4049"
    layout --ranks=4 --context_parallel=2 --tensor_parallel=2 --sequence_parallel >text
    contains "$(tr -s ' ' <text)" " 3 1 1 0 0-15 2025-4049 3038-4049"
    layout --ranks=3 --local_batch_size=1 >text
    contains "$(tr -s ' ' <text)" " 2 0 0 2 2 0-4049"
}

# As the tutorials' notebook prints them.
test_lists_of_groups() {
    layout --ranks=16 --tensor_parallel=2 --context_parallel=2 --pipeline_parallel=2 --groups=dp-cp,pp-TP-cp >text
    [ "$(cat text)" = "dp-cp: [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
pp-TP-cp: [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]" ]
    contains "$(layout --ranks=32 --tensor_parallel=2 --context_parallel=2 --parallel_order=tp-cp-pp-dp --global_batch_size=32 --groups=dp)" \
        "dp: [[0, 4, 8, 12, 16, 20, 24, 28], [1, 5, "
}

# Without --ranks: as many as the launcher says.
test_ranks_of_the_launcher() {
    unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE SLURM_PROCID PMI_RANK PMI_SIZE PMIX_RANK
    contains "$(layout)" "1 rank: tp 1 x cp 1 x dp 1"
    contains "$(RANK=1 WORLD_SIZE=4 layout)" "4 ranks: tp 1 x cp 1 x dp 4"
    RANK=4 WORLD_SIZE=4 refuses "RANK=4 is outside WORLD_SIZE=4" -- layout
}

test_layouts_that_are_refused() {
    refuses "tensor_parallel 3 x context_parallel 1 = 3 does not divide the 8 ranks" -- layout --ranks=8 --tensor_parallel=3
    refuses "parallel_order 'tp-dp' lacks cp, which has 2 ranks" -- layout --ranks=8 --parallel_order=tp-dp --context_parallel=2
    refuses "--groups 'tp-xp': 'xp' is no axis" -- layout --ranks=8 --groups=dp,tp-xp
    refuses "--groups '': '' is no axis" -- layout --ranks=8 --groups=dp,
    refuses "pipeline_schedule interleaved is not offered" -- layout --ranks=8 --pipeline_schedule=interleaved
    refuses "layout: --ranks=none: 'none' is not a whole number (expected 1 to" -- layout --ranks=none
    refuses "layout: --ranks: its value is missing" -- layout --ranks
    contains "$("$VITRAIN" help layout)" "usage: vitrain layout"
}

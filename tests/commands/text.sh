# Language models on text, as their users run them, on a small synthetic text.

"$VITRAIN" synth --text data --tokens=6000 >synth.log

test_synthetic_text() {
    contains "$(cat synth.log)" "data/train.txt  6000 tokens" "data/test.txt  601 tokens" \
        "perplexity of a model that knows how the text is made: 107.71; of the best of single words 418.43, of pairs 162.13"
    [ "$(wc -w <data/train.txt)" = 6000 ]
    grep -qx 'perplexity 107.7[0-9]*' data/entropy.txt
    refuses "data/train.txt exists already; give --force" -- "$VITRAIN" synth --text data
    "$VITRAIN" synth --text again --tokens=6000 >/dev/null
    cmp data/train.txt again/train.txt
    "$VITRAIN" synth again --text --tokens=6000 --seed=1 --force >/dev/null
    refuted cmp -s data/train.txt again/train.txt
    refuses "--channels=3 is an option of model vit, but model is text" -- "$VITRAIN" synth --text other --channels=3
    refuses "--tokens=3000 is an option of model text, but model is vit" -- "$VITRAIN" synth other --tokens=3000
    [ ! -e other ]
}

test_inspect() {
    local before=$(ls -a data)
    says "data: text, in lower case" "train: train.txt, " ": 6000 words, " "5968 windows of 32 (seq_len, stride 1)" \
        "test: test.txt, " "601 words, 18 of which are not in the training text" "no faults seen" -- "$VITRAIN" inspect data
    says "all of it was read: no faults" -- "$VITRAIN" inspect data --verify
    [ "$(ls -a data)" = "$before" ]
    mkdir bad
    printf '\357\273\277one two\nth\377ee' >bad/train.txt
    refuses "FAULT: bad/train.txt: line 2, byte 13 of the file, 0xff, is not UTF-8" "FAULT: there is no validation text" \
        -- "$VITRAIN" inspect bad
    printf '\357\273\277one two' >bad/train.txt
    printf 'two three one' >bad/valid.txt
    says "begins with a byte order mark" "3 words, 1 of which are not in the training text" -- "$VITRAIN" inspect bad
}

# lm CONFIG FLAG...
SMALL="--data_dir=data --expdir=runs --embed_dim=16 --ffn_dim=32 --num_heads=2 --seq_len=8 --num_threads=1"
lm() { local config=$1; shift; "$VITRAIN" --yaml_config="$TOP/config/LM.yaml" --config="$config" $SMALL "$@"; }

# What a run learnt: the losses of all steps, and of the validations.
learnt() { cut -d, -f1,3 runs/*/*/"$1"/metrics.csv; cut -d, -f1,4 runs/*/*/"$1"/epochs.csv; }

# 62 windows in batches of 12: five whole ones and one of two.
SHORT="--stride=1 --limit_nsamples=62 --limit_nsamples_val=30 --batch-size=12"

test_lines_of_the_course() {
    local config
    for config in wikitext_a wikitext_b; do
        says "text: 6000 training tokens, 843 words; 22 of 601 validation tokens and 18 of 601 test tokens are not among them: dropped" \
            "- root - INFO - [1/2] Train loss: " "- root - INFO - Final test loss: " "Final test perplexity: " \
            ", of the best checkpoint " "Starting Training Loop..." "Time taken for epoch 2 is " "DONE ---- rank 0" \
            "unigram (word frequencies) " ", perplexity " " of the text's own 107.71 (entropy.txt)" \
            "- root - WARNING - causal is false: the model sees the words that it has to predict" \
            "samples: 62 for training, 30 for validation; 2 epochs of 6 steps" -- lm $config $SHORT --epochs=2 --lr=.002
    done
    grep -E 'INFO - \[2/2\] Train loss: [0-9]\.[0-9]{5}, validation loss: [0-9]\.[0-9]{5}$' runs/wikitext_b/1CPU/00/out.log
    grep -E 'INFO -   Perplexity: train [0-9]+\.[0-9]{2}, valid [0-9]+\.[0-9]{2}$' runs/wikitext_b/1CPU/00/out.log
    says "DONE" -- lm wikitext_b $SHORT --epochs=1 --log-prefix=false --run_num=bare
    grep -qE '^\[1/1\] Train loss: [0-9.]+, validation loss: [0-9.]+$' runs/wikitext_b/1CPU/bare/out.log
    grep -qE '^Final test loss: [0-9.]+$' runs/wikitext_b/1CPU/bare/out.log
    [ "$(head -1 runs/wikitext_b/1CPU/bare/metrics.csv)" = \
        "step,epoch,loss,learning_rate,grad_norm,samples_per_sec,data_wait_fraction,perplexity" ]
    for name in report compare; do # exp of the losses
        "$VITRAIN" report runs/wikitext_b/1CPU/bare $([ $name = report ] || echo runs/wikitext_b/1CPU/00) --output=$name.html >/dev/null
        sed -n 's/.*validation perplexity<[^0-9]*\([0-9.]*\)[^0-9]*best \([0-9.]*\), unigram \([0-9.]*\)<.*/\1 \2 \3/p' $name.html
    done >pages
    awk -F, 'NR == 2 { print exp($4), exp($4), exp($5) }' runs/wikitext_b/1CPU/bare/epochs.csv >losses
    awk '{ for (i = 1; i <= 3; i++) if (NR == 1) x[i] = $i; else if (($i / x[i] - 1) ^ 2 > 1e-6) exit 1 } END { exit NR != 3 }' losses pages
    awk -F, 'NR > 1 { n++; if (($8 / exp($3) - 1) ^ 2 > 1e-12) exit 1 } END { exit n != 6 }' runs/wikitext_b/1CPU/bare/metrics.csv
}

# The partial last batch is kept: its windows, and no others, are in the sixth step of an epoch.
test_every_window_once_an_epoch() {
    lm wikitext_b $SHORT --epochs=2 --sample_trace >/dev/null
    awk -F, 'NR > 1 { seen[$2 "," $4]++; n[$1]++ } END { for (i in seen) { k++; if (seen[i] != 1) exit 1 } exit !(k == 124 && n[6] == 2 && n[12] == 2 && n[5] == 12) }' \
        runs/wikitext_b/1CPU/00/logs/samples-0.csv
}

# Stopped in an epoch and gone on with, the same numbers; another text is refused.
test_resume() {
    lm wikitext_a $SHORT --epochs=2 --checkpoint_every=4 --keep_last=9 --run_num=whole >/dev/null
    cmp runs/wikitext_a/1CPU/whole/checkpoints/best/vocabulary <(tr ' ' '\n' <data/train.txt | LC_ALL=C sort -u)
    lm wikitext_a $SHORT --epochs=2 --run_num=rest --resume=runs/wikitext_a/1CPU/whole/checkpoints/step-00000008 >/dev/null
    cmp <(learnt whole | awk -F, '$1 > 8') <(learnt rest | awk -F, '$1 > 8')
    says "  vocabulary: 843 words" -- "$VITRAIN" inspect runs/wikitext_a/1CPU/whole/checkpoints/best
    cp -r data other
    sed -i 's/\<bababa\>/zzz/g; 1s/^/bababb /' other/train.txt
    refuses "in the checkpoint's vocabulary of 843 words" "continue with the text that it was made with" -- \
        lm wikitext_a $SHORT --epochs=3 --run_num=more --resume=runs/wikitext_a/1CPU/whole/checkpoints/best --data_dir=other
}

test_batches() {
    lm wikitext_b $SHORT --epochs=1 --run_num=one >/dev/null
    lm wikitext_b $SHORT --epochs=1 --run_num=two --test-batch-size=7 --global_batch_size=12 --batch-size=12 >/dev/null
    cmp <(cut -d, -f3 runs/*/*/one/metrics.csv) <(cut -d, -f3 runs/*/*/two/metrics.csv)
    refuted cmp -s <(cut -d, -f4 runs/*/*/one/epochs.csv) <(cut -d, -f4 runs/*/*/two/epochs.csv) # means of other batches
    says "training: batches of 5, AdamW, learning rate 0.002 (constant), weight decay 0.01, dropout 0.1, float32" -- \
        lm wikitext_b $SHORT --epochs=1 --global_batch_size=5 --batch-size=5
}

test_memory_is_known_beforehand() {
    ! grep -q '__[at]san_init' "$VITRAIN" || skip "a sanitizer's memory is its own"
    local config two_steps="$SHORT --epochs=1 --limit_nsamples=24 --limit_nsamples_val=6"
    for config in wikitext_a lm; do
        lm $config $two_steps --embed_dim=64 --ffn_dim=256 >small
        lm $config $two_steps --embed_dim=256 --num_heads=8 --ffn_dim=1024 --depth=8 --seq_len=64 --run_num=large >large
        takes_what_is_known small large
    done
}

test_bad_text() {
    mkdir bad
    refuses "data_dir bad has no training text; expected wiki.train.raw, wiki.train.tokens or train.txt there" -- \
        lm wikitext_b --data_dir=bad
    printf 'a b c a b c a b\n' >bad/train.txt
    printf 'a b\n' >bad/valid.txt
    refuses "bad/train.txt has 8 known tokens" "a window of seq_len 8 needs 9" -- lm wikitext_b --data_dir=bad
    printf 'a b c a b c a b a a\n' >bad/train.txt
    refuses "bad/valid.txt has 2 known tokens" -- lm wikitext_b --data_dir=bad
    printf 'a \377 c\n' >bad/valid.txt
    refuses "bad/valid.txt: line 1, byte 2 of the file, 0xff, is not UTF-8" -- lm wikitext_b --data_dir=bad
    printf 'a b c a b c a b a a\n' | tee bad/valid.txt >bad/test.txt
    printf 'a \377 c\n' >>bad/test.txt # a test file that is there has to be whole, too
    refuses "bad/test.txt: line 2, byte 22 of the file, 0xff, is not UTF-8" -- lm wikitext_b --data_dir=bad
    refuses "can't open nowhere.txt" -- lm wikitext_b --data_dir=bad --inf_data_path=nowhere.txt
    rm bad/test.txt
    says "2 epochs of 1 step" "DONE" -- lm wikitext_b --data_dir=bad --epochs=2 # fewer windows than a batch of 128
    printf 'a a a a a a a a a a\n' >bad/train.txt
    refuses "bad/train.txt: its only word is 'a'" -- lm wikitext_b --data_dir=bad
    refuses "bad/train.txt: its only word is 'a'" -- lm wikitext_b --data_dir=bad --text_oov=unk
    refuses "seq_len" "5000" -- lm wikitext_b --seq_len=5001
    refuses "embed_dim 15 is odd" "use 16" -- lm wikitext_b --embed_dim=15 --num_heads=1
    refuses "num_heads" "embed_dim" -- lm wikitext_b --num_heads=3
    refuses "img_size" "is an option of task weather" -- lm wikitext_b --img_size=[8,8]
    refuses "seq_len" "is an option of source text" -- "$VITRAIN" --yaml_config="$TOP/config/ViT.yaml" \
        --config=demo --seq_len=8 --model=vit
    cp -r "$TOP/config" config # its LM.yaml has the configuration that ViT.yaml lacks
    says "24 layouts, 24 of them fit" -- "$VITRAIN" plan --config=wikitext_b --ranks=1 --vocab_size=30000 --data_dir=nowhere
    refuses "vitrain plan\` needs only --vocab_size=N" -- "$VITRAIN" plan --config=wikitext_b --ranks=1 --data_dir=nowhere
}

test_evaluate() {
    lm wikitext_b $SHORT --limit_nsamples_val=24 --epochs=1 >run.log # whole batches: the log's mean is that of all words
    local run=runs/wikitext_b/1CPU/00
    says "windows of 8 words of data/test.txt" "bits/token" -- "$VITRAIN" evaluate $run --split=test --limit_nsamples_val=24
    local test=$(sed -n 's/.*Final test loss: //p' run.log)
    awk -F, -v test=$test '$1 == 1 { exit !($2 == 24 && ($3 / test - 1) ^ 2 < 1e-10 && ($4 / exp($3) - 1) ^ 2 < 1e-10 && ($5 * log(2) / $3 - 1) ^ 2 < 1e-10) }' \
        $run/evaluation/step-00000006-test/perplexity.csv
    mv data/train.txt away # the words are the checkpoint's
    says "windows of 8 words of data/valid.txt" -- "$VITRAIN" evaluate $run
    mv away data/train.txt
    refuses "has neither members nor maps" -- "$VITRAIN" evaluate $run --members=2
    mv data/test.txt away
    refuses "data_dir data has no test file; name one by inf_data_path" -- "$VITRAIN" evaluate $run --split=test --output=none
    [ ! -e none ]
    mv away data/test.txt
    sed -i '7s/.*/zebra/' $run/checkpoints/best/vocabulary
    refuses "$(readlink $run/checkpoints/best)/vocabulary is damaged or another checkpoint's: its checksum is" -- "$VITRAIN" evaluate $run
    refuses "FAULT: " "$(readlink $run/checkpoints/best)/vocabulary is damaged" -- "$VITRAIN" inspect $run/checkpoints/best
}

# The loss of evaluate is the mean over all words: 31 windows in batches that don't share out evenly, on several ranks.
test_evaluate_in_batches() {
    local run=runs/wikitext_b/1CPU/00 batch
    says "means of the batches' means" "vitrain evaluate gives the mean over all words" -- lm wikitext_b $SHORT --epochs=1
    score() { "$@" $run --limit_nsamples_val=31 --output=scores --force >/dev/null && cut -d, -f1-4 scores/perplexity.csv; }
    score "$VITRAIN" evaluate --test_batch_size=1 >one
    same() { paste -d, one - | awk -F, 'NR > 1 { n += $2 == 31 && $1 == $5 && $2 == $6 && ($3 / $7 - 1) ^ 2 < 1e-12 } END { exit n != 2 }'; }
    for batch in 7 30 128; do score "$VITRAIN" evaluate --test_batch_size=$batch | same; done
    needs_mpi
    score "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate --test_batch_size=15 | same
    score "$TOP/tests/mpirun" -np 3 "$VITRAIN" evaluate --test_batch_size=10 | same
}

test_reader() {
    says "reader " "ratio " "of the plain preads' samples/s" -- "$VITRAIN" bench io --yaml_config="$TOP/config/LM.yaml" \
        --config=wikitext_b --data_dir=data --num_iters=20
    says "reading: random words" "DONE" -- lm wikitext_b $SHORT --epochs=1 --data_loader_config=synthetic --vocab_size=50
}

test_generate() {
    local run=runs/lm/1CPU/00
    lm lm $SHORT --epochs=1 --attention_scale=sqrt >/dev/null
    local prompt=$(head -c 13 data/train.txt) # two words
    generate() { "$VITRAIN" generate $run --prompt="$prompt" --tokens=20 "$@" 2>speed; }
    generate >one
    contains "$(cat one)" "$prompt "
    [ "$(wc -w <one)" = 22 ]
    grep -qE '^20 words in [0-9.]+ s: [0-9]+ words a second$' speed
    generate --num_threads=2 >again && cmp one again
    generate --seed=4 >other && refuted cmp -s one other
    generate --count=3 >three && cmp one <(head -1 three)
    [ "$(sort -u three | wc -l)" = 3 ]
    generate --temperature=0 >likeliest && cmp likeliest <(generate --top_k=1 --seed=5)
    [ "$("$VITRAIN" generate --checkpoint=$run --prompt= --tokens=3 2>/dev/null | wc -w)" = 4 ]
    refuses "--prompt: the model doesn't know 'zebra', 'quagga'; it knows the 843 words of $run/checkpoints/$(readlink $run/checkpoints/best)/vocabulary" \
        -- "$VITRAIN" generate $run --prompt="$prompt Zebra quagga zebra"
    refuses "'1', '2', '3', '4', '5', '6', '7', '8' and 2 others; it knows" -- "$VITRAIN" generate $run --prompt="$(seq 10)"
    sort -r $run/checkpoints/best/vocabulary >other
    refuses "in the checkpoint's vocabulary of 843 words" "in the one of 843 words that is used here" -- \
        "$VITRAIN" generate $run --prompt="$prompt" --vocabulary=other
    head -800 $run/checkpoints/best/vocabulary >other
    refuses "word 800 is" "in the one of 800 words" -- "$VITRAIN" evaluate $run --vocabulary=other
    mv data away
    cmp one <(generate)
    refuses "a text without a prompt begins with a word drawn by its frequency" -- "$VITRAIN" generate $run
    mv away data
    refuses "leave context_parallel and pipeline_parallel at 1" -- "$VITRAIN" generate $run --prompt="$prompt" --zero_stage=1
    lm wikitext_b $SHORT --epochs=1 >/dev/null
    refuses "was trained without causal: true" "can't write" -- "$VITRAIN" generate runs/wikitext_b/1CPU/00 --prompt="$prompt"
    "$VITRAIN" synth fields --img_size=[8,16] --channels=2 --steps_per_year=24 --valid_steps=8 >/dev/null
    "$VITRAIN" --yaml_config="$TOP/config/ViT.yaml" --config=demo --data_dir=fields --img_size=[8,16] --n_in_channels=2 \
        --n_out_channels=2 --embed_dim=8 --depth=1 --num_heads=1 --num_epochs=1 --expdir=runs >/dev/null
    refuses "was not trained on text" -- "$VITRAIN" generate runs/demo/1CPU/00 --prompt=a
}

# Of two ranks one makes the file of tokens; a partial last batch of two windows leaves one rank of three without any.
test_ranks() {
    local mpirun="$TOP/tests/mpirun" ranks
    needs_mpi
    lm lm $SHORT --epochs=2 --batch-size=12 --dropout=0 >/dev/null
    for ranks in 2 3; do
        rm data/*.vitrain
        lm() { local config=$1; shift; "$mpirun" -np $ranks "$VITRAIN" --yaml_config="$TOP/config/LM.yaml" --config="$config" $SMALL "$@"; }
        lm lm $SHORT --epochs=2 --batch-size=$((12 / ranks)) --dropout=0 >/dev/null
        paste -d, <(cut -d, -f3 runs/lm/1CPU/00/metrics.csv) <(cut -d, -f3 runs/lm/${ranks}CPU/00/metrics.csv) |
            awk -F, 'NR > 1 { n++; if (($1 / $2 - 1) ^ 2 > 1e-10) { print; exit 1 } } END { exit n != 12 }'
        paste -d, <(cut -d, -f4 runs/lm/1CPU/00/epochs.csv) <(cut -d, -f4 runs/lm/${ranks}CPU/00/epochs.csv) |
            awk -F, 'NR > 1 { n++; if (($1 / $2 - 1) ^ 2 > 1e-10) { print; exit 1 } } END { exit n != 2 }'
    done
    [ "$(ls data | grep -c vitrain)" = 3 ]
    local prompt=$(head -c 13 data/train.txt)
    "$VITRAIN" generate runs/lm/1CPU/00 --prompt="$prompt" --num_threads=1 >one 2>/dev/null
    "$mpirun" -np 2 "$VITRAIN" generate runs/lm/1CPU/00 --prompt="$prompt" --num_threads=1 --tensor_parallel=2 2>/dev/null |
        cmp one -
}

# A file of tokens that was damaged is made again, which the log says once, with the same losses.
test_damaged_tokens() {
    lm lm $SHORT --epochs=1 --run_num=before >/dev/null
    cp data/train.txt.vitrain whole
    printf '%1000s' '' | dd of=data/train.txt.vitrain bs=1 seek=6000 conv=notrunc status=none # blanks for tokens
    refuted cmp -s whole data/train.txt.vitrain
    says "  train: train.txt, " "data/train.txt.vitrain is damaged; its text is split into words again" "no faults seen" -- \
        "$VITRAIN" inspect data
    refuted cmp -s whole data/train.txt.vitrain # inspect writes nothing
    says "WARNING - data/train.txt.vitrain is damaged; its text is split into words again" "DONE" -- \
        lm lm $SHORT --epochs=1 --run_num=after
    [ "$(grep -c 'is damaged' <<<"$output")" = 1 ]
    cmp whole data/train.txt.vitrain
    cmp <(learnt before) <(learnt after)
    says "text: 6000 training tokens" -- lm lm $SHORT --epochs=1 --run_num=again
    refuted contains "$output" "is damaged"
}

# A file of tokens that becomes shorter ends the run with its name.
test_tokens_cut_off_during_a_run() {
    lm lm $SHORT --epochs=1000000 >run.log 2>&1 &
    wait_until grep -q 'Train loss' run.log
    truncate -s 4100 data/train.txt.vitrain
    local got=0
    wait $! || got=$?
    [ "$got" = 1 ] || { echo "exit status $got"; tail -5 run.log; return 1; }
    contains "$(tail -3 run.log)" "data/train.txt.vitrain: can't read words " "it has become shorter than it was when it was opened"
    says "data/train.txt.vitrain is damaged" "DONE" -- lm lm $SHORT --epochs=1 --run_num=again
}

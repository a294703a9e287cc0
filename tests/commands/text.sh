# Language models on text, as their users run them, on a small synthetic text.

"$VITRAIN" synth --text data --tokens=6000 >synth.log

test_synthetic_text() {
    contains "$(cat synth.log)" "data/train.txt  6000 tokens" "data/test.txt  601 tokens" \
        "perplexity of a model that knows how the text is made: 107.71; of the best of single words 418.43, of pairs 162.13"
    [ "$(wc -w <data/train.txt)" = 6000 ]
    grep -qx 'perplexity 107.7[0-9]*' data/entropy.txt
    refuses "data/train.txt is there already" "add --force" -- "$VITRAIN" synth --text data
    "$VITRAIN" synth --text again --tokens=6000 >/dev/null
    cmp data/train.txt again/train.txt
    "$VITRAIN" synth again --text --tokens=6000 --seed=1 --force >/dev/null
    refuted cmp -s data/train.txt again/train.txt
    refuses "--channels is no flag of a text" -- "$VITRAIN" synth --text other --channels=3
    refuses "--tokens is no flag of a set for model vit" -- "$VITRAIN" synth other --tokens=3000
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

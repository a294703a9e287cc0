# The compiled code of the CUDA kernels, for one GPU that this build is for, as cuobjdump shows it (CUOBJDUMP names it, else
# it is looked for in PATH, and beside nvcc).

# A line a kernel: its mangled name, its registers, and how many instructions load and store 16 bytes of global memory, multiply on
# tensor cores, use local memory (registers that did not suffice, or arrays), make a power of two in a branch, multiply by a
# warpgroup, and wait for such products. Then, of the loop with the fewest: instructions for each 16 bytes that are loaded or stored
# at once, and for each power of two in a loop with products; - where there is no such loop. (Of branches both sides are counted.)
# Last, in such a loop, the shifts behind a load and before the next wait for products.
kernels_of() { # OBJECT ARCHITECTURE
    { "$cuobjdump" -res-usage -arch "$2" "$1" 2>&1; "$cuobjdump" -sass -arch "$2" "$1"; } | awk '
        function loop(first, last,    i, n, wide, powers, products, fetched, shifts) {
            for (i = first; i <= last; i++) {
                n++
                wide += code[i] ~ /(LDG|STG)\.E[A-Z0-9.]*\.128/
                powers += code[i] ~ /MUFU\.EX2/
                products += code[i] ~ /HG?MMA/
                if (code[i] ~ /WARPGROUP\.DEPBAR/) fetched = 0
                if (code[i] ~ /LDG/) fetched = 1
                shifts += fetched && code[i] ~ / SHF\.L/
            }
            if (wide > 0 && (piece == "-" || n / wide < piece)) piece = n / wide
            if (powers > 0 && products > 0 && (score == "-" || n / powers < score)) { score = n / powers; early = shifts + 0 }
        }
        function end(    i, at) {
            if (name == "") return
            piece = score = "-"; early = 0
            for (i = 1; i <= count; i++)
                if (code[i] ~ /BRA/ && match(code[i], /0x[0-9a-f]+/)) {
                    at = substr(code[i], RSTART + 2, RLENGTH - 2)
                    if (at in place && place[at] < i) loop(place[at], i)
                }
            print name, registers[name], load + 0, store + 0, multiply + 0, local + 0, power + 0, group + 0, wait + 0, piece, score, early
            delete code; delete place
            name = ""; count = load = store = multiply = local = power = group = wait = inside = 0
        }
        / Function [^:]*:$/ { named = $2; sub(/:$/, "", named) }
        / REG:/ { split($1, word, ":"); registers[named] = word[2] }
        /Function : / { end(); name = $NF }
        /^ *\/\*[0-9a-f]+\*\/ / { code[++count] = $0; at = $1; gsub(/\/|\*/, "", at); sub(/^0+/, "", at); place[at == "" ? "0" : at] = count }
        /LDG\.E[A-Z0-9.]*\.128/ { load++ }
        /STG\.E[A-Z0-9.]*\.128/ { store++ }
        /HMMA/ { multiply++ }
        / (LDL|STL)/ { local++ }
        /HGMMA/ { group++ }
        /WARPGROUP\.DEPBAR/ { wait++ }
        /BSSY/ { inside++ }
        /BSYNC/ { if (inside > 0) inside-- }
        /MUFU\.EX2/ { if (inside > 0) power++ }
        END { end() }'
}

# Kernels whose rows are read and written 16 bytes at a time (read: only read so).
wide='embedding_kernel cross_entropy_backward_kernel bias_activation_kernel bias_activation_backward_kernel merge_kernel
convert_kernel gelu_forward_kernel gelu_backward_kernel gelu_backward_bias_kernel loss_backward_kernel exchange_kernel
update_kernel average_kernel patches_load_kernel patches_store_kernel position_add_kernel position_backward_kernel mask_kernel
forward_long_kernel backward_long_kernel'
read='parts_kernel delta_kernel loss_sums_kernel squares_kernel partial_column_sums'
# Accesses to local memory: sines of large angles take an array, the members of a point are one, and for sm_80 ptxas lacks a few
# registers where heads have up to 32 columns, and in the sums of columns.
most_local() { # PLAIN ARCHITECTURE
    case $1,$2 in
    sinusoid_kernel,* | fields_disturb_kernel,* | noise_draw_kernel,*) echo 30 ;;
    crps_sums_kernel,* | crps_backward_kernel,*) echo 200 ;;
    query_gradient_kernel,sm_80 | key_gradient_kernel,sm_80 | partial_column_sums,sm_80) echo 16 ;;
    *) echo 0 ;;
    esac
}

# Registers a thread: 64 let 1024 threads run on a multiprocessor, half of what it can hold. These take more: kernels that make a patch
# or an update of many numbers at once (and load them at once); LayerNorm, which keeps its rows, 48 for each group of columns; and
# attention, which keeps its tiles and runs on three warps a scheduler (168), or two (255).
most_registers() { # MANGLED PLAIN
    case $1,$2 in
    *attention_arguments,key_gradient_kernel) echo 255 ;;
    *attention_arguments,* | *wgmma_arguments,*) echo 168 ;;
    *L4form*) echo $((64 + 48 * $(sed 's/.*ILi\([0-9]*\)E.*/\1/' <<<"$1"))) ;;
    *,patches_load_kernel | *,backward_long_kernel) echo 100 ;;
    *,crps_backward_kernel | *,crps_sums_kernel) echo 80 ;;
    *,patches_store_kernel | *,update_kernel | *,update_in_codes_kernel) echo 72 ;;
    *) echo 64 ;;
    esac
}

# Instructions of the inner loop for each 16 bytes: a multiprocessor of an H100 issues 4 for 32 threads in a clock, in which its memory
# moves 14.5 bytes (3.35 TB/s, 132 multiprocessors, 1.75 GHz), so more than 141 would take longer than the memory. patches_load has more,
# because its branches that move points one by one (channels last, beyond the fields' edge) are counted, too.
most_for_a_piece() { case $1 in patches_load_kernel) echo 270 ;; *) echo 141 ;; esac; }

# Instructions of the inner loop for each score: a scheduler takes 8 clocks for a warp's power of two, so attention over wgmma has
# about 8; with dropout, whose bits are fetched and applied, at most 14. The others only must not grow: products of three parts for
# float32, of 16 bits, and with dropout or masks.
most_for_a_score() { # MANGLED
    case $1 in
    *ELb1E*wgmma_arguments) echo 14 ;;
    *wgmma_arguments) echo 10 ;;
    *kernelIf*) echo 600 ;;
    *) echo 75 ;;
    esac
}

# over NAME WHAT NUMBER MOST: whether NUMBER, or -, is more
over() {
    [ "$3" != - ] && awk -v n="$3" -v most="$4" 'BEGIN { exit n <= most }' || return 1
    echo "$1: $3 $2, at most $4"
}

test_compiled_kernels() {
    local build=$(dirname "$VITRAIN") object name registers loads stores multiplies locals powers groups waits piece score early plain architecture has_wgmma='' count=0
    ls "$build"/cuda/*.cu.o >/dev/null 2>&1 || skip "built without CUDA"
    cuobjdump=${CUOBJDUMP:-$(PATH=$PATH:/usr/local/cuda/bin command -v cuobjdump)} || skip "no cuobjdump"
    architecture=$("$cuobjdump" -lelf "$build/cuda/words.cu.o" | sed -n 's/.*\.\(sm_[0-9]*\)\.cubin.*/\1/p' | head -n 1)
    [ -n "$architecture" ] || skip "no code for a GPU in this build, only PTX"
    for object in "$build"/cuda/*.cu.o; do
        case $object in
        */wgmma_*) kernels_of "$object" sm_90a >>kernels; has_wgmma='wgmma_forward_kernel wgmma_query_gradient_kernel wgmma_key_gradient_kernel' ;;
        *) kernels_of "$object" "$architecture" >>kernels ;;
        esac
    done
    for name in $wide $read forward_kernel query_gradient_kernel key_gradient_kernel $has_wgmma; do
        grep -qE "^_Z[0-9]+$name" kernels || { echo "no kernel $name"; return 1; }
    done
    while read -r name registers loads stores multiplies locals powers groups waits piece score early; do
        plain=$(sed 's/^_Z[0-9]*\([a-z_]*\).*/\1/' <<<"$name") count=$((count + 1))
        ! over "$name" registers "$registers" "$(most_registers "$name" "$plain")" || return 1
        ! over "$name" "instructions for 16 bytes" "$piece" "$(most_for_a_piece "$plain")" || return 1
        ! over "$name" "instructions for a score" "$score" "$(most_for_a_score "$name")" || return 1
        ! over "$name" "accesses to local memory" "$locals" "$(most_local "$plain" "$architecture")" || return 1
        case " $(echo $wide) " in *" $plain "*) [ "$loads" -gt 0 ] && [ "$stores" -gt 0 ] || { echo "$name: no accesses of 16 bytes"; return 1; } ;; esac
        case " $(echo $read) " in *" $plain "*) [ "$loads" -gt 0 ] || { echo "$name: no loads of 16 bytes"; return 1; } ;; esac
        case $name in
        *attention_arguments) # tiles of a head's width and of the keys' that are multiplied at once: both products, once
            [ "$plain" = delta_kernel ] || { [ "$multiplies" -ge 12 ] && [ "$score" != - ]; } || { echo "$name: $multiplies products, $score"; return 1; }
            [ "$powers" -eq 0 ] || { echo "$name: $powers weights are made in branches"; return 1; } ;;
        *wgmma_arguments) # where ptxas can't follow the products of a warpgroup, it waits for each of them
            [ "$groups" -ge 12 ] && [ $((2 * waits)) -le "$groups" ] && [ "$score" != - ] ||
                { echo "$name: $groups products, $waits waits for them, $score"; return 1; }
            # and shift the bits of dropout, which are fetched meanwhile, behind one
            [ "$early" -eq 0 ] || { echo "$name: $early shifts wait for memory before products"; return 1; } ;;
        *L4form*) # LayerNorm
            [ "$loads" -gt 0 ] && [ "$stores" -gt 0 ] || { echo "$name: no accesses of 16 bytes"; return 1; } ;;
        esac
    done <kernels
    echo "$count kernels for $architecture"
    [ "$count" -gt 80 ]
}

# The compiled code of the CUDA kernels, for one GPU that this build is for, as cuobjdump shows it (CUOBJDUMP names it, else
# it is looked for in PATH, and beside nvcc).

# A line a kernel: its mangled name, and how many instructions load and store 16 bytes of global memory, multiply on tensor
# cores, use local memory (registers that did not suffice, or arrays), make a power of two in a branch, multiply by a warpgroup, and
# wait for such products.
kernels_of() { # OBJECT ARCHITECTURE
    "$cuobjdump" -sass -arch "$2" "$1" | awk '
        /Function : / { name = $NF; names[++count] = name }
        /LDG\.E[A-Z0-9.]*\.128/ { load[name]++ }
        /STG\.E[A-Z0-9.]*\.128/ { store[name]++ }
        /HMMA/ { multiply[name]++ }
        / (LDL|STL)/ { local[name]++ }
        /HGMMA/ { group[name]++ }
        /WARPGROUP\.DEPBAR/ { wait[name]++ }
        /BSSY/ { inside[name]++ }
        /BSYNC/ { if (inside[name] > 0) inside[name]-- }
        /MUFU\.EX2/ { if (inside[name] > 0) power[name]++ }
        END { for (i = 1; i <= count; i++) { name = names[i]; print name, load[name] + 0, store[name] + 0, multiply[name] + 0, local[name] + 0, power[name] + 0, group[name] + 0, wait[name] + 0 } }'
}

# Kernels whose rows are read and written 16 bytes at a time (read: only read so).
wide='embedding_kernel cross_entropy_backward_kernel bias_activation_kernel bias_activation_backward_kernel merge_kernel
convert_kernel gelu_forward_kernel gelu_backward_kernel gelu_backward_bias_kernel loss_backward_kernel exchange_kernel
update_kernel average_kernel patches_load_kernel patches_store_kernel position_add_kernel position_backward_kernel mask_kernel
forward_long_kernel backward_long_kernel'
read='parts_kernel delta_kernel loss_sums_kernel squares_kernel partial_column_sums'
# Sines of large angles take an array.
arrays='sinusoid_kernel fields_disturb_kernel'

test_compiled_kernels() {
    local build=$(dirname "$VITRAIN") object name loads stores multiplies locals powers groups waits plain architecture has_wgmma='' count=0
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
    for name in $wide $read $arrays forward_kernel query_gradient_kernel key_gradient_kernel $has_wgmma; do
        grep -qE "^_Z[0-9]+$name" kernels || { echo "no kernel $name"; return 1; }
    done
    while read -r name loads stores multiplies locals powers groups waits; do
        plain=$(sed 's/^_Z[0-9]*\([a-z_]*\).*/\1/' <<<"$name") count=$((count + 1))
        case " $(echo $arrays) " in *" $plain "*) ;; *) [ "$locals" -eq 0 ] || { echo "$name: $locals accesses to local memory"; return 1; } ;; esac
        case " $(echo $wide) " in *" $plain "*) [ "$loads" -gt 0 ] && [ "$stores" -gt 0 ] || { echo "$name: no accesses of 16 bytes"; return 1; } ;; esac
        case " $(echo $read) " in *" $plain "*) [ "$loads" -gt 0 ] || { echo "$name: no loads of 16 bytes"; return 1; } ;; esac
        case $name in
        *attention_arguments) # tiles of a head's width and of the keys' that are multiplied at once: both products, once
            [ "$plain" = delta_kernel ] || [ "$multiplies" -ge 12 ] || { echo "$name: $multiplies products"; return 1; }
            [ "$powers" -eq 0 ] || { echo "$name: $powers weights are made in branches"; return 1; } ;;
        *wgmma_arguments) # where ptxas can't follow the products of a warpgroup, it waits for each of them
            [ "$groups" -ge 12 ] && [ $((2 * waits)) -le "$groups" ] || { echo "$name: $groups products, $waits waits for them"; return 1; } ;;
        *L4form*) # LayerNorm
            [ "$loads" -gt 0 ] && [ "$stores" -gt 0 ] || { echo "$name: no accesses of 16 bytes"; return 1; } ;;
        esac
    done <kernels
    echo "$count kernels for $architecture"
    [ "$count" -gt 80 ]
}

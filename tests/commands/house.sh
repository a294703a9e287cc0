# The house keeps its rules (docs/architecture.md): who may include whom, and which words stay in which room.

# Rooms of which nothing depends on the task, so that its words aren't there.
ROOMS_WITHOUT_TASKS="src/loss src/optimizer src/parallel src/training"
TASK_WORDS='latitude|channel|history'

# The rows of the table of rooms, "FLOOR FOLDER". No two rooms of src/ share a floor, so that where no file includes a
# higher floor there is no circle of rooms either.
floors() { sed -n 's/^| \([0-9]*\) | `\([a-z_/]*\/\)` |.*/\1 \2/p' "$TOP/docs/architecture.md"; }

test_no_file_includes_a_higher_floor() {
    floors >floors
    [ "$(wc -l <floors)" -gt 10 ]
    [ -z "$(grep ' src/' floors | cut -d' ' -f1 | sort | uniq -d)" ] || { echo "two rooms share a floor:"; cat floors; return 1; }
    (cd "$TOP" && find src cuda -name '*.[ch]' -o -name '*.cu' -o -name '*.def') >files
    (cd "$TOP" && grep -rHno '^ *# *include "[^"]*"' src cuda --include='*.[ch]' --include='*.cu' --include='*.def') >includes
    [ "$(wc -l <includes)" -gt 500 ]
    awk '
        function room(path,    folder, best) {
            for (folder in floor) if (index(path, folder) == 1 && length(folder) > length(best)) best = folder
            return best
        }
        FILENAME == "floors" { floor[$2] = $1; next }
        FILENAME == "files" {
            known[$0] = 1
            if (room($0) == "" && $0 != "src/main.c") { print $0 ": its room has no row in docs/architecture.md"; bad = 1 }
            next
        }
        {
            split($0, part, "\""); split($0, place, ":"); target = "src/" part[2]
            if (part[2] ~ /\.\.\//) { print place[1] ":" place[2] " includes " part[2] "; write its path from src/"; bad = 1 }
            if (!(target in known) || place[1] == "src/main.c") next
            a = room(place[1]); b = room(target)
            if (floor[a] >= floor[b]) next
            print place[1] ":" place[2] " includes " target ", of a higher floor"; bad = 1
        }
        END { exit bad }' floors files includes
}

test_no_room_grows() {
    "$TOP/tests/rooms" >out || { cat out; return 1; }
    [ "$(grep -c ' of ' out)" -ge 18 ]
    mkdir -p small/docs small/tests small/src/base small/cuda
    cp "$TOP/tests/rooms" small/tests
    cp "$TOP/src/base/random.c" small/src/base
    sed 's/^\(| `src\/base\/` | \)[0-9,]*/\11/' "$TOP/docs/architecture.md" >small/docs/architecture.md
    if small/tests/rooms >out; then cat out; return 1; fi
    grep -q '^src/base/: make it smaller' out
}

# The journey of a batch, and where to look first, name what is there.
test_the_journey_of_a_batch() {
    sed -n '/^## The journey of a batch/,/^## Words/p' "$TOP/docs/architecture.md" | grep -o '`[^`]*`' |
        grep -oE '[A-Za-z_0-9]{3,}(\.[ch])?' | grep -vx 'vitrain\|config\|x_store\.c' | sort -u >names
    [ "$(wc -l <names)" -gt 80 ]
    { find "$TOP/src" -type f | sed "s|.*/||"; find "$TOP/src" -type f -exec cat {} +; } | grep -oE '[A-Za-z_0-9]+(\.[ch])?' | sort -u >there
    refuted grep -vxFf there names
}

# Of the vision transformer only its own files and the table of models know.
test_one_model_is_known_to_its_own_files() {
    (cd "$TOP" && grep -rnwE 'vt_vit[a-z_]*' src cuda) | grep -vE '^src/model/(vit|models)' >lines || true
    [ ! -s lines ] || { cat lines; return 1; }
}

# What is printed may hold text of files: only vt_print escapes it. The progress bar and the table of `plan` move and colour.
test_commands_print_by_vt_print() {
    (cd "$TOP" && grep -rnE '(^|[^a-z_])(v?printf|puts|putchar) *\(' src --include='*.c') >lines || true
    sed -i -E '/^src\/(base\/text|report\/progress)\.c:/d; /^src\/command\/(completion.*printf %q|plan.*\\033)/d' lines
    [ ! -s lines ] || { cat lines; return 1; }
}

test_rooms_without_tasks() {
    for room in $ROOMS_WITHOUT_TASKS src/backend; do [ -d "$TOP/$room" ] || { echo "no $room"; return 1; }; done
    (cd "$TOP" && grep -rniE "$TASK_WORDS" $ROOMS_WITHOUT_TASKS; grep -rniE 'latitude|history' src/backend) >lines || true
    [ ! -s lines ] || { cat lines; return 1; }
}

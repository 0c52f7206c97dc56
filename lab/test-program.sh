#!/bin/sh
# Runs one test program of `make test` (cargo's `runner`). SKIP_TESTS: programs that run elsewhere at the same time.
for name in ${SKIP_TESTS:-}; do
    case ${1##*/} in
    "$name"-*)
        echo "$name runs beside this"
        exit 0
        ;;
    esac
done
# Most of these tests wait: for elections, and for checks that a member makes every half minute.
case ${1##*/} in
db-*)
    export RUST_TEST_THREADS="${RUST_TEST_THREADS:-3}"
    # run-tests reads this line.
    echo "test threads: $RUST_TEST_THREADS"
    ;;
esac
# A hanging program is killed, so that its output can be read. The longest one needs about half of this time.
exec timeout --foreground --verbose 1800 "$@"

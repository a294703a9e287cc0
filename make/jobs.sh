#!/bin/sh
# Prints the default number of make's jobs: one for each processor, but at most one for each free GB of memory.
jobs=$(nproc 2>/dev/null) || jobs=1
free=$(awk '/^MemAvailable:/ { print int($2 / 1000000) }' /proc/meminfo 2>/dev/null)
most=$(cat /sys/fs/cgroup/memory.max 2>/dev/null)
case $most in '' | *[!0-9]*) ;; *) most=$((most / 1000000000)); [ "$most" -ge "${free:-$most}" ] || free=$most ;; esac
[ "${free:-$jobs}" -ge "$jobs" ] || jobs=$free
[ "$jobs" -ge 1 ] || jobs=1
echo "$jobs"

#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh SOURCE COMPILER ARGUMENT...: compiles SOURCE and judges the outcome by its first line:
#   // error: PATTERN   must fail, with a line that matches the extended regular expression among the first 25. g++ says
#                       no more than those; clang++ may go on with the overloads that it did not choose, to 90 lines.
#   // compiles         must compile
set -u
LC_ALL=C  # the compiler's messages in English, with plain quotes
export LC_ALL
source=$1
shift
first_line=$(head -n 1 "$source")
messages=$("$@" -fsyntax-only "$source" 2>&1)
status=$?

fail() {
  printf '%s\n%s: %s\n' "$messages" "$source" "$1"
  exit 1
}

case $("$@" --version) in
  *clang*) most=90 ;;
  *) most=25 ;;
esac

case $first_line in
  '// error: '?*)
    pattern=${first_line#'// error: '}
    [ "$status" -ne 0 ] || fail 'compiled, but must not'
    ! printf '%s\n' "$messages" | grep -q 'fatal error:' || fail 'failed before the compiler could judge it'
    printf '%s\n' "$messages" | head -n 25 | grep -qE -- "$pattern" ||
      fail "the first 25 lines of the message do not match: $pattern"
    lines=$(printf '%s\n' "$messages" | wc -l)
    [ "$lines" -le "$most" ] || fail "the message has $lines lines, but may have $most"
    ;;
  '// compiles')
    [ "$status" -eq 0 ] || fail 'must compile'
    ;;
  *) fail 'its first line must be "// error: PATTERN" or "// compiles"' ;;
esac

#!/bin/sh
# SPDX-License-Identifier: MIT
# consumer.sh WAY SOURCE_ROOT CEREAL_INCLUDE COMPILER...: builds and runs tests/consumer_meson/consumer.cpp as another
# project would. CEREAL_INCLUDE is empty where cereal is installed, and its folder where Meson has brought it along.
set -eu
way=$1
root=$2
cereal=$3
shift 3
CXX=$*
export CXX
# What the build under test was told is not the consumer's business.
unset CXXFLAGS CPPFLAGS LDFLAGS DESTDIR PKG_CONFIG_PATH CMAKE_PREFIX_PATH

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

skip_without() {
  command -v "$1" >/dev/null || { echo "[hfcomm] skipped: $way: there is no $1 here"; exit 77; }
}
install_hfcomm() {
  meson setup build "$root" --prefix "$scratch/prefix" -Dtests=false -Dexamples=false -Dbenchmarks=false
  meson install -C build
}

case $way in
  meson)
    cp -R "$root/tests/consumer_meson" consumer
    mkdir consumer/subprojects
    ln -s "$root" consumer/subprojects/hfcomm
    # A source folder of cereal that is there already is used, not downloaded once more.
    [ -z "$cereal" ] || ln -s "${cereal%/include}" consumer/subprojects/
    meson setup consumer/build consumer
    ninja -C consumer/build
    set -- consumer/build/consumer
    ;;
  cmake)
    skip_without cmake
    [ -z "$cereal" ] || { echo '[hfcomm] skipped: cmake: cereal is not installed'; exit 77; }
    install_hfcomm
    # Without PROJECT's own -std: hfcomm's target has to ask for C++20.
    cmake -S "$root/tests/consumer_cmake" -B consumer -DCMAKE_PREFIX_PATH="$scratch/prefix"
    cmake --build consumer
    set -- consumer/consumer
    ;;
  pkg_config)
    skip_without pkg-config
    install_hfcomm
    PKG_CONFIG_PATH=$scratch/prefix/share/pkgconfig
    export PKG_CONFIG_PATH
    flags=$(pkg-config --cflags --libs hfcomm)
    # Not from the sources' include folder by accident:
    case $flags in *"$scratch/prefix/include"*) ;; *) echo "unexpected flags: $flags"; exit 1 ;; esac
    # shellcheck disable=SC2086
    "$@" -std=c++20 "$root/tests/consumer_meson/consumer.cpp" ${cereal:+-I"$cereal"} $flags -o consumer
    set -- ./consumer
    ;;
  plain)
    "$@" -std=c++20 -I "$root/include" ${cereal:+-I"$cereal"} "$root/tests/consumer_meson/consumer.cpp" -pthread \
      -o consumer
    set -- ./consumer
    ;;
  *)
    echo "unknown way: $way"
    exit 2
    ;;
esac
"$@"

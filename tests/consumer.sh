#!/bin/sh
# SPDX-License-Identifier: MIT
# consumer.sh WAY SOURCE_ROOT CEREAL_INCLUDE COMPILER...: builds and runs the programs of tests/consumer_meson as another
# project would, header-only and with the compiled part. (The README's commands show how by hand.) CEREAL_INCLUDE is
# empty where cereal is installed, and its folder where Meson has brought it along. It runs in the build folder, which the
# ways that need an installed hfcomm install.
set -eu
way=$1
root=$2
cereal=$3
shift 3
CXX=$*
export CXX
# What the build under test was told is not the consumer's business.
unset CXXFLAGS CPPFLAGS LDFLAGS DESTDIR PKG_CONFIG_PATH CMAKE_PREFIX_PATH

build=$PWD
# Below the build folder: so the way to the sources is the same in each clone, which ccache needs.
scratch=$(mktemp -d "$build/consumer.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# run PROGRAM: runs a built consumer.
passed=0
skipped=0
run() {
  "$@" || { echo "$way: $* failed"; exit 1; }
  passed=$((passed + 1))
}
skip() {
  echo "$way: $1"
  skipped=$((skipped + ${2:-2}))  # header-only and compiled, unless there is another number
}

# build_with_cmake ARGUMENT...: without an own -std, because hfcomm's targets have to ask for C++20. Ninja is there, make
# need not be.
build_with_cmake() {
  cmake -G Ninja -S "$root/tests/consumer_cmake" -B consumer "$@"
  cmake --build consumer
  run consumer/header_only
  run consumer/compiled
}

# find_packages FOLDER: lets pkg-config find what is installed below it.
find_packages() {
  PKG_CONFIG_PATH=$(find "$1" -name pkgconfig | paste -s -d :)
  export PKG_CONFIG_PATH
}

# install_build: installs what the build folder has, so that nothing is compiled again. The prefix is not the one that the
# build was told, as where a package is built in one place and unpacked in another.
install_build() {
  meson install -C "$build" --no-rebuild --quiet --destdir "$scratch/installed"
  find_packages "$scratch/installed"
  prefix=$scratch/installed$(find "$scratch/installed" -name hfcomm.pc -exec sed -n 's/^prefix=//p' '{}' ';')
}

# build_with_pkg_config PACKAGE PROGRAM COMPILER ARGUMENT...: compiles, links and runs a program of tests/consumer_meson.
build_with_pkg_config() {
  package=$1
  program=$2
  shift 2
  flags=$(pkg-config --define-variable=prefix="$prefix" --cflags "$package")
  libraries=$(pkg-config --define-variable=prefix="$prefix" --libs "$package")
  # Not from the sources' include folder by accident:
  case $flags in *"$prefix/include"*) ;; *) echo "unexpected flags: $flags"; exit 1 ;; esac
  # shellcheck disable=SC2086
  "$@" -std=c++20 ${cereal:+-I"$cereal"} $flags -c "$root/tests/consumer_meson/$program.cpp" -o program.o
  # shellcheck disable=SC2086
  "$@" program.o $libraries -o program
  run ./program
}

case $way in
  meson)
    cp -R "$root/tests/consumer_meson" consumer
    mkdir consumer/subprojects
    ln -s "$root" consumer/subprojects/hfcomm
    # A source folder of cereal that is there already is used, not downloaded once more.
    [ -z "$cereal" ] || ln -s "${cereal%/include}" consumer/subprojects/
    # A subproject has its own default of optimisation.
    meson setup consumer/build consumer -Ddebug=false -Dhfcomm:optimization=0
    ninja -C consumer/build
    run consumer/build/header_only
    run consumer/build/compiled
    ;;
  fetched | fetched_with_torch)
    # CMake's FetchContent, which calls add_subdirectory; and Debian's LibTorch with it, by hand, too. CUDA's and NCCL's
    # headers are in no path that is named here.
    with_torch=${way#fetched}
    if ! command -v cmake >/dev/null; then
      skip 'there is no cmake' "${with_torch:+5}"
    else
      build_with_cmake -DHFCOMM_SOURCE="$root" ${cereal:+-DFETCHCONTENT_SOURCE_DIR_CEREAL="${cereal%/include}"} \
        ${with_torch:+-DWITH_TORCH=ON}
      if [ -n "$with_torch" ]; then
        run consumer/torch_program
        set -- "$@" -std=c++20 -I "$root/include" ${cereal:+-I"$cereal"} -isystem /usr/include/torch/csrc/api/include \
          "$root/tests/consumer_meson/torch.cpp" -pthread
        "$@" -DIS_HEADER_ONLY -o header_only -ltorch_cpu -lc10
        run ./header_only
        # Links the libraries that CMake has built.
        parts=$(find consumer -name libhfcomm_torch.a && find consumer -name libhfcomm.a)
        # shellcheck disable=SC2086
        "$@" -DHFCOMM_COMPILED $parts -o compiled -ltorch_cpu -lc10
        run ./compiled
      fi
    fi
    ;;
  installed)
    # As README says, into prefix/, with the time that it takes; and the size of what it compiled.
    "$root/tests/install_time.py" "$root" "$scratch" "$cereal" "$@"
    "$root/tests/compile_cost/compile_cost.py" --check --part "$(find prefix -name libhfcomm.a)" "$root" "$@"
    find_packages "$scratch/prefix"
    prefix=$scratch/prefix
    if command -v pkg-config >/dev/null; then
      build_with_pkg_config hfcomm header_only "$@"
      build_with_pkg_config hfcomm-compiled compiled "$@"
    else
      skip 'there is no pkg-config here'
    fi
    if [ -n "$cereal" ] || ! command -v cmake >/dev/null; then
      skip 'cereal is not installed, or there is no cmake'
    else
      build_with_cmake -DCMAKE_PREFIX_PATH="$prefix"
    fi
    ;;
  torch)
    # With LibTorch: installed, for pkg-config and for CMake.
    install_build
    if command -v pkg-config >/dev/null; then
      build_with_pkg_config hfcomm-torch torch "$@"
    else
      skip 'there is no pkg-config here' 1
    fi
    if [ -n "$cereal" ] || ! command -v cmake >/dev/null; then
      skip 'cereal is not installed, or there is no cmake' 1
    else
      cmake -G Ninja -S "$root/tests/consumer_cmake" -B consumer_cmake -DCMAKE_PREFIX_PATH="$prefix" -DWITH_TORCH=ON
      cmake --build consumer_cmake --target torch_program
      run consumer_cmake/torch_program
    fi
    ;;
  mixed)
    # Files of both ways must not become one program, and the linker says why.
    set -- "$@" -std=c++20 -I "$root/include" ${cereal:+-I"$cereal"} -pthread
    echo '#include <hfcomm/comm.hpp>' >other.cpp
    printf '%s\n' '#include <hfcomm/comm.hpp>' 'int main() { return hfcomm::rank(); }' >header_only.cpp
    "$@" -c header_only.cpp -o header_only.o
    "$@" -DHFCOMM_COMPILED -c other.cpp -o compiled.o
    for objects in 'header_only.o compiled.o' 'compiled.o header_only.o'; do
      # shellcheck disable=SC2086
      if "$@" $objects -o mixed >log 2>&1; then
        echo "$objects: linked, though they are built in different ways"
        exit 1
      fi
      grep 'hfcomm_error_another_file_was_compiled_with' log || { cat log; exit 1; }
      passed=$((passed + 1))
    done
    ;;
  *)
    echo "unknown way: $way"
    exit 2
    ;;
esac
echo "$passed passed, 0 failed, $skipped skipped"

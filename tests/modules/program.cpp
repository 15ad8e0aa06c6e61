// SPDX-License-Identifier: MIT
// program [PLUGIN]: lets two ranks use hfcomm from a library, which is linked, or loaded where PLUGIN names it. Ends
// with status 0 where the library is in the program's world, 3 where it said that it is not, 1 where it was silently
// wrong.
#include <hfcomm/comm.hpp>

#include <cstdio>

#include <dlfcn.h>

#if defined(HFCOMM_TEST_LINKED)
extern "C" double plugin_sum(double mine);
extern "C" int plugin_rank();
#endif

int main([[maybe_unused]] int count, [[maybe_unused]] char** arguments) {
  return hfcomm::launch(2, [&] {
#if defined(HFCOMM_TEST_LINKED)
    const auto sum = &plugin_sum;
    const auto rank = &plugin_rank;
#else
    void* const library = ::dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::printf("%s\n", ::dlerror());
      return 2;
    }
    const auto sum = reinterpret_cast<double (*)(double)>(::dlsym(library, "plugin_sum"));
    const auto rank = reinterpret_cast<int (*)()>(::dlsym(library, "plugin_rank"));
#endif
    const double found = sum(1.0);
    if (found < 0) {
      return 3;
    }
    return found == 2.0 && rank() == hfcomm::rank() ? 0 : 1;
  });
}

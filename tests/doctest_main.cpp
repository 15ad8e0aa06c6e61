// SPDX-License-Identifier: MIT
// The main() of every test executable: doctest's, which also
//  - fails when no case was run, since a filter that matches nothing tests nothing;
//  - gives forked ranks back the default reaction to signals, so that they die as they would in a program of their own
//    instead of reporting a crashed test case.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <iostream>

#include <pthread.h>

namespace {

struct case_counter : doctest::IReporter {
  static inline unsigned cases_run = 0;

  explicit case_counter(const doctest::ContextOptions& /*options*/) {}
  void test_run_end(const doctest::TestRunStats& run) override { cases_run = run.numTestCasesPassingFilters; }

  void report_query(const doctest::QueryData& /*query*/) override {}
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData& /*test*/) override {}
  void test_case_reenter(const doctest::TestCaseData& /*test*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*test*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*exception*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*subcase*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*assertion*/) override {}
  void log_message(const doctest::MessageData& /*message*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*test*/) override {}
};
REGISTER_LISTENER("case_counter", 1, case_counter);

extern "C" void forget_signal_handlers() {
  for (const int signal : std::array{SIGINT, SIGILL, SIGFPE, SIGSEGV, SIGTERM, SIGABRT}) {
    std::signal(signal, SIG_DFL);
  }
}

}  // namespace

int main(int argc, char** argv) {
  pthread_atfork(nullptr, nullptr, forget_signal_handlers);
  doctest::Context context(argc, argv);
  const int status = context.run();
  if (context.shouldExit()) {
    return status;
  }
  if (case_counter::cases_run == 0) {
    std::cerr << "no test case was run\n";
    return 1;
  }
  return status;
}

// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/crypto.hpp>
#include <hfcomm/rendezvous/crypto_libraries.hpp>

namespace {

namespace rendezvous = hfcomm::rendezvous;
using rendezvous::bytes_32;
using rendezvous::crypto;

std::vector<std::byte> from_hexadecimal(std::string_view text) {
  std::vector<std::byte> bytes;
  for (std::size_t index = 0; index + 1 < text.size(); index += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(index, 2)), nullptr, 16)));
  }
  return bytes;
}

std::string to_hexadecimal(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", std::to_integer<unsigned>(byte));
    text += digits;
  }
  return text;
}

std::vector<std::byte> repeated(std::size_t count, int value) { return {count, static_cast<std::byte>(value)}; }

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Returns the libraries of this machine; says which are missing.
std::vector<std::unique_ptr<crypto>> libraries(const char* test) {
  std::vector<std::unique_ptr<crypto>> found;
  for (const auto load : {&rendezvous::libsodium::load, &rendezvous::libcrypto::load}) {
    if (auto library = load()) {
      found.push_back(std::move(library));
    } else {
      const char* const name = load == &rendezvous::libsodium::load ? "libsodium" : "libcrypto";
      std::printf("[hfcomm] skipped: %s: there is no %s\n", test, name);
    }
  }
  return found;
}

/// Returns the text of the error that `call` throws; empty where it throws none of that type.
template <class Error>
std::string problem_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& problem) {
    return problem.detail();
  }
  return {};
}

bool says(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Returns the credentials from these variables.
std::optional<rendezvous::credentials> find(const std::map<std::string, std::string>& variables,
                                            std::string_view option = {}) {
  return rendezvous::find_credentials(option, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

/// A file with a text and a mode, which is removed at the end.
class temporary_file {
 public:
  temporary_file(const std::string& text, mode_t mode) {
    ::close(::mkstemp(path_.data()));
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() { ::unlink(path_.c_str()); }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/hfcomm-secret-XXXXXX";
};

const std::string secret = "0123456789abcdef0123456789abcdef";

std::string text_of(const rendezvous::credentials& given) {
  return {reinterpret_cast<const char*>(given.secret().data()), given.secret().size()};
}

}  // namespace

TEST_CASE("crypto: HMAC-SHA-256 gives the answers of RFC 4231") {
  const struct {
    std::vector<std::byte> key, message;
    const char* answer;
  } cases[] = {
      {repeated(20, 0x0b), bytes_of("Hi There"), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {bytes_of("Jefe"), bytes_of("what do ya want for nothing?"),
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {repeated(20, 0xaa), repeated(50, 0xdd), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {from_hexadecimal("0102030405060708090a0b0c0d0e0f10111213141516171819"), repeated(50, 0xcd),
       "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {repeated(131, 0xaa), bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"),
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
  };
  for (const auto& library : libraries("crypto: HMAC-SHA-256 gives the answers of RFC 4231")) {
    for (const auto& one : cases) {
      CHECK(to_hexadecimal(library->hmac(one.key, one.message)) == one.answer);
    }
  }
}

TEST_CASE("crypto: both libraries seal alike, and open what the other sealed") {
  const auto found = libraries("crypto: both libraries seal alike, and open what the other sealed");
  bytes_32 key{};
  for (std::size_t index = 0; index < key.size(); ++index) {
    key[index] = static_cast<std::byte>(index);
  }
  for (const std::size_t length : {0U, 1U, 63U, 64U, 65U, 1000U, 100'000U}) {
    const auto plain = repeated(length, 0x5a);
    std::vector<std::vector<std::byte>> sealed;
    for (const auto& library : found) {
      sealed.emplace_back(3, std::byte{7});  // what was there stays
      sealed.back().insert(sealed.back().end(), plain.begin(), plain.end());
      library->seal(key, 0x0123456789, sealed.back(), 3);
      CHECK(sealed.back() == sealed.front());
      CHECK(sealed.back().size() == 3 + length + crypto::tag_bytes);
    }
    for (const auto& library : found) {
      CHECK(library->open(key, 0x0123456789, std::span(sealed.front()).subspan(3)) == plain);
    }
  }
}

TEST_CASE("crypto: a flipped bit, another key or another number opens nothing") {
  for (const auto& library : libraries("crypto: a flipped bit, another key or another number opens nothing")) {
    bytes_32 key{};
    std::vector<std::byte> sealed = bytes_of("the text");
    library->seal(key, 1, sealed, 0);
    CHECK(library->open(key, 1, sealed) == bytes_of("the text"));
    CHECK(!library->open(key, 2, sealed));
    CHECK(!library->open(key, 1, std::span(sealed).first(sealed.size() - 1)));
    CHECK(!library->open(key, 1, std::span(sealed).first(crypto::tag_bytes - 1)));
    for (std::size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
      auto changed = sealed;
      changed[bit / 8] ^= std::byte{1} << (bit % 8);
      CHECK(!library->open(key, 1, changed));
    }
    key[31] = std::byte{1};
    CHECK(!library->open(key, 1, sealed));
  }
}

TEST_CASE("crypto: equality looks at every byte") {
  for (const auto& library : libraries("crypto: equality looks at every byte")) {
    const bytes_32 first = rendezvous::random_bytes();
    CHECK(library->are_equal(first, first));
    for (std::size_t index = 0; index < first.size(); ++index) {
      bytes_32 second = first;
      second[index] ^= std::byte{0x10};
      CHECK(!library->are_equal(first, second));
    }
    CHECK(first != rendezvous::random_bytes());
  }
}

TEST_CASE("crypto: a library that is not there is none, and one that is something else is an engine_error") {
  ::setenv("HFCOMM_LIBSODIUM_LIBRARY", "/nowhere/libsodium.so", 1);
  CHECK(rendezvous::libsodium::load() == nullptr);
  ::setenv("HFCOMM_LIBSODIUM_LIBRARY", "libm.so.6", 1);
  CHECK(says(problem_of<hfcomm::engine_error>([] { (void)rendezvous::libsodium::load(); }), "has no function sodium"));
  ::unsetenv("HFCOMM_LIBSODIUM_LIBRARY");
}

TEST_CASE("crypto: a machine without a library is an engine_error that says what to do") {
  ::setenv("HFCOMM_LIBSODIUM_LIBRARY", "/nowhere/libsodium.so", 1);
  ::setenv("HFCOMM_LIBCRYPTO_LIBRARY", "/nowhere/libcrypto.so", 1);
  const auto problem = problem_of<hfcomm::engine_error>([] { (void)rendezvous::load_crypto(); });
  ::unsetenv("HFCOMM_LIBSODIUM_LIBRARY");
  ::unsetenv("HFCOMM_LIBCRYPTO_LIBRARY");
  CHECK(says(problem, "install libsodium"));
  CHECK(says(problem, "HFCOMM_AUTH=none"));
}

TEST_CASE("credentials: the option comes before HFCOMM_AUTH, the file and the variable") {
  const temporary_file file("the secret of the file \n\n", 0600);
  std::map<std::string, std::string> variables = {
      {"HFCOMM_AUTH", "none"}, {"HFCOMM_SECRET_FILE", file.path()}, {"HFCOMM_SECRET", secret}};
  CHECK(text_of(*find(variables, "the secret of the options")) == "the secret of the options");
  CHECK(!find(variables)->has_secret());
  variables["HFCOMM_AUTH"] = "secret";
  CHECK(text_of(*find(variables)) == "the secret of the file");
  variables.erase("HFCOMM_SECRET_FILE");
  CHECK(text_of(*find(variables)) == secret);
  variables["HFCOMM_SECRET"] = "";  // counts as not set
  CHECK(!find(variables));
  CHECK(says(problem_of<hfcomm::usage_error>([&] { find({{"HFCOMM_AUTH", "off"}}); }), "HFCOMM_AUTH=off"));
}

TEST_CASE("credentials: a job on several machines without a secret is a usage_error that says how to give one") {
  const auto problem = problem_of<hfcomm::usage_error>([] { rendezvous::require_credentials(find({})); });
  for (const char* way : {"hfrun", "HFCOMM_SECRET_FILE", "HFCOMM_SECRET ", "HFCOMM_AUTH=none"}) {
    CHECK(says(problem, way));
  }
  CHECK(!rendezvous::require_credentials(find({{"HFCOMM_AUTH", "none"}})).has_secret());
}

TEST_CASE("credentials: a short secret is refused") {
  CHECK(says(problem_of<hfcomm::usage_error>([] { find({{"HFCOMM_SECRET", "123456789012345"}}); }),
             "HFCOMM_SECRET has 15 bytes"));
  CHECK(find({{"HFCOMM_SECRET", "1234567890123456"}}));
}

TEST_CASE("credentials: a secret file that others may use is refused") {
  for (const mode_t mode : {0600U, 0400U, 0700U}) {
    const temporary_file file(secret, mode);
    CHECK(rendezvous::read_secret_file(file.path()) == secret);
  }
  for (const mode_t mode : {0640U, 0620U, 0604U, 0602U, 0601U, 0644U, 0666U}) {
    const temporary_file file(secret, mode);
    CHECK(says(problem_of<hfcomm::usage_error>([&] { rendezvous::read_secret_file(file.path()); }), "chmod 600"));
  }
}

TEST_CASE("credentials: what is no secret file is refused with the reason") {
  const auto problem = [](const std::string& path) {
    return problem_of<hfcomm::usage_error>([&] { rendezvous::read_secret_file(path); });
  };
  CHECK(says(problem("/nowhere/secret"), "No such file"));
  CHECK(says(problem("/tmp"), "no regular file"));
  CHECK(says(problem("/dev/null"), "no regular file"));
  const temporary_file long_one(std::string(5000, 'x'), 0600);
  CHECK(says(problem(long_one.path()), "more than 4096 bytes"));
  const temporary_file empty("\n", 0600);
  CHECK(says(problem_of<hfcomm::usage_error>([&] { find({{"HFCOMM_SECRET_FILE", empty.path()}}); }), "has 0 bytes"));

  const std::string pipe = "/tmp/hfcomm-secret-pipe-" + std::to_string(::getpid());
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(says(problem(pipe), "no regular file"));  // and does not wait for a writer
  ::unlink(pipe.c_str());

  if (::geteuid() != 0) {
    std::printf("[hfcomm] skipped: credentials: another user's file: only root can make one\n");
    return;
  }
  const temporary_file foreign(secret, 0600);
  REQUIRE(::chown(foreign.path().c_str(), 65534, 65534) == 0);
  CHECK(says(problem(foreign.path()), "belongs to the user with number 65534"));
}

// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/unix_socket.hpp>

namespace hfcomm::rendezvous {

/// Hands the memory of a new group from the rank that makes it to the ranks that share it.
///
/// The maker calls `offer`, tells the others so through the group that they are still in together, and calls `serve`.
/// Each of the others calls `take`. Waiting functions call `check` at intervals. It throws where waiting is in vain,
/// because a peer is lost or has announced that it failed. Failures are engine_errors without a context.
class segment_broker {
 public:
  using checker = std::function<void()>;

  segment_broker() = default;
  segment_broker(const segment_broker&) = delete;
  segment_broker& operator=(const segment_broker&) = delete;
  virtual ~segment_broker() = default;

  /// Makes a segment of `bytes`, with `room` (see shared_segment), for `takers` other ranks. `token` names the offer.
  [[gnu::cold]] virtual std::shared_ptr<shared_segment> offer(const std::string& token, std::size_t bytes,
                                                              std::size_t room, int takers) = 0;
  /// Waits until all takers have the segment.
  [[gnu::cold]] virtual void serve(const std::string& token, const checker& check) = 0;
  /// Takes back an offer that will not be served.
  virtual void withdraw(const std::string& token) noexcept = 0;
  /// Waits for the segment of an offer.
  [[gnu::cold]] virtual std::shared_ptr<shared_segment> take(const std::string& token, std::size_t bytes,
                                                             const checker& check) = 0;
};

/// A broker between processes. Sends the memfd over a Unix socket; the kernel tells both ends the other's user.
class process_broker final : public segment_broker {
 public:
  [[gnu::cold]] std::shared_ptr<shared_segment> offer(const std::string& token, std::size_t bytes, std::size_t room,
                                                      int takers) override {
    auto segment = shared_segment::create(bytes, room);
    if (takers > 0) {
      const std::scoped_lock lock(mutex_);
      offers_.insert_or_assign(token,
                               offer_record{std::make_shared<local_listener>(socket_name(token)), segment, takers});
    }
    return segment;
  }

  [[gnu::cold]] void serve(const std::string& token, const checker& check) override {
    auto record = extract(token);
    while (record.takers > 0) {
      if (auto connection = record.listener->accept(std::chrono::milliseconds(20))) {
        const std::byte hello{1};
        const int fd = record.segment->fd();
        record.takers -= connection->send({&hello, 1}, {&fd, 1}) ? 1 : 0;
      } else {
        check();
      }
    }
  }

  void withdraw(const std::string& token) noexcept override { extract(token); }

  [[gnu::cold]] std::shared_ptr<shared_segment> take(const std::string& token, std::size_t bytes,
                                                     const checker& check) override {
    while (true) {
      if (auto connection = connect_to(socket_name(token))) {
        for (;; check()) {
          if (auto answer = connection->receive(std::chrono::milliseconds(20))) {
            if (answer->fds.size() == 1) {
              return shared_segment::adopt(std::move(answer->fds.front()), bytes);
            }
            if (!answer->bytes.empty()) {
              detail::throw_error<engine_error>(
                  {"the group's memory could not be taken: this process may not open another file "
                   "(descriptors in use, limit: ulimit -n)"});
            }
            // The maker closed the connection: it is dead, which `check` will notice soon, or it gave up.
            for (int attempt = 0; attempt < 200; ++attempt) {
              check();
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            detail::throw_error<engine_error>({"the rank that made the group's memory did not hand it over"});
          }
        }
      }
      check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  struct offer_record {
    std::shared_ptr<local_listener> listener;
    std::shared_ptr<shared_segment> segment;
    int takers = 0;
  };

  [[gnu::cold]] offer_record extract(const std::string& token) {
    const std::scoped_lock lock(mutex_);
    const auto found = offers_.find(token);
    if (found == offers_.end()) {
      return {};
    }
    auto record = std::move(found->second);
    offers_.erase(found);
    return record;
  }

  std::mutex mutex_;
  std::map<std::string, offer_record> offers_;
};

/// A broker between ranks that are threads of one process: a table that they share.
class thread_broker final : public segment_broker {
 public:
  [[gnu::cold]] std::shared_ptr<shared_segment> offer(const std::string& token, std::size_t bytes, std::size_t room,
                                                      int takers) override {
    auto segment = shared_segment::anonymous(bytes, room);
    if (takers > 0) {
      const std::scoped_lock lock(mutex_);
      offers_.insert_or_assign(token, std::pair(segment, takers));
    }
    return segment;
  }

  [[gnu::cold]] void serve(const std::string& /*token*/, const checker& /*check*/) override {}

  void withdraw(const std::string& token) noexcept override {
    const std::scoped_lock lock(mutex_);
    offers_.erase(token);
  }

  [[gnu::cold]] std::shared_ptr<shared_segment> take(const std::string& token, std::size_t /*bytes*/,
                                                     const checker& check) override {
    for (;; check()) {
      const std::scoped_lock lock(mutex_);
      if (const auto found = offers_.find(token); found != offers_.end()) {
        auto segment = found->second.first;
        if (--found->second.second == 0) {
          offers_.erase(found);
        }
        return segment;
      }
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::pair<std::shared_ptr<shared_segment>, int>> offers_;
};

}  // namespace hfcomm::rendezvous

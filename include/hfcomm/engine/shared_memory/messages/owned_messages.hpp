// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/shared_memory/messages/point_to_point.hpp>

namespace hfcomm::engines {

/// The messages of a group, as what owns them sees them: a program without messages has none of their code. The
/// destructor ends them.
class owned_messages {
 public:
  owned_messages() = default;
  owned_messages(const owned_messages&) = delete;
  owned_messages& operator=(const owned_messages&) = delete;
  virtual ~owned_messages() = default;

  /// See point_to_point.
  virtual void cancel() noexcept = 0;
  virtual void abandon(const error_context& context) noexcept = 0;
};

/// Owns messages that have started. Made by a group's first message.
class started_messages final : public owned_messages {
 public:
  explicit started_messages(std::shared_ptr<const shared_memory_health> watch)
      : messages_(std::make_shared<point_to_point>(std::move(watch))) {}
  ~started_messages() override { messages_->stop(); }

  void cancel() noexcept override { messages_->cancel(); }
  void abandon(const error_context& context) noexcept override { messages_->abandon(context); }

  /// Returns the messages of an owner, which is of this kind.
  static const std::shared_ptr<point_to_point>& of(const owned_messages& owner) noexcept {
    return static_cast<const started_messages&>(owner).messages_;
  }

 private:
  std::shared_ptr<point_to_point> messages_;
};

}  // namespace hfcomm::engines

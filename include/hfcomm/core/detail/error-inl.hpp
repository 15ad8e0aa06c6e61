// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <typeinfo>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>

namespace hfcomm {

namespace detail {

[[gnu::cold]] HFCOMM_INLINE std::string describe(const std::source_location& where) {
  if (where.line() == 0) {
    return "an unknown line";
  }
  const std::string_view path = where.file_name();
  const auto slash = path.find_last_of('/');
  return concat({slash == std::string_view::npos ? path : path.substr(slash + 1), ':', where.line()});
}

[[gnu::cold]] HFCOMM_INLINE std::string describe(const error_context& context, std::string_view detail) {
  std::string text;
  if (context.rank >= 0) {
    append(text, {"rank ", context.rank, '/', context.size, ": "});
  }
  text += context.operation.empty() ? std::string("hfcomm") : context.operation;
  if (context.sequence != 0) {
    append(text, {" #", context.sequence});
  }
  if (!context.operation.empty() && context.where.line() != 0) {  // else the place is in hfcomm, or unknown
    append(text, {" at ", describe(context.where)});
  }
  text += ": ";
  text += detail;
  return text;
}

HFCOMM_INLINE std::string current_exception_text() {
  try {
    throw;
  } catch (const std::exception& problem) {
    return problem.what();
  } catch (const std::string& text) {
    return text;
  } catch (const char* text) {
    return text != nullptr ? text : "a null pointer";
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

HFCOMM_INLINE std::string current_exception_detail() {
  try {
    throw;
  } catch (const error& problem) {
    return problem.detail();
  } catch (...) {
    return current_exception_text();
  }
}

HFCOMM_INLINE void rethrow_with(const error_context& context) {
  try {
    throw;
  } catch (const usage_error& problem) {
    if (typeid(problem) == typeid(usage_error) && problem.operation().empty()) {
      throw_error<usage_error>(context, {problem.detail()});
    }
    throw;
  }
}

}  // namespace detail

HFCOMM_INLINE error::error(error_context context, std::string detail)
    : std::runtime_error(detail::describe(context, detail)), context_(std::move(context)), detail_(std::move(detail)) {}

}  // namespace hfcomm

#pragma once
// Two families of error. Error and InputError are for the user: they say what is wrong, where, and
// what would be right. A broken invariant (check) is our own mistake and says where in the code.

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace convoy {

/// Something failed that the user should hear about. `convoy` prints what() and exits with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user's input (job, flag, data file, model) is wrong. `convoy` prints what() and exits
/// with 2.
class InputError : public Error {
 public:
  using Error::Error;
};

/// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InputError with a formatted message.
template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw InputError(fmt::format(format, std::forward<Args>(args)...));
}

/// Ends with std::logic_error if an invariant of ours does not hold.
inline void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(std::string("broken invariant: ") + what);
}

}  // namespace convoy

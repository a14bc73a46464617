#pragma once
// Small helpers for messages to people.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

/// The candidate nearest to `word` by edit distance, or "" if none is near enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "a, b, c"
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

/// "1 lane", "2 lanes"
std::string plural(int64_t count, std::string_view word);

}  // namespace convoy
